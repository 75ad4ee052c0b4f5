"""Rows of a table on a terminal: what was asked, what was thought, what was answered, and what each reward said and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.data.chat import split_response
from r1pipe.views.tables import Found, Selection, scores_in

TABLE_WIDTH = 120
"""From this width on rows stand in a table; below, each is a small card."""

CELL_CHARACTERS = 320
CARD_CHARACTERS = 600

PLAIN_COLUMNS = (
    "question",
    "answer",
    "thinking",
    "summary",
    "completion",
    "prefix",
    "chosen",
    "rejected",
    "response",
    "scores",
    "check",
)
"""Columns that have a place of their own and are not listed among the rest."""

DETAILS = ("domain", "language", "origin", "ended", "outcome", "summary_from", "notes")
"""Columns that stand in a row's first line, unless they are its texts; the last three are the cold-start builder's."""

LEDGER_TEXTS = ("id", "reason", "thinking_from", "summary_from", "notes")
"""Columns of the ledger that are shown as a row's texts: it holds no others."""


def texts_of(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The texts of a row as (label, text): prompt, thinking, answer, and what else its table holds."""
    texts = [("prompt", str(row["question"]))] if "question" in row else []
    if "completion" in row:
        response = split_response(str(row.get("prefix") or "") + str(row["completion"]))
        if response.thinking is not None:
            texts.append(("thinking", response.thinking))
        texts.append(("answer", response.summary))
    elif "outcome" in row:
        texts += [(name.replace("_", " "), str(row[name])) for name in LEDGER_TEXTS if row.get(name)]
    else:
        names = (
            ("thinking", "thinking"),
            ("answer", "summary"),
            ("chosen", "chosen"),
            ("rejected", "rejected"),
            ("response", "response"),
        )
        texts += [(shown, str(row[name] or "")) for shown, name in names if name in row]
    if row.get("answer"):
        texts.append(("gold", str(row["answer"])))
    return texts


def about(found: Found, unit: str, separator: str = " · ") -> Text:
    """A row's first line: number, verdict, domain, language, length, where it stands."""
    row = found.row
    text = Text.assemble((f"#{found.number}", "bold"))
    if row.get("verdict"):
        text.append("  ").append_text(Text(str(row["verdict"]), style=console.VERDICT_STYLES.get(str(row["verdict"]), "")))
    texts = LEDGER_TEXTS if "outcome" in row else ()
    details = [str(row[name]) for name in DETAILS if row.get(name) and name not in texts]
    if row.get("level"):
        details.append(f"level {row['level']}")
    if "tried" in row:
        details.append(f"{row['id']}: {row['right']} right of {row['tried']} tried")
    if "safe" in row:
        details.append("safe" if row["safe"] else "unsafe")
    if row.get("tokens") is not None:
        details.append(f"{row['tokens']:,} tokens" + (", cut off" if row.get("finish") == "length" else ""))
    if unit:
        details.append(f"{unit} {found.part}" if found.part.isdigit() else found.part)
    if row.get("sample") is not None:
        details.append(f"sample {row['sample']}")
    between = "\n" if separator == "\n" else "  "
    text.append(between).append_text(Text(separator).join(console.one_line(word, "dim") for word in details))
    if row.get("error"):
        text.append(between).append_text(console.one_line(f"error: {row['error']}", "red"))
    return text


def scores_text(row: Mapping[str, Any], notes: bool = True, separator: str = "\n") -> Text:
    """Each reward with its value and the note that says why."""
    text = Text()
    for name, number, note, applies in scores_in(dict(row)):
        if text.plain:
            text.append(separator)
        text.append_text(console.one_line(name, "dim", 40))
        text.append(f" {console.value(number, 2)}", style=_score_style(number) if applies else "dim")
        if notes and note:
            text.append(" ").append_text(console.one_line(note, "dim italic", 200))
    if row.get("total") is not None and text.plain:
        text.append(separator).append("total", style="dim").append(f" {console.value(row['total'], 2)}", style="bold")
    return text


def _score_style(number: float | None) -> str:
    if number is None:
        return "yellow"
    return "green" if number >= 1 else "red" if number <= 0 else ""


def rows_view(rows: Sequence[Found], width: int, unit: str = "") -> RenderableType:
    """Several rows: a table where there is room, else cards.

    Args:
        unit: what a part is ("rollout", "shard"); empty when the part does not matter.
    """
    return _table(rows, unit) if width >= TABLE_WIDTH else Group(*(card(found, unit) for found in rows))


def card(found: Found, unit: str = "", most: int | None = CARD_CHARACTERS) -> RenderableType:
    """One row below another: its texts in full (up to `most` characters), then its rewards."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=8)
    grid.add_column(overflow="fold")
    for label, text in texts_of(found.row):
        grid.add_row(label, console.plain(text.strip(), most=most) if text.strip() else Text("(empty)", style="dim"))
    if scores := scores_text(found.row):
        grid.add_row("rewards", scores)
    return Group(about(found, unit), Padding(grid, (0, 0, 1, 2)))


def _table(rows: Sequence[Found], unit: str) -> Table:
    from rich import box

    names = list(dict.fromkeys(label for found in rows for label, _ in texts_of(found.row)))
    scored = any("scores" in found.row for found in rows)
    table = Table(box=box.SIMPLE_HEAD, show_lines=True, pad_edge=False, header_style="bold", expand=True)
    table.add_column("row", ratio=4, overflow="fold")
    for name in names:
        table.add_column(name, ratio={"prompt": 6, "thinking": 9, "gold": 2}.get(name, 6), overflow="fold")
    if scored:
        table.add_column("rewards", ratio=6, overflow="fold")
    for found in rows:
        texts = dict(texts_of(found.row))
        cells: list[RenderableType] = [_folded(about(found, unit, "\n"))]
        cells += [console.plain(texts.get(name, "").strip(), most=CELL_CHARACTERS) for name in names]
        if scored:
            cells.append(_folded(scores_text(found.row)))
        table.add_row(*cells)
    return table


def _folded(text: Text) -> Text:
    text.no_wrap, text.overflow = False, "fold"
    return text


def row_in_full(found: Found, unit: str = "") -> RenderableType:
    """One row with everything that it holds."""
    row = found.row
    parts: list[RenderableType] = [about(found, unit)]
    for label, text in texts_of(row):
        parts += [Text(label, style="bold"), Padding(console.plain(text) if text else Text("(empty)", style="dim"), (0, 0, 1, 2))]
    if "completion" in row:
        faults = split_response(str(row.get("prefix") or "") + str(row["completion"])).faults
        if faults:
            parts += [Text("format", style="bold"), Padding(console.plain("; ".join(faults), "red"), (0, 0, 1, 2))]
    if row.get("scores"):
        grid = Table.grid(padding=(0, 2, 0, 0))
        for name, number, note, applies in scores_in(row):
            shown = Text(console.value(number, 3), style=_score_style(number) if applies else "dim")
            grid.add_row(console.one_line(name, most=40), shown, console.plain(note, "dim"))
        if row.get("total") is not None:
            grid.add_row(Text("total", style="bold"), Text(console.value(row["total"], 3), style="bold"), "")
        parts += [Text("rewards", style="bold"), Padding(grid, (0, 0, 1, 2))]
    rest = [(name, content) for name, content in row.items() if name not in PLAIN_COLUMNS and content not in (None, "", "{}")]
    if row.get("check") not in (None, "", "{}"):
        rest.append(("check", row["check"]))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    for name, content in rest:
        grid.add_row(name, console.plain(str(content), most=CARD_CHARACTERS))
    return Group(*parts, Text("columns", style="bold"), Padding(grid, (0, 0, 0, 2)))


def counts_line(
    counts: Mapping[str, Counter[str]],
    names: Sequence[str] = ("verdict", "outcome", "reason", "ended", "finish", "domain", "language", "origin"),
) -> Text:
    """How many of the rows have which value, column by column."""
    text = Text()
    for name in names:
        counter = counts.get(name)
        if not counter or not any(counter):
            continue
        text.append("\n" if text.plain else "").append(f"{name}  ".ljust(10), style="dim")
        for number, (found, count) in enumerate(counter.most_common(8)):
            text.append("   " if number else "")
            text.append_text(
                console.one_line(found or "(none)", console.VERDICT_STYLES.get(found, "") if name == "verdict" else "", 80)
            )
            text.append(f" {count:,}", style="bold")
        if len(counter) > 8:
            text.append(f"   and {len(counter) - 8} more", style="dim")
    return text


def row_json(found: Found) -> dict[str, Any]:
    """A row for programs: its values, with the JSON columns opened and the response taken apart."""
    import json

    row = dict(found.row)
    for name in ("scores", "check"):
        if isinstance(row.get(name), str):
            row[name] = json.loads(row[name] or "{}")
    if isinstance(row.get("scores"), dict):
        row["scores"] = {
            name: None if pair is None else {"value": pair[0], "note": pair[1]} for name, pair in row["scores"].items()
        }
    if "completion" in row:
        response = split_response(str(row.get("prefix") or "") + str(row["completion"]))
        row |= {"thinking": response.thinking, "summary": response.summary, "faults": list(response.faults)}
    return {"row": found.number, "part": found.part, **row}


def selection_json(selection: Selection) -> dict[str, Any]:
    """What a filter found, for programs."""
    return {
        "total": selection.total,
        "matching": selection.matching,
        "counts": {name: dict(counter.most_common()) for name, counter in selection.counts.items()},
        "rows": [row_json(found) for found in selection.rows],
    }
