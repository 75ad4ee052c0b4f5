"""Is the final answer of a summary the gold answer? Cheap exact paths first; what they leave open goes to SymPy in a worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from r1pipe.rewards.extract import box_run, final_answer, final_words, last_box
from r1pipe.rewards.maths.answer import MAX_ANSWER_CHARS, modulus, read, tidy
from r1pipe.rewards.maths.clean import GAP, clean, plain
from r1pipe.rewards.maths.compare import LENIENT, Rules, compare
from r1pipe.rewards.maths.equal import DIGITS, number
from r1pipe.rewards.maths.evaluate import Evaluation, TooLarge, Undefined, fresh_budget
from r1pipe.rewards.maths.readings import Group, Quantity, Reading, Relation, Words
from r1pipe.rewards.maths.split import split_list
from r1pipe.rewards.maths.tree import names_in

CACHED_CHARS = 600
"""Only pairs of texts up to this length are remembered, so that the cache stays small whatever comes in."""
MAX_WORDS = 8
"""A gold answer of more words than this is prose: only the same prose can be called right."""

_PLAIN_NUMBER = re.compile(r"[-+]?\d{1,400}(?:\.\d{1,400})?")
_ADVANCED = re.compile(
    r"\\(?:int|iint|oint|sum|prod|lim|partial|nabla|frac\{d\}|frac\{\\mathrm\{d\}\}|limsup|liminf|cases|begin\{cases\})(?![a-zA-Z])|[A-Za-z]'+\s*\("
)
_TEXTUAL = re.compile(r"[\w\s.,:;'\"()\-/&!?%°∞∅\ue000\ue001]*")
_LEAD = re.compile(
    r"\s*(?:the\s+)?(?:final\s+|correct\s+)?(?:solution|answer|result)s?\s*(?:is|are)?\s*:?\s+|\s*(?:答案|解|答)\s*[:：是为]+\s*",
    re.IGNORECASE,
)
_VERDICT_WORD = re.compile(r"\s*(yes|no|true|false|valid|invalid|是|否)\b\s*[.,;:!]", re.IGNORECASE)
_OPPOSITES = (frozenset({"yes", "true", "valid", "是"}), frozenset({"no", "false", "invalid", "否"}))
_TURNED = re.compile(r"\b(?:not|no|isn't|wrong|incorrect|false|wait|actually|rather)\b|n't\b|不|错|非", re.IGNORECASE)
_OPTION = re.compile(r"^(?:the\s+)?(?:option|choice|选项)\s*", re.IGNORECASE)
_OTHER_LETTERS = re.compile(r"[(（\[]\s*[A-K]\s*[)）\]]|(?:^|[\s.,;:/])[A-K]\s*[.):,;]|^[\s.,;:/]*[A-K]\s*$")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+?)\$", re.DOTALL)
_LETTER = re.compile(r"[\s(（【\[*]*([A-Ka-k])\s*(?:[)）】\]*]|[.:、,：．]|$)")


@dataclass(frozen=True, slots=True)
class Decision:
    """What the cheap paths say.

    Attributes:
        verdict: "right", "wrong", "unjudged", or "open" when only SymPy can tell.
        note: why, in a few words.
        answer: the final answer found, for "open".
    """

    verdict: str
    note: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer, prepared.

    Attributes:
        text: the answer itself, without a sentence around it.
        readings: its readings as maths or words.
        kind: "maths"; "letter" (an option); "words" (short text); "prose" (only the same text can match); "unknown" (maths that
            the parser does not know); "advanced" (integrals, sums and limits: SymPy must decide); "empty".
        spellings: the answer, and the sentence around it, without what only concerns their looks.
    """

    text: str
    readings: tuple[Reading, ...]
    kind: str
    spellings: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def _prepared(gold: str, language: str) -> Gold:
    return prepare(gold, language)


def prepare(gold: str, language: str = "en") -> Gold:
    """Take a gold answer out of the sentence or box that it may stand in, and read it."""
    box = last_box(gold)
    text = gold.strip() if box is None else box
    kind, readings = _kind(text, language)
    if kind in ("prose", "unknown", "advanced") or (kind == "words" and (re.search(r"\d", text) or _VERDICT_WORD.match(text))):
        for shorter in _shorter(text):
            inner_kind, inner = _kind(shorter, language)
            if inner_kind in ("maths", "letter") or (inner_kind == "words" and kind != "words"):
                return Gold(shorter, tuple(inner), inner_kind, frozenset({_spelling(shorter), _spelling(gold)}))
    return Gold(text, tuple(readings), kind, frozenset({_spelling(text), _spelling(gold)}))


def _spelling(text: str) -> str:
    return _compact(tidy(clean(text))) if len(text) <= 2 * MAX_ANSWER_CHARS else text.strip()


