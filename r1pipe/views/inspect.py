"""What `r1pipe inspect` shows: the run, a stage, a step, or one artifact."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.errors import R1PipeError
from r1pipe.opening import Opened, run_option
from r1pipe.stage import Step
from r1pipe.states import StepPlan, plan
from r1pipe.views import results, rows, tables
from r1pipe.views.status import command, status_json, status_view, step_table
from r1pipe.views.step import part_unit, read_json, step_inspection, step_view, tables_of
from r1pipe.views.summary import counts_view, summary_view


class Unknown(R1PipeError):
    """What the user named is not in the run."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Target:
    """What is meant: steps (one, or all of a stage), and perhaps one artifact of the step."""

    steps: tuple[Step, ...]
    artifact: str = ""


def resolve(opened: Opened, named: str) -> Target:
    """What STAGE[/STEP[/ARTIFACT]] means.

    Raises:
        RecipeError: no such step. Unknown: the step has no such artifact.
    """
    wanted = named.strip("/")
    for step in opened.pipeline.steps:
        if wanted == step.name:
            return Target((step,))
    if len(steps := tuple(step for step in opened.pipeline.steps if step.stage == wanted)):
        return Target(steps)
    parent, _, artifact = wanted.rpartition("/")
    for step in opened.pipeline.steps:
        if parent == step.name:
            return Target((step,), _artifact(opened, step, artifact))
    opened.pipeline.select(parent or wanted)  # raises, with the nearest name, unless it is a stage of several steps
    inner = ", ".join(step.name for step in opened.pipeline.steps if step.stage == parent)
    raise Unknown(f"stage {parent} has no step {artifact!r}", f"its steps: {inner}")


def artifacts_of(opened: Opened, step: Step) -> list[str]:
    """Everything of a step that can be looked into by name."""
    return list(dict.fromkeys([*step.writes, *tables_of(opened, step), "manifest", "metrics", "log"]))


def _artifact(opened: Opened, step: Step, name: str) -> str:
    known = artifacts_of(opened, step)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise Unknown(f"step {step.name} has nothing called {name!r}", f"{hint}it has {', '.join(known)}")
    return name


def overview(opened: Opened, plans: Sequence[StepPlan], width: int) -> RenderableType:
    """The run as a whole: steps, lineage, the checkpoint table, and where to look."""
    parts: list[RenderableType] = [status_view(opened, plans, width, looking=True)]
    found = results.read_results(opened.run, opened.pipeline)
    if found:
        parts += [Text(), results.results_view(found)]
    parts += [Text(), *where_to_look(opened, plans)]
    return Group(*parts)


