"""One process at a time works on a run: a lock file with a heartbeat, taken over when its holder is gone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path


def hold(path: Path, notice: Callable[[str], None] = lambda line: None, beat: float = 60.0, patience: float = 600.0) -> AbstractContextManager[str]:
    """Hold the lock for the length of a `with` block; yields its token.

    Raises:
        StateError: another live process holds it; names host, process and age of the last heartbeat.
    """
    raise NotImplementedError
