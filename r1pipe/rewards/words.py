"""Words, whatever the script: what the language reward counts, and what it leaves out.

The paper's language reward is a share of words (v2 Eq. 7) and does not say what a word is. Here it is:

- in scripts that put spaces between words (Latin, Cyrillic, Greek, Arabic, Hebrew, Devanagari, Hangul, …) a run of letters with
  its marks, apostrophes and inner hyphens is one word;
- each Han character and each kana is one word of its own;
- in scripts without spaces every few letters are one word (`LETTERS_PER_WORD`), rounded up a run.

Left out, because they belong to no language: maths in dollars, `\\(…\\)`, `\\[…\\]` and LaTeX environments, LaTeX commands,
fenced and inline code, URLs, addresses, tags, numbers and what is joined to a digit, names of variables and functions (single
letters, snake_case, camelCase, dotted and called names, sin and gcd), units of measure, and acronyms in capitals of up to five
letters."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from r1pipe.data.pieces import CHARACTER_RANGES

LETTERS_PER_WORD = {"Thai": 5, "Lao": 5, "Khmer": 5, "Burmese": 7}
"""Letters, vowel signs and marks to a word. In the Declaration of Human Rights, Thai takes 5.3 of them and Burmese 7.6 where
English takes a word; Lao and Khmer are set like Thai."""
CHARACTER_SCRIPTS = frozenset(CHARACTER_RANGES)

_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "Latin": ((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2AF), (0x1E00, 0x1EFF),
              (0x2C60, 0x2C7F), (0xA722, 0xA7FF), (0xFB00, 0xFB06), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
    "Greek": ((0x370, 0x373), (0x376, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x3FF), (0x1F00, 0x1FFF)),
    "Cyrillic": ((0x400, 0x52F), (0x1C80, 0x1C8F), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "Armenian": ((0x531, 0x556), (0x55B, 0x55C), (0x55E, 0x55E), (0x561, 0x588), (0xFB13, 0xFB17)),
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
    **CHARACTER_RANGES,
}  # fmt: skip
_STARTS = sorted((low, high, script) for script, ranges in _RANGES.items() for low, high in ranges)
_LOWS = [low for low, _, _ in _STARTS]


def words_in(text: str) -> frozenset[str]:
    """The words of a table written as one text."""
    return frozenset(text.split())


def _characters(scripts: list[str]) -> str:
    return "".join(f"{chr(low)}-{chr(high)}" for script in scripts for low, high in _RANGES[script])


HAN_AND_KANA = _characters(sorted(CHARACTER_SCRIPTS))
"""For a character class of a regular expression."""
_LETTER = _characters([name for name in _RANGES if name not in CHARACTER_SCRIPTS and name not in LETTERS_PER_WORD])
_PART = f"[{_LETTER}\u0300-\u036f\u200c\u200d0-9_]"
_TOKEN = re.compile(
    r"(?P<plain>[A-Za-z][a-z]+)(?=[ ,\n])"  # most words of most texts, found fast
    rf"|(?P<token>[{_LETTER}_0-9]{_PART}*"
    rf"(?:['’ʼ\u05f3\u05f4·\u2010\u2011-]{_PART}+|(?:\.(?=[a-z_])|(?<=[0-9])[.,](?=[0-9])){_PART}+)*(?:\(\))?)"
    rf"|(?P<character>[{HAN_AND_KANA}])"
    rf"|(?P<run>[{_characters(list(LETTERS_PER_WORD))}]+)"
    r"|(?P<end>[.!?;:\n。！？；：।॥…؟؛۔።།])"
)
_JOINERS = re.compile(r"['’ʼ\u05f3\u05f4·\u2010\u2011-]")
_CAMEL = re.compile(r"[a-zß-öø-ÿ][A-Z]")
_NEUTRAL = words_in(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp sqrt gcd lcm mod max min lim det dim deg"
    " sgn arg inf sup dx dy dz dt du dv ds dr mm cm dm km mg kg ml cl kj hz khz mhz kw kwh mph kmh"
)
_FENCES = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]{1,300}`")
_DOLLARS = re.compile(r"\$\$.*?\$\$|(?<!\\)\$(?![\s$])(?:[^$\\\n]|\\.){0,400}?(?<!\s)\$(?![0-9])", re.DOTALL)
_LATEX = re.compile(
    r"\\\[.*?\\\]|\\\(.*?\\\)"
    r"|\\begin\{([A-Za-z]{1,30}\*?)\}.*?\\end\{\1\}|\\(?:begin|end)\{[^{}\n]{0,40}\}|\\[A-Za-z]+\*?",
    re.DOTALL,
)
_PROSE = re.compile(
    rf"(?:(?<![\\{_LETTER}])[{_LETTER}]{{2,}}[ ,]+(?:[{_LETTER}][ ,]+)?){{2}}[{_LETTER}]{{2}}"
    rf"|[{_characters(['Han', 'Kana'])}]{{2}}"
)
_ADDRESSES = re.compile(r"(?:https?|ftp)://[^\s<>]+|\bwww\.[^\s<>]+|[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}")
_TAGS = re.compile(r"</?[A-Za-z|!][^<>\n]{0,100}>")


class Word(NamedTuple):
    """A counted word, or a run of letters of a script without spaces.

    Attributes:
        text: as written.
        script: one of the names of the script table, e.g. "Latin", "Han".
        units: how many words it counts for.
        sentence: the number of the sentence it stands in, from 0.
    """

    text: str
    script: str
    units: int
    sentence: int


def remove_non_words(text: str) -> str:
    """The text without code, maths, LaTeX, addresses and tags; a space stands for each."""
    if "```" in text or "~~~" in text:
        text = _FENCES.sub("\n", text)
    if "`" in text:
        text = _INLINE_CODE.sub(" ", text)
    if "\\" in text:
        text = _LATEX.sub(" ", text)
    if "$" in text:
        text = _DOLLARS.sub(lambda match: match[0] if _PROSE.search(match[0]) else " ", text)
    if "://" in text or "www." in text or "@" in text:
        text = _ADDRESSES.sub(" ", text)
    if "<" in text:
        text = _TAGS.sub(" ", text)
    return text


@lru_cache(maxsize=65536)
def script_of(character: str) -> str:
    """The script of a letter by its name in the table; empty for anything else."""
    point = ord(character)
    low, high, script = _STARTS[max(0, bisect_right(_LOWS, point) - 1)]
    return script if low <= point <= high else ""


def split_words(text: str) -> list[Word]:
    """The words of a text, in order. Never raises."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    words: list[Word] = []
    sentence = 0
    for match in _TOKEN.finditer(remove_non_words(text)):
        kind, run = match.lastgroup, match[0]
        if kind == "plain":
            if run not in _NEUTRAL:
                words.append(Word(run, "Latin", 1, sentence))
        elif kind == "token":
            if _is_word(run):
                words.append(Word(run, script_of(run[0]) or script_of(run[-1]) or "Latin", 1, sentence))
        elif kind == "character":
            words.append(Word(run, script_of(run), 1, sentence))
        elif kind == "run":
            script = script_of(run[0])
            words.append(Word(run, script, -(-len(run) // LETTERS_PER_WORD[script]), sentence))
        else:
            sentence += 1
    return words


@lru_cache(maxsize=65536)
def _is_word(token: str) -> bool:
    """Whether a token of a script with spaces is a word of a language, rather than a number, a name of code or an acronym."""
    if token.isalpha() and token.islower():
        return len(token) > 1 and token not in _NEUTRAL
    if "_" in token or "." in token or "(" in token or "," in token:
        return False
    parts = [part for part in _JOINERS.split(token) if part.isalpha() or not any(sign.isdigit() for sign in part)]
    return any(
        len(part) > 1 and part.lower() not in _NEUTRAL and not (part.isupper() and len(part) <= 5) and not _CAMEL.search(part)
        for part in parts
    )
