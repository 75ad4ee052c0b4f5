"""Reading a table of a run for people: counts, filters, and a few rows, without loading what is not shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from r1pipe.errors import ArtifactError, R1PipeError

COUNTED = ("verdict", "outcome", "reason", "ended", "finish", "domain", "language", "kind", "origin", "source")
"""Columns whose values are counted."""

RATE = "pass_rate"
"""A column of shares that is counted in tenths."""

SEARCHED = ("question", "completion", "answer", "thinking", "summary", "chosen", "rejected", "response", "reason", "notes")
"""Columns in which `--find` looks."""


EXACT = ("domain", "language", "verdict", "id")
"""Columns by whose value rows are chosen."""


class FilterError(R1PipeError):
    """A filter names something that the table does not have."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows to show; what is None or empty lets every row pass.

    Attributes:
        reward: the reward, or the number column, that `below` and `above` are about.
        below, above: limits, not included; a row where the reward does not apply or was not judged never passes.
        find: text that one of the row's texts holds.
        part: a part's label (see `part_labels`).
        id: the problem's id.
    """

    reward: str = "total"
    below: float | None = None
    above: float | None = None
    domain: str = ""
    language: str = ""
    verdict: str = ""
    find: str = ""
    part: str = ""
    id: str = ""

    @property
    def by_number(self) -> bool:
        """Whether rows are chosen by a number."""
        return self.below is not None or self.above is not None


@dataclass(frozen=True, slots=True)
class Found:
    """A row of a table: its number (from 0, over all parts), the label of its part, and its values."""

    number: int
    part: str
    row: dict[str, Any]


@dataclass(slots=True)
class Selection:
    """What a filter found.

    Attributes:
        total: rows in the table. matching: rows that pass the filter.
        counts: column -> value -> number of matching rows.
        rows: the first matching rows, in order.
    """

    total: int = 0
    matching: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    rows: list[Found] = field(default_factory=list)


def is_table(folder: Path) -> bool:
    """Whether a folder holds Parquet parts."""
    return folder.is_dir() and next(folder.glob("part-*.parquet"), None) is not None


def parts_of(folder: Path) -> list[Path]:
    """The parts in order.

    Raises:
        ArtifactError: there are none.
    """
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise ArtifactError(f"the table {folder.name} has no parts yet", "r1pipe status says which steps are done")
    return parts


def part_labels(folder: Path, parts: Sequence[Path]) -> list[str]:
    """What to call each part: the checkpoint of an evaluation, else its number."""
    numbers = [str(int(path.stem.removeprefix("part-"))) for path in parts]
    results = folder.parent / "results.json"
    if results.is_file():
        try:
            names = list(json.loads(results.read_bytes())["checkpoints"])
        except (ValueError, KeyError, TypeError):
            return numbers
        return [names[int(number)] if int(number) < len(names) else number for number in numbers]
    return numbers


def select(folder: Path, wanted: Filter, limit: int) -> Selection:
    """Count the rows that pass a filter and read the first of them.

    Raises:
        FilterError: a column, reward or part that is not there. ArtifactError: a part cannot be read.
    """
    parts = parts_of(folder)
    labels = part_labels(folder, parts)
    columns = _columns(parts[0])
    _check_filter(folder, wanted, columns, labels)
    chosen = {labels[-1] if wanted.part == "last" else wanted.part} if wanted.part else set(labels)
    selection, rewards = Selection(), set[str]()
    for path, label in zip(parts, labels, strict=True):
        rows = _row_count(path)
        if label in chosen:
            matching = _matching(path, columns, wanted, rows, selection.counts, rewards)
            shown = matching[: max(0, limit - len(selection.rows))]
            selection.rows += [
                Found(selection.total + index, label, row) for index, row in zip(shown, _take(path, shown), strict=True)
            ]
            selection.matching += len(matching)
        selection.total += rows
    if wanted.by_number and not columns.get(wanted.reward) and wanted.reward not in rewards:
        raise FilterError(
            f"no row of {folder.name} has a reward {wanted.reward!r}", _near(wanted.reward, sorted(rewards | {"total"}))
        )
    return selection


def read_row(folder: Path, number: int) -> Found:
    """One row by its number.

    Raises:
        FilterError: there is no such row.
    """
    parts = parts_of(folder)
    before = 0
    for path, label in zip(parts, part_labels(folder, parts), strict=True):
        rows = _row_count(path)
        if before <= number < before + rows:
            return Found(number, label, _take(path, [number - before])[0])
        before += rows
    raise FilterError(f"{folder.name} has no row {number}", f"its rows are 0 to {before - 1}")


def scores_in(row: dict[str, Any]) -> Iterator[tuple[str, float | None, str, bool]]:
    """The scores of an attempt's row: (reward, value, note, whether it applies)."""
    for name, pair in json.loads(row.get("scores") or "{}").items():
        yield (name, None, "does not apply", False) if pair is None else (name, pair[0], str(pair[1]), True)


