"""Running a pipeline for somebody who watches: choose the view, run, say how it ended and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from r1pipe import console
from r1pipe.errors import StateError, Stopped
from r1pipe.goal import Goal, forget_goal, read_goal
from r1pipe.launch import StopRequest
from r1pipe.lock import describe_lock, is_live
from r1pipe.manifest import write_atomic
from r1pipe.observer import Observer
from r1pipe.opening import Opened, load, loader, named, run_option, silent_sections
from r1pipe.recipe_text import dotted
from r1pipe.rundir import new_run_path
from r1pipe.runner import StepPlan, create_run, execute, fork, plan

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERRUPTED = 130
"""Exit code after a second Ctrl-C."""


def begin(opened: Opened) -> Opened:
    """Make the run, or write what `--set` changes into its recipe; says what it did.

    Raises:
        StateError: another process works on the run, so that its recipe must not change now.
    """
    if not opened.exists:
        name = new_run_path(opened.run.name).name
        run = create_run(name, opened.recipe.text)
        console.notice(f"run {run.name} begins in {run.root}, with recipe {opened.recipe.name or 'without a name'}")
        if silent := silent_sections(opened.recipe, opened.pipeline):
            sections = " and ".join(f"[{dotted(path)}]" for path in silent)
            console.notice(
                f"the recipe has no {sections}: all settings there are defaults, at the paper's scale; see r1pipe plan"
            )
        return Opened(run, opened.pipeline, opened.recipe)
    if opened.edits:
        lock = opened.run.lock_path
        if is_live(lock):
            raise StateError(
                f"run {opened.run.name} is being worked on: {describe_lock(lock)}",
                "wait for it, or stop it, before changing its recipe",
            )
        write_atomic(opened.run.recipe_path, opened.recipe.text.encode())
        for key, before, after in opened.edits:
            console.notice(f"recipe of run {opened.run.name}: {key} was {console.setting(before)}, is {console.setting(after)}")
    return opened


def work(opened: Opened, until: str | None = None, only: str | None = None, redo: Sequence[str] = (), plain: bool = False) -> int:
    """Run what is left of a run; returns the exit code.

    Raises:
        R1PipeError: as `runner.execute`, except `Stopped`, which is reported here.
    """
    before = plan(opened.run, opened.pipeline, opened.recipe)
    wanted = _wanted(opened, before, until, only)
    left = [place.step for place in wanted if redo or place.state != "done"]
    if left:
        from r1pipe.checks import refuse_mistakes

        refuse_mistakes(opened.pipeline, opened.recipe, left)
    if opened.edits and not is_live(opened.run.lock_path):
        from r1pipe.blocked import refuse_blocked

        plans = {place.step.name: place for place in before}
        refuse_blocked(opened.run, opened.pipeline, plans, [place.step for place in wanted], redo, opened.edits)
    opened = begin(opened)
    stop = StopRequest()
    if left:
        from r1pipe.views.watch import Watch

        states = {place.step.name: str(place.state) for place in before}
        watch = Watch(opened.run.name, opened.pipeline.steps, states, opened.run.metrics_path)
        try:
            with view_of(watch, plain) as observer:
                execute(opened.run, opened.pipeline, opened.recipe, until, only, redo, observer, loader(), stop)
        except Stopped as stopped:
            console.show_error(stopped)
            return INTERRUPTED if stop.count > 1 else stopped.exit_code
        except KeyboardInterrupt:
            console.show_error(Stopped(f"run {opened.run.name} was interrupted", f"r1pipe resume {opened.run.name}"))
            return INTERRUPTED
    elif not is_live(opened.run.lock_path):
        forget_goal(opened.run)
    console.say(*ending(opened))
    return 0


def go_on(opened: Opened, until: str | None, plain: bool) -> int:
    """Run what is left of what the command that was stopped had asked for; `until` asks for something else."""
    goal = Goal(until) if until else read_goal(opened.run)
    if goal and not until:
        last = opened.pipeline.steps[-1].name
        further = f"r1pipe resume {named(opened.run)} --until {last} goes further"
        console.notice(f"run {opened.run.name} goes on as it was asked to, {goal}; {further}")
    return work(opened, goal.until or None, goal.only or None, plain=plain)


def _wanted(opened: Opened, plans: Sequence[StepPlan], until: str | None, only: str | None) -> list[StepPlan]:
    """The steps that are meant; `RecipeError` when a name means none."""
    steps = opened.pipeline.steps
    if only is not None:
        steps = opened.pipeline.select(only)
    elif until is not None:
        last = opened.pipeline.select(until)[-1]
        steps = steps[: steps.index(last) + 1]
    return [place for place in plans if place.step in steps]


def view_of(watch: Any, plain: bool) -> Any:
    """The live view on a terminal, plain lines elsewhere."""
    if plain or console.is_dumb():
        from r1pipe.views.lines import plain_lines

        return plain_lines(watch)
    from r1pipe.views.live import live_view

    return live_view(watch)


@contextmanager
def notices_of(watch: Any) -> Iterator[Observer]:
    """A view on the side of errors, a line for each step: for commands whose result is JSON."""

    def tell(what: str, about: Any) -> None:
        if what == "notice":
            console.notice(str(about))
        elif what == "end":
            step, manifest, _ = about
            console.notice(f"{watch.run}: {step.name} done in {console.duration(manifest.wall_seconds)}")

    yield watch.observer(tell)


def ending(opened: Opened) -> list[RenderableType]:
    """What is said when there is nothing left to do: the checkpoint table, the time it took, where to look next."""
    from rich.text import Text

    from r1pipe.views.results import read_results, results_view
    from r1pipe.views.status import command

    run = opened.run
    plans = plan(run, opened.pipeline, opened.recipe)
    done = [place for place in plans if place.state == "done"]
    seconds = sum(place.manifest.wall_seconds for place in done if place.manifest)
    head = console.heading(f"run {run.name}", f"{len(done)} of {len(plans)} steps done", console.duration(seconds))
    parts: list[RenderableType] = [head, Text()]
    results = read_results(run, opened.pipeline)
    if results is not None and len(done) == len(plans):
        parts += [results_view(results), Text()]
    if any(place.state in ("changed", "stale") for place in plans):
        return [*parts, command(f"r1pipe plan --run {run.name}", "says which other steps do not fit the recipe any more")]
    if len(done) < len(plans):
        return [*parts, command(f"r1pipe resume {run.name}", "goes on with the rest")]
    return [*parts, *_look_next(opened, plans)]


def _look_next(opened: Opened, plans: Sequence[StepPlan]) -> list[RenderableType]:
    """The three places that say most."""
    from r1pipe.views.status import command
    from r1pipe.views.step import tables_of

    option = run_option(opened.run)
    makers = [place.step for place in plans if place.step.makes]
    lines = [command(f"r1pipe inspect{option}", "steps, lineage, table")]
    if makers:
        lines.append(command(f"r1pipe inspect {makers[-1].name}{option}", "curves and samples of a stage"))
    scored = [place.step for place in plans if "attempts" in tables_of(opened, place.step)]
    if scored:
        what = f"r1pipe inspect {scored[-1].name}/attempts --verdict wrong{option}"
        lines.append(command(what, "what it still gets wrong"))
    return list(lines)


def fork_run(source: Opened, new: str, before: str, sets: Sequence[str]) -> list[RenderableType]:
    """Make a run that shares finished steps with another; returns what to say of it.

    Raises:
        StateError: the name is taken. RecipeError: there is no such step, or a `--set` is not right.
    """
    from rich.text import Text

    from r1pipe.views.plan import blocked_lines
    from r1pipe.views.status import command

    pipeline, recipe = source.pipeline, source.recipe
    if sets:
        pipeline, recipe = load(source.recipe.text, str(source.run.recipe_path), sets)
    target = fork(source.run, new, before, pipeline)
    if sets:
        write_atomic(target.recipe_path, recipe.text.encode())
    plans = plan(target, pipeline, recipe)
    shared = [place.step.name for place in plans if target.step_dir(place.step).is_symlink()]
    names = f": {', '.join(shared)}" if shared else ""
    said: list[RenderableType] = [Text(f"run {target.name} shares {len(shared)} finished steps with {source.run.name}{names}")]
    blocked = blocked_lines(Opened(target, pipeline, recipe), plans)
    return [*said, *(blocked or [command(f"r1pipe resume {target.name}", "runs the rest")])]
