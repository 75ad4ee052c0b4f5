"""Files of the user's that a step reads: recorded when the step begins, looked at again whenever somebody asks where it stands.

A file is told by size and time of change, and only when one of these differs by its content, so that asking stays quick and a
file that was merely touched or copied anew changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r1pipe.artifact import file_record
from r1pipe.errors import DataError
from r1pipe.manifest import InputRecord
from r1pipe.stage import Step

FILE = "file"
"""What a record says in place of a step's name."""


def file_inputs(step: Step, config: Any) -> dict[str, InputRecord]:
    """A record for every file that the step's settings name.

    Raises:
        DataError: a file is not there.
    """
    records = {}
    for name, path in step.files(config).items():
        try:
            records[name] = InputRecord(step=FILE, output=path.name, build=_stamp(path), digest=file_record(path).sha256)
        except OSError as error:
            raise DataError(f"{step.name}: {path}: {error.strerror}", f"mend the path {name} in the recipe") from error
    return records


def changed_files(step: Step, config: Any, inputs: Mapping[str, InputRecord]) -> list[str]:
    """Which of the recorded files hold something else now, in words. A file that is gone changes nothing: it was read."""
    reasons = []
    for name, path in step.files(config).items():
        record = inputs.get(name)
        if record is None or record.step != FILE or not path.is_file() or record.build == _stamp(path):
            continue
        if record.digest != file_record(path).sha256:
            reasons.append(f"it was made from {path}, which was changed since")
    return reasons


def _stamp(path: Path) -> str:
    """Size in bytes and time of change in nanoseconds."""
    status = os.stat(path)
    return f"{status.st_size}-{status.st_mtime_ns}"
