"""Where each step of a run stands, computed from the disk alone.

todo: not begun. partial: begun with these settings and inputs; goes on where it stopped. done: made with these settings.
changed: made or begun with other settings. stale: an input was made again, or is itself changed or gone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from r1pipe.artifact import digest_base
from r1pipe.errors import ArtifactError
from r1pipe.given import changed_files
from r1pipe.graph import Pipeline
from r1pipe.manifest import Begun, Change, InputRecord, Manifest, changes, read_begun, read_manifest
from r1pipe.recipe import Recipe
from r1pipe.rundir import RunDir
from r1pipe.stage import Output, Step

State = Literal["todo", "partial", "done", "changed", "stale"]

BOOKKEEPING = frozenset({"begun.json", "worker.json", "error.json", "progress.json", "stop", "logs"})
"""What a step's folder may hold although the step has made nothing yet."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Where a step stands.

    Attributes:
        why: one line for people.
        changes: the settings that differ, for `changed`.
        manifest: the record, when there is a readable one.
        begun: what it was last begun with, when it was begun and is not done.
        edited: whether a file of the user's that it read, or code that it ran, holds something else now.
    """

    step: Step
    state: State
    why: str
    changes: tuple[Change, ...] = ()
    manifest: Manifest | None = None
    begun: Begun | None = None
    edited: bool = False

    @property
    def attempts(self) -> int:
        """How often the step was begun so far."""
        return self.manifest.attempts if self.manifest else self.begun.attempt if self.begun else 0


@dataclass(slots=True)
class BaseIdentity:
    """The recipe's base model, located and hashed when somebody first asks.

    Attributes:
        write_cache: whether a new digest may be written down; only the holder of the run's lock may.
    """

    run: RunDir
    pipeline: Pipeline
    recipe: Recipe
    write_cache: bool = False
    _known: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where it lies; `ArtifactError` when it cannot be found."""
        if "folder" not in self._known:
            self._known["folder"] = self.pipeline.locate_base(self.recipe.base.model)
        return Path(self._known["folder"])

    @property
    def digest(self) -> str:
        """Its identity; `ArtifactError` when it cannot be found, or is not the one that the recipe pins."""
        if "digest" not in self._known:
            found = digest_base(self.folder, self.run.base_path, self.write_cache)
            pinned = self.recipe.base.digest
            if pinned and not found.startswith(pinned.removeprefix("sha256:")):
                raise ArtifactError(
                    f"base model {self.recipe.base.model!r} has digest {found[:16]}, the recipe pins {pinned[:16]}",
                    "take the pinned weights, or change [base] digest",
                )
            self._known["digest"] = found
        return str(self._known["digest"])

    def digest_or(self, otherwise: str) -> str:
        """Its identity, or what was recorded when the base model is not on this machine: then nothing says that it changed."""
        try:
            return self.digest
        except ArtifactError:
            return otherwise


def plan(run: RunDir, pipeline: Pipeline, recipe: Recipe) -> list[StepPlan]:
    """Where every step stands, in order of execution. Reads only; never starts or changes anything."""
    base = BaseIdentity(run, pipeline, recipe)
    plans: dict[str, StepPlan] = {}
    for step in pipeline.steps:
        plans[step.name] = state_of(step, run, pipeline, recipe, base, plans)
    return list(plans.values())


