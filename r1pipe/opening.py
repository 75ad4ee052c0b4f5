"""From what the user typed to a run, its pipeline and its recipe.

Every command begins here. The recipe in the run's folder is the only source of its settings: `--set` edits it, and another
recipe than the one that the run was made with is refused.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from r1pipe.errors import RecipeError, StateError
from r1pipe.graph import DEFAULT_LOADER, Pipeline, section_of
from r1pipe.recipe import Recipe, apply_sets, file_text, load_recipe, pipeline_name
from r1pipe.recipe_text import KeyPath
from r1pipe.rundir import RunDir, find_run, list_runs, runs_root

PIPELINES_VARIABLE = "R1PIPE_PIPELINES"
"""Environment variable that names a function of the user's own, "module:function", which gives a pipeline by name."""

DEFAULT_RECIPE = "nano"

MOST_DIFFERENCES = 12


@dataclass(frozen=True, slots=True)
class Opened:
    """A run together with what its recipe says.

    Attributes:
        run: its folder, which need not exist yet.
        exists: whether it does.
        edits: settings that `--set` changes in an existing run's recipe, as (key, before, after).
    """

    run: RunDir
    pipeline: Pipeline
    recipe: Recipe
    exists: bool = True
    edits: tuple[tuple[str, object, object], ...] = ()


def loader() -> str:
    """Which function gives pipelines by name."""
    return os.environ.get(PIPELINES_VARIABLE) or DEFAULT_LOADER


