"""Progress as plain lines, for logs and build servers: one on every change, and one every few seconds in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from r1pipe import console
from r1pipe.observer import Observer
from r1pipe.views.made import made
from r1pipe.views.numbers import amount, is_headline, label, order
from r1pipe.views.watch import Watch

LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0
"""Between two lines of the same step: a sixtieth of the time that it has run, within these bounds."""


@contextmanager
def plain_lines(watch: Watch) -> Iterator[Observer]:
    """Prints lines for the length of a `with` block."""
    last = watch.clock()

    def tell(what: str, about: Any) -> None:
        nonlocal last
        now = watch.clock()
        if what == "notice":
            _print(f"note  {about}")
        elif what == "begin":
            how = "begins" if watch.attempt == 1 else f"goes on, attempt {watch.attempt}"
            _print(f"{_place(watch)} {about.name}{_makes(about)}: {how}")
        elif what == "end":
            step, manifest, series = about
            detail = made(manifest.summary, series)
            done = f"{step.name}{_makes(step)}: done in {console.duration(manifest.wall_seconds)}"
            _print(f"[{watch.steps.index(step) + 1}/{len(watch.steps)}] {done}{': ' if detail else ''}{detail}")
        elif what == "report" and now - last >= min(MOST_SECONDS, max(LEAST_SECONDS, watch.elapsed / 60)):
            _print(progress_line(watch))
        else:
            return
        last = now

    yield watch.observer(tell)


def progress_line(watch: Watch) -> str:
    """Where the running step stands, in one line."""
    assert watch.step is not None
    words = [f"{_place(watch)} {watch.step.name}"]
    if (part := str(watch.progress.get("note") or "")) and part not in watch.step.name:
        words[0] += f", {part}"
    if watch.done is not None and watch.total:
        words.append(f"{watch.progress.get('unit', 'step')} {watch.done:,.0f} of {watch.total:,.0f},")
    words.append(console.duration(watch.elapsed))
    left = watch.seconds_left()
    if left is not None:
        words[-1] += f", about {console.duration(left, whole=True)} left"
    keys = sorted((key for key, series in watch.series.items() if is_headline(key) and series.last is not None), key=order)
    numbers = "  ".join(f"{label(key)} {amount(key, watch.series[key].last)}" for key in keys)
    return " ".join(words) + (f": {numbers}" if numbers else "")


def _place(watch: Watch) -> str:
    return f"[{watch.number}/{len(watch.steps)}]"


def _makes(step: Any) -> str:
    return f" -> {step.makes}" if step.makes else ""


def _print(line: str) -> None:
    console.out().print(console.plain(line), soft_wrap=True)
    console.out().file.flush()
