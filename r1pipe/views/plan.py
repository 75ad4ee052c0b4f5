"""What would run and why, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from r1pipe import console
from r1pipe.artifact import check_model
from r1pipe.errors import ArtifactError
from r1pipe.graph import reads_base, section_of
from r1pipe.lock import describe_lock, is_live
from r1pipe.opening import Opened
from r1pipe.rundir import free_name
from r1pipe.stage import Step
from r1pipe.states import StepPlan
from r1pipe.views import lineage
from r1pipe.views.settings import changes_text, settings_of
from r1pipe.views.status import command, detail, next_line, step_json

WOULD = {"todo": "runs", "partial": "goes on", "done": "is kept", "changed": "blocks", "stale": "blocks"}
"""State -> what `run-all` would do with the step."""

CHECKS_AND_STARTS = "with the same options, checks files, rewards and the base model, and starts"

MOST_SETTINGS = 12
"""A step with more settings than this in the recipe shows them with --settings only."""


def plan_view(opened: Opened, plans: Sequence[StepPlan], every_setting: bool) -> RenderableType:
    """The whole of `r1pipe plan`."""
    run = opened.run
    base = opened.recipe.base.model
    what = "would be made" if not opened.exists else f"{sum(place.state == 'done' for place in plans)} of {len(plans)} steps done"
    asked = getattr(opened.recipe.shared.get("chat"), "template", "")
    with_template = f" with chat template {asked}" if asked else ""
    named = f"base {base}{with_template}" if base else "no base model"
    head = console.heading(f"run {run.name}", what, named, f"seed {opened.recipe.seed}")
    parts: list[RenderableType] = [head]
    if opened.edits:
        parts += [
            Text(),
            Text("--set would change the run's recipe", style="bold"),
            Padding(changes_text(opened.edits), (0, 0, 0, 2)),
        ]
    parts.append(Text())
    for place in plans:
        parts.append(_step(opened, place, every_setting))
    parts += [Text(), Padding(lineage.picture(opened.pipeline, plans), (0, 0, 0, 2)), Text(), *_ending(opened, plans)]
    return Group(*parts)


def _step(opened: Opened, place: StepPlan, every_setting: bool) -> RenderableType:
    """One step: what would become of it and why, what differs, what it comes to, the settings that the recipe writes down."""
    from rich.table import Table

    step = place.step
    running = place.state == "partial" and is_live(opened.run.lock_path)
    title = Text.assemble(console.mark("running" if running else place.state), " ", (step.name, "bold"))
    if step.makes:
        title.append(f" → {step.makes}", style="cyan")
    blocks = place.state in ("changed", "stale")
    says = "runs now" if running else WOULD[place.state]
    why = detail(opened, place, True).plain if running else _why(place)
    would = Text(says, style="bold red" if blocks else "green" if place.state == "done" else "yellow")
    head = Table.grid(padding=(0, 2, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(overflow="fold")
    head.add_row(title, would.append(": ", style="dim").append_text(console.plain(why, "dim")))
    lines: list[RenderableType] = [changes_text(place.changes)] if place.changes else []
    if place.state != "done" or every_setting:
        lines += [Text(line) for line in _amounts(opened, step)]
        lines += [console.plain(f"cannot start here: {problem}", "bold red") for problem in _problems(opened, step)]
        settings = settings_of(opened, step, every_setting)
        if settings and (every_setting or len(settings) <= MOST_SETTINGS):
            lines.append(console.plain("  ".join(f"{key}={console.setting(found)}" for key, found in settings.items()), "dim"))
        elif settings:
            lines.append(Text(f"{len(settings)} settings of the recipe; --settings shows them", "dim"))
    return Group(head, Padding(Group(*lines), (0, 0, 0, 4))) if lines else head


def _why(place: StepPlan) -> str:
    """Why, for people: a finished step says when it was made."""
    if place.state != "done" or place.manifest is None:
        return place.why
    when = place.manifest.finished.replace("T", " ").replace("+00:00", " UTC")
    return f"made {when} in {console.duration(place.manifest.wall_seconds)}"


def _amounts(opened: Opened, step: Step) -> list[str]:
    from r1pipe.train.settings import GrpoSettings
    from r1pipe.views.amounts import amounts
    from r1pipe.views.costs import cost_lines

    config = opened.recipe.configs[step.name]
    lines = amounts(step, config, opened.recipe.launches[step.name])
    return [*lines, *cost_lines(config, _base(opened))] if isinstance(config, GrpoSettings) else lines


def _base(opened: Opened) -> Path | None:
    """The base model's folder, when it is there."""
    try:
        return opened.pipeline.locate_base(opened.recipe.base.model)
    except ArtifactError:
        return None


