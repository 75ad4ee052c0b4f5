"""What a reward is.

A reward is a frozen dataclass whose fields are its parameters (so it prints, compares and pickles), with one method:
`score(attempts) -> list[Score | None]`. `None` means that the reward does not apply to the row (a preference reward on a maths
problem). A `Score` whose value is None was **unjudged**: the checker could not decide (no usable gold answer, time limit, sandbox
missing). Unjudged is never the same as wrong: training leaves the row out, selection drops it with that reason, and evaluation
counts it apart. The note says why, in a few words, so that nobody needs a debugger to ask "why zero?".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from r1pipe.data.rows import Attempt, Score

__all__ = ["CUT", "Reward", "Score"]

CUT = "cut at"
"""In a note: the text was longer than the reward's model reads, and only its beginning was judged. Counted in the metrics."""


class Reward(Protocol):
    """Anything that scores attempts. Must be picklable; must never raise for what a model wrote."""

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One entry per attempt, in order."""
        ...