def state_of(
    step: Step, run: RunDir, pipeline: Pipeline, recipe: Recipe, base: BaseIdentity, before: Mapping[str, StepPlan]
) -> StepPlan:
    """Where one step stands.

    Args:
        before: the plans of the steps before it.
    """
    folder = run.step_dir(step)
    if folder.is_symlink() and not folder.exists():
        return StepPlan(step, "stale", f"it is shared from {os.readlink(folder)}, which is gone")
    if run.manifest_path(step).exists():
        return _of_finished(step, run, pipeline, recipe, base, before)
    made = leftovers(folder)
    try:
        begun = read_begun(run.begun_path(step))
        if begun is not None and begun.step != step.name:
            raise ArtifactError(f"{run.begun_path(step)} belongs to step {begun.step!r}")
    except ArtifactError as error:
        return StepPlan(step, "changed", error.problem) if made else StepPlan(step, "todo", "not begun")
    if begun is None:
        if made:
            return StepPlan(
                step, "changed", f"{run.relative(folder)} holds {made[0]!r}, which no beginning of this step accounts for"
            )
        return StepPlan(step, "todo", _waits(step, before))
    found = _compare(step, pipeline, recipe, base, begun.settings, begun.inputs, before)
    if not found.differs:
        return StepPlan(step, "partial", f"stopped in attempt {begun.attempt}; goes on where it stopped", begun=begun)
    if not made:
        return StepPlan(step, "todo", _waits(step, before), begun=begun)  # nothing was made: nothing to lose or to mix
    if found.changes:
        why = _also("it was begun with other settings", found)
        return StepPlan(step, "changed", why, tuple(found.changes), begun=begun, edited=found.edited)
    return StepPlan(step, "stale", found.stale, begun=begun, edited=found.edited)


def leftovers(folder: Path) -> list[str]:
    """What a step has made so far: everything in its folder except the runner's own small files."""
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name not in BOOKKEEPING and not name.startswith("."))


def _of_finished(
    step: Step, run: RunDir, pipeline: Pipeline, recipe: Recipe, base: BaseIdentity, before: Mapping[str, StepPlan]
) -> StepPlan:
    """Where a step with a manifest stands."""
    try:
        manifest = read_manifest(run.manifest_path(step), step)
    except ArtifactError as error:
        return StepPlan(step, "changed", error.problem)
    if missing := [name for name in step.writes if name not in manifest.outputs]:
        return StepPlan(step, "changed", f"it was made without {', '.join(missing)}, which a later step reads now", (), manifest)
    found = _compare(step, pipeline, recipe, base, manifest.settings, manifest.inputs, before)
    if found.changes:
        why = _also("it was made with other settings", found)
        return StepPlan(step, "changed", why, tuple(found.changes), manifest, edited=found.edited)
    if found.stale:
        return StepPlan(step, "stale", found.stale, (), manifest, edited=found.edited)
    return StepPlan(step, "done", f"finished {manifest.finished}".strip(), (), manifest)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What differs between a record and today."""

    changes: list[Change]
    stale: str
    edited: bool

    @property
    def differs(self) -> bool:
        return bool(self.changes or self.stale)


def _also(why: str, found: _Comparison) -> str:
    """Other settings and, beside them, files or code that were changed."""
    return f"{why}; {found.stale}" if found.edited else why


def _compare(
    step: Step,
    pipeline: Pipeline,
    recipe: Recipe,
    base: BaseIdentity,
    settings: Mapping[str, Any],
    inputs: Mapping[str, InputRecord],
    before: Mapping[str, StepPlan],
) -> _Comparison:
    """A record's settings and inputs against today's recipe and today's inputs."""
    digest = base.digest_or(str(settings["base"].get("digest", ""))) if "base" in settings else ""
    differ = changes(settings, recipe.settings(step, digest), step, pipeline)
    edited = changed_files(step, recipe, inputs)
    return _Comparison(differ, "; ".join([*_stale_inputs(step, inputs, before), *edited]), bool(edited))


def _stale_inputs(step: Step, inputs: Mapping[str, InputRecord], before: Mapping[str, StepPlan]) -> list[str]:
    """In which inputs the record and the disk disagree."""
    reasons = []
    for name, source in step.reads.items():
        record = inputs.get(name)
        if record is None and name in step.looked_at:
            continue
        if record is None:
            reasons.append(f"it now reads {name!r}, which it did not read then")
        elif isinstance(source, Output):
            input_plan = before[source.step]
            if input_plan.state != "done" or input_plan.manifest is None:
                reasons.append(f"it was made from {source.step}, which is {input_plan.state} now")
            elif record.build != input_plan.manifest.build:
                reasons.append(f"it was made from an earlier {source.step}, which was made again since")
    return reasons


def _waits(step: Step, before: Mapping[str, StepPlan]) -> str:
    """Why a step is not begun."""
    missing = [
        source.step for source in step.reads.values() if isinstance(source, Output) and before[source.step].state != "done"
    ]
    return f"waits for {', '.join(dict.fromkeys(missing))}" if missing else "ready"
