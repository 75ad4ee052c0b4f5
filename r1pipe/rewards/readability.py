"""Readability of thinking: loops, walls of text, code blocks, mixed languages.

The paper drops traces with mixed languages, long paragraphs and code blocks when it collects reasoning data, and chains that
repeat themselves when it collects cold-start data (v2 B.3.2, B.3.3); it gives no thresholds. Each function here measures one
thing; the thresholds are fields of `Readability`, set so that fluent traces of open reasoning models pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt
from r1pipe.rewards.base import Score
from r1pipe.rewards.language import is_known_language, language_share
from r1pipe.rewards.words import HAN_AND_KANA, split_words

_PIECE = re.compile(rf"[{HAN_AND_KANA}]|[^\W_]{{1,24}}|[^\w\s]")
_PARAGRAPH = re.compile(r"\n\s*\n")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_LONGEST_PERIOD = 200
_TAIL_PIECES = 4000


def split_pieces(text: str) -> list[str]:
    """Words, numbers, signs and single Han characters and kana, lower-cased: what repetition is counted in."""
    return _PIECE.findall(text.lower())


def repetition_share(text: str, n: int = 12) -> float:
    """The share of n-grams of pieces that stood before in the text; 0.0 for a text of fewer than n pieces.

    Formulas worked through with new numbers do not count; a passage said again does.
    """
    pieces = split_pieces(text)
    total = len(pieces) - n + 1
    if total < 1:
        return 0.0
    return 1.0 - len({tuple(pieces[place : place + n]) for place in range(total)}) / total


def loop_pieces(text: str, times: int = 4) -> int:
    """Pieces at the end of the text that are one passage said at least `times` times in a row; 0 without such a loop.

    A model that is caught in a loop stays in it until it is cut off, so the end is where to look.
    """
    tail = split_pieces(text[-8 * _TAIL_PIECES :])[-_TAIL_PIECES:]
    return _loop_at_end(tail, times) or _loop_at_end(tail[:-1], times)  # the last piece may have been cut in two


def _loop_at_end(tail: list[str], times: int) -> int:
    for period in range(1, min(_LONGEST_PERIOD, len(tail) // times) + 1):
        length = period
        while length < len(tail) and tail[-length - 1] == tail[-length - 1 + period]:
            length += 1
        if length >= times * period and length >= 3 * times:
            return length
    return 0


def longest_paragraph(text: str) -> int:
    """Words of the longest paragraph; paragraphs end at an empty line."""
    return max(sum(word.units for word in split_words(paragraph)) for paragraph in _PARAGRAPH.split(text))


def code_blocks(text: str) -> int:
    """Fenced code blocks; one that is not closed counts."""
    return (len(_FENCE.findall(text)) + 1) // 2


@dataclass(frozen=True, slots=True)
class Readability:
    """1.0 for readable thinking, 0.0 with the reasons otherwise; as a filter, `reasons` says why a trace is dropped.

    Attributes:
        most_repetition: the largest share of repeated 12-grams of pieces.
        most_paragraph_words: the longest paragraph, in words.
        most_code_blocks: fenced code blocks in the thinking; -1 for any number.
        least_language_share: the smallest share of words in the problem's language.
    """

    most_repetition: float = 0.3
    most_paragraph_words: int = 600
    most_code_blocks: int = 0
    least_language_share: float = 0.95

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One score an attempt, in order; thinking that is missing or empty scores 0."""
        return [self._score(attempt) for attempt in attempts]

    def _score(self, attempt: Attempt) -> Score:
        if attempt.finish == "error":
            return Score(None, "generation failed")
        thinking = split_response(attempt.text).thinking
        if not thinking:
            return Score(0.0, "no thinking" if thinking is None else "empty thinking")
        reasons = self.reasons(thinking, attempt.problem.language)
        return Score(0.0, "; ".join(reasons)) if reasons else Score(1.0, "readable")

    def reasons(self, thinking: str, language: str) -> tuple[str, ...]:
        """What makes thinking unreadable, in words; empty when nothing does. A language that is not known is not checked."""
        reasons = []
        repeated, loop = repetition_share(thinking), loop_pieces(thinking)
        if loop:
            reasons.append(f"ends in a loop of {loop} pieces")
        if repeated > self.most_repetition:
            reasons.append(f"repetition {repeated:.2f}, at most {self.most_repetition:g}")
        paragraph = longest_paragraph(thinking)
        if paragraph > self.most_paragraph_words:
            reasons.append(f"a paragraph of {paragraph} words, at most {self.most_paragraph_words}")
        blocks = code_blocks(thinking)
        if 0 <= self.most_code_blocks < blocks:
            reasons.append(f"{blocks} code blocks, at most {self.most_code_blocks}")
        inside, total = language_share(thinking, language) if is_known_language(language) else (0, 0)
        if total and inside < self.least_language_share * total:
            reasons.append(f"mixed languages: {inside}/{total} words {language}")
        return tuple(reasons)