def where_to_look(opened: Opened, plans: Sequence[StepPlan]) -> list[RenderableType]:
    """Commands that look into what is there."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for place in plans:
        names = tables_of(opened, place.step)
        if place.state in ("done", "partial"):
            inner = ", ".join(f"/{name}" for name in names)
            table.add_row(f"  r1pipe inspect {place.step.name}{run_option(opened.run)}", console.plain(inner))
    return [Text("look into", style="bold"), table] if table.row_count else []


def stage_view(opened: Opened, plans: Sequence[StepPlan], width: int) -> RenderableType:
    """The steps of one stage."""
    option = run_option(opened.run)
    lines = [command(f"r1pipe inspect {place.step.name}{option}", "looks into it") for place in plans]
    return Group(console.heading(f"stage {plans[0].step.stage}"), Text(), step_table(opened, plans, width), Text(), *lines)


def artifact_view(opened: Opened, place: StepPlan, name: str, width: int, wanted: tables.Filter, limit: int) -> RenderableType:
    """One artifact: rows of a table, a JSON file, the files of a model, or the log."""
    step = place.step
    folder = opened.run.step_dir(step) / name
    if name in tables_of(opened, step):
        selection = tables.select(folder, wanted, limit)
        there = tables.select(folder, tables.Filter(), 0) if not selection.matching else None
        command_text = f"r1pipe inspect {step.name}/{name}{run_option(opened.run)}"
        return table_view(f"{step.name}/{name}", selection, width, part_unit(name), wanted, there, command_text)
    if name == "log":
        return log_view(opened, place)
    if name == "metrics":
        return step_view(opened, place, width)
    path = opened.run.manifest_path(step) if name == "manifest" else opened.run.output_path(step, name)
    if not path.exists():
        raise Unknown(f"{step.name}/{name} does not exist yet: the step is {place.state}", f"r1pipe run {step.name}")
    if path.is_dir():
        return files_view(f"{step.name}/{name}", opened, place, name)
    content = read_json(path)
    head = console.heading(f"{step.name}/{name}", os.fspath(path))
    if name == "results" and isinstance(content, dict) and "checkpoints" in content:
        return Group(head, Text(), results.results_view(content, domains=True))
    return Group(head, Text(), summary_view(content))


def table_view(
    title: str,
    selection: tables.Selection,
    width: int,
    unit: str,
    wanted: tables.Filter,
    there: tables.Selection | None,
    again: str,
) -> RenderableType:
    """Counts, then rows.

    Args:
        there: the counts of the whole table, shown when no row matches.
        again: the command that shows this table.
    """
    matching = f"{selection.matching:,} match" if wanted != tables.Filter() else ""
    shown = f"{len(selection.rows):,} shown" if len(selection.rows) < selection.matching else ""
    head = console.heading(title, f"{selection.total:,} rows", *(text for text in (matching, shown) if text))
    if not selection.matching:
        counts = rows.counts_line(there.counts) if there else Text()
        return Group(head, Text(), Text("no row matches; the table holds", style="yellow"), counts)
    parts: list[RenderableType] = [head, Text()]
    counts = rows.counts_line(selection.counts)
    if counts.plain:
        parts += [counts, Text()]
    if rates := selection.counts.get("pass_rate"):
        parts += [Text("pass rate", style="bold"), counts_view(dict(sorted(rates.items(), key=_rate_order))), Text()]
    if selection.rows:
        parts.append(rows.rows_view(selection.rows, width, unit))
        parts.append(command(f"{again} --row {selection.rows[0].number}", "one row in full; --limit N: more"))
    return Group(*parts)


def _rate_order(entry: tuple[str, int]) -> int:
    from r1pipe.stages.rounds import RATE_LABELS

    return RATE_LABELS.index(entry[0])


def files_view(title: str, opened: Opened, place: StepPlan, name: str) -> RenderableType:
    """The files of a folder with their digests."""
    record = place.manifest.outputs.get(name) if place.manifest else None
    table = Table.grid(padding=(0, 3, 0, 0))
    folder = opened.run.output_path(place.step, name)
    if record is not None:
        for path, file in record.files.items():
            table.add_row(console.plain(path), console.size(file.size), Text(file.sha256[:16], style="dim"))
    else:
        for child in sorted(folder.rglob("*")):
            if child.is_file():
                table.add_row(console.plain(child.relative_to(folder).as_posix()), console.size(child.stat().st_size), "")
    return Group(console.heading(title, os.fspath(folder)), Text(), table)


def log_view(opened: Opened, place: StepPlan) -> RenderableType:
    """The end of the newest log, and where it lies."""
    from r1pipe.launch import last_lines

    log = opened.run.log_path(place.step, max(1, place.attempts))
    lines = last_lines(log, 60)
    if not lines:
        raise Unknown(f"step {place.step.name} has no log: it was not begun here")
    return Group(console.heading(os.fspath(log)), Text(), console.plain("\n".join(lines)))


def inspection(
    opened: Opened, what: str | None, wanted: tables.Filter, limit: int, row: int | None, json: bool, width: int
) -> Any:
    """The view of whatever was asked for, or its JSON.

    Raises:
        R1PipeError: a name or filter that means nothing here.
    """
    plans = plan(opened.run, opened.pipeline, opened.recipe)
    target = resolve(opened, what) if what else None
    if wanted != tables.Filter() or row is not None:
        target = _table_of(opened, target)
    if json:
        return inspect_json(opened, plans, target, wanted, limit, row)
    if target is None:
        return overview(opened, plans, width)
    places = [place for place in plans if place.step in target.steps]
    if not target.artifact:
        return step_view(opened, places[0], width) if len(places) == 1 else stage_view(opened, places, width)
    if row is not None:
        folder = opened.run.step_dir(places[0].step) / target.artifact
        return rows.row_in_full(tables.read_row(folder, row), part_unit(target.artifact))
    return artifact_view(opened, places[0], target.artifact, width, wanted, limit)


def sql_inspection(opened: Opened, what: str | None, text: str, json: bool) -> Any:
    """What a query over the run's tables gives, as a view or as JSON.

    Raises:
        R1PipeError: a name that means nothing here, or a query that cannot be run.
    """
    from r1pipe.views.sql import query, sql_json, sql_view, view_names

    found = query(text, view_names(opened, resolve(opened, what).steps if what else ()))
    return sql_json(*found) if json else sql_view(*found)


def _table_of(opened: Opened, target: Target | None) -> Target:
    """The table that a filter is about: the one named, or the one with attempts of the step named."""
    if target is not None and len(target.steps) == 1:
        names = tables_of(opened, target.steps[0])
        if target.artifact in names:
            return target
        attempts = [name for name in ("rollouts", "attempts") if name in names]
        if not target.artifact and attempts:
            return Target(target.steps, attempts[0])
    known = [f"{step.name}/{name}" for step in opened.pipeline.steps for name in tables_of(opened, step)]
    raise Unknown(
        "a filter, or --row, needs a table",
        f"tables of this run: {', '.join(known)}" if known else "no step has made a table yet",
    )


def inspect_json(
    opened: Opened, plans: Sequence[StepPlan], target: Target | None, wanted: tables.Filter, limit: int, row: int | None
) -> Any:
    """Whatever was asked for, for programs."""
    if target is None:
        return status_json(opened, plans) | {"results": results.read_results(opened.run, opened.pipeline)}
    chosen = [place for place in plans if place.step in target.steps]
    if not target.artifact:
        entries = [step_inspection(opened, place) for place in chosen]
        return entries[0] if len(entries) == 1 else {"stage": target.steps[0].stage, "steps": entries}
    place, name = chosen[0], target.artifact
    folder = opened.run.step_dir(place.step) / name
    if name in tables_of(opened, place.step):
        if row is not None:
            return rows.row_json(tables.read_row(folder, row))
        return {"artifact": f"{place.step.name}/{name}", **rows.selection_json(tables.select(folder, wanted, limit))}
    if name == "log":
        from r1pipe.launch import last_lines

        log = opened.run.log_path(place.step, max(1, place.attempts))
        return {"log": os.fspath(log), "lines": last_lines(log, 60)}
    inspection = step_inspection(opened, place)
    if name in ("manifest", "metrics"):
        return inspection[name]
    content = read_json(opened.run.output_path(place.step, name))
    return content if content is not None else (inspection["manifest"] or {}).get("outputs", {}).get(name)
