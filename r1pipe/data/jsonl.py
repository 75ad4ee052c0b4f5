"""JSON Lines, read and written by our own few lines.

Other readers guess types from the first rows ("007" becomes 7, a date an object), split lines at U+2028, or stop at a torn line
without saying where. Here a line ends at a newline only, values keep their JSON types, and a line that is no JSON object is
named by file and number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from r1pipe.errors import DataError


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) of each line, blank lines left out.

    Raises:
        DataError: the file is missing, is not UTF-8, or a line is not one JSON object; names file and line.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}", "check the path")
    number = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield number, _row(path, number, text)


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_without_duplicates)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8 at byte {error.start}", "save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        torn = "" if line.endswith(b"\n") else "; the line has no end, so the file was cut off while it was written"
        raise DataError(f"{path}, line {number}: not JSON ({str(error)[:120]}){torn}", "repair or remove the line") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}, line {number}: a {type(row).__name__} where a JSON object is wanted", "one object a line")
    return row


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return row


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as a whole file or not at all (temporary name, fsync, rename); returns their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
                count += 1
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return count
