"""The accuracy reward: 1 for a right final answer, 0 for a wrong one, unjudged when the checker cannot decide.

Only the summary counts, never the thinking (`r1pipe.data.chat.split_response`); thinking that was not finished is wrong. The
checker is the one that the problem names. Departs from the paper: none; the rule-based accuracy reward of sections 2.1 and B.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt
from r1pipe.rewards.base import Score

Item = tuple[Attempt, str]
"""An attempt with its summary."""


def check_maths(items: Sequence[Item]) -> list[Score]:
    """Compare final answers with gold answers as mathematics."""
    from r1pipe.rewards.maths.check import Request, check

    return check([Request(attempt.problem.answer, summary, attempt.problem.language) for attempt, summary in items])


def check_choice(items: Sequence[Item]) -> list[Score]:
    """Compare the chosen option with the gold letter."""
    from r1pipe.rewards.choice import judge_problem

    return [judge_problem(attempt.problem.answer, summary, attempt.problem.check, attempt.problem.question) for attempt, summary in items]


def check_logic(items: Sequence[Item]) -> list[Score]:
    """Ask Reasoning Gym's own scorer of the problem's data set."""
    from r1pipe.rewards.logic import Request, check

    return check([Request(attempt.problem.answer, summary, attempt.problem.check) for attempt, summary in items])


def check_code(items: Sequence[Item]) -> list[Score]:
    """Run the problem's tests in the sandbox."""
    from r1pipe.rewards.code import run_code_tests

    return list(run_code_tests([attempt for attempt, _ in items]))


CHECKERS: dict[str, Callable[[Sequence[Item]], list[Score]]] = {
    "maths": check_maths,
    "choice": check_choice,
    "logic": check_logic,
    "code": check_code,
}
"""Checker name of a problem -> what judges it. "none" is not here: the reward does not apply."""


@dataclass(frozen=True)
class Accuracy:
    """Right or wrong, by the checker that the problem names; does not apply to problems with checker "none"."""

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """1.0 right, 0.0 wrong, value None unjudged; None where the problem has no checker."""
        scores: list[Score | None] = [None] * len(attempts)
        groups: dict[str, list[tuple[int, Item]]] = {}
        for index, attempt in enumerate(attempts):
            checker = attempt.problem.checker
            if checker == "none":
                continue
            if checker not in CHECKERS:
                known = ", ".join((*CHECKERS, "none"))
                scores[index] = Score(None, f"no checker is called {checker!r} (known: {known})")
                continue
            response = split_response(attempt.text)
            if "thinking never closed" in response.faults:
                scores[index] = Score(0.0, "thinking never closed: no answer")
            elif not response.summary:
                scores[index] = Score(0.0, "empty summary: no answer")
            else:
                groups.setdefault(checker, []).append((index, (attempt, response.summary)))
        for checker, members in groups.items():
            for (index, _), score in zip(members, CHECKERS[checker]([item for _, item in members]), strict=True):
                scores[index] = score
        return scores
