"""Tasks for scoring processes that end themselves."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def die_once(mark: str) -> str:
    """Killed from outside the first time, as far as anybody can tell, if the mark is there."""
    try:
        os.unlink(mark)
    except FileNotFoundError:
        return "alive"
    os.kill(os.getpid(), signal.SIGKILL)
    return str(Path(mark))


def die() -> None:
    """Killed every time."""
    os.kill(os.getpid(), signal.SIGKILL)
