"""Supervised steps cut short for a rehearsal: `r1pipe verify-resume` sets a variable, and they train on their first rows only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

REHEARSAL_ROWS = "R1PIPE_REHEARSAL_ROWS"
"""Environment variable: so many rows are trained on, and how good the result is does not matter."""

Row = TypeVar("Row")


def is_rehearsal() -> bool:
    """Whether the step only shows that it can be resumed."""
    return REHEARSAL_ROWS in os.environ


def rehearsed(rows: Sequence[Row]) -> Sequence[Row]:
    """All rows; in a rehearsal the first ones."""
    return rows[: int(os.environ[REHEARSAL_ROWS])] if is_rehearsal() else rows
