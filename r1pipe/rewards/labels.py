"""Who says of a policy's fresh answers what is good: the answer checker, a rule for the built-in general requests, or a reward
that the recipe names. A reward model goes on training on these labels, so none of them may come from a reward model that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r1pipe.data.nano.rule import judge_general, knows
from r1pipe.data.rows import Attempt, Kind, Score
from r1pipe.rewards.base import Reward

NAME = "label"
"""What the label is called among an attempt's scores."""
GOOD, BAD = 1.0, -1.0
"""Labels of a rule; a named reward's are its own scores, above 0 for good."""


@dataclass(frozen=True, slots=True)
class GeneralRule:
    """The rule of the built-in general requests, as a reward; no score where the rule cannot tell."""

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """GOOD or BAD, with the reason."""
        return [_by_rule(attempt) for attempt in attempts]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of attempts, by the kind of their problem.

    Attributes:
        by_kind: who labels; nobody where a kind is missing.
    """

    by_kind: Mapping[Kind, Reward]

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """GOOD or BAD of the answer checker and the rule, the score of others; the verdict is right above 0."""
        result: list[Score | None] = [None] * len(attempts)
        for kind, reward in self.by_kind.items():
            places = [place for place, attempt in enumerate(attempts) if attempt.problem.kind == kind]
            scores = reward.score([attempts[place] for place in places]) if places else []
            for place, score in zip(places, scores, strict=True):
                result[place] = _checked(score) if kind == "verifiable" else _signed(score)
        return result


def _by_rule(attempt: Attempt) -> Score:
    if not knows(attempt.problem):
        return Score(None, f"no rule knows prompts from {attempt.problem.source or 'this source'}")
    good, why = judge_general(attempt.problem, attempt.text)
    return Score(None if good is None else GOOD if good else BAD, why, good)


def _checked(score: Score | None) -> Score | None:
    """What the answer checker says, as a label."""
    if score is None or score.value is None:
        return score
    right = score.verdict == "right"
    return Score(GOOD if right else BAD, score.note, right)


def _signed(score: Score | None) -> Score | None:
    if score is None or score.value is None:
        return score
    return Score(score.value, score.note, score.value > 0 if score.right is None else score.right)
