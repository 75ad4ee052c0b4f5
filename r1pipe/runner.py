"""The runner: says what would run and why, runs it step by step, and stops where going on would be wrong.

States are computed from disk alone:
    todo: not begun. partial: begun with these settings and inputs; goes on where it stopped. done: made with these settings.
    changed: made (or begun) with other settings. stale: an input was made again, or is itself changed or gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from r1pipe.graph import Pipeline
from r1pipe.manifest import Change, Manifest
from r1pipe.observer import Observer
from r1pipe.recipe import Recipe
from r1pipe.rundir import RunDir
from r1pipe.stage import Step

State = Literal["todo", "partial", "done", "changed", "stale"]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Where a step stands.

    Attributes:
        why: one line for people.
        changes: the settings that differ, for `changed`.
        manifest: the record, when there is a readable one.
        attempts: how often the step was begun so far.
    """

    step: Step
    state: State
    why: str
    changes: tuple[Change, ...] = ()
    manifest: Manifest | None = None
    attempts: int = 0


def plan(run: RunDir, pipeline: Pipeline, recipe: Recipe) -> list[StepPlan]:
    """Where every step stands, in order of execution. Reads only; never starts or changes anything."""
    raise NotImplementedError


def execute(
    run: RunDir,
    pipeline: Pipeline,
    recipe: Recipe,
    until: str | None = None,
    only: str | None = None,
    redo: Sequence[str] = (),
    observer: Observer | None = None,
    loader: str = "r1pipe.pipeline:load",
) -> list[Manifest]:
    """Run every step that is not done, in order, each in its own process; resume the one that was interrupted.

    Args:
        until: stage or step to stop after. only: stage or step to run alone.
        redo: stages or steps to discard first, together with everything made from them.
        loader: "module:function" by which a step's process finds its pipeline: function(name) -> Pipeline.

    Returns:
        The manifests of the steps that this call finished.

    Raises:
        StateError: a step is changed or stale (nothing is started), or another process holds the run.
        ArtifactError: an input is missing or torn, or two steps saw different base models.
        StepFailed: a step's process failed; `r1pipe resume` goes on.
        Stopped: the user asked to stop.
    """
    raise NotImplementedError


def create_run(name: str, text: str) -> RunDir:
    """A new run with that recipe text; `StateError` when the name is taken."""
    raise NotImplementedError


def fork(source: RunDir, name: str, before: str, pipeline: Pipeline) -> RunDir:
    """A new run with the same recipe that shares, by relative links, every finished step that is not made from `before`."""
    raise NotImplementedError


def verify(run: RunDir, pipeline: Pipeline, contents: bool = True) -> list[str]:
    """Check every finished step's outputs against its manifest; one line for each problem, empty when all is well."""
    raise NotImplementedError
