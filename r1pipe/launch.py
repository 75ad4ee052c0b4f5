"""How a step's process is started, watched and stopped."""

from __future__ import annotations

from r1pipe.recipe import Launch
from r1pipe.stage import Step


def command(run_root: str, step: Step, launch: Launch) -> list[str]:
    """The command line of a step's process: plain python, or `accelerate launch` for several processes."""
    raise NotImplementedError
