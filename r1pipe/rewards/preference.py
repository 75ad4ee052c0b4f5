"""What every preference reward has in common, whoever gives its scores: a reward model, a scoring server, a judge.

Helpfulness is judged on the summary alone, so that it does not meddle with the thinking, and safety on the whole response (3.1 of
the paper). Scores are standardised, so that a weight means the same whoever gives them, and clipped, so that one odd answer does
not rule its group. What has no text to judge scores the lower end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt, Score
from r1pipe.rewards.mix import quantise

PreferenceKind = Literal["helpfulness", "safety"]
KINDS: tuple[PreferenceKind, ...] = ("helpfulness", "safety")
LIMIT = 2.0
"""Scores are clipped at this many standard deviations: one odd answer must not rule its group. A missing summary scores the
lower end."""
MISSING = "no summary"


def judged_text(attempt: Attempt, kind: PreferenceKind) -> str:
    """The part of an answer that is judged: the summary for helpfulness, the whole response for safety; may be empty."""
    return attempt.text if kind == "safety" else split_response(attempt.text).summary


def to_judge(attempts: Sequence[Attempt], kind: PreferenceKind) -> tuple[list[Score | None], list[tuple[int, str]]]:
    """(scores that need no judge, (index, text) of what is left to judge).

    None where the prompt is of another kind; the lower end where there is nothing to read.
    """
    scores: list[Score | None] = [None] * len(attempts)
    left = []
    for index, attempt in enumerate(attempts):
        if attempt.problem.kind != kind:
            continue
        text = judged_text(attempt, kind)
        if text.strip():
            left.append((index, text))
        else:
            scores[index] = Score(-LIMIT, MISSING)
    return scores, left


def standardised(raw: float, mean: float, spread: float) -> float:
    """A score in standard deviations, clipped at ±LIMIT, on the grid on which rewards reach training."""
    return quantise(max(-LIMIT, min(LIMIT, (raw - mean) / (spread or 1.0))))
