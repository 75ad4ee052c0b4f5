"""The two files by which a running step speaks: metrics.jsonl (one JSON object a line) and progress.json (where it stands now).

A line carries the optimizer step it belongs to under "step", so that a resumed run can drop what lies after its checkpoint and
write the same lines again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from r1pipe.errors import ArtifactError
from r1pipe.manifest import write_atomic

METRICS = "metrics.jsonl"
PROGRESS = "progress.json"


class MetricsWriter:
    """Appends to a metrics file; each line is handed to the system at once, so that a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_end(path)
        self._file: IO[str] = path.open("a", encoding="utf-8", newline="\n")

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line. Numbers that are not finite are written as null: JSON has no word for them."""
        self._file.write(json.dumps(finite(line), ensure_ascii=False, separators=(", ", ": ")) + "\n")
        self._file.flush()

    def truncate_after(self, step: int) -> None:
        """Drop every line that will be written again when training goes on from a checkpoint at `step`.

        These are the lines of later steps, the rollout that begins at `step` itself, and a look at the policy before step 1.
        """
        self._file.flush()
        lines = read_metrics(self.path)
        begins = ("rollout",) if step else ("rollout", "held-out")
        kept = [line for line in lines if not line.get("step", 0) > step - (line.get("kind") in begins)]
        if len(kept) == len(lines):
            return
        self._file.close()
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(", ", ": ")) + "\n" for line in kept)
        write_atomic(self.path, text.encode())
        self._file = self.path.open("a", encoding="utf-8", newline="\n")

    def close(self) -> None:
        """Close the file; writing is over."""
        self._file.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of a metrics file, oldest first; empty when there is no file. A torn last line is left out.

    Raises:
        ArtifactError: a line before the last is not a JSON object; names file and line.
    """
    if not path.is_file():
        return []
    pieces = path.read_bytes().split(b"\n")  # not splitlines: text may hold Unicode separators
    whole, lines = pieces[:-1], []  # what follows the last newline is empty or torn
    for number, piece in enumerate(whole, start=1):
        if not piece.strip():
            continue
        try:
            line = json.loads(piece)
        except ValueError as error:
            raise ArtifactError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(line, dict):
            raise ArtifactError(f"{path} line {number} is not a JSON object")
        lines.append(line)
    return lines


class MetricsTail:
    """Reads a growing metrics file; used by the runner while the step's process writes it."""

    def __init__(self, path: Path, from_end: bool = True) -> None:
        self.path = path
        there = path.stat() if path.is_file() else None
        self._offset = there.st_size if from_end and there else 0
        self._file_number = there.st_ino if there else 0

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Lines that became whole since the last call; what a resume has left of an older file is not told again."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return
        size = stat.st_size
        if size < self._offset or (self._file_number and stat.st_ino != self._file_number):
            self._offset = size  # rewritten by a resume: what is left was seen before
        self._file_number = stat.st_ino
        if size == self._offset:
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            chunk = file.read()
        end = chunk.rfind(b"\n") + 1
        self._offset += end
        for piece in chunk[:end].split(b"\n"):
            if piece.strip():
                try:
                    line = json.loads(piece)
                except ValueError:
                    continue  # the file was rewritten between two reads; the reader of the whole file names real damage
                if isinstance(line, dict):
                    yield line


def write_progress(path: Path, progress: Mapping[str, Any]) -> None:
    """Say where the step stands: replaces the file in one go, so that a reader never sees half of it.

    Free keys; the console knows "done" and "total" (counts), "unit" (e.g. "step"), "seconds_left" and "note".
    """
    write_atomic(path, json.dumps(finite(progress), ensure_ascii=False).encode(), durable=False)


def read_progress(path: Path) -> dict[str, Any]:
    """The last progress; empty when there is none yet."""
    try:
        progress = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return progress if isinstance(progress, dict) else {}


def _drop_torn_end(path: Path) -> None:
    """Cut a line that a killed process left unfinished, so that the next one is not glued to it."""
    if not path.is_file():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end != len(content):
        os.truncate(path, end)


def finite(value: Any) -> Any:
    """The value as JSON can hold it: numbers that are not finite become None, numbers of array libraries plain ones."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if not isinstance(value, str | int | None) and hasattr(value, "item"):
        return finite(value.item())
    return value
