"""What a step reported, for people: nested names and numbers, counts as bars, objects side by side."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table

from r1pipe import console

MOST_COLUMNS = 5
"""So many objects stand side by side; more become rows."""


def summary_view(summary: Any) -> RenderableType:
    """What a step reported, as nested names and numbers; shares of a count are drawn as bars."""
    if isinstance(summary, dict) and len(summary) == 1 and is_records(next(iter(summary.values()))):
        return records_view(next(iter(summary.values())))
    if is_records(summary):
        return records_view(summary)
    if not isinstance(summary, dict):
        return console.plain(console.value(summary), most=2000)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", overflow="fold", max_width=40)
    table.add_column(overflow="fold")
    for key, found in summary.items():
        name = console.plain(str(key).replace("_", " "))
        table.add_row(name, counts_view(found) if is_counts(found) else summary_view(found))
    return table


def is_records(found: Any) -> bool:
    """Whether a value maps names to objects, so that it is best shown as a table."""
    return isinstance(found, dict) and len(found) > 1 and all(isinstance(part, dict) and part for part in found.values())


def records_view(records: dict[str, dict[str, Any]]) -> Table:
    """Objects side by side: few of them as columns, many as rows."""
    keys = list(dict.fromkeys(key for record in records.values() for key in record))
    names, upright = list(records), len(records) <= MOST_COLUMNS
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    table.add_column("", style="dim")
    for title in names if upright else keys:
        table.add_column(console.escaped(title.replace("_", " ")), overflow="fold")
    for line in keys if upright else names:
        cells = [records[name].get(line) for name in names] if upright else [records[line].get(key) for key in keys]
        table.add_row(
            console.plain(line.replace("_", " ")), *(console.plain(_short(cell, 2 if len(cells) > 3 else 3)) for cell in cells)
        )
    return table


def _short(found: Any, digits: int) -> str:
    """A value in a cell; counts as "3 wrong, 2 cut off"."""
    if found == {} or found is None:
        return "–"
    if isinstance(found, dict):
        return ", ".join(f"{console.value(part)} {name}" for name, part in found.items())
    if isinstance(found, list) and all(isinstance(part, float) for part in found):
        return "–".join(console.value(part, digits) for part in found)
    return console.value(found, digits)


def is_counts(found: Any) -> bool:
    """Whether a value maps names to whole numbers, so that bars make sense."""
    return (
        isinstance(found, dict) and len(found) > 1 and all(isinstance(n, int) and not isinstance(n, bool) for n in found.values())
    )


def counts_view(counts: dict[str, int], width: int = 24) -> Table:
    """Counts with bars as long as their share of the largest."""
    top = max(1, *counts.values())
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=48)
    table.add_column(justify="right")
    table.add_column(style="cyan", no_wrap=True)
    for name, count in counts.items():
        table.add_row(console.plain(str(name)), console.value(count), "█" * max(round(count / top * width), 1 if count else 0))
    return table
