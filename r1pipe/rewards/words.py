"""Words, whatever the script: what the language reward counts, and what it leaves out.

The paper's language reward is a share of words (v2 Eq. 7) and does not say what a word is. Here it is:

- in scripts that put spaces between words (Latin, Cyrillic, Greek, Arabic, Hebrew, Devanagari, Hangul, …) a run of letters, with
  its marks, apostrophes and inner hyphens, is one word;
- each Han character and each kana is one word of its own;
- in scripts without spaces (Thai, Lao, Khmer, Burmese, Tibetan) every `LETTERS_PER_WORD` letters are one word, rounded up per run.

Left out, because they belong to no language: maths in dollars, `\\(…\\)`, `\\[…\\]` and LaTeX environments, LaTeX commands, fenced
and inline code, URLs, addresses, tags, numbers and everything joined to a digit, names of variables (single letters, snake_case,
camelCase, dotted and called names), and acronyms in capitals of up to five letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LETTERS_PER_WORD = 4
"""Letters to a word in scripts without spaces; Thai prose has about 4.1 consonants and vowels to a dictionary word."""

_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2AF), (0x1E00, 0x1EFF),
              (0x2C60, 0x2C7F), (0xA722, 0xA7FF), (0xFB00, 0xFB06), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
    "Greek": ((0x370, 0x373), (0x376, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x3FF), (0x1F00, 0x1FFF)),
    "Cyrillic": ((0x400, 0x52F), (0x1C80, 0x1C8F), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "Armenian": ((0x531, 0x556), (0x561, 0x588), (0xFB13, 0xFB17)),
    "Hebrew": ((0x591, 0x5BD), (0x5C1, 0x5C2), (0x5D0, 0x5F2), (0xFB1D, 0xFB4F)),
    "Arabic": ((0x610, 0x61A), (0x620, 0x65F), (0x66E, 0x6D3), (0x6D5, 0x6ED), (0x6FA, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8FF),
               (0xFB50, 0xFDFF), (0xFE70, 0xFEFC)),
    "Devanagari": ((0x900, 0x963), (0x971, 0x97F), (0xA8E0, 0xA8FF)),
    "Bengali": ((0x980, 0x9E3), (0x9F0, 0x9F1), (0x9FC, 0x9FE)),
    "Gurmukhi": ((0xA01, 0xA5E), (0xA70, 0xA75)),
    "Gujarati": ((0xA81, 0xAE3), (0xAF9, 0xAFF)),
    "Oriya": ((0xB01, 0xB63), (0xB71, 0xB71)),
    "Tamil": ((0xB82, 0xBD7),),
    "Telugu": ((0xC00, 0xC63),),
    "Kannada": ((0xC80, 0xCE3), (0xCF1, 0xCF3)),
    "Malayalam": ((0xD00, 0xD63), (0xD7A, 0xD7F)),
    "Sinhala": ((0xD81, 0xDDF), (0xDF2, 0xDF3)),
    "Thai": ((0xE01, 0xE3A), (0xE40, 0xE4E)),
    "Lao": ((0xE81, 0xECD), (0xEDC, 0xEDF)),
    "Tibetan": ((0xF40, 0xFBC),),
    "Burmese": ((0x1000, 0x103F), (0x1050, 0x108F), (0x109A, 0x109F), (0xA9E0, 0xA9EF), (0xAA60, 0xAA7F)),
    "Georgian": ((0x10A0, 0x10FF), (0x1C90, 0x1CBF), (0x2D00, 0x2D2F)),
    "Hangul": ((0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97F), (0xAC00, 0xD7FB)),
    "Ethiopic": ((0x1200, 0x135F), (0x1380, 0x139F), (0x2D80, 0x2DDF)),
    "Khmer": ((0x1780, 0x17D3), (0x17DC, 0x17DD)),
    "Kana": ((0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
    "Han": ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)),
}
CHARACTER_SCRIPTS = frozenset({"Han", "Kana"})
UNSPACED_SCRIPTS = frozenset({"Thai", "Lao", "Khmer", "Burmese", "Tibetan"})


def _characters(script: str) -> str:
    return "".join(chr(low) if low == high else f"{chr(low)}-{chr(high)}" for low, high in _RANGES[script])


_MARKS = "\u0300-\u036f\u200c\u200d"
_SPACED = [script for script in _RANGES if script not in CHARACTER_SCRIPTS and script not in UNSPACED_SCRIPTS]
_RUN = re.compile(
    "|".join(
        [f"(?P<{script}>[{_characters(script)}])" for script in CHARACTER_SCRIPTS]
        + [f"(?P<{script}>[{_characters(script)}{_MARKS}]+)" for script in UNSPACED_SCRIPTS]
        + [
            f"(?P<{script}>[{_characters(script)}][{_characters(script)}{_MARKS}]*"
            f"(?:['’ʼ\u05f3\u05f4·-][{_characters(script)}{_MARKS}]+)*)"
            for script in _SPACED
        ]
    )
)
_LEFT_OUT = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)"  # fenced code
    r"|`[^`\n]{1,300}`"  # inline code
    r"|\$\$.*?\$\$|\\\[.*?\\\]|\\\(.*?\\\)"  # maths
    r"|\\begin\{(?P<environment>[A-Za-z*]{1,30})\}.*?\\end\{(?P=environment)\}"
    r"|(?<![\\$])\$(?![\s$])(?:[^$\\\n]|\\.){0,400}?(?<![\s])\$(?!\d)"
    r"|\\(?:begin|end)\{[^{}\n]{0,40}\}|\\[A-Za-z]+\*?"  # stray LaTeX
    r"|(?:https?|ftp)://[^\s<>]+|www\.[^\s<>]+|[\w.+-]+@[\w-]+\.[\w.-]+"  # addresses
    r"|</?[A-Za-z|][^<>\n]{0,100}>"  # tags
    r"|[A-Za-z_]\w*(?:(?:\.\w+)+|_\w*)(?:\(\))?|[A-Za-z]\w*\(\)|_+[A-Za-z]\w*"  # dotted, snake_case and called names
    r"|[A-Za-z]*\d[A-Za-z0-9]*"  # numbers and what is joined to them
    r"|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b",  # camelCase
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A counted word (or a run of an unspaced script).

    Attributes:
        text: as written.
        script: one of the names of the script table, e.g. "Latin", "Han".
        count: how many words it counts for (more than 1 only for runs of unspaced scripts).
        start: where it begins in the text.
    """

    text: str
    script: str
    count: int
    start: int


def blank_non_words(text: str) -> str:
    """The text with everything that belongs to no language replaced by spaces, so that places stay the same."""
    return _LEFT_OUT.sub(lambda match: " " * len(match[0]), text)


def split_words(text: str) -> list[Word]:
    """The words of a text in order, after `blank_non_words`; single letters and short acronyms are left out. Never raises."""
    words: list[Word] = []
    for match in _RUN.finditer(blank_non_words(text)):
        script, run = match.lastgroup or "", match[0]
        if script in CHARACTER_SCRIPTS:
            words.append(Word(run, script, 1, match.start()))
        elif script in UNSPACED_SCRIPTS:
            words.append(Word(run, script, -(-len(run) // LETTERS_PER_WORD), match.start()))
        elif len(run) > 1 and not (len(run) <= 5 and run.isupper() and run.isalpha()):
            words.append(Word(run, script, 1, match.start()))
    return words
