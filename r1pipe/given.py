"""Files of the user's that a step reads, and code of the user's that it runs: recorded when the step begins, looked at again
whenever somebody asks where it stands.

A file is told by size and time of change, and only when one of these differs by its content, so that asking stays quick and a
file that was merely touched or copied anew changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from r1pipe.artifact import file_record
from r1pipe.errors import DataError
from r1pipe.manifest import InputRecord
from r1pipe.own_code import code_files
from r1pipe.recipe import Recipe
from r1pipe.stage import Step

FILE = "file"
"""What a record says in place of a step's name."""
CODE = "code of "
"""Begins the name of a record of a module of the user's."""


def file_inputs(step: Step, recipe: Recipe) -> dict[str, InputRecord]:
    """A record for every file that the step's settings name, and for every file of code that they name by import path.

    Raises:
        DataError: a file is not there.
    """
    records = {}
    for name, path in _files(step, recipe).items():
        try:
            records[name] = InputRecord(step=FILE, output=path.name, build=_stamp(path), digest=file_record(path).sha256)
        except OSError as error:
            raise DataError(f"{step.name}: {path}: {error.strerror}", f"mend the path {name} in the recipe") from error
    return records


def changed_files(step: Step, recipe: Recipe, inputs: Mapping[str, InputRecord]) -> list[str]:
    """Which of the recorded files hold something else now, in words. A file that is gone changes nothing: it was read."""
    reasons = []
    for name, path in _files(step, recipe).items():
        record = inputs.get(name)
        if record is None or record.step != FILE or not path.is_file() or record.build == _stamp(path):
            continue
        if record.digest != file_record(path).sha256:
            made = f"with the {name}" if name.startswith(CODE) else "from"
            where = f"({_shown(path)})" if name.startswith(CODE) else _shown(path)
            reasons.append(f"it was made {made} {where}, which was changed since")
    return reasons


def _files(step: Step, recipe: Recipe) -> dict[str, Path]:
    """The files that a step's settings name, by setting, and those of its code, by module."""
    config, shared = recipe.configs[step.name], {name: recipe.shared[name] for name in step.shares}
    named = step.code(config, shared)
    code = {f"{CODE}{module}": path for module, path in code_files(named).items()} if named else {}
    return {**step.files(config, shared), **code}


def _shown(path: Path) -> str:
    """A path for people: from here when it lies below."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else os.fspath(path)


def _stamp(path: Path) -> str:
    """Size in bytes and time of change in nanoseconds."""
    status = os.stat(path)
    return f"{status.st_size}-{status.st_mtime_ns}"
