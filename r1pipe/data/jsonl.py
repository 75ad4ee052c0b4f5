"""JSON Lines, read and written by our own few lines.

Other readers guess types from the first rows ("007" becomes 7, a date an object), split lines at U+2028, or stop at a torn line
without saying where. Here a line ends at a newline only, values keep their JSON types, a number keeps the text it was written
with, and a line that is no JSON object is named by file and number.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from r1pipe.errors import DataError

OnBad = Callable[[str, str, str], None]
"""Told of a row that cannot be read: where it stands, what is wrong with it, and the row as far as it can be shown."""

SHOWN_CHARACTERS = 300
"""So much of a row stands in an error."""


JSON_NAMES = {str: "a text", bool: "true or false", list: "an array", dict: "an object", type(None): "null"}
"""A value's type -> what JSON calls it; all others are numbers."""


MOST_DIGITS = 4000
"""Python refuses to read whole numbers of more digits than a few more than these."""


class Written(float):
    """A JSON number with a point or an exponent that knows how it was written: 3.10 is the answer "3.10", 1e5 is "1e5"."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Written:
        """The number of a text; ValueError where it is too large for one."""
        number = super().__new__(cls, text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is too large for a number")
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text


def read_jsonl(path: Path, bad: OnBad | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) of each line, blank lines left out.

    Args:
        bad: told of a line that is not one JSON object, which is then left out; without it such a line is an error.

    Raises:
        DataError: the file is missing, is not UTF-8, or a line is not one JSON object; names file and line.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}", "check the path")
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                row = _row(text)
            except ValueError as error:
                if bad is None:
                    hint = "save the file as UTF-8" if "UTF-8" in str(error) else "repair or remove the line"
                    raise DataError(f"{path}, line {number}: {error}", hint) from error
                bad(f"{path}, line {number}", str(error), shortened(text.decode("utf-8", "replace").strip()))
                continue
            yield number, row


def _row(line: bytes) -> dict[str, Any]:
    """The object of a line; ValueError with what is wrong."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    try:
        return as_object(decoder().decode(text))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text[error.pos :].lstrip().startswith("{"):
            raise ValueError(
                f"not JSON: two rows stand in one line, the second from character {error.pos + 1} on; a line end was lost"
            ) from error
        torn = "" if line.endswith(b"\n") else "; the line has no end, so the file was cut off while it was written"
        raise ValueError(f"not JSON ({error.msg} at character {error.pos + 1}){torn}") from error
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error) if isinstance(error, TypeError) else "not JSON (nested too deeply)") from error


def as_object(found: Any) -> dict[str, Any]:
    """A row; TypeError when the value is something else."""
    if not isinstance(found, dict):
        raise TypeError(f"{JSON_NAMES.get(type(found), 'a number')} where a JSON object is wanted; one object a row")
    return found


@cache
def decoder() -> json.JSONDecoder:
    """JSON as it is meant: no NaN, no key twice, numbers as they were written."""
    return json.JSONDecoder(parse_float=Written, parse_int=_whole, parse_constant=_refuse, object_pairs_hook=_without_duplicates)


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text):,} digits; up to {MOST_DIGITS:,} are read: write it as text")
    return int(text)


def _refuse(constant: str) -> Any:
    raise ValueError(f"not JSON ({constant} is not JSON)")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"not JSON (the key {twice!r} stands twice)")
    return row


def shortened(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """A text, cut where it is too long to stand in an error."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


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
