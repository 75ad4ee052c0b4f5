"""One step, looked into: record, settings, what it read and made, its curves, a sample of what the model wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.given import FILE
from r1pipe.lock import is_live
from r1pipe.manifest import Manifest
from r1pipe.metrics import read_metrics, read_progress
from r1pipe.opening import Opened, run_option
from r1pipe.stage import Output, Step
from r1pipe.states import StepPlan
from r1pipe.train.hacking import told
from r1pipe.views.made import made
from r1pipe.views.numbers import Series, amount, collect, label
from r1pipe.views.plots import finite, plot
from r1pipe.views.settings import changes_text, settings_of
from r1pipe.views.status import command, detail
from r1pipe.views.summary import records_view, summary_view
from r1pipe.views.tables import is_table

PLOT_WIDTH = 36
MOST_PLOTS = 12
SHORT = 8
"""Hex digits of a build or digest that are shown."""

UNPLOTTED = ("step_seconds", "learning_rate", "answers")
SAMPLE_CHARACTERS = 600
CARD, CARD_CHARACTERS = "README.md", 6000
DOMAIN_COLUMNS = ("right", "flat_share", "flat_right", "flat_wrong", "groups")
"""Numbers of a domain in a rollout's line, in the order in which they are shown."""


def tables_of(opened: Opened, step: Step) -> list[str]:
    """The tables in a step's folder, promised outputs first, then what it keeps beside them (rollouts)."""
    folder = opened.run.step_dir(step)
    promised = [name for name, kind in step.writes.items() if kind == "table" and is_table(folder / name)]
    if not folder.is_dir():
        return promised
    return promised + sorted(name for name in os.listdir(folder) if name not in step.writes and is_table(folder / name))


def metrics_of(opened: Opened, step: Step) -> dict[str, dict[str, Series]]:
    """The step's numbers by metrics file: "" for metrics.jsonl, "safety" for metrics-safety.jsonl."""
    folder = opened.run.step_dir(step)
    files = sorted(folder.glob("metrics*.jsonl")) if folder.is_dir() else []
    return {path.stem.removeprefix("metrics").removeprefix("-"): collect(read_metrics(path)) for path in files}


def step_view(opened: Opened, place: StepPlan, width: int) -> RenderableType:
    """The whole of `r1pipe inspect STEP`."""
    step, manifest = place.step, place.manifest
    working = place.state == "partial" and is_live(opened.run.lock_path)
    state = "running" if working else place.state
    head = Text.assemble(console.mark(state), " ", (step.name, "bold"))
    if step.makes:
        head.append(f" → {step.makes}", style="cyan")
    head.append("  ").append(state, style=console.MARKS[state][1])
    if place.state != "done":
        head.append("  ").append_text(console.plain(detail(opened, place, working).plain, "dim"))
    parts: list[RenderableType] = [head]
    if place.changes:
        parts += _section("changed since", changes_text(place.changes))
    if manifest is not None:
        parts += _section("record", record(manifest))
    parts += _section("settings", settings_view(opened, step, width))
    parts += _section("reads", inputs_table(opened, step, manifest))
    parts += _section(f"{'wrote' if manifest else 'writes'}, in {opened.run.step_dir(step)}", outputs_table(step, manifest))
    if manifest is not None and manifest.summary:
        parts += _section("summary", summary_view(manifest.summary))
    for name in step.writes:
        if text := read_text(opened.run.step_dir(step) / name / CARD):
            parts += _section(f"data card, {name}/{CARD}", console.plain(text, most=CARD_CHARACTERS))
    for name, series in metrics_of(opened, step).items():
        plots = plots_view(series, width)
        if plots is not None:
            parts += _section(f"metrics {name}".strip(), plots)
    if manifest is None and (looks := told(read_metrics(opened.run.metrics_path(step)))):
        parts += _section("looks at held-out problems", summary_view(looks))
    if domains := last_domains(opened, step):
        parts += _section("the last rollout by domain", records_view(domains))
    parts += _failure(opened, place)
    parts += _samples(opened, step)
    return Group(*parts)


