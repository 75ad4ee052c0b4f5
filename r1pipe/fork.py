"""What is done to whole runs: make one, share its finished steps with another, discard a step, check what is there."""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
import uuid
from collections.abc import Sequence
from pathlib import Path

from r1pipe.artifact import check_files
from r1pipe.errors import ArtifactError, StateError
from r1pipe.graph import Pipeline
from r1pipe.manifest import read_manifest, sync_folder, write_atomic
from r1pipe.recipe import load_recipe
from r1pipe.rundir import RunDir, list_runs, new_run_path
from r1pipe.stage import Step
from r1pipe.states import plan


def create_run(name: str, text: str, root: Path | None = None) -> RunDir:
    """A new run with that recipe.

    Args:
        name: its name under `root` (the runs folder).
        text: the recipe's TOML, checked by the caller.

    Raises:
        StateError: the name is taken or cannot be a folder's name.
    """
    run = RunDir(new_run_path(name, root))
    run.root.mkdir(parents=True, exist_ok=True)
    write_atomic(run.recipe_path, text.encode())
    return run


def fork(source: RunDir, name: str, before: str, pipeline: Pipeline, root: Path | None = None) -> RunDir:
    """A new run with the same recipe that shares, by relative links, every finished step that is not made from `before`.

    Args:
        before: stage or step that the new run is to make anew.
        pipeline: the new run's, which may have other rounds than the source.

    Raises:
        StateError: the name is taken. RecipeError: there is no such step.
    """
    recipe = load_recipe(source.recipe_path, pipeline)
    own = pipeline.shaped(tomllib.loads(recipe.text))
    anew = {step.name for step in pipeline.select(before)}
    anew |= {step.name for step in pipeline.readers(*anew)}
    target = new_run_path(name, source.root.parent if root is None else root)
    building = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")  # beside the target, so that relative links agree
    try:
        building.mkdir(parents=True)
        there = {step.name for step in pipeline.steps}
        for place in plan(source, own, recipe):
            if place.state == "done" and place.step.name in there - anew:
                link = building / place.step.folder
                link.parent.mkdir(parents=True, exist_ok=True)
                real = source.step_dir(place.step).resolve()
                link.symlink_to(os.path.relpath(real, link.parent.resolve()), target_is_directory=True)
        if source.base_path.is_file():
            shutil.copy2(source.base_path, building / source.base_path.name)
        write_atomic(building / source.recipe_path.name, recipe.text.encode())
        if target.is_dir():
            target.rmdir()  # only an empty folder gets here
        os.rename(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return RunDir(target)


def discard(run: RunDir, pipeline: Pipeline, names: Sequence[str]) -> list[Step]:
    """Discard steps and everything made from them, last first; returns those of which there was something.

    A step is moved aside in one go, so it is there in full or not at all; a shared step is unlinked and its original left alone.

    Raises:
        StateError: another run shares one of the steps.
    """
    chosen = {step.name for name in names for step in pipeline.select(name)}
    doomed = [*pipeline.readers(*chosen), *(step for step in pipeline.steps if step.name in chosen)]
    present = [step for step in pipeline.steps if step in doomed and os.path.lexists(run.step_dir(step))]
    for step in present:
        if others := sharers(run, step):
            raise StateError(
                f"step {step.name} of run {run.name} is shared with {', '.join(others)}, so it is not discarded",
                f"r1pipe fork {run.name} NEWNAME --before {step.name}   makes it anew beside this one",
            )
    for step in reversed(present):
        folder = run.step_dir(step)
        if folder.is_symlink():
            folder.unlink()
        else:
            run.trash.mkdir(exist_ok=True)
            os.rename(folder, run.trash / uuid.uuid4().hex)
        sync_folder(folder.parent)
    empty_trash(run)
    return present


def empty_trash(run: RunDir) -> None:
    """Delete what was discarded, also by a process that was killed meanwhile."""
    if run.trash.is_dir():
        shutil.rmtree(run.trash)  # follows no links


def tidy(folder: Path, deep: bool = True) -> None:
    """Remove the temporary files of writes that a kill cut short: they must not become part of an output.

    Args:
        deep: also in the folders below.
    """
    for temporary in list(folder.rglob(".*.tmp") if deep else folder.glob(".*.tmp")):
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def verify(run: RunDir, pipeline: Pipeline, contents: bool = True) -> list[str]:
    """Check every finished step's outputs against its manifest.

    Args:
        contents: read every byte; otherwise presence and sizes only.

    Returns:
        One line for each problem; empty when all is well.
    """
    return [problem for _, problem in damaged(run, pipeline, contents)]


def damaged(run: RunDir, pipeline: Pipeline, contents: bool = True) -> list[tuple[Step, str]]:
    """The finished steps whose outputs are not as their manifests say, each with what is wrong."""
    found = []
    for step in pipeline.steps:
        if not run.manifest_path(step).exists():
            continue
        try:
            check_outputs(run, step, contents)
        except ArtifactError as error:
            found.append((step, error.problem))
    return found


def sharers(run: RunDir, step: Step) -> list[str]:
    """The runs beside this one that share a step of it."""
    return [other.name for other in list_runs(run.root.parent) if _shares(other, run, step)]


def check_outputs(run: RunDir, step: Step, contents: bool = False) -> None:
    """Check one finished step's outputs against its manifest.

    Raises:
        ArtifactError: a file is missing, has another size, or (with `contents`) another digest.
    """
    manifest = read_manifest(run.manifest_path(step), step)
    for name in step.writes:
        record = manifest.outputs.get(name)
        if record is None:
            raise ArtifactError(f"{run.manifest_path(step)} does not know output {name!r}")
        check_files(run.output_path(step, name), record, contents)


def _shares(other: RunDir, run: RunDir, step: Step) -> bool:
    """Whether another run's step is a link to this run's."""
    link, folder = other.step_dir(step), run.step_dir(step)
    return other.root != run.root and link.is_symlink() and not folder.is_symlink() and link.resolve() == folder.resolve()
