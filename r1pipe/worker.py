"""The process in which one step runs: `python -m r1pipe.worker RUNDIR STEP`."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> int:
    """Run one step; the exit code is 0 (done), 1 (failed; see error.json) or 75 (stopped at a safe point)."""
    raise NotImplementedError