def last_domains(opened: Opened, step: Step) -> dict[str, dict[str, Any]]:
    """What the last rollout says of each domain: share right, groups without signal, of these all right and all wrong."""
    lines = read_metrics(opened.run.metrics_path(step))
    found: dict[str, Any] = next((line["domains"] for line in reversed(lines) if isinstance(line.get("domains"), dict)), {})
    return {
        str(name): {label(key): entry[key] for key in DOMAIN_COLUMNS if key in entry}
        for name, entry in found.items()
        if isinstance(entry, dict)
    }


def _section(title: str, body: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), Padding(body, (0, 0, 0, 2))]


def record(manifest: Manifest) -> RenderableType:
    """When, where and with what it was made."""
    versions = " ".join(f"{name} {found}" for name, found in manifest.versions.items() if found)
    launch = ", ".join(
        f"{key} {console.value(found)}"
        for key, found in manifest.launch.items()
        if found not in (None, [], {}, "") and key not in ("guards", "hacking")  # they change nothing of what was made
    )
    memory = console.size(manifest.peak_memory_bytes) if manifest.peak_memory_bytes else ""
    device = f"{manifest.device}, {console.size(manifest.peak_device_bytes)}" if manifest.peak_device_bytes else manifest.device
    finished = manifest.finished.replace("T", " ").replace("+00:00", " UTC")
    attempts = f"{manifest.attempts} attempt" + ("s" if manifest.attempts != 1 else "")
    rows = (
        ("finished", f"{finished}, {console.duration(manifest.wall_seconds)}, {attempts}"),
        ("build", f"{manifest.build[:12]}  seed {manifest.seed}  revision {manifest.revision}"),
        ("made on", f"{manifest.host}  {device}" + (f"  {memory} of memory at its peak" if memory else "")),
        ("platform", manifest.platform),
        ("versions", versions),
        ("commit", manifest.commit[:12]),
        ("launch", launch),
    )
    return _grid([(name, console.plain(text)) for name, text in rows if text.strip()])