def _kind(text: str, language: str) -> tuple[str, list[Reading]]:
    cleaned = tidy(clean(text)) if len(text) <= MAX_ANSWER_CHARS else text[:MAX_ANSWER_CHARS]
    if not cleaned:
        return ("empty", []) if not plain(cleaned) else ("words", [])
    if re.fullmatch(r"[A-K]", plain(cleaned).upper()) and _LETTER.match(cleaned.strip("\ue000\ue001 ")):
        return "letter", read(text, language)
    readings = read(text, language)
    if any(not _has_words(reading) for reading in readings):
        return "maths", [reading for reading in readings if not _has_words(reading)]
    if _ADVANCED.search(cleaned):
        return "advanced", readings
    if not _TEXTUAL.fullmatch(cleaned):
        mixed: list[Reading] = [reading for reading in readings if isinstance(reading, Group | Relation)]
        return ("maths", mixed) if mixed and all(_textual(reading) for reading in mixed) else ("unknown", readings)
    return ("words" if len(cleaned.split()) <= MAX_WORDS else "prose"), readings


def _has_words(reading: Reading) -> bool:
    if isinstance(reading, Words):
        return True
    parts = reading.items if isinstance(reading, Group) else reading.sides if isinstance(reading, Relation) else ()
    return any(_has_words(part) for part in parts)


def _textual(reading: Reading) -> bool:
    """Whether the words in a reading are plain text ("I, II, III"), so that comparing them as text is sound."""
    if isinstance(reading, Words):
        return bool(_TEXTUAL.fullmatch(reading.text))
    parts = reading.items if isinstance(reading, Group) else reading.sides if isinstance(reading, Relation) else ()
    return all(_textual(part) for part in parts)


def _shorter(text: str) -> Iterator[str]:
    """What a gold sentence says in short: without its lead-in; Yes or No; its only formula; what it announces."""
    led = _LEAD.match(text)
    if led and led.end() > 0:
        yield text[led.end() :]
    word = _VERDICT_WORD.match(text)
    if word:
        yield word.group(1)
        return
    formulas = [one or two for one, two in _FORMULA.findall(text)]
    if len(formulas) == 1 and len(re.findall(r"[^\W\d_]{2,}|[\u4e00-\u9fff]", _FORMULA.sub(" ", text))) <= MAX_WORDS:
        yield formulas[0]
    found = final_answer(text)
    if found.rule == "phrase":
        yield found.text


def decide(gold: str, summary: str, language: str = "en", rules: Rules = LENIENT) -> Decision:
    """Judge a summary against a gold answer by the cheap paths; never raises for what a model wrote."""
    found = final_answer(summary)
    if not found.text.strip():
        if not gold.strip():
            return Decision("unjudged", "the gold answer is empty")
        return Decision("wrong", "no answer found" if found.rule == "none" else f"empty answer ({found.rule})")
    decision = pair(gold, found.text, language, rules)
    if (
        decision.verdict == "wrong"
        and found.rule not in ("tag", "box", "hash")
        and _prepared(gold[:CACHED_CHARS], language).kind == "words"
    ):
        words = final_words(summary)
        if words and pair(gold, words, language, rules).verdict == "right":
            return Decision("right", f"answered {short(words)}, wanted {short(gold)}")
    if decision.verdict == "wrong" and found.rule == "box" and _several(gold, language):
        run = box_run(summary)
        if run:
            again = pair(gold, run, language, rules)
            if again.verdict == "right":
                return again
    return decision


def _several(gold: str, language: str) -> bool:
    return any(isinstance(reading, Group) for reading in _prepared(gold, language).readings)


def pair(gold: str, answer: str, language: str = "en", rules: Rules = LENIENT) -> Decision:
    """Judge an answer, already found, against a gold answer."""
    if len(gold) + len(answer) <= CACHED_CHARS:
        return _remembered(gold, answer, language, rules)
    return _pair(gold, answer, language, rules)


def _pair(gold: str, answer: str, language: str, rules: Rules) -> Decision:
    said = f"answered {short(answer)}, wanted {short(gold)}"
    if _PLAIN_NUMBER.fullmatch(gold) and _PLAIN_NUMBER.fullmatch(answer):
        if Fraction(gold) == Fraction(answer):
            return Decision("right", said)
        if "." not in gold and "." not in answer:
            return Decision("wrong", said)
    wanted = _prepared(gold, language) if len(gold) <= CACHED_CHARS else prepare(gold, language)
    if wanted.kind == "empty":
        return Decision("unjudged", "the gold answer is empty")
    cleaned = tidy(clean(answer[: 2 * MAX_ANSWER_CHARS]))
    if not _says_something(cleaned):
        return Decision("wrong", "empty answer")
    if (_compact(cleaned) if len(answer) <= 2 * MAX_ANSWER_CHARS else answer.strip()) in wanted.spellings:
        return Decision("right", said)
    if len(answer) > MAX_ANSWER_CHARS:
        return Decision("wrong", f"answer of {len(answer)} characters; read up to {MAX_ANSWER_CHARS}")
    if (wanted.kind in ("words", "letter") or re.fullmatch(r"[a-z]{3,}|no", plain(clean(wanted.text)))) and _same_words(
        wanted, cleaned
    ):
        return Decision("right", said)
    if wanted.kind == "prose":
        return Decision("unjudged", "the gold answer is prose; only the same words could be called right")
    return _typed(wanted, answer, cleaned, language, rules, said)


