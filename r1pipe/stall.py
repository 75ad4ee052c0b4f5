"""A step that looks alive and does nothing: its stacks are shown, and it ends.

Whoever makes progress says so with `still_moving`; when nobody has for the launch's `stall_minutes`, every thread's stack goes
to the step's log and the process exits with code 1, so that the runner reports a failure where there would have been silence.
The step resumes from its last checkpoint.
"""

from __future__ import annotations

import faulthandler


def still_moving(minutes: float) -> None:
    """Start the clock again; 0 turns the watch off."""
    faulthandler.cancel_dump_traceback_later()
    if minutes > 0:
        faulthandler.dump_traceback_later(60 * minutes, exit=True)


def finished() -> None:
    """Stop the clock."""
    faulthandler.cancel_dump_traceback_later()
