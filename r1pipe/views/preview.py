"""What `r1pipe data preview` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.errors import RecipeError
from r1pipe.stages.prepare import EVALUATING, TABLES, ZeroConfig
from r1pipe.stages.previewing import preview
from r1pipe.stages.schema import SourceSpec

VALUE_CHARACTERS = 240
HIDDEN = ("id", "where")
"""Of the first rows: shown elsewhere, or of no use to a person."""


def previewed(named: str, recipe: str | None, table: str, shown: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The preview of a source, or of a key of a recipe's `[prepare]`.

    Args:
        changes: settings of the source that the command line gives, over those of the recipe.

    Raises:
        RecipeError: no such table or recipe. DataError: the source cannot be read.
    """
    against, seed, spec = [], 1, None
    if recipe is not None:
        from r1pipe.opening import open_recipe

        pipeline, opened = open_recipe(recipe)
        config = next((found for found in opened.configs.values() if isinstance(found, ZeroConfig)), None)
        if config is None:
            raise RecipeError(f"recipe {recipe} of pipeline {pipeline.name} prepares nothing", "name a recipe with [prepare]")
        seed = opened.seed
        specs = {name: getattr(config, name) for name in type(config).model_fields}
        against = [(specs[name], TABLES[name][0]) for name in EVALUATING if name in specs]
        key = named.replace("-", "_")
        if key in specs and not Path(named).is_file():
            spec, table = specs[key], table or TABLES[key][0]
    base: dict[str, Any] = {"source": named} if spec is None else spec.model_dump()
    wanted = (table or "problems").replace("_", "-")
    known = {name: found for name, (found, _) in TABLES.items()}
    if wanted not in known.values():
        raise RecipeError(f"there is no table {wanted!r}", f"tables: {', '.join(known.values())}")
    merged = {
        name: {**dict(base.get(name, {})), **value} if isinstance(value, dict) else value for name, value in changes.items()
    }
    chosen = next(found for found in known.values() if found == wanted)
    return preview(SourceSpec.model_validate({**base, **merged}), chosen, seed, against, shown)


def preview_view(found: Mapping[str, Any]) -> RenderableType:
    """The preview for people."""
    size = f", {console.size(found['bytes'])}" if found["bytes"] is not None else ""
    head = console.heading(str(found["source"]), f"as {found['table']}: {found['rows']:,} rows{size}")
    parts: list[RenderableType] = [head]
    if found["commit"]:
        parts.append(console.plain(f'revision = "{found["commit"]}"'))
    parts += [Text(), *_columns(found["columns"]), Text(), *_first(found["first"]), Text(), _verdicts(found)]
    for title, kind in (
        ("rows that cannot be used", "bad"),
        ("gold answers", "gold"),
        ("duplicates", "duplicates"),
        ("overlap", "overlap"),
    ):
        if found[kind] and found[kind]["examples"]:
            parts += [Text(), Text(title, style="bold"), *_examples(found[kind]["examples"])]
    return Group(*parts)


def _columns(columns: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for name in ("column", "becomes", "holds"):
        table.add_column(name, overflow="fold")
    for column in columns:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in column["types"].items())
        table.add_row(
            console.plain(column["name"]), console.plain(column["becomes"] or "–", "" if column["becomes"] else "dim"),
            console.plain(kinds),
        )  # fmt: skip
    return [table]


def _first(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for row in rows:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, content in row.items():
            if name not in HIDDEN and content not in (None, "", "{}"):
                grid.add_row(name, console.plain(str(content), most=VALUE_CHARACTERS))
        parts += [console.plain(str(row["where"]), "bold"), Padding(grid, (0, 0, 0, 2))]
    return parts


def _verdicts(found: Mapping[str, Any]) -> RenderableType:
    """One line a question: can the rows be used, judged, are they there twice, are they in the evaluation sets."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    bad, gold, duplicates, overlap = (found[name] for name in ("bad", "gold", "duplicates", "overlap"))
    table.add_row("usable", _count(found["usable"], found["rows"], bad["reasons"]))
    if gold is not None:
        table.add_row("gold answers", _count(gold["right"], gold["judged"], gold["unusable"], " right against themselves"))
        if gold["remarks"]:
            table.add_row("", console.plain("; ".join(f"{count:,} × {why}" for why, count in gold["remarks"].items()), "yellow"))
    doubled = f"{duplicates['exact']:,} exact, {duplicates['same_question']:,} more ask what an earlier row asks"
    table.add_row("duplicates", console.plain(doubled, "yellow" if duplicates["exact"] + duplicates["same_question"] else ""))
    if overlap is not None:
        shared = f"{overlap['rows']:,} rows overlap an evaluation item of {', '.join(overlap['against'])}"
        table.add_row("overlap", console.plain(shared, "yellow" if overlap["rows"] else ""))
    else:
        table.add_row("overlap", console.plain("not looked for: --recipe names the evaluation sets", "dim"))
    return table


def _count(good: int, of: int, reasons: Mapping[str, int], what: str = "") -> Text:
    text = Text(f"{good:,} of {of:,}{what}", style="green" if good == of else "yellow")
    for reason, count in reasons.items():
        text.append("\n").append_text(console.one_line(f"{count:,} × {reason}", "", 200))
    return text


def _examples(examples: Sequence[Mapping[str, str]]) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 0, 0, 2))
    grid.add_column(overflow="fold")
    for one in examples:
        grid.add_row(console.plain(f"{one['where']}: {one['reason']}", "yellow"))
        if one["row"]:
            grid.add_row(Padding(console.plain(one["row"], "dim", most=VALUE_CHARACTERS), (0, 0, 0, 2)))
    return [grid]