def settings_view(opened: Opened, step: Step, width: int) -> RenderableType:
    """The settings that the recipe writes down, then the defaults, small."""
    written = settings_of(opened, step, False)
    defaults = {key: found for key, found in settings_of(opened, step, True).items() if key not in written}
    entries = list(written.items())
    columns = 2 if width >= 76 and len(entries) > 4 else 1
    rows = -(-len(entries) // columns)
    table = Table.grid(padding=(0, 3, 0, 0))
    for _ in range(columns):
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold", min_width=8)
    for row in range(rows):
        cells: list[RenderableType] = []
        for key, found in entries[row::rows]:
            cells += [console.plain(key), console.plain(console.setting(found), most=200)]
        table.add_row(*cells)
    by_default = "  ".join(f"{key}={console.setting(found)}" for key, found in defaults.items())
    rest = console.plain(f"by default  {by_default}" if by_default else "", "dim", 4000)
    return Group(table, rest) if entries and by_default else table if entries else rest


def inputs_table(opened: Opened, step: Step, manifest: Manifest | None) -> RenderableType:
    """What the step reads, from which build, with the digest that it saw."""
    rows = []
    for name, source in step.reads.items():
        where = f"{source.step}/{source.name}" if isinstance(source, Output) else f"base model {opened.recipe.base.model}"
        record = manifest.inputs.get(name) if manifest else None
        build, digest = (record.build[:SHORT], record.digest[:SHORT]) if record else ("", "")
        rows.append((name, console.plain(where), Text(build, style="dim"), Text(digest, style="dim")))
    for name, record in (manifest.inputs if manifest else {}).items():
        if record.step == FILE:
            rows.append((name, console.plain(f"file {record.output}"), Text(), Text(record.digest[:SHORT], style="dim")))
    if not rows:
        return Text("nothing", style="dim")
    return _grid([("", Text("from", style="dim"), Text("build", style="dim"), Text("digest", style="dim")), *rows])


def outputs_table(step: Step, manifest: Manifest | None) -> RenderableType:
    """What the step wrote: kind, files, size, digest."""
    rows = []
    for name, kind in step.writes.items():
        record = manifest.outputs.get(name) if manifest else None
        if record is None:
            rows.append((name, Text(kind), Text(), Text()))
            continue
        files = f"{len(record.files)} file" + ("s" if len(record.files) != 1 else "")
        size = Text(f"{files}, {console.size(record.size)}")
        rows.append((name, Text(kind), size, Text(f"digest {record.digest[:SHORT]}", style="dim")))
    return _grid(rows) if rows else Text("nothing", style="dim")


def _grid(rows: Sequence[Sequence[RenderableType]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    for _ in range(max(map(len, rows), default=1) - 1):
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def plots_view(series: dict[str, Series], width: int) -> RenderableType | None:
    """Small plots side by side; numbers that never change, or that have one value only, in a line below."""
    known = {key: found for key, found in series.items() if key not in UNPLOTTED and found.last is not None}
    moving = [key for key, found in known.items() if len(set(finite(found.values))) > 1]
    parts: list[RenderableType] = []
    if moving:
        columns = max(1, (width - 2 + 3) // (PLOT_WIDTH + 3))
        table = Table.grid(padding=(0, 3, 1, 0))
        plots = [
            plot(console.escaped(label(key)), known[key].steps, known[key].values, PLOT_WIDTH) for key in moving[:MOST_PLOTS]
        ]
        for start in range(0, len(plots), columns):
            table.add_row(*plots[start : start + columns])
        parts.append(table)
    if rest := [key for key in known if key not in moving]:
        parts.append(
            console.plain("always  " + "   ".join(f"{label(key)} {amount(key, known[key].last)}" for key in rest), "dim")
        )
    return Group(*parts) if parts else None


def _failure(opened: Opened, place: StepPlan) -> list[RenderableType]:
    """How the last attempt ended, for a step that is begun and not done."""
    if place.state == "done" or not place.attempts:
        return []
    from r1pipe.launch import last_lines

    parts: list[RenderableType] = []
    error = read_json(opened.run.error_path(place.step))
    if isinstance(error, dict) and error.get("problem"):
        parts += _section(f"attempt {place.attempts} failed", console.plain(str(error["problem"]), "red"))
    log = opened.run.log_path(place.step, place.attempts)
    lines = last_lines(log)
    if lines:
        parts += _section(f"last lines of {log}", console.plain("\n".join(lines), "dim"))
    return parts


def _samples(opened: Opened, step: Step) -> list[RenderableType]:
    """What the model wrote last, and the tables that hold more. The tables stay closed: their library is slow to load."""
    parts: list[RenderableType] = []
    sample = read_progress(opened.run.progress_path(step)).get("sample")
    if isinstance(sample, dict):
        texts = {"prompt": sample.get("question"), "response": sample.get("completion")}
        rows = [(name, console.plain(str(text), most=SAMPLE_CHARACTERS)) for name, text in texts.items() if text]
        parts += _section("the best answer of the last rollout", _grid(rows))
    names = sorted(tables_of(opened, step), key=lambda name: name not in ("rollouts", "attempts"))
    if names:
        others = f"; also {', '.join(f'/{name}' for name in names[1:4])}{', …' if names[4:] else ''}" if names[1:] else ""
        parts += [Text(), command(f"r1pipe inspect {step.name}/{names[0]}{run_option(opened.run)}", f"its rows{others}")]
    return parts


def part_unit(table: str) -> str:
    """What the parts of a table are called."""
    return {"rollouts": "rollout", "attempts": "shard"}.get(table, "")


def read_json(path: Path) -> Any:
    """A JSON file; None when it is not there or not whole."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def read_text(path: Path) -> str:
    """A text file; empty when it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def step_inspection(opened: Opened, place: StepPlan) -> dict[str, Any]:
    """The same for programs."""
    step, manifest = place.step, place.manifest
    names = tables_of(opened, step)
    return {
        "step": step.name,
        "state": place.state,
        "why": place.why,
        "makes": step.makes,
        "made": made(manifest.summary) if manifest else "",
        "changes": [{"key": key, "then": then, "now": now} for key, then, now in place.changes],
        "settings": settings_of(opened, step, True),
        "manifest": manifest.model_dump(mode="json") if manifest else None,
        "artifacts": [*step.writes, *(name for name in names if name not in step.writes)],
        "metrics": {
            name or "metrics": {key: {"steps": found.steps, "values": found.values} for key, found in series.items()}
            for name, series in metrics_of(opened, step).items()
        },
        "sample": read_progress(opened.run.progress_path(step)).get("sample"),
        "domains": last_domains(opened, step),
        "guard": read_json(opened.run.step_dir(step) / "guard.json") if place.state != "done" else None,
    }
