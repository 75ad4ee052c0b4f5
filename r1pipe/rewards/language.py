"""The language-consistency reward: the share of the thinking's words that are in the problem's language (v2 Eq. 7).

    R_lang = words of the thinking in the target language / words of the thinking

The paper adds it with weight 1 and does not say how words are counted or told apart; `r1pipe.rewards.words` says what a word is
here. Two more things are ours. The share is put on a grid (1/16 by default), because a group of answers that are all right differs
in nothing but a stray word, and dividing by that tiny spread turns noise into advantage. And a response without thinking scores 0:
leaving the thinking out must not be the easiest way to a consistent one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt
from r1pipe.rewards.base import Score
from r1pipe.rewards.words import split_words

LanguageScope = Literal["thinking", "response"]

LANGUAGE_SCRIPTS: dict[str, tuple[str, ...]] = {
    "zh": ("Han",), "ja": ("Han", "Kana"), "ko": ("Hangul",), "ru": ("Cyrillic",), "uk": ("Cyrillic",), "bg": ("Cyrillic",),
    "el": ("Greek",), "he": ("Hebrew",), "ar": ("Arabic",), "fa": ("Arabic",), "ur": ("Arabic",), "hi": ("Devanagari",),
    "mr": ("Devanagari",), "ne": ("Devanagari",), "bn": ("Bengali",), "te": ("Telugu",), "ta": ("Tamil",), "kn": ("Kannada",),
    "ml": ("Malayalam",), "gu": ("Gujarati",), "pa": ("Gurmukhi",), "si": ("Sinhala",), "th": ("Thai",), "lo": ("Lao",),
    "km": ("Khmer",), "my": ("Burmese",), "ka": ("Georgian",), "hy": ("Armenian",), "am": ("Ethiopic",),
}  # fmt: skip
"""The scripts of languages that are not written in Latin letters (ISO 639-1)."""


def language_share(text: str, language: str) -> tuple[int, int]:
    """(words in the language, words) of a text; both 0 when nothing can be counted. Never raises."""
    scripts = LANGUAGE_SCRIPTS.get(base_language(language), ("Latin",))
    words = split_words(text)
    return sum(word.count for word in words if word.script in scripts), sum(word.count for word in words)


def dominant_language(text: str) -> tuple[str, float]:
    """(ISO 639-1 code, share of the words) of the language that most words are in; ("", 0.0) without words."""
    counts: dict[str, int] = {}
    for word in split_words(text):
        counts[word.script] = counts.get(word.script, 0) + word.count
    if not counts:
        return "", 0.0
    total = sum(counts.values())
    if counts.get("Kana", 0):
        counts["Kana"] += counts.pop("Han", 0)
    script = max(counts, key=lambda name: counts[name])
    if script == "Latin":
        return "en", counts[script] / total
    code = "ja" if script == "Kana" else next(code for code, scripts in LANGUAGE_SCRIPTS.items() if script in scripts)
    return code, counts[script] / total


def base_language(code: str) -> str:
    """The language of a code without region or script: "zh-Hant" and "zh_CN" are "zh"."""
    return code.replace("_", "-").split("-")[0].lower()


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
        inside, total = language_share(text, language)
        if not total:
            return Score(self.neutral, "no countable words")
        share = Fraction(inside, total)
        note = f"{inside}/{total} words {language}"
        if share >= self.floor:
            return Score(1.0, note)
        return Score(round(share * self.grid) / self.grid if self.grid else float(share), note)