def _matching(
    path: Path, columns: dict[str, bool], wanted: Filter, rows: int, counts: dict[str, Counter[str]], rewards: set[str]
) -> list[int]:
    """Numbers of the rows of a part that pass; also counts them and notes which rewards there are."""
    counted = [name for name in COUNTED if name in columns]
    exact = {name: getattr(wanted, name) for name in EXACT if getattr(wanted, name)}
    needed = [*counted, *exact, *([RATE] if RATE in columns else [])]
    if wanted.by_number:
        needed.append(wanted.reward if columns.get(wanted.reward) else "scores")
    if wanted.find:
        needed += [name for name in SEARCHED if name in columns]
    data = _read(path, list(dict.fromkeys(needed))).to_pydict()
    indices = [index for index in range(rows) if all(data[name][index] == text for name, text in exact.items())]
    if wanted.by_number:
        by_column = columns.get(wanted.reward)  # a text column may share its name with a reward: language
        numbers = data[wanted.reward] if by_column else _reward(data["scores"], wanted.reward, rewards)
        indices = [index for index in indices if _within(numbers[index], wanted)]
    if wanted.find:
        texts = [data[name] for name in SEARCHED if name in columns]
        indices = [index for index in indices if any(wanted.find in (text[index] or "") for text in texts)]
    for name in counted:
        counts.setdefault(name, Counter()).update(str(data[name][index]) for index in indices)
    if RATE in columns:
        from r1pipe.stages.rounds import rate_label

        counts.setdefault(RATE, Counter()).update(rate_label(data[RATE][index]) for index in indices)
    return indices


def _reward(scores: Sequence[str], reward: str, rewards: set[str]) -> list[float | None]:
    """One reward's values of a part."""
    values: list[float | None] = []
    for text in scores:
        found = json.loads(text or "{}")
        rewards.update(found)
        pair = found.get(reward)
        values.append(pair[0] if pair else None)
    return values


def _within(number: float | None, wanted: Filter) -> bool:
    if number is None:
        return False
    return (wanted.below is None or number < wanted.below) and (wanted.above is None or number > wanted.above)


def _check_filter(folder: Path, wanted: Filter, columns: dict[str, bool], labels: Sequence[str]) -> None:
    """Refuse a filter on what the table does not have."""
    for name in EXACT:
        if getattr(wanted, name) and name not in columns:
            raise FilterError(f"{folder.name} has no column {name!r}, so --{name} cannot choose", f"it has {', '.join(columns)}")
    if wanted.by_number and not columns.get(wanted.reward) and "scores" not in columns:
        numbers = ", ".join(name for name, numeric in columns.items() if numeric) or "none"
        raise FilterError(
            f"{folder.name} has no rewards and no number column {wanted.reward!r}", f"its number columns: {numbers}"
        )
    if wanted.part and wanted.part != "last" and wanted.part not in labels:
        shown = ", ".join(labels) if len(labels) <= 12 else f"{labels[0]} to {labels[-1]}"
        raise FilterError(f"{folder.name} has no part {wanted.part!r}", f"its parts are {shown}")


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"there: {', '.join(known)}"


def _columns(path: Path) -> dict[str, bool]:
    """Column -> whether it holds numbers."""
    import pyarrow

    schema = _open(path).schema_arrow
    return {column.name: pyarrow.types.is_floating(column.type) or pyarrow.types.is_integer(column.type) for column in schema}


def _row_count(path: Path) -> int:
    return int(_open(path).metadata.num_rows)


def _read(path: Path, columns: list[str] | None = None) -> Any:
    """A part as an Arrow table. The plain reader, since the library's `read_table` imports pandas."""
    import pyarrow

    try:
        return _open(path).read(columns=columns)
    except (pyarrow.ArrowException, OSError) as error:
        raise _torn(path, error) from error


def _take(path: Path, indices: Sequence[int]) -> list[dict[str, Any]]:
    """Some rows of a part, whole."""
    rows: list[dict[str, Any]] = _read(path).take(list(indices)).to_pylist() if indices else []
    return rows


def _open(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise _torn(path, error) from error


def _torn(path: Path, error: Exception) -> ArtifactError:
    reason = str(error).split("\n")[0]
    return ArtifactError(f"{path.parent.name}/{path.name} cannot be read: {reason}", "redo the step that wrote it")
