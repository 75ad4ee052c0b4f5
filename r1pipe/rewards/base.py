"""What a reward is.

A reward is a frozen dataclass whose fields are its parameters (so it prints, compares and pickles), with one method:
`score(attempts) -> list[Score | None]`. `None` means that the reward does not apply to the row (a preference reward on a maths
problem). A `Score` whose value is None was **unjudged**: the checker could not decide (no usable gold answer, time limit, sandbox
missing). Unjudged is never the same as wrong: training leaves the row out, selection drops it with that reason, and evaluation
counts it apart. The note says why, in a few words, so that nobody needs a debugger to ask "why zero?".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from r1pipe.data.rows import Attempt


@dataclass(frozen=True, slots=True)
class Score:
    """What a reward says of one attempt.

    Attributes:
        value: the reward, finite; None when the attempt could not be judged.
        note: a short reason, e.g. "parsed 211, wanted 210".
    """

    value: float | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """"right" (value at least 1), "wrong", or "unjudged"; for accuracy rewards."""
        if self.value is None:
            return "unjudged"
        return "right" if self.value >= 1.0 else "wrong"


class Reward(Protocol):
    """Anything that scores attempts. Must be picklable; must never raise for what a model wrote."""

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One entry per attempt, in order."""
        ...
