"""How far a run was asked to go: kept in its folder from the first step that starts until all that was asked for is done, so that
resuming goes on with the same and no more.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from r1pipe.errors import ArtifactError
from r1pipe.files import write_atomic
from r1pipe.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Goal:
    """What a command asked for.

    Attributes:
        until: stage or step to stop after; empty for the end of the chain.
        only: stage or step to run alone; empty for all.
    """

    until: str = ""
    only: str = ""

    def __bool__(self) -> bool:
        return bool(self.until or self.only)

    def __str__(self) -> str:
        return f"{self.only} alone" if self.only else f"until {self.until}" if self.until else "to the end"


def read_goal(run: RunDir) -> Goal:
    """What the command that was stopped had asked for; all of the chain when nothing is recorded.

    Raises:
        ArtifactError: the record cannot be read.
    """
    try:
        said: Any = json.loads(run.goal_path.read_bytes())
    except FileNotFoundError:
        return Goal()
    except ValueError as error:  # it is written in one go, so another hand was in it
        raise ArtifactError(f"{run.goal_path} is not JSON: {error}", "delete it; r1pipe resume then goes to the end") from error
    return Goal(str(said.get("until", "")), str(said.get("only", ""))) if isinstance(said, dict) else Goal()


def record_goal(run: RunDir, goal: Goal) -> None:
    """Remember it; only the holder of the run's lock may."""
    if goal:
        write_atomic(run.goal_path, (json.dumps(asdict(goal)) + "\n").encode(), durable=False)
    else:
        forget_goal(run)


def forget_goal(run: RunDir) -> None:
    """All that was asked for is done."""
    run.goal_path.unlink(missing_ok=True)