_remembered = lru_cache(maxsize=32768)(_pair)


def _typed(wanted: Gold, answer: str, cleaned: str, language: str, rules: Rules, said: str) -> Decision:
    moduli = {modulus(cleaned), modulus(clean(wanted.text))} - {""}
    if len(moduli) > 1:
        return Decision("wrong", said)
    fresh_budget()
    readings = read(answer, language)
    unknown = False
    problem = ""
    for gold_reading in wanted.readings:
        for reading in readings:
            try:
                verdict = compare(gold_reading, reading, rules)
            except (TooLarge, Undefined) as error:
                problem = str(error)
                continue
            if verdict:
                return Decision("right", said)
            unknown = unknown or verdict is None
    fresh_budget()
    if problem and not all(_has_value(reading) for reading in wanted.readings):
        return Decision("unjudged", f"the gold answer has no value within the limits ({problem})")
    if wanted.kind == "unknown":
        return Decision("unjudged", f"the gold answer cannot be parsed: {short(wanted.text)}")
    if moduli and _congruent(wanted.readings, readings, cleaned, moduli.pop()):
        return Decision("right", said)
    if wanted.kind == "advanced" or (wanted.kind == "maths" and (unknown or _ADVANCED.search(cleaned))):
        return Decision("open", said, answer)
    return Decision("wrong", f"{said} ({problem})" if problem else said)


def _congruent(wanted: tuple[Reading, ...], readings: list[Reading], cleaned: str, of: str) -> bool:
    """Whether both sides name whole numbers that leave the same rest: 3 and 10 (mod 7); the answer must name the modulus."""
    if modulus(cleaned) != of or not of.isdigit() or len(of) > 40 or int(of) == 0:
        return False
    pairs = [(names_of(one), names_of(two)) for one in wanted for two in readings]
    return any(a[0] == b[0] and None not in (a[1], b[1]) and (a[1] - b[1]) % int(of) == 0 for a, b in pairs)


def names_of(reading: Reading) -> tuple[str, Any]:
    """(name, whole number) of x ≡ 3 or of a bare number; the number is None for anything else."""
    name = ""
    if isinstance(reading, Relation):
        name, reading = reading.labels[0], reading.sides[-1]
    found = number(reading.node) if isinstance(reading, Quantity) and reading.unit is None else None
    return name, found if isinstance(found, (int, Fraction)) and found == int(found) else None


def _has_value(reading: Reading) -> bool:
    """Whether a gold reading can be worked out within the limits."""
    if isinstance(reading, Quantity) and not names_in(reading.node):
        try:
            Evaluation({}, DIGITS).value(reading.node)
        except (TooLarge, Undefined):
            return False
    parts = reading.items if isinstance(reading, Group) else reading.sides if isinstance(reading, Relation) else ()
    return all(_has_value(part) for part in parts)


def _same_words(wanted: Gold, cleaned: str) -> bool:
    """Equal as words, or the letter of an option with its text behind it, or Yes and No with a reason behind them."""
    gold_words, words = plain(clean(wanted.text)), plain(cleaned)
    if gold_words and gold_words == words:
        return True
    if re.search(r"\bor\b|或", cleaned) or (wanted.kind == "letter" and len(split_list(cleaned)[0]) > 1):
        return False  # one of several is not an answer
    bare = cleaned.strip("\ue000\ue001 ")
    if wanted.kind == "letter":
        bare = _OPTION.sub("", bare)
    lead = _LETTER.match(bare) if wanted.kind == "letter" else _VERDICT_WORD.match(bare)
    if lead is None or lead.group(1).lower() != gold_words:
        return False
    rest = bare[lead.end() :]
    if wanted.kind == "letter":
        return not (_OTHER_LETTERS.search(rest) or _TURNED.search(rest))
    opposite = _OPPOSITES[gold_words in _OPPOSITES[0]]
    said = re.findall(r"\w+", rest.casefold())[:3]
    return not opposite & set(said)


def _says_something(cleaned: str) -> bool:
    return bool(re.search(r"[^\s.,;:!?{}\\$\ue000-\ue004]|\\\{\s*\\\}", cleaned))


def _compact(cleaned: str) -> str:
    """Without marks of upright text, and without spaces but those between words or numbers: what is left must be identical."""
    spaced = " ".join(re.sub(rf"[{GAP}\ue000\ue001]", " ", cleaned).split())
    return re.sub(r"(?<!\w) | (?!\w)", "", spaced)


def short(text: str) -> str:
    """At most 60 characters, on one line, for a note."""
    flat = " ".join(text[:400].split())
    return flat if len(flat) <= 60 else flat[:57] + "..."
