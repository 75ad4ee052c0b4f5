"""JSON lines, read by us: split at newlines only, types kept as written, and a bad line named by file and line.

Readers that infer types turn "007" into 7 and a date into a time stamp; readers that split at any line separator break a text
that holds a Unicode one. Neither happens here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r1pipe.errors import DataError


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) for each line that is not blank.

    Raises:
        DataError: the file is missing, empty, not UTF-8, or a line is torn, glued or no JSON object; names file, line and place.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    rows = 0
    with stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except UnicodeDecodeError as error:
                raise DataError(f"{path} line {number} is not UTF-8 (byte {error.start})", "save the file as UTF-8") from error
            except json.JSONDecodeError as error:
                kind = "two rows are glued together" if error.msg == "Extra data" else f"not whole JSON: {error.msg}"
                shown = line.decode(errors="replace").strip()[:80]
                where = f"{path} line {number}, column {error.colno}"
                raise DataError(f"{where}: {kind}; the line begins {shown!r}", "mend or delete it") from error
            if not isinstance(row, dict):
                raise DataError(
                    f"{path} line {number} is a JSON {type(row).__name__}, not an object", "one object a line is needed"
                )
            rows += 1
            yield number, row
    if not rows:
        raise DataError(f"{path} has no rows", "the file is empty")
