"""`r1pipe watch`: the live view of a run that another process works on, from what that process writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.live import Live

from r1pipe import console
from r1pipe.errors import ArtifactError
from r1pipe.lock import is_live
from r1pipe.manifest import read_manifest
from r1pipe.metrics import MetricsTail, read_progress
from r1pipe.observer import Observer
from r1pipe.opening import Opened, named
from r1pipe.stage import Step
from r1pipe.states import plan
from r1pipe.views.lines import plain_lines
from r1pipe.views.live import REFRESH_PER_SECOND, Screen, finished_line
from r1pipe.views.watch import Watch

EVERY = 1.0
"""Seconds between two looks."""


def follow(opened: Opened, plain: bool, pause: Callable[[float], None] = time.sleep) -> int:
    """Show a run until nobody works on it any more; returns the exit code: 0 when it is finished.

    Args:
        plain: lines instead of a picture.
        pause: waits between two looks.
    """
    plans = plan(opened.run, opened.pipeline, opened.recipe)
    states = {place.step.name: place.state for place in plans}
    watch = Watch(
        opened.run.name, opened.pipeline.steps, {name: str(state) for name, state in states.items()}, opened.run.metrics_path
    )
    view = plain_lines(watch) if plain or console.is_dumb() else _picture(watch)
    with suppress(KeyboardInterrupt), view as observer:  # Ctrl-C ends the watching, not the run
        _look(opened, watch, observer, pause)
    left = [name for name, state in watch.states.items() if state != "done"]
    if left:
        console.notice(f"nobody works on run {opened.run.name}; {len(left)} steps are left: r1pipe resume {named(opened.run)}")
        return 1
    console.notice(f"run {opened.run.name} is finished: r1pipe report {named(opened.run)} shows what came of it")
    return 0


def _look(opened: Opened, watch: Watch, observer: Observer, pause: Callable[[float], None]) -> None:
    """Tell the observer what changed on the disk, until the run's lock is given back."""
    tail: MetricsTail | None = None
    while True:
        live = is_live(opened.run.lock_path)  # before the look, so that what was written last is seen
        step = watch.step
        begun = _running(opened, watch) if step is None else None
        if live and begun is not None:
            step, attempt = begun
            observer.on_step_begin(step, attempt)
            watch.step_began -= max(0.0, time.time() - opened.run.begun_path(step).stat().st_mtime)
            tail = MetricsTail(opened.run.metrics_path(step), from_end=False)
        if step is not None and tail is not None:
            for line in tail.new_lines():
                observer.on_line(step, line)
            if progress := read_progress(opened.run.progress_path(step)):
                observer.on_progress(step, progress)
            if opened.run.manifest_path(step).exists():
                observer.on_step_end(step, read_manifest(opened.run.manifest_path(step), step))
                tail = None
                continue
        if not live:
            return
        pause(EVERY)


def _running(opened: Opened, watch: Watch) -> tuple[Step, int] | None:
    """The first step that is not done and was begun, with the number of its attempt."""
    from r1pipe.manifest import read_begun

    for step in opened.pipeline.steps:
        if opened.run.manifest_path(step).exists():
            watch.states[step.name] = "done"
            continue
        try:
            begun = read_begun(opened.run.begun_path(step))
        except ArtifactError:
            return None  # being written just now
        if begun is not None:
            return step, begun.attempt
    return None


@contextmanager
def _picture(watch: Watch) -> Iterator[Observer]:
    """The picture of the live view, for the length of a `with` block."""
    terminal = console.out()
    with Live(Screen(watch), console=terminal, refresh_per_second=REFRESH_PER_SECOND, transient=True):

        def tell(what: str, about: Any) -> None:
            if what == "end":
                terminal.print(finished_line(*about))

        yield watch.observer(tell)
