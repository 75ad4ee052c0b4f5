"""Files of the user's as rows: JSON Lines, a JSON array, CSV, Parquet; one row at a time, each value as it stands in the file.

No type is guessed: a cell of a CSV file is text ("007", "null", "1e5", "2024-01-02"), a number in JSON knows how it was written,
a Parquet column has the type it was written with. A row that cannot be read is named by file and line (Parquet: row number).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r1pipe.data.jsonl import OnBad, as_object, decoder, read_jsonl, shortened
from r1pipe.errors import DataError

KINDS = {".jsonl": "lines", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
"""Ending of a file -> how it is read."""
BATCH_ROWS = 1024
CELL_CHARACTERS = 1 << 30
_SPACE = re.compile(r"[ \t\n\r]*")


def read_rows(path: Path, bad: OnBad | None = None, kind: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) for every row of a file.

    Args:
        bad: told of a row that cannot be read, which is then left out; without it such a row is an error. A file that cannot be
            read on behind it (a broken JSON array, a broken Parquet file) is always an error.
        kind: a value of KINDS, where the file's ending does not tell.

    Raises:
        DataError: no such file, another kind of file, or a row that cannot be read; names file and line.
    """
    kind = kind or KINDS.get(path.suffix.lower(), "")
    if not kind:
        raise DataError(
            f"{path}: only {', '.join(KINDS)} files can be read, not {path.suffix or 'a file without ending'}", "convert the file"
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}", "check the path")
    if kind == "parquet":
        yield from _parquet_rows(path)
    elif kind in ("csv", "tsv"):
        yield from _csv_rows(path, "," if kind == "csv" else "\t", bad)
    elif kind == "json" and _begins_with(path, b"["):
        yield from _array_rows(path, bad)
    else:
        yield from ((f"{path}, line {number}", row) for number, row in read_jsonl(path, bad))


def _begins_with(path: Path, mark: bytes) -> bool:
    """Whether the first byte that is no space is the mark."""
    with path.open("rb") as stream:
        while chunk := stream.read(4096):
            if rest := chunk.removeprefix(b"\xef\xbb\xbf").lstrip():
                return rest.startswith(mark)
    return False


def _array_rows(path: Path, bad: OnBad | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a JSON array, named by the line on which they begin. The text is held as a whole, the rows one at a time."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}", "save the file as UTF-8") from error
    read, line, counted = decoder(), 1, 0
    position = _after_space(text, _after_space(text, 0) + 1)
    if text.startswith("]", position):
        return
    while True:
        line, counted = line + text.count("\n", counted, position), position
        where = f"{path}, line {line}"
        try:
            found, end = read.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            torn = "" if text.rstrip().endswith("]") else "; the array has no end, so the file was cut off while it was written"
            raise DataError(f"{where}: the row that begins here is not JSON ({said[:120]}){torn}", "repair the file") from error
        try:
            row = as_object(found)
        except TypeError as error:
            if bad is None:
                raise DataError(f"{where}: {error}", "an array of objects is wanted") from error
            bad(where, str(error), shortened(text[position:end]))
        else:
            yield where, row
        position = _after_space(text, end)
        if text.startswith(",", position):
            position = _after_space(text, position + 1)
        elif text.startswith("]", position):
            if _after_space(text, position + 1) != len(text):
                raise DataError(f"{path}: there is something behind the end of the array", "one array a file")
            return
        elif position == len(text):
            raise DataError(f"{where}: the array has no end, so the file was cut off while it was written", "repair the file")
        else:
            raise DataError(
                f"{where}: the row that begins here and the next are glued together, without a comma", "repair the file"
            )


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    assert found is not None
    return found.end()


def _csv_rows(path: Path, delimiter: str, bad: OnBad | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a CSV file with a header; every cell is text. Quotes must be closed and every row as long as the header."""
    csv.field_size_limit(CELL_CHARACTERS)
    taken: list[str] = []

    def recorded(stream: Iterator[str]) -> Iterator[str]:
        for text in stream:
            taken.append(text)
            yield text

    with path.open(encoding="utf-8-sig", newline="") as stream:
        cells = csv.reader(recorded(stream), delimiter=delimiter, strict=True)
        header: list[str] = []
        while True:
            line = cells.line_num + 1
            where = f"{path}, line {line}"
            taken.clear()
            try:
                row = next(cells, None)
            except UnicodeDecodeError as error:
                raise DataError(f"{where} or below: not UTF-8", "save the file as UTF-8") from error
            except csv.Error as error:
                torn = str(error) == "unexpected end of data"
                what = "a quote is opened and never closed; the file may be cut off" if torn else f"not CSV ({error})"
                if len(taken) > 1:
                    where = f"{path}, lines {line} to {line + len(taken) - 1}"
                    what += f"; the quote that is opened in line {line} takes {len(taken) - 1} more lines with it"
                if bad is None or not header:
                    raise DataError(f"{where}: {what}", "repair the row: a quote inside a cell is written twice") from error
                bad(where, what, shortened("".join(taken).strip()))
                continue
            if row is None:
                return
            if not header:
                header = _header(where, row)
            elif len(row) == len(header):
                yield where, dict(zip(header, row, strict=True))
            elif row:
                what = f"{len(row)} cells, where the header has {len(header)} columns"
                shown = shortened(delimiter.join(row))
                if bad is None:
                    raise DataError(
                        f"{where}: {what}; the row: {shown}", "a cell with a comma or a line end in it stands in quotes"
                    )
                bad(where, what, shown)


def _header(where: str, names: list[str]) -> list[str]:
    """The names of the columns; each once, none empty."""
    odd = next((name for name in names if not name.strip() or names.count(name) > 1), None)
    if not names or odd is not None:
        what = "there are no column names" if not names else f"the column name {odd!r} is empty or stands twice"
        raise DataError(f"{where}: {what}", "the first line of a CSV file names its columns")
    return names


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a Parquet file, some at a time."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        file = pyarrow.parquet.ParquetFile(path)
        names = file.schema_arrow.names
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise DataError(f"{path}: the column name {twice!r} stands twice", "rename one of them")
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            for row in _listed(path, number, _widened(batch)):
                number += 1
                yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        said = str(error).splitlines()[0]
        raise DataError(
            f"{path} is no Parquet file, or was cut off after row {number} ({said})", "write or fetch it again"
        ) from error


def _listed(path: Path, before: int, batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch; DataError naming row and column where Python has no such value."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (UnicodeDecodeError, OverflowError, ValueError):
        for index in range(batch.num_rows):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                try:
                    column[index].as_py()
                except (UnicodeDecodeError, OverflowError, ValueError) as error:
                    raise DataError(
                        f"{path}, row {before + index + 1}: column {name!r} holds what cannot be read ({error})",
                        "write the column as UTF-8 text",
                    ) from error
        raise
    return rows


def _widened(batch: Any) -> Any:
    """Short floating-point columns as wide ones with the same digits: 0.1 must not become 0.10000000149."""
    import pyarrow

    columns = [
        column.cast(pyarrow.string()).cast(pyarrow.float64()) if column.type in (pyarrow.float32(), pyarrow.float16()) else column
        for column in batch.columns
    ]
    return pyarrow.record_batch(columns, names=batch.schema.names)
