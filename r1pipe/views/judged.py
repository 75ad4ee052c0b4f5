"""Reports of `verify` and `audit`: what it comes to, then the rows, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.views.summary import summary_view

CELL_CHARACTERS = 200

ORDER = {"wrong": 0, "unjudged": 1, "right": 2}


def judged_view(report: Mapping[str, Any], limit: int) -> RenderableType:
    """A report with "summary", "rows" and perhaps "hostile" (responses that must not be right, and those that were).

    Args:
        limit: so many rows are shown, those that are not right first.
    """
    parts: list[RenderableType] = [Text("summary", style="bold"), Padding(summary_view(report.get("summary", {})), (0, 0, 1, 2))]
    hostile = report.get("hostile")
    if hostile is not None:
        parts.append(_hostile(hostile, limit))
    rows = sorted(report.get("rows", []), key=lambda row: ORDER.get(str(row.get("verdict")), 0))
    if rows[:limit]:
        parts += [Text("rows, those that are not right first", style="bold"), _table(rows[:limit])]
    if len(rows) > limit:
        parts.append(Text(f"{len(rows) - limit:,} more rows; --limit N shows more, --json all", style="dim"))
    return Group(*parts)


def _hostile(hostile: Mapping[str, Any], limit: int) -> RenderableType:
    """Responses that answer nothing: how many were tried, and which passed for right."""
    tried, accepted = hostile.get("tried", 0), hostile.get("accepted", 0)
    style = "bold red" if accepted else "green"
    said = Text(f"{accepted:,} of {tried:,} hostile responses passed for right", style=style)
    rows = list(hostile.get("rows", []))[:limit]
    return Group(said, Text(), *([_table(rows)] if rows else []))


def _table(rows: list[Mapping[str, Any]]) -> Table:
    from rich import box

    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_lines=True)
    for name in names:
        table.add_column(console.escaped(name), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(name, row.get(name)) for name in names))
    return table


def _cell(name: str, found: Any) -> Text:
    style = console.VERDICT_STYLES.get(str(found), "") if name == "verdict" else ""
    return console.plain("" if found is None else console.value(found), style, CELL_CHARACTERS)
