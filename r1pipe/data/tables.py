"""Tables on disk: Parquet parts with fixed schemas, written by rename, and the conversion of rows to and from them.

Every table of a run is a folder of `part-00000.parquet`, `part-00001.parquet`, …. A part is written under a temporary name,
flushed and renamed, so that a part that exists is a whole part. Schemas are explicit: text stays text ("007", dates, "null"),
whatever the first rows hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from r1pipe.data.chat import join_response
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.errors import ArtifactError, DataError
from r1pipe.files import describe_os_error, sync_folder

TEXT, NUMBER, COUNT = "string", "double", "int64"

PROBLEM_COLUMNS = {
    "id": TEXT, "question": TEXT, "answer": TEXT, "checker": TEXT, "language": TEXT, "domain": TEXT, "source": TEXT,
    "level": TEXT,
    "kind": TEXT, "check": TEXT,
}  # fmt: skip
EVALUATION_COLUMNS = {**PROBLEM_COLUMNS, "solution": TEXT}
"""`solution` is a worked solution, which nothing is trained on or scored by: it is there to find copies of it."""
TRACE_COLUMNS = {**PROBLEM_COLUMNS, "thinking": TEXT, "summary": TEXT, "origin": TEXT}
PAIR_COLUMNS = {"id": TEXT, "question": TEXT, "language": TEXT, "kind": TEXT, "chosen": TEXT, "rejected": TEXT, "source": TEXT}
LABEL_COLUMNS = {"id": TEXT, "question": TEXT, "language": TEXT, "response": TEXT, "safe": COUNT, "source": TEXT}
ATTEMPT_COLUMNS = {
    **PROBLEM_COLUMNS, "prefix": TEXT, "completion": TEXT, "finish": TEXT, "tokens": COUNT, "sample": COUNT, "verdict": TEXT,
    "total": NUMBER, "scores": TEXT, "error": TEXT,
}  # fmt: skip
"""`check` and `scores` are JSON text; `scores` maps a reward's name to [value, note] or null."""


def content_id(*parts: str) -> str:
    """A stable id of 16 hex digits made from the content."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]


@cache
def _schema(columns: tuple[tuple[str, str], ...]) -> Any:
    import pyarrow

    return pyarrow.schema([(name, getattr(pyarrow, {"double": "float64"}.get(kind, kind))()) for name, kind in columns])


def part_path(folder: Path, number: int) -> Path:
    """Path of a part."""
    return folder / f"part-{number:05d}.parquet"


def write_part(folder: Path, number: int, rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> Path:
    """Write one part whole or not at all; missing columns are an error, extra ones too.

    Raises:
        DataError: a row has other columns, or a value of another type. ArtifactError: the disk is full, or refused.
    """
    import pyarrow

    for row in rows:
        if row.keys() != columns.keys():
            odd = sorted(row.keys() ^ columns.keys())
            raise DataError(f"a row for {folder.name} has other columns than its table: {', '.join(odd)}")
    try:
        table = pyarrow.Table.from_pylist(list(rows), schema=_schema(tuple(columns.items())))
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise DataError(f"a row for {folder.name} holds a value that its column cannot: {error}") from error
    return write_columns(folder, number, table)


def write_columns(folder: Path, number: int, table: Any, rows_per_group: int | None = None) -> Path:
    """Write one part whole or not at all, from an Arrow table.

    Raises:
        ArtifactError: the disk is full, or refused.
    """
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    path = part_path(folder, number)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pyarrow.parquet.write_table(table, temporary, compression="zstd", row_group_size=rows_per_group, write_page_checksum=True)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_folder(folder)
    except OSError as error:
        raise ArtifactError(
            f"{path} could not be written: {describe_os_error(error)}", "make room or mend the disk, then r1pipe resume"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def write_table(folder: Path, rows: Iterable[dict[str, Any]], columns: dict[str, str], rows_per_part: int = 20_000) -> int:
    """Write a table in parts of `rows_per_part`; returns the number of rows. Older parts of the folder are replaced."""
    for old in folder.glob("part-*.parquet"):
        old.unlink()
    number = written = 0
    buffer: list[dict[str, Any]] = []
    for row in rows:
        buffer.append(row)
        if len(buffer) >= rows_per_part:
            write_part(folder, number, buffer, columns)
            number, written, buffer = number + 1, written + len(buffer), []
    if buffer or number == 0:
        write_part(folder, number, buffer, columns)
    return written + len(buffer)


@contextmanager
def open_part(path: Path, checksums: bool = False) -> Iterator[Any]:
    """A part to read from, as Arrow's Parquet file, decoded as it is asked for; ArtifactError naming the file when it is torn.

    Args:
        checksums: also compare what is read with the checksum that each page was written with.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(
            path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=checksums
        ) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise ArtifactError(f"{path.parent.name}/{path.name} cannot be read: {error}", "redo the step that wrote it") from error


def part_rows(path: Path) -> int:
    """Number of rows of a part, from its footer."""
    with open_part(path) as file:
        return int(file.metadata.num_rows)


def read_part(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """All rows of a part, with some of their columns or all; ArtifactError naming the file when it is torn or altered."""
    with open_part(path, checksums=True) as file:
        rows: list[dict[str, Any]] = file.read(columns=None if columns is None else list(columns)).to_pylist()
    return rows


def read_table(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of all parts in order."""
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise ArtifactError(f"the table {folder.name} has no parts", "redo the step that writes it")
    for path in parts:
        yield from read_part(path)


def problem_row(problem: Problem) -> dict[str, Any]:
    """A problem as a row of a table."""
    fields = {name: getattr(problem, name) for name in PROBLEM_COLUMNS}  # `asdict` copies all values: ten times as long
    return {**fields, "check": json.dumps(problem.check, ensure_ascii=False, sort_keys=True)}


def problem_of(row: dict[str, Any]) -> Problem:
    """The problem of a row (of any table whose columns include those of problems)."""
    return Problem(**{name: row[name] for name in PROBLEM_COLUMNS if name != "check"}, check=json.loads(row["check"] or "{}"))


def read_problems(folder: Path) -> list[Problem]:
    """All problems of a table."""
    return [problem_of(row) for row in read_table(folder)]


def read_examples(folder: Path) -> list[tuple[str, str]]:
    """(question, response) of every row of a table of traces, as SFT takes them."""
    return [(row["question"], join_response(row["thinking"], row["summary"])) for row in read_table(folder)]


def attempt_row(
    attempt: Attempt, sample: int, parts: dict[str, Score | None], total: float | None, verdict: str, error: str = ""
) -> dict[str, Any]:
    """A scored attempt as a row of a table."""
    scores = {name: None if score is None else [score.value, score.note] for name, score in parts.items()}
    return {
        **problem_row(attempt.problem),
        "prefix": attempt.prefix,
        "completion": attempt.completion,
        "finish": attempt.finish,
        "tokens": attempt.tokens,
        "sample": sample,
        "verdict": verdict,
        "total": total,
        "scores": json.dumps(scores, ensure_ascii=False),
        "error": error,
    }


def attempt_of(row: dict[str, Any]) -> Attempt:
    """The attempt of a row."""
    return Attempt(problem_of(row), row["completion"], row["prefix"], row["finish"], row["tokens"])


def scores_of(row: dict[str, Any]) -> dict[str, Score | None]:
    """The scores of an attempt's row, by reward."""
    return {name: None if pair is None else Score(pair[0], pair[1]) for name, pair in json.loads(row["scores"]).items()}
