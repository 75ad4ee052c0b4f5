"""Where everything of a run lies: the one module that knows paths.

A run is a folder that holds its own recipe. Nothing stored inside names an absolute path, so the whole runs folder can be moved.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from r1pipe.errors import StateError
from r1pipe.stage import Base, Output, Step

RUNS_VARIABLE = "R1PIPE_RUNS"
"""Environment variable that moves the runs folder away from `runs/` in the current folder."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def runs_root() -> Path:
    """The folder that holds the runs."""
    return Path(os.environ.get(RUNS_VARIABLE) or "runs")


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of one run.

    Attributes:
        root: the run's folder, e.g. `runs/demo`.
    """

    root: Path

    @property
    def name(self) -> str:
        """The run's name: the name of its folder."""
        return self.root.name or self.root.absolute().name

    @property
    def recipe_path(self) -> Path:
        """The run's own copy of the recipe; the only source of its settings."""
        return self.root / "recipe.toml"

    @property
    def lock_path(self) -> Path:
        """Present while a process works on the run."""
        return self.root / "lock.json"

    @property
    def base_path(self) -> Path:
        """What is known of the base model: sizes, times and digests of its files, so that they are hashed once."""
        return self.root / "base.json"

    @property
    def goal_path(self) -> Path:
        """How far the command that was stopped was asked to go; see `r1pipe.goal`."""
        return self.root / "goal.json"

    @property
    def worked_path(self) -> Path:
        """Its time of change is when a step was begun last."""
        return self.root / ".worked"

    @property
    def trash(self) -> Path:
        """Where a discarded step is moved before it is deleted; emptied at the next start."""
        return self.root / ".discarded"

    def step_dir(self, step: Step) -> Path:
        """The step's folder; a symbolic link when the step is shared with the run that this one was forked from."""
        return self.root / step.folder

    def manifest_path(self, step: Step) -> Path:
        """The record that a finished step leaves, written last: the step is done if and only if it exists."""
        return self.step_dir(step) / "manifest.json"

    def begun_path(self, step: Step) -> Path:
        """Written before the step's process starts: settings and inputs that the step was begun with."""
        return self.step_dir(step) / "begun.json"

    def worker_path(self, step: Step) -> Path:
        """Which process works on the step."""
        return self.step_dir(step) / "worker.json"

    def result_path(self, step: Step) -> Path:
        """What the step's process hands to the runner when all its outputs are on disk."""
        return self.step_dir(step) / "result.json"

    def error_path(self, step: Step) -> Path:
        """What the step's process says when it fails."""
        return self.step_dir(step) / "error.json"

    def stop_path(self, step: Step) -> Path:
        """Present when the user asked to stop a step that runs on several processes."""
        return self.step_dir(step) / "stop"

    def metrics_path(self, step: Step) -> Path:
        """One JSON object a line."""
        return self.step_dir(step) / "metrics.jsonl"

    def progress_path(self, step: Step) -> Path:
        """Where the step stands now."""
        return self.step_dir(step) / "progress.json"

    def log_path(self, step: Step, attempt: int) -> Path:
        """What the step's process printed, by attempt (counted from 1)."""
        return self.step_dir(step) / "logs" / f"attempt-{attempt}.log"

    def output_path(self, step: Step, name: str) -> Path:
        """Where a promised output lies."""
        return self.step_dir(step) / (f"{name}.json" if step.writes[name] == "json" else name)

    def input_path(self, source: Output | Base, steps: dict[str, Step], base: Path | None) -> Path:
        """Where an input lies: an output of an earlier step, or the base model's folder."""
        if isinstance(source, Output):
            return self.output_path(steps[source.step], source.name)
        if base is None:
            raise StateError("the base model's folder is not known")
        return base

    def relative(self, path: Path) -> str:
        """A path as it is shown and stored: relative to the run's folder, with forward slashes."""
        return path.relative_to(self.root).as_posix()


def list_runs(root: Path | None = None) -> list[RunDir]:
    """The runs under a folder, the one that was worked on last first."""
    folder = runs_root() if root is None else root
    if not folder.is_dir():
        return []
    runs = [RunDir(child) for child in folder.iterdir() if not child.name.startswith(".") and (child / "recipe.toml").is_file()]
    return sorted(runs, key=lambda run: (-_worked(run), run.name))


def _worked(run: RunDir) -> int:
    """When a run was worked on last, in nanoseconds: a step was begun, or its recipe was written. The folder's own time, which a
    look at it may change, says so only for a run in which nothing was begun."""
    if not run.worked_path.exists():
        return run.root.stat().st_mtime_ns
    return max(path.stat().st_mtime_ns for path in (run.worked_path, run.recipe_path))


def newest_run(root: Path | None = None) -> RunDir:
    """The run that was worked on last.

    Raises:
        StateError: there is none.
    """
    folder = runs_root() if root is None else root
    runs = list_runs(folder)
    if not runs:
        raise StateError(f"there is no run in {folder}", "r1pipe run-all starts one")
    return runs[0]


def find_run(name: str | None = None, root: Path | None = None) -> RunDir:
    """The run that the user means: a name under the runs folder, a path to a run's folder, or the newest when None.

    Raises:
        StateError: there is no such run; the message lists those that exist.
    """
    if name is None:
        return newest_run(root)
    folder = runs_root() if root is None else root
    for candidate in (folder / name, Path(name)):
        if (candidate / "recipe.toml").is_file():
            return RunDir(candidate)
    known = ", ".join(run.name for run in list_runs(folder)[:8])
    raise StateError(f"there is no run {name!r} in {folder}", f"runs there: {known}" if known else "r1pipe run-all starts one")


def new_run_path(name: str, root: Path | None = None) -> Path:
    """Where a run of that name would lie.

    Raises:
        StateError: the name is not fit for a folder, or is taken.
    """
    folder = runs_root() if root is None else root
    if not _NAME.fullmatch(name):
        raise StateError(
            f"{name!r} cannot be the name of a run", "use letters, digits, '.', '_' and '-', starting with a letter or digit"
        )
    path = folder / name
    if path.is_dir() and not (path / "recipe.toml").is_file() and any(path.glob("*/**/manifest.json")):
        raise StateError(
            f"{path} holds finished steps but no recipe.toml", "put the run's recipe.toml back, or choose another name with --run"
        )
    if path.exists() and (not path.is_dir() or any(child.suffix != ".tmp" for child in path.iterdir())):
        raise StateError(f"{path} exists already", f"r1pipe resume {name} goes on with it; or choose another name with --run")
    return path


def free_name(name: str, root: Path | None = None) -> str:
    """`name`, or `name-2`, `name-3`, ...: the first that is not taken."""
    folder = runs_root() if root is None else root
    candidate, number = name, 1
    while (folder / candidate).exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate
