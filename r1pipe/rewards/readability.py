"""Readability of thinking: loops, walls of text, code blocks, mixed languages.

The paper drops traces with mixed languages, long paragraphs and code blocks when it collects reasoning data, and chains that
repeat themselves when it collects cold-start data (v2 B.3.2, B.3.3); it gives no thresholds. Each function here measures one
thing; the thresholds are fields of `Readability`, set so that fluent traces of open reasoning models pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from r1pipe.data.chat import split_response
from r1pipe.data.pieces import CHARACTER, RUN, Pieces, runs_of, split_folded
from r1pipe.data.rows import Attempt
from r1pipe.rewards.base import Score
from r1pipe.rewards.language import is_known_language, language_share
from r1pipe.rewards.words import split_words

_PARAGRAPH = re.compile(r"\n\s*\n")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_SEVERAL_WORDS_A_RUN = ((0x0E00, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xAA7F))
_LONGEST_PERIOD = 200
_TAIL_PIECES = 4000
RUN_PIECES = 12
"""Pieces in a row that make a repetition."""


def split_pieces(text: str) -> list[str]:
    """Words, numbers, signs and single Han characters and kana, folded: what repetition is counted in."""
    pieces = split_folded(text)
    return [pieces.text(place, place) for place in range(len(pieces.hashes))]


def repetition_share(text: str, n: int = RUN_PIECES) -> float:
    """The share of n-grams of pieces that stood before in the text; 0.0 for a text of fewer than n pieces.

    Formulas worked through with new numbers do not count; a passage said again does.
    """
    return repetition_of(split_folded(text).hashes, n)


def repetition_of(hashes: Any, n: int = RUN_PIECES) -> float:
    """`repetition_share` for pieces that were split before (see `r1pipe.data.pieces`)."""
    import numpy as np

    runs = np.sort(runs_of(hashes, n))
    return 1.0 - (len(runs) - int(np.count_nonzero(runs[1:] == runs[:-1]))) / len(runs) if len(runs) else 0.0


def loop_pieces(text: str, times: int = 4) -> int:
    """Pieces at the end of the text that are one passage said at least `times` times in a row; 0 without such a loop.

    A model that is caught in a loop stays in it until it is cut off, so the end is where to look.
    """
    return loop_of(split_folded(text[-8 * _TAIL_PIECES :]).hashes, times)


def loop_of(hashes: Any, times: int = 4) -> int:
    """`loop_pieces` for pieces that were split before."""
    tail = hashes[-_TAIL_PIECES:]
    return _loop_at_end(tail, times) or _loop_at_end(tail[:-1], times)  # the last piece may have been cut in two


def _loop_at_end(tail: Any, times: int) -> int:
    import numpy as np

    longest = min(_LONGEST_PERIOD, len(tail) // times)
    if longest < 1:
        return 0
    periods = np.arange(1, longest + 1)
    equal = np.maximum((times - 1) * periods, 3 * times - periods)  # so many pieces must equal those a period earlier
    for back in range(min(8, len(tail))):  # most periods fail at once
        places = len(tail) - 1 - back - periods
        periods = periods[(equal <= back) | ((places >= 0) & (tail[len(tail) - 1 - back] == tail[places]))]
        if not len(periods):
            return 0
        equal = np.maximum((times - 1) * periods, 3 * times - periods)
    for period, needed in zip(periods.tolist(), equal.tolist(), strict=True):
        if period + needed > len(tail):
            continue
        same = tail[::-1][:-period] == tail[::-1][period:]
        if same[:needed].all():
            return period + int(len(same) if same.all() else same.argmin())
    return 0


def longest_paragraph(text: str) -> int:
    """Words of the longest paragraph; paragraphs end at an empty line."""
    return max(sum(word.units for word in split_words(paragraph)) for paragraph in _PARAGRAPH.split(text))


def has_long_paragraph(text: str, most_words: int, pieces: Pieces | None = None) -> bool:
    """Whether the longest paragraph has more than so many words; counts only in paragraphs that are long enough to.

    Args:
        pieces: those of the folded text, where a caller has them: most texts are let pass at a look.
    """
    if pieces is not None and most_words_in_a_paragraph(pieces) <= most_words:
        return False
    for part in text.split("\n\n"):  # at least as long as the paragraphs in it
        if not part.isascii():
            if 3 * len(part) > most_words and longest_paragraph(part) > most_words:  # composing makes three of one at most
                return True
        # a word of ASCII letters has two of them at least, and something between it and the next
        elif (len(part) + 1) // 3 > most_words and longest_paragraph(part) > most_words:
            return True
    return False


def most_words_in_a_paragraph(pieces: Pieces) -> float:
    """At least as many words as the longest paragraph has: runs that begin with a letter, and characters that are words.

    A word is made of one such run or several; only in scripts without spaces is a run several words, and then there is no saying.
    """
    import numpy as np

    codes = pieces.codes
    if codes.dtype != np.uint8 and any(((codes >= low) & (codes <= high)).any() for low, high in _SEVERAL_WORDS_A_RUN):
        return float("inf")
    first = codes[pieces.starts]
    words = ((pieces.kinds == RUN) & ~((first >= 0x30) & (first <= 0x39))) | (pieces.kinds == CHARACTER)
    newline = codes == 0x0A
    ends = pieces.starts.searchsorted(np.flatnonzero(newline[1:] & newline[:-1]))
    sums = np.concatenate([[0], np.cumsum(words)])[np.concatenate([[0], ends, [len(words)]])]
    return int(np.diff(sums).max())


def code_blocks(text: str) -> int:
    """Fenced code blocks; one that is not closed counts."""
    return (len(_FENCE.findall(text)) + 1) // 2 if "```" in text or "~~~" in text else 0


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
