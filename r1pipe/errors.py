"""The errors that r1pipe raises on purpose.

Each carries a `problem` (what was found: the thing and both values) and a `hint` (what to type next). The command line prints
the two lines and no traceback; anything else that is raised is a defect and keeps its traceback. The types are named after the
boundary that was crossed, and the list stays flat.
"""

from __future__ import annotations


class R1PipeError(Exception):
    """A problem that the user can act on.

    Args:
        problem: one or more lines that name the thing and the values that clash.
        hint: the next command to type, or what to change; may be empty.
    """

    exit_code = 1

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)  # both, so that the error survives pickling between processes
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\nhint: {self.hint}" if self.hint else self.problem


class RecipeError(R1PipeError):
    """The recipe, or a `--set`, says something that cannot be: refused before anything is loaded."""

    exit_code = 2


class DataError(R1PipeError):
    """A file of data is not what it should be; names file, row and column."""


class ArtifactError(R1PipeError):
    """An artifact is missing, torn, or not the one that was promised."""


class StateError(R1PipeError):
    """The run on disk and the recipe disagree (changed or stale), or another process holds the run."""


class TrainingError(R1PipeError):
    """Training stopped because going on would have been wrong (non-finite numbers, zero steps, no signal)."""


class EngineError(R1PipeError):
    """A generation engine could not do what was asked of it."""


class StepFailed(R1PipeError):
    """A step's process ended without finishing; carries what the worker reported."""


class Stopped(R1PipeError):
    """The user asked to stop and the step stopped at a safe point. Exit code 75, as for a job to be requeued."""

    exit_code = 75