def load_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        RecipeError: there is none.
    """
    module, _, function = loader().partition(":")
    pipeline: Pipeline = getattr(import_module(module), function)(name)
    return pipeline


def packaged_recipes() -> dict[str, Path]:
    """The recipes that come with r1pipe, by name."""
    folder = Path(str(files("r1pipe"))) / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem)}


def recipe_text(named: str) -> tuple[str, str]:
    """Text of a recipe and what to call it in messages.

    Args:
        named: the name of a recipe that comes with r1pipe, or a file.

    Raises:
        RecipeError: there is neither.
    """
    known = packaged_recipes()
    looks_like_a_file = named.endswith(".toml") or "/" in named or Path(named).is_file()
    if named in known and not looks_like_a_file:
        return known[named].read_text(encoding="utf-8"), f"recipe {named}"
    path = Path(named).expanduser()
    if path.is_dir() and (path / "recipe.toml").is_file():
        path = path / "recipe.toml"
    if not path.is_file():
        near = get_close_matches(named, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        what = "no such file" if looks_like_a_file else "neither a recipe of r1pipe nor a file"
        raise RecipeError(f"recipe {named!r}: {what}", f"{hint}r1pipe recipes lists those that come with it: {', '.join(known)}")
    return file_text(path), os.fspath(path)


def load(text: str, where: str, sets: Sequence[str] = ()) -> tuple[Pipeline, Recipe]:
    """A recipe's text, checked as a whole, with `--set` applied.

    Raises:
        RecipeError: everything that is wrong with it.
    """
    pipeline = load_pipeline(pipeline_name(Path(where) if Path(where).is_file() else text))  # a file is named in messages
    if sets:
        text = apply_sets(text, sets, pipeline, where)
    recipe = load_recipe(text, pipeline, where)
    return pipeline.shaped(tomllib.loads(text)), recipe


def silent_sections(recipe: Recipe, pipeline: Pipeline) -> list[KeyPath]:
    """Sections of steps that the recipe leaves out altogether, so that every setting there is a default."""
    data = tomllib.loads(recipe.text)
    silent: list[KeyPath] = []
    for path in (section_of(step) for step in pipeline.steps if step.inherits is None):
        found: Any = data
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            silent.append(path)
    return silent


def open_recipe(named: str, sets: Sequence[str] = ()) -> tuple[Pipeline, Recipe]:
    """A recipe by name or file, checked as a whole."""
    text, where = recipe_text(named)
    return load(text, where, sets)


def open_run(name: str | None = None) -> Opened:
    """An existing run: by name, by path, or the one worked on last.

    Raises:
        StateError: there is none. RecipeError: its recipe is not right.
    """
    run = find_run(name)
    pipeline, recipe = load(file_text(run.recipe_path), os.fspath(run.recipe_path))
    return Opened(run, pipeline, recipe)


def run_option(run: RunDir) -> str:
    """What to add to a command so that it means this run: nothing when it is the one worked on last."""
    known = list_runs()
    newest = bool(known) and known[0].root.resolve() == run.root.resolve()
    return "" if newest else f" --run {named(run)}"


def named(run: RunDir) -> str:
    """How the user names a run in a command."""
    from r1pipe.failures import shown

    return shown(run)


def open_or_begin(recipe: str | None, run: str | None, sets: Sequence[str]) -> Opened:
    """The run that `run-all` and `plan` mean: an existing one with its own recipe, or one that would be made. Writes nothing.

    Args:
        recipe: name or file; None means the run's own, or "nano" for a new one.
        run: its name; None means the recipe's.
        sets: `--set` values, applied to the recipe.

    Raises:
        StateError: the run exists and was made with another recipe.
    """
    text, where = recipe_text(recipe or DEFAULT_RECIPE)
    if run is None:
        run = _name_in(text, where) or Path(where).stem
    root = _existing(run)
    if root is None:
        pipeline, checked = load(text, where, sets)
        return Opened(RunDir(runs_root() / run), pipeline, checked, exists=False)
    stored = file_text(root.recipe_path)
    own = os.fspath(root.recipe_path)
    pipeline, now = load(stored, own, sets)
    if recipe is not None:
        _, given = load(text, where, sets)
        if differences := _differences(now.text, given.text):
            raise StateError(_other_recipe(root, where, differences), _other_recipe_hint(root))
    return Opened(root, pipeline, now, edits=tuple(_differences(stored, now.text)))


def open_for_plan(recipe: str | None, run: str | None, sets: Sequence[str]) -> Opened:
    """What `plan` means: as `open_or_begin`; without a name the run worked on last, when there is one. Writes nothing."""
    if recipe is None and run is None and (known := list_runs()):
        run = known[0].name
    return open_or_begin(recipe, run, sets)


def open_with_sets(name: str | None, sets: Sequence[str]) -> Opened:
    """An existing run, with `--set` applied to its recipe (not written yet).

    Raises:
        StateError: there is none.
    """
    return open_or_begin(None, os.fspath(find_run(name).root), sets)


def _name_in(text: str, where: str) -> str:
    """The `name` of a recipe that is not checked yet; empty when it has none."""
    try:
        name = tomllib.loads(text).get("name", "")
    except tomllib.TOMLDecodeError:
        load(text, where)  # says what is wrong, with its place
        raise
    return name if isinstance(name, str) else ""


def _existing(name: str) -> RunDir | None:
    """The run of that name (or path), when there is one."""
    for candidate in (runs_root() / name, Path(name)):
        if (candidate / "recipe.toml").is_file():
            return RunDir(candidate)
    return None


def _differences(before: str, after: str) -> list[tuple[str, object, object]]:
    """Keys in which two recipes differ, as (key, before, after)."""
    from r1pipe.manifest import ABSENT, changes

    found = changes(tomllib.loads(before), tomllib.loads(after))
    return [change for change in found if any(value not in ({}, ABSENT) for value in change[1:])]  # an empty section says nothing


def _other_recipe(run: RunDir, where: str, differences: Sequence[tuple[str, object, object]]) -> str:
    lines = [f"  {key}: {then} in the run, {now} in {where}" for key, then, now in differences[:MOST_DIFFERENCES]]
    if len(differences) > MOST_DIFFERENCES:
        lines.append(f"  … and {len(differences) - MOST_DIFFERENCES} more")
    return "\n".join([f"run {run.name} has a recipe of its own, which differs from {where}:", *lines])


def _other_recipe_hint(run: RunDir) -> str:
    return (
        f"r1pipe resume {run.name}   goes on with its own recipe\n"
        "add --run NEWNAME to start another run, or --set key=value to change this one's recipe"
    )