def _problems(opened: Opened, step: Step) -> list[str]:
    """Why a step could not start here, as far as it is known without importing anything or loading weights."""
    from r1pipe.stages.own import missing
    from r1pipe.views.amounts import engine_problems

    config, shared = opened.recipe.configs[step.name], {name: opened.recipe.shared[name] for name in step.shares}
    return [*_base_problems(opened, step), *missing(config, shared), *engine_problems(config, opened.recipe.launches[step.name])]


def _base_problems(opened: Opened, step: Step) -> list[str]:
    """What is wrong with the base model that a step starts from, by its files."""
    if not reads_base(step):
        return []
    given = getattr(opened.recipe.shared.get("chat"), "template", "")
    try:
        check_model(opened.pipeline.locate_base(opened.recipe.base.model), chat_template=not given)
    except ArtifactError as error:
        return [f"{error.problem}; {error.hint}" if error.hint else error.problem]
    return []


def blocked_lines(opened: Opened, plans: Sequence[StepPlan]) -> list[RenderableType]:
    """What to type when finished or begun steps do not fit the recipe any more; empty when all do."""
    name = opened.run.name
    blocked = [place.step for place in plans if place.state in ("changed", "stale")]
    if not blocked:
        return []
    below = {reader.name for step in blocked for reader in opened.pipeline.readers(step.name)}
    roots = [step.name for step in blocked if step.name not in below]
    redo = " ".join(f"--redo {root}" for root in roots)
    sets = "".join(f" --set {key}={console.setting(after)}" for key, _, after in opened.edits)
    copy = free_name(name, opened.run.root.parent)
    names = ", ".join(step.name for step in blocked)
    return [
        Text(
            f"nothing would start: {names} {'does' if len(blocked) == 1 else 'do'} not fit the recipe any more", style="bold red"
        ),
        command(f"r1pipe run-all --run {name} {redo}{sets}", "discards what was made and makes it anew"),
        command(f"r1pipe fork {name} {copy} --before {roots[0]}{sets}", "keeps both runs"),
    ]


def _ending(opened: Opened, plans: Sequence[StepPlan]) -> list[RenderableType]:
    """What to type, by what blocks or what is left."""
    name = opened.run.name
    if blocked := blocked_lines(opened, plans):
        return blocked
    left = [place for place in plans if place.state != "done"]
    if not left:
        return [Text("every step is done: nothing would run"), command(f"r1pipe inspect --run {name}", "shows what came of it")]
    if opened.exists and is_live(opened.run.lock_path):
        return [Text(f"{len(left)} steps are left, and the run is being worked on"), next_line(opened, plans)]
    if opened.exists and not opened.edits:
        return [Text(f"{len(left)} steps would run; nothing has started"), next_line(opened, plans)]
    return [Text(f"{len(left)} steps would run; nothing has started"), command("r1pipe run-all", CHECKS_AND_STARTS)]


def plan_json(opened: Opened, plans: Sequence[StepPlan]) -> dict[str, Any]:
    """The same for programs."""
    steps = []
    for place in plans:
        step = place.step
        entry = step_json(opened, place) | {"would": WOULD[place.state]}
        entry["settings"] = opened.recipe.settings(step).get(section_of(step)[0])
        entry["launch"] = opened.recipe.launches[step.name].model_dump(mode="json")
        entry["amounts"] = _amounts(opened, step)
        entry["problems"] = _problems(opened, step) if place.state != "done" else []
        steps.append(entry)
    return {
        "run": opened.run.name,
        "exists": opened.exists,
        "working": describe_lock(opened.run.lock_path) if opened.exists and is_live(opened.run.lock_path) else None,
        "base": opened.recipe.base.model_dump(mode="json"),
        "edits": [{"key": key, "before": before, "after": after} for key, before, after in opened.edits],
        "steps": steps,
        "lineage": lineage.lineage_json(opened.pipeline, plans),
    }
