"""The language-consistency reward: the share of the thinking's words that are in the problem's language (v2 Eq. 7).

    R_lang = words of the thinking in the target language / words of the thinking

The paper adds it with weight 1 and does not say how words are counted or told apart; `r1pipe.rewards.words` says what a word is
here. Two more things are ours. The share is put on a grid (1/16 by default), because a group of answers that are all right
differs in nothing but a stray word, and dividing by that tiny spread turns noise into advantage. And a response without
thinking scores 0: leaving the thinking out must not be the easiest way to a consistent one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt
from r1pipe.errors import DataError
from r1pipe.rewards.base import Score
from r1pipe.rewards.language_spans import SCRIPT_LANGUAGES, label_words, siblings, tell_siblings_apart
from r1pipe.rewards.words import CHARACTER_SCRIPTS, Word, split_words, words_in

LanguageScope = Literal["thinking", "response"]

_OTHER_CODES = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "fil": "tl", "cmn": "zh", "yue": "zh", "jw": "jv"}
_NAME_RUN = 3
"""Up to this many capitalised Latin words in a row, alone among words of another script, are a name and not counted."""
_NOT_NAMES = words_in(
    "a also alternatively am an and answer are as assume at but by can check compute consider does each find first finally"
    " for from given hence here hmm how however i if in is it let lets maybe next no not note now of okay on one or perhaps"
    " please problem question recall right second similarly since sir so solution solve step suppose sure that the then"
    " there therefore they third this thus to total two use using wait we well what when where which while who why with yes"
    " you your"
)
_KANA_IN_JAPANESE = 0.1
_HAN_ALONE = 8
"""A sentence of more Han characters than this without any kana is Chinese even inside a Japanese text."""


def base_language(code: str) -> str:
    """The language of a code without region or script: "zh-Hant" and "zh_CN" are "zh", "nb" and "nn" are "no"."""
    language = code.replace("_", "-").split("-")[0].strip().lower()
    return _OTHER_CODES.get(language, language)


@cache
def is_known_language(code: str) -> bool:
    """Whether words can be counted in the language; recipes are checked with this before anything runs."""
    return any(base_language(code) in languages for languages in SCRIPT_LANGUAGES.values())


def language_share(text: str, language: str) -> tuple[int, int]:
    """(words in the language, words) of a text; (0, 0) when nothing can be counted.

    Raises:
        DataError: the language is not one that can be told apart; nothing that stands in the text raises.
    """
    target = base_language(language)
    if not is_known_language(target):
        raise DataError(
            f'language "{language}" cannot be counted',
            "use an ISO 639-1 code that r1pipe.rewards.language.is_known_language accepts, such as en, zh, fr",
        )
    inside = total = 0
    for script, words in _by_script(text).items():
        count = sum(word.units for word in words)
        total += count
        languages = SCRIPT_LANGUAGES.get(script, frozenset())
        if script in CHARACTER_SCRIPTS:
            if target in ("zh", "ja"):
                inside += sum(label == target for label in _label_characters(words))
        elif target in languages:
            labels = label_words([word.text for word in words], [word.sentence for word in words], script, target)
            inside += sum(word.units for word, label in zip(words, labels, strict=True) if label == target)
    return inside, total


def language_counts(text: str) -> dict[str, int]:
    """Words by language (ISO 639-1), most first; empty for a text without words. Never raises."""
    counts: dict[str, int] = {}
    for script, words in _by_script(text).items():
        if script in CHARACTER_SCRIPTS:
            labels = _label_characters(words)
        elif script in SCRIPT_LANGUAGES:
            texts = [word.text for word in words]
            labels = label_words(texts, [word.sentence for word in words], script)
            for language in set(labels):
                if len(siblings(language)) > 1:
                    meant = [text for text, label in zip(texts, labels, strict=True) if label == language]
                    which = tell_siblings_apart(meant, language)
                    labels = [which if label == language else label for label in labels]
        for word, label in zip(words, labels, strict=True):
            counts[label] = counts.get(label, 0) + word.units
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def dominant_language(text: str) -> tuple[str, float]:
    """(ISO 639-1 code, share of the words) of the language that most words are in; ("", 0.0) without words. Never raises."""
    counts = language_counts(text)
    if not counts:
        return "", 0.0
    language = next(iter(counts))
    return language, counts[language] / sum(counts.values())


def _by_script(text: str) -> dict[str, list[Word]]:
    """The words by script, without Latin names in texts of other scripts; Han and kana together, under "Han"."""
    words = split_words(text)
    scripts: dict[str, list[Word]] = {}
    names = _names(words)
    for word in words if not names else [word for index, word in enumerate(words) if index not in names]:
        scripts.setdefault("Han" if word.script == "Kana" else word.script, []).append(word)
    return scripts


def _names(words: list[Word]) -> set[int]:
    """Places of the words in short runs of capitalised Latin words between words of another script ("Marie 一共支付了")."""
    if all(word.script == "Latin" for word in words):
        return set()
    names: set[int] = set()
    start = 0
    while start < len(words):
        end = start
        while end < len(words) and words[end].script == "Latin":
            end += 1
        run = range(start, end)
        if 0 < len(run) <= _NAME_RUN and all(
            words[index].text[0].isupper() and words[index].text.lower() not in _NOT_NAMES for index in run
        ):
            names.update(run)
        start = max(end, start + 1)
    return names


def _label_characters(words: list[Word]) -> list[str]:
    """Chinese ("zh") or Japanese ("ja") for each Han character and kana: by kana in its sentence, or by its neighbours' when
    the sentence is short."""
    kana: dict[int, int] = {}
    size: dict[int, int] = {}
    for word in words:
        size[word.sentence] = size.get(word.sentence, 0) + 1
        kana[word.sentence] = kana.get(word.sentence, 0) + (word.script == "Kana")
    mostly = "ja" if sum(kana.values()) > _KANA_IN_JAPANESE * len(words) else "zh"
    labels = {
        sentence: ("ja" if kana[sentence] > _KANA_IN_JAPANESE * count else "zh")
        if kana[sentence] or count > _HAN_ALONE
        else mostly
        for sentence, count in size.items()
    }
    return ["ja" if word.script == "Kana" else labels[word.sentence] for word in words]


@dataclass(frozen=True, slots=True)
class LanguageConsistency:
    """The share of words in the problem's language, in [0, 1].

    Attributes:
        grid: the share is rounded to the nearest 1/grid; a power of two, so that sums stay exact; 0 keeps the share as it is.
        floor: shares of at least this much score 1.0, so that a stray name is not punished; 1.0 turns it off.
        neutral: the value of thinking that has no countable word (formulas only).
        scope: "thinking" for training (the paper's), "response" for evaluation and for filters of data.
        language: counts against this language instead of the problem's; empty for the problem's own.
    """

    grid: int = 16
    floor: float = 1.0
    neutral: float = 1.0
    scope: LanguageScope = "thinking"
    language: str = ""

    def __post_init__(self) -> None:
        if self.grid < 0 or self.grid & (self.grid - 1):
            raise ValueError(f"language grid {self.grid} is not a power of two (or 0 for none)")
        if not 0.0 < self.floor <= 1.0:
            raise ValueError(f"language floor {self.floor} is not in (0, 1]")
        if self.scope not in ("thinking", "response"):
            raise ValueError(f'language scope "{self.scope}" is not "thinking" or "response"')

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One score an attempt, in order; unjudged only where generation failed."""
        return [self._score(attempt) for attempt in attempts]

    def _score(self, attempt: Attempt) -> Score:
        if attempt.finish == "error":
            return Score(None, "generation failed")
        text = attempt.text
        if self.scope == "thinking":
            thinking = split_response(text).thinking
            if not thinking:
                return Score(0.0, "no thinking" if thinking is None else "empty thinking")
            text = thinking
        language = self.language or attempt.problem.language
        if not is_known_language(language):
            return Score(None, f'language "{language}" cannot be counted')
        inside, total = language_share(text, language)
        if not total:
            return Score(self.neutral, "no countable words")
        note = f"{inside}/{total} words {language}"
        if inside == total or (self.floor < 1.0 and Fraction(inside, total) >= self.floor):
            return Score(1.0, note)
        if not self.grid:
            return Score(inside / total, note)
        steps, rest = divmod(inside * self.grid, total)  # in whole numbers: to the nearest, halves to the even one
        return Score((steps + (2 * rest > total or (2 * rest == total and steps % 2))) / self.grid, note)
