"""Multiple choice: the letters chosen, or the text of an option, against the letters of the gold answer.

Letters are compared as sets, so "ACD" is not answered by "A", and an answer that names every option is wrong. The text of an
option counts only when it is equal to exactly one option (as text, or as maths); containing it is not enough. Golds that are
no letters ("Yes", "valid", "> ]") are compared as exact structures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from r1pipe.data.chat import answer_block
from r1pipe.rewards.base import Score
from r1pipe.rewards.extract import final_answer, last_box
from r1pipe.rewards.maths.clean import clean, plain
from r1pipe.rewards.maths.judge import pair, short
from r1pipe.rewards.structure import canonical, same_structure

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_OPTIONS = len(LETTERS)
_GOLD = re.compile(r"[\s(\[]*[A-Z](?:[\s)\],、;/&]*(?:and|和)?[\s(\[]*[A-Z])*[\s)\].,:]*")
_WORDS = r"(?:options?|choices?|answers?|letters?|正确的?|选项|答案|选择|选|故|应|为|是|the|is|are|correct|final|项)"
_LIST = re.compile(
    rf"(?:{_WORDS}|[\s:：*_(（\[【\"'`$\\])*"  # lead-in
    r"(?P<letters>[A-Z](?:(?:[\s)）\]】、,;/&*]|and|or|和|与|及)*(?:[(（\[【]\s*)?[A-Z](?![a-z]))*)"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_AFTER_LETTER = re.compile(
    r"\s*[)）\]】*_$\"'`}.]*\s*(?:$|[.:：、,，)）—–-]|(?:is\b|are\b|option\b|because\b|since\b|as\b|两项|三项|项|正确|选项|\()|$)"
)
_STANDALONE = re.compile(
    r"(?:[Oo]ption|[Cc]hoice|[Aa]nswer|(?<![不未])选项?|故选|应选|答案)\s*(?:is|是|为)?\s*[:：]?\s*[*(（\[]*([A-Z](?:[\s、,和与及]*[A-Z](?![A-Za-z]))*)(?![A-Za-z])|[(（]([A-Z])[)）]|\*\*\s*\(?([A-Z])\)?[.:]?\s*\*\*"
)
_CLAUSE = re.compile(r"\b(?:because|since|as|for|so|but)\b|[,，.;。；]|因为|所以|故")
_DENIED = re.compile(
    r"\b(?:not|isn't|incorrect|wrong|false|never|neither|nor|eliminated?|excluded?|ruled out|rule out|rejected?|cannot|can't"
    r"|doesn't|fails?|except|unless|anything but)\b|不|错|排除",
    re.IGNORECASE,
)
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox|boxed|rm|bf)\s*\{([^{}]*)\}")
_MATHS = re.compile(r"[\\$^_=+<>≤≥×÷/*-]|\d\s*[a-z]\b")
MAX_TEXT_CHARS = 2000
_INLINE_OPTION = re.compile(r"^\s*\(?([A-Z])[).:、]\s*(.+)$", re.MULTILINE)


def letters_of_gold(gold: str) -> frozenset[str]:
    """The letters of a gold answer ("B", "(C)", "ACD", "B C D", "（B）"); empty when it is no list of letters."""
    text = unicodedata.normalize("NFKC", gold).strip()
    text = _LATEX_TEXT.sub(r"\1", text).strip("$ ")
    return frozenset(re.findall(r"[A-Z]", re.sub(r"and|和", "", text))) if _GOLD.fullmatch(text) else frozenset()


def options_in(question: str) -> dict[str, str]:
    """Options that stand in the question itself, one a line: "(A) red"."""
    found = {letter: text.strip() for letter, text in _INLINE_OPTION.findall(question)}
    expected = list(LETTERS[: len(found)])
    return found if len(found) > 1 and sorted(found) == expected else {}


def judge(gold: str, summary: str, options: Sequence[str] | Mapping[str, str] = (), question: str = "") -> Score:
    """1.0 when the chosen options are those of the gold answer, 0.0 otherwise, None when there is no usable gold answer."""
    if not gold.strip():
        return Score(None, "the gold answer is empty")
    texts = dict(options) if isinstance(options, Mapping) else dict(zip(LETTERS, options, strict=False))
    texts = {str(letter).upper(): str(text) for letter, text in texts.items()} or options_in(question)
    wanted = letters_of_gold(gold)
    if texts and not wanted:  # a gold answer given as the text of an option
        wanted = frozenset(letter for letter, text in texts.items() if canonical(text).casefold() == canonical(gold).casefold())
    if not wanted and options:
        wanted = choose(gold, texts)
        if not wanted:
            return Score(None, f"the gold answer {short(gold)!r} is neither a letter nor the text of an option")
    if not wanted:
        return _text(gold, summary)
    if texts and not wanted <= texts.keys():
        return Score(None, f"the gold answer {short(gold)!r} names no option; there are {len(texts)}")
    found = final_answer(summary)
    said = found.text if found.rule in ("tag", "box", "hash", "phrase", "line") else ""
    chosen = choose(said, texts) if said.strip() else frozenset()
    if not chosen and found.rule not in ("tag", "box"):
        chosen = _same_text(summary.strip(), texts)
    if not chosen and found.rule not in ("tag", "box"):
        chosen = _in_prose(summary, texts)
    if not chosen:
        return Score(0.0, f"no option found in {short(said or summary)!r}" if (said or summary).strip() else "empty answer")
    return Score(float(chosen == wanted), f"chose {''.join(sorted(chosen))}, wanted {''.join(sorted(wanted))}")


def choose(said: str, texts: Mapping[str, str]) -> frozenset[str]:
    """The options that an answer names, by letter or by text; empty when it names none, or is not clear."""
    bare = _bare(said)
    return _same_text(said, texts) or _letters(bare, texts) or _by_text(said, bare, texts)


def _bare(said: str) -> str:
    text = unicodedata.normalize("NFKC", said[:MAX_TEXT_CHARS])
    for _ in range(3):
        text = _LATEX_TEXT.sub(r"\1", text)
    return re.sub(r"\\[()\[\],;! ]|\\quad|\$", " ", text).strip(" \t\n.。*")


def _letters(bare: str, texts: Mapping[str, str]) -> frozenset[str]:
    """Letters at the beginning, when nothing but the text of that option follows."""
    match = _LIST.fullmatch(bare)
    if match is None:
        lower = re.fullmatch(r"[(\[\s]*([a-k])(?:[)\]\s.]*|[)\].]+\s+(.+))", bare)  # a lone small letter, or with its text
        letter = lower.group(1).upper() if lower else ""
        if lower and lower.group(2) and not _is_text_of(lower.group(2), [letter], texts):
            return frozenset()
        return frozenset(letter) if lower and (not texts or letter in texts) else frozenset()
    run = match.group("letters")
    letters = re.findall(r"[A-Z]", re.sub(r"and|or", "", run))
    rest = match.group("rest")
    if _DENIED.search(bare) or (len(letters) > 1 and re.search(r"\bor\b|或", run)):
        return frozenset()
    if len(letters) > len(set(letters)) or (rest and not _AFTER_LETTER.match(rest)):
        return frozenset()
    if texts and not set(letters) <= texts.keys():
        return frozenset()
    if len(letters) == 1 and _is_text_of_another(rest, letters[0], texts):
        return frozenset()  # "A. blue", and blue is B: not clear which is meant
    others = re.findall(r"(?<![A-Za-z])[(（]([A-Z])[)）]|(?<![A-Za-z])([B-Z])(?![A-Za-z'])", rest)
    named = {one or two for one, two in others} & (texts.keys() or set(LETTERS[:8]))
    if named - set(letters) and not _is_text_of(rest, letters, texts):
        return frozenset()  # "A because B fails": not clear which is meant
    return frozenset(letters)


def _is_text_of(rest: str, letters: Sequence[str], texts: Mapping[str, str]) -> bool:
    """Whether what follows a letter is the text of that option."""
    follows = _squeezed(rest.lstrip(" )）].:：、,，*-"))
    return len(letters) == 1 and letters[0] in texts and follows == _squeezed(texts[letters[0]])


def _is_text_of_another(rest: str, letter: str, texts: Mapping[str, str]) -> bool:
    """Whether what follows a letter is the text of other options only."""
    follows = _squeezed(rest)
    same = {other for other, text in texts.items() if follows and _squeezed(text) == follows}
    return bool(same) and letter not in same


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text)).casefold()


@lru_cache(maxsize=2048)
def _spelling(text: str) -> str:
    """A text as maths and words spell it, case kept: 1 + d/R and 1 - d/R stay apart, so do G and g."""
    return re.sub(r"[\s{}\ue000-\ue004]+", "", clean(text)).rstrip(".,;:。")


def _same_text(said: str, texts: Mapping[str, str]) -> frozenset[str]:
    """The one option that says exactly this; a bare letter is left to be a letter."""
    spelt = _spelling(said) if len(said) <= MAX_TEXT_CHARS else ""
    if len(spelt) < 2:
        return frozenset()
    same = [letter for letter, text in texts.items() if _spelling(text) == spelt]
    return frozenset(same) if len(same) == 1 else frozenset()


def _formula(text: str) -> bool:
    """Whether a text may be read as maths: a number or a formula with few words."""
    return (
        len(text) <= 300 and bool(_MATHS.search(text) or re.search(r"\d", text)) and len(re.findall(r"[^\W\d_]{4,}", text)) <= 6
    )


def _by_text(said: str, bare: str, texts: Mapping[str, str]) -> frozenset[str]:
    """The one option that means the same: as maths, or as prose whatever its case and punctuation."""
    if not texts or len(said) > MAX_TEXT_CHARS or not (_squeezed(bare) or plain(clean(said))):
        return frozenset()
    same = (
        [letter for letter, text in texts.items() if _formula(text) and pair(text, said).verdict == "right"]
        if _formula(said)
        else []
    )
    if not same and not _MATHS.search(said):
        same = [letter for letter, text in texts.items() if not _MATHS.search(text) and _squeezed(text) == _squeezed(bare)]
    return frozenset(same) if len(same) == 1 else frozenset()


def _in_prose(summary: str, texts: Mapping[str, str]) -> frozenset[str]:
    """The option that the last lines name: (B), **B**, option B, 选B; not a bare capital, which may be a word."""
    tail = unicodedata.normalize("NFKC", summary[-1500:])
    for line in reversed([line for line in tail.splitlines() if line.strip()][-3:]):
        chosen = _letters(_bare(line), texts) if len(line) < 40 else frozenset()
        if chosen:
            return chosen
        matches = list(_STANDALONE.finditer(line))
        if matches:
            letters = _last_named(line, matches, texts)
            return letters if not texts or letters <= texts.keys() else frozenset()
    return frozenset()


def _last_named(line: str, matches: Sequence[re.Match[str]], texts: Mapping[str, str]) -> frozenset[str]:
    """The letters that a line names last, with those that "and" joins to them; none when "or" does, or when they are denied."""
    found = [frozenset(re.findall(r"[A-Z]", next(group for group in match.groups() if group))) for match in matches]
    letters = found[-1]
    for index in range(len(matches) - 1, 0, -1):
        between = line[matches[index - 1].end() : matches[index].start()]
        if re.fullmatch(r"[\s)）*]*(?:or|或|/)[\s(（*]*", between):
            return frozenset()
        if not re.fullmatch(r"[\s)）*]*(?:,|、|and|&|和|与|及)[\s(（*]*", between):
            break
        letters |= found[index - 1]
    before = _CLAUSE.split(line[: matches[-1].start()])[-1]
    after = line[matches[-1].end() :]
    if re.match(r"\s*(?:or\b|或|/)", after) or any(_is_text_of_another(after, letter, texts) for letter in letters):
        return frozenset()
    return frozenset() if _DENIED.search(f"{before} {_CLAUSE.split(after)[0]}") else letters


def _text(gold: str, summary: str) -> Score:
    """A gold answer that is no letter: equal as a structure, as words, or as a number."""
    whole = summary.strip()
    if not whole:
        return Score(0.0, "empty answer")
    candidates = [text for text in _texts(whole, symbols=not re.search(r"\w", gold)) if text.strip()]
    if not candidates:
        return Score(0.0, "empty answer")
    said = f"answered {short(candidates[0])}, wanted {short(gold)}"
    for candidate in candidates:
        if same_structure(gold, candidate) or pair(gold, candidate).verdict == "right":
            return Score(1.0, said)
    return Score(0.0, said)


def _texts(whole: str, symbols: bool) -> list[str]:
    """Where a text answer may stand: in the last tags, else in the last box, else the whole, what is announced, or the last
    line.
    """
    block = answer_block(whole)
    if block is not None:
        whole = block.strip()
    start = whole.rfind("boxed{")
    if start >= 0:
        line = whole[start + len("boxed{") :].split("\n")[0]
        if symbols:  # brackets to close defeat any matching of braces: up to the last one
            return [line[: line.rfind("}")] if "}" in line else line]
        box = last_box(whole)
        if box is not None:
            return [box]
    last = whole.rpartition("\n")[2]
    announced = re.split(r"\bis\b|:|：|是|为", last)[-1].strip(" *$`") if symbols else final_answer(whole).text
    return [whole, announced.rstrip(".。") if symbols else announced, last]


def judge_problem(gold: str, summary: str, check: Mapping[str, Any], question: str) -> Score:
    """The same for a problem: `check["options"]` is a list of texts, or letter -> text."""
    options = check.get("options") or ()
    return judge(
        gold, summary, options if isinstance(options, (Mapping, Sequence)) and not isinstance(options, str) else (), question
    )
