"""The last pass: the chosen rows are read again and written in their order, with no more than a few parts in memory.

The order is drawn, so a row's place in the selection has nothing to do with where it is read. Rows first go to the bucket of
their place (a run of the selection small enough to be put in order in memory), then each bucket is sorted and written as one
part. Nothing is read or written more than twice, whatever the number of rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1pipe.data.chat import split_response
from r1pipe.data.tables import PROBLEM_COLUMNS, TRACE_COLUMNS, write_columns
from r1pipe.stages.selection.reading import ATTEMPTS, batches

BYTES_PER_PART = 96 * 1024 * 1024
ROWS_PER_PART = 20_000
MOST_BUCKETS = 400
"""Each bucket is an open file of every worker."""
FROM_SAMPLING, FROM_GENERAL = "rejection sampling", "general data"
_ROWS_HELD = 2048


@dataclass(frozen=True)
class Layout:
    """How the selection is cut into parts: `rows` in all, `per_part` in each but the last."""

    rows: int
    per_part: int

    @classmethod
    def of(cls, rows: int, size: int) -> Layout:
        """The layout for rows with so many characters in all."""
        fitting = max(1, rows * BYTES_PER_PART // max(1, 2 * size))
        return cls(rows, max(min(ROWS_PER_PART, fitting), -(-rows // MOST_BUCKETS)))

    @property
    def parts(self) -> int:
        """Number of parts; one even of nothing."""
        return max(1, -(-self.rows // self.per_part))


@dataclass(frozen=True)
class Source:
    """One part of a table with the chosen rows in it: row numbers (ascending), and the place of each in the selection."""

    path: Path
    kind: str
    rows: Any
    positions: Any
    models: frozenset[int] = frozenset()


def scatter(sources: list[Source], layout: Layout, spill: Path, writer: str, judge: str, with_thinking: bool) -> int:
    """Write the chosen rows of some parts to the buckets of their places; returns their number.

    Args:
        writer: the name of this worker's files; each bucket has one file of every worker.
        judge: the model that judged what no rule could, for the rows' origin.
        with_thinking: whether general rows keep their thinking.
    """
    import pyarrow

    schema = _schema()
    spill.mkdir(parents=True, exist_ok=True)
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    count = 0
    with ExitStack() as stack:
        open_files: dict[int, Any] = {}
        held: list[Any] = []

        def flush() -> None:
            if not held:
                return
            table = pyarrow.Table.from_batches(held, schema).sort_by("position")
            buckets = (table.column("position").to_numpy() // layout.per_part).tolist()
            start = 0
            for end in range(1, len(buckets) + 1):
                if end < len(buckets) and buckets[end] == buckets[start]:
                    continue
                number = buckets[start]
                if number not in open_files:
                    path = spill / f"{number:05d}-{writer}.arrow"
                    open_files[number] = stack.enter_context(pyarrow.ipc.new_stream(path, schema, options=options))
                open_files[number].write_table(table.slice(start, end - start).combine_chunks())
                start = end
            held.clear()

        for source in sources:
            for batch in _chosen(source, judge, with_thinking):
                held.append(batch)
                count += batch.num_rows
                if sum(part.num_rows for part in held) >= _ROWS_HELD:
                    flush()
        flush()
    return count


def gather(number: int, layout: Layout, spill: Path, target: Path) -> int:
    """Put one bucket in order and write it as a part of the selection; returns its rows."""
    import pyarrow

    tables = [pyarrow.ipc.open_stream(path).read_all() for path in sorted(spill.glob(f"{number:05d}-*.arrow"))]
    table = pyarrow.concat_tables(tables) if tables else _schema().empty_table()
    table = table.sort_by("position").drop_columns(["position"])
    write_columns(target, number, table, rows_per_group=max(1, min(layout.per_part, 4096)))
    for path in spill.glob(f"{number:05d}-*.arrow"):
        path.unlink()
    return int(table.num_rows)


def _schema() -> Any:
    import pyarrow

    return pyarrow.schema([*((name, pyarrow.string()) for name in TRACE_COLUMNS), ("position", pyarrow.int64())])


def _chosen(source: Source, judge: str, with_thinking: bool) -> Any:
    """The chosen rows of a part as batches of traces with their places."""
    import numpy as np
    import pyarrow

    texts = ("prefix", "completion") if source.kind == ATTEMPTS else ("thinking", "summary")
    start = 0
    for batch in batches(source.path, (*PROBLEM_COLUMNS, *texts)):
        low, high = np.searchsorted(source.rows, [start, start + batch.num_rows])
        wanted = source.rows[low:high] - start
        if len(wanted):
            picked = batch.take(pyarrow.array(wanted))
            one, two = (picked.column(name).to_pylist() for name in texts)
            if source.kind == ATTEMPTS:
                responses = [split_response(prefix + completion) for prefix, completion in zip(one, two, strict=True)]
                one = [response.thinking or "" for response in responses]
                two = [response.summary for response in responses]
                origin = [
                    f"{FROM_SAMPLING}, judged by {judge}" if row in source.models else FROM_SAMPLING
                    for row in (wanted + start).tolist()
                ]
            else:
                one = one if with_thinking else [""] * len(one)
                origin = [FROM_GENERAL] * len(one)
            columns = [*(picked.column(name) for name in PROBLEM_COLUMNS), one, two, origin, source.positions[low:high]]
            arrays = [pyarrow.array(column) if isinstance(column, list) else column for column in columns]
            arrays[-1] = pyarrow.array(source.positions[low:high])
            yield pyarrow.record_batch(arrays, schema=_schema())
        start += batch.num_rows
