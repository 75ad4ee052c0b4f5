"""`r1pipe inspect --sql`: one SELECT over the tables of a run, by DuckDB, which can read these tables and nothing else.

The database lives in memory and sees the run's Parquet parts by their paths. No other file can be opened, none written, no
extension loaded, no setting changed; a statement that is not one query is refused before it runs.

Every table of a run is a view named after its step and itself, with underscores: `rejection-sft/sample/attempts` is
`rejection_sft_sample_attempts`. Tables of the step that the command names also stand under their own names: `attempts`. Each has
a column `part` beside its own: the number of its rollout, shard or checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.data.tables import open_part
from r1pipe.errors import ArtifactError, R1PipeError
from r1pipe.opening import Opened
from r1pipe.stage import Step
from r1pipe.views.step import tables_of
from r1pipe.views.tables import parts_of

SHOWN_ROWS = 100
"""Rows of a result that a terminal is given; `--json` gives all."""
CELL_CHARACTERS = 400
MEMORY = "1GB"


class SqlError(R1PipeError):
    """A query that cannot be run."""

    exit_code = 2


def view_names(opened: Opened, steps: Sequence[Step] = ()) -> dict[str, Path]:
    """View -> folder of its table, for every table that the run has; the tables of `steps` also under their short names."""
    found: dict[str, Path] = {}
    for step in opened.pipeline.steps:
        for name in tables_of(opened, step):
            found[_plain(f"{step.name}/{name}")] = opened.run.step_dir(step) / name
    for step in steps:
        for name in tables_of(opened, step):
            found.setdefault(_plain(name), opened.run.step_dir(step) / name)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def query(text: str, views: Mapping[str, Path]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one query over the tables.

    Returns:
        The names of the columns, and the rows.

    Raises:
        SqlError: it is no query, is more than one, or DuckDB refuses it; with the tables there are.
    """
    import duckdb

    known = f"tables: {', '.join(views)}" if views else "no step has made a table yet"
    with duckdb.connect(":memory:") as database:
        for name, folder in views.items():
            files = ", ".join(_quoted(str(path.resolve())) for path in parts_of(folder))
            database.execute(
                f'CREATE VIEW "{name}" AS SELECT * EXCLUDE (filename), '
                f"CAST(regexp_extract(filename, 'part-(\\d+)', 1) AS INTEGER) AS part "
                f"FROM read_parquet([{files}], filename = true)"
            )
        paths = ", ".join(_quoted(str(path.resolve())) for folder in views.values() for path in parts_of(folder))
        for setting in (
            f"allowed_paths = [{paths}]", "autoinstall_known_extensions = false", "autoload_known_extensions = false",
            "allow_community_extensions = false", "python_enable_replacements = false", "temp_directory = ''",
            f"memory_limit = '{MEMORY}'", "enable_external_access = false", "lock_configuration = true",
        ):  # fmt: skip
            database.execute(f"SET {setting}")
        try:
            statements = database.extract_statements(text)
            kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
            if kinds != ["SELECT"]:  # EXPLAIN ANALYZE would carry out what it explains
                raise SqlError(f"one SELECT is wanted, not {', '.join(kinds) or 'nothing'}", known)
            _refuse_damaged(text, views)
            cursor = database.execute(statements[0])
            return _once([column[0] for column in cursor.description or []]), cursor.fetchall()
        except duckdb.Error as error:
            raise SqlError(
                str(error).strip(), f'{known}; a column that is named like a word of SQL stands in quotes: "right"'
            ) from error


def _refuse_damaged(text: str, views: Mapping[str, Path]) -> None:
    """Read the columns that a query names with their checksums, which DuckDB does not look at.

    Raises:
        SqlError: a part is torn or altered.
    """
    words = set(re.findall(r"\w+", text.lower()))
    every = re.search(r"(?<!count\()\*", re.sub(r"\s", "", text.lower())) is not None
    for path in dict.fromkeys(path for name, folder in views.items() if name in words for path in parts_of(folder)):
        try:
            with open_part(path, checksums=True) as file:
                columns = [name for name in file.schema_arrow.names if every or name.lower() in words]
                if columns:
                    for _ in file.iter_batches(columns=columns):
                        pass
        except ArtifactError as error:
            raise SqlError(
                error.problem, "r1pipe check RUN --contents tells what else differs; redo the step that wrote it"
            ) from error


def _once(names: Sequence[str]) -> list[str]:
    """Names of columns, each once: the second `tokens` is `tokens_2`, as a join of two tables may have it."""
    found: list[str] = []
    for name in names:
        number, own = 1, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sql_view(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> RenderableType:
    """The result as a table; texts are shown, not obeyed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(console.escaped(name), overflow="fold")
    for row in rows[:SHOWN_ROWS]:
        table.add_row(*(console.plain("–" if cell is None else _shown(cell), most=CELL_CHARACTERS) for cell in row))
    counted = Text(f"{len(rows):,} rows", style="dim")
    if len(rows) > SHOWN_ROWS:
        counted.append(f", the first {SHOWN_ROWS} shown; --json gives all")
    return Group(table, counted)


def _shown(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def sql_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """The result for programs: an object a row. Numbers that are not finite become null."""
    from r1pipe.metrics import finite

    return [dict(zip(columns, map(finite, row), strict=True)) for row in rows]
