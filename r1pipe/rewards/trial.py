"""Rewards of the user's own, tried on answers before anything is trained.

One that raises, or gives something else than scores, is told with the answer that it failed on.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

from r1pipe.data.chat import join_response
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.errors import RecipeError
from r1pipe.rewards import mix
from r1pipe.rewards.audit import gold_response
from r1pipe.rewards.base import Reward
from r1pipe.rewards.mix import OWN_REWARD, Part, score_checked

THOUGHT = "I work it out."
"""The thinking of the response that is made up around a gold answer."""
STAND_IN = Problem(id="trial", question="What is 2 + 2?", answer="4", domain="arithmetic")
"""Stands in where the run's own problems are not known yet."""


def is_own(reward: Reward) -> bool:
    """Whether a reward is code of the user's."""
    return type(reward).__module__.partition(".")[0] != "r1pipe"


def trial_attempts(problem: Problem) -> list[Attempt]:
    """What a model may write: a well-formed right answer, an answer without tags, nothing, and a thought that was cut off."""
    answer = gold_response(problem, problem.check) or problem.answer
    right = join_response(THOUGHT, answer)
    return [
        Attempt(problem, right, tokens=len(right.split())),
        Attempt(problem, answer, tokens=len(answer.split())),
        Attempt(problem, ""),
        Attempt(problem, right[: len(right) // 3], finish="length", tokens=4),
    ]


def try_reward(part: Part, attempts: Sequence[Attempt]) -> list[Score | None]:
    """A reward's scores of attempts.

    Raises:
        RecipeError: it raised (what, where and on which answer), or what it gives are no scores.
    """
    try:
        return score_checked(part, attempts)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if last.filename == mix.__file__:
            said = str(error) if isinstance(error, RuntimeError) else f"reward {part.name!r} gives no scores: {error}"
            raise RecipeError(said, OWN_REWARD) from error
        on = next((f" on {attempt.text[:80]!r}" for attempt in attempts if _fails(part, attempt)), "")
        where = f"{os.path.basename(last.filename)}, line {last.lineno}"
        raise RecipeError(
            f"reward {part.name!r} raises {type(error).__name__}: {error} ({where}){on}",
            "a reward must give a score to whatever a model may write, also to nothing at all",
        ) from error


def _fails(part: Part, attempt: Attempt) -> bool:
    """Whether a reward raises on this one attempt."""
    try:
        part.reward.score([attempt])
    except Exception:  # which one it was is all that is asked here; the error itself is told by the caller
        return True
    return False


def verdict_of(part: Part, scores: Sequence[Score | None]) -> str:
    """What a reward said of the first attempt, in words."""
    first = scores[0]
    if first is None:
        return f"{part.name} does not apply to a right answer"
    value = "no verdict" if first.value is None else f"{first.value:g}"
    return f"{part.name} gives {value} to a right answer{f' ({first.note})' if first.note else ''}"
