"""The accuracy reward: 1 for a right final answer, 0 for a wrong one, unjudged when the checker cannot decide.

Only the summary counts, never the thinking (`r1pipe.data.chat.split_response`); thinking that was not finished is wrong. The
checker is the one that the problem names. The rule-based accuracy reward of the paper's sections 2.2.2 and 2.3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from r1pipe.data.chat import answer_block, split_response
from r1pipe.data.rows import Attempt
from r1pipe.rewards.base import Score

VERDICT_VERSION = 2
"""Raised when the same answer may get another verdict; recorded in manifests, so that runs can be told apart by it."""

Item = tuple[Attempt, str]
"""An attempt with its summary."""


@dataclass(frozen=True)
class Accuracy:
    """Right or wrong, by the checker that the problem names; does not apply to problems with checker "none".

    Attributes:
        percent: "lenient": 20% answers 0.2 and also 20 (the question may have said "what percent"); "strict": only 0.2.
        sandbox: how programs are run: "bubblewrap", or "none" for no isolation at all.
        answer: "anywhere" finds it where it stands in the summary; "tag" wants it in `<answer>` tags, as R1-Zero's prompt does.
    """

    percent: Literal["lenient", "strict"] = "lenient"
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    answer: Literal["anywhere", "tag"] = "anywhere"

    def __post_init__(self) -> None:
        allowed = {"percent": ("lenient", "strict"), "answer": ("anywhere", "tag"), "sandbox": ("bubblewrap", "none")}
        for name, known in allowed.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; known: {', '.join(known)}")

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """1.0 right, 0.0 wrong, value None unjudged; None where the problem has no checker."""
        scores: list[Score | None] = [None] * len(attempts)
        groups: dict[str, list[tuple[int, Item]]] = {}
        for index, attempt in enumerate(attempts):
            checker = attempt.problem.checker
            if checker == "none":
                continue
            if checker not in CHECKERS:
                scores[index] = Score(None, f"no checker is called {checker!r} (known: {', '.join((*CHECKERS, 'none'))})")
                continue
            if attempt.finish == "error":
                scores[index] = Score(None, "generation failed")
                continue
            response = split_response(attempt.text)
            if "thinking never closed" in response.faults:
                scores[index] = Score(0.0, "thinking never closed: no answer")
            elif self.answer == "tag" and answer_block(response.summary) is None:
                scores[index] = Score(0.0, "no answer block")
            else:
                groups.setdefault(checker, []).append((index, (attempt, response.summary)))
        for checker, members in groups.items():
            for (index, _), score in zip(members, CHECKERS[checker]([item for _, item in members], self), strict=True):
                scores[index] = score
        return scores


def check_maths(items: Sequence[Item], settings: Accuracy) -> list[Score]:
    """Compare final answers with gold answers as mathematics; `check["tolerance"]` is an accepted difference."""
    from r1pipe.rewards.maths.check import Request, check
    from r1pipe.rewards.maths.compare import Rules

    requests = []
    for attempt, summary in items:
        problem = attempt.problem
        rules = Rules(settings.percent, _number(problem.check.get("tolerance")))
        requests.append(Request(problem.answer, summary, problem.language, rules))
    return check(requests)


def _number(value: object) -> float:
    try:
        return float(str(value)) if value is not None else 0.0
    except ValueError:
        return 0.0  # a note such as "rounded" is no tolerance


def check_choice(items: Sequence[Item], settings: Accuracy) -> list[Score]:
    """Compare the chosen options with the gold letters."""
    from r1pipe.rewards.choice import judge_problem

    return [
        judge_problem(attempt.problem.answer, summary, attempt.problem.check, attempt.problem.question)
        for attempt, summary in items
    ]


def check_logic(items: Sequence[Item], settings: Accuracy) -> list[Score]:
    """Ask Reasoning Gym's own scorer of the problem's data set; exact structures where there is none."""
    from r1pipe.rewards.logic import Request, check

    return check([Request(attempt.problem.answer, summary, attempt.problem.check) for attempt, summary in items])


def check_code(items: Sequence[Item], settings: Accuracy) -> list[Score]:
    """Run the problem's tests in the sandbox."""
    from r1pipe.rewards.code import run_code_tests

    return list(run_code_tests([attempt for attempt, _ in items], sandbox=settings.sandbox))


CHECKERS: dict[str, Callable[[Sequence[Item], Accuracy], list[Score]]] = {
    "maths": check_maths,
    "choice": check_choice,
    "logic": check_logic,
    "code": check_code,
}
"""Checker name of a problem -> what judges it. "none" is not here: the reward does not apply."""
