"""Where a run stands: one line a step, the lineage, who works on it, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from r1pipe import console
from r1pipe.errors import Stopped
from r1pipe.failures import read_error
from r1pipe.goal import read_goal
from r1pipe.lock import describe_lock, is_live
from r1pipe.metrics import read_metrics, read_progress
from r1pipe.opening import Opened, named, run_option
from r1pipe.states import StepPlan
from r1pipe.views import lineage
from r1pipe.views.made import made
from r1pipe.views.numbers import collect


def status_view(opened: Opened, plans: Sequence[StepPlan], width: int, looking: bool = False) -> RenderableType:
    """The whole of `r1pipe status`; `looking` is for `inspect`, which a finished run need not be told to type next."""
    done = sum(place.state == "done" for place in plans)
    seconds = sum(place.manifest.wall_seconds for place in plans if place.manifest)
    recipe = f"recipe {opened.recipe.name}" if opened.recipe.name else "no recipe name"
    head = console.heading(f"run {opened.run.name}", recipe, f"{done} of {len(plans)} steps done", console.duration(seconds))
    parts: list[RenderableType] = [head, Text(), step_table(opened, plans, width), Text()]
    parts.append(Padding(lineage.picture(opened.pipeline, plans), (0, 0, 0, 2)))
    if done < len(plans) or not looking:
        parts += [Text(), next_line(opened, plans)]
    return Group(*parts)


def step_table(opened: Opened, plans: Sequence[StepPlan], width: int) -> RenderableType:
    """One line for each step: state, name, what it makes, time, what came of it or why it waits."""
    working = is_live(opened.run.lock_path)
    rows = []
    for place in plans:
        state = "running" if working and place.state == "partial" else place.state
        time = console.duration(place.manifest.wall_seconds) if place.manifest else ""
        name = Text(place.step.name, style="bold" if state == "running" else "dim" if state == "todo" else "")
        rows.append((console.mark(state), name, Text(place.step.makes, style="cyan"), Text(time), detail(opened, place, working)))
    return console.columns(rows, width, right=(3,))


def detail(opened: Opened, place: StepPlan, working: bool) -> Text:
    """What came of a step, or why it is not done."""
    if place.state == "done" and place.manifest is not None:
        shared = opened.run.step_dir(place.step).is_symlink()
        series = collect(read_metrics(opened.run.metrics_path(place.step))) if place.step.makes else None
        words = made(place.manifest.summary, series)
        if place.manifest.attempts > 1:
            words += f"  ({place.manifest.attempts} attempts)"
        return console.one_line(words + ("  (shared)" if shared else ""), "dim")
    if place.state == "partial":
        now, begins = read_progress(opened.run.progress_path(place.step)), working and _begins(opened, place)
        where = f"{now.get('unit', 'step')} {now['done']:,} of {now['total']:,}" if {"done", "total"} <= now.keys() else ""
        words = f"{where}, attempt {place.attempts}" if where else f"attempt {place.attempts}"
        if begins:
            return console.one_line(f"begins again, stopped at {words}" if where else words, "cyan")
        if working and isinstance(left := now.get("seconds_left"), int | float):
            words += f", about {console.duration(left, whole=True)} left"
        if working:
            return console.one_line(words, "cyan")
        error = read_error(opened.run, place.step, place.begun) if place.begun else {}
        why = "" if error.get("type") == Stopped.__name__ else str(error.get("problem") or "")
        words = f"stopped at {words}" if where else place.why
        return console.one_line(f"{words}: {why.splitlines()[0]}" if why else words, "yellow")
    style = "red" if place.state in ("changed", "stale") else "dim"
    return console.one_line(place.why if place.state == "todo" else f"{place.state}: {place.why}", style)


def _begins(opened: Opened, place: StepPlan) -> bool:
    """Whether what is known of a step's progress was said by an earlier attempt than the one that works now."""
    begun, said = opened.run.begun_path(place.step), opened.run.progress_path(place.step)
    return begun.is_file() and said.is_file() and said.stat().st_mtime_ns < begun.stat().st_mtime_ns


def next_line(opened: Opened, plans: Sequence[StepPlan]) -> Text:
    """What to type next."""
    run = opened.run
    if is_live(run.lock_path):
        return Text.assemble(("working  ", "bold cyan"), describe_lock(run.lock_path))
    blocked = [place for place in plans if place.state in ("changed", "stale")]
    if blocked:
        return command(f"r1pipe plan{run_option(run)}", "says what differs and how to go on")
    if all(place.state == "done" for place in plans):
        return command(f"r1pipe inspect{run_option(run)}", "shows what came of it")
    return command(f"r1pipe resume {named(run)}", f"goes on {goal}" if (goal := read_goal(run)) else "goes on")


def command(words: str, what: str) -> Text:
    """A command to type, and what it does."""
    return Text.assemble(("next  ", "bold cyan"), words, ("   " + what, "dim"), no_wrap=True, overflow="ignore")


def status_json(opened: Opened, plans: Sequence[StepPlan]) -> dict[str, Any]:
    """The same for programs."""
    working = is_live(opened.run.lock_path)
    return {
        "run": opened.run.name,
        "path": str(opened.run.root),
        "recipe": opened.recipe.name,
        "pipeline": opened.pipeline.name,
        "seed": opened.recipe.seed,
        "working": describe_lock(opened.run.lock_path) if working else None,
        "finished": all(place.state == "done" for place in plans),
        "steps": [step_json(opened, place) for place in plans],
        "lineage": lineage.lineage_json(opened.pipeline, plans),
    }


def step_json(opened: Opened, place: StepPlan) -> dict[str, Any]:
    """One step for programs."""
    manifest = place.manifest
    entry: dict[str, Any] = {
        "step": place.step.name,
        "state": place.state,
        "why": place.why,
        "makes": place.step.makes,
        "attempts": place.attempts,
        "changes": [{"key": key, "then": then, "now": now} for key, then, now in place.changes],
        "folder": place.step.folder,
    }
    if manifest is not None:
        entry |= {
            "build": manifest.build,
            "finished": manifest.finished,
            "wall_seconds": manifest.wall_seconds,
            "summary": manifest.summary,
        }
    elif place.state == "partial":
        entry["progress"] = read_progress(opened.run.progress_path(place.step))
    return entry
