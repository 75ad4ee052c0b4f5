"""What is known of a run while it runs: fed by the runner's observer, shown by the live view or as plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r1pipe.manifest import Manifest
from r1pipe.metrics import read_metrics
from r1pipe.observer import Observer
from r1pipe.stage import Step
from r1pipe.views.numbers import Series, add_line, from_progress

SAMPLE_SECONDS = 8.0
"""A sample stays at least so long, or nobody could read it."""


@dataclass
class Watch:
    """Where a run stands now.

    Attributes:
        run: its name.
        steps: all steps, in order.
        states: step name -> todo, partial, running, done, changed, stale.
        metrics_path: step -> its metrics file, to show what an earlier attempt wrote.
        clock: seconds that only go forward.
    """

    run: str
    steps: Sequence[Step]
    states: dict[str, str]
    metrics_path: Callable[[Step], Path]
    clock: Callable[[], float] = time.monotonic
    step: Step | None = None
    attempt: int = 1
    began: float = 0.0
    step_began: float = 0.0
    progress: Mapping[str, Any] = field(default_factory=dict)
    progress_at: float = 0.0
    first_done: tuple[float, float] | None = None
    series: dict[str, Series] = field(default_factory=dict)
    from_lines: set[str] = field(default_factory=set)
    sample: tuple[str, str] | None = None
    sample_at: float = float("-inf")
    lock: Any = field(default_factory=threading.RLock)
    """Held while the numbers change, and by whoever draws them from another thread."""

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def done(self) -> float | None:
        """Units of the step that are done."""
        return _count(self.progress.get("done"))

    @property
    def total(self) -> float | None:
        """Units of the step in all."""
        return _count(self.progress.get("total"))

    @property
    def elapsed(self) -> float:
        """Seconds since this attempt at the step began."""
        return self.clock() - self.step_began

    @property
    def number(self) -> int:
        """The step's place in the chain, from 1."""
        return self.steps.index(self.step) + 1 if self.step is not None else 0

    def seconds_left(self) -> float | None:
        """What the step says is left, less the time since it said so; else at the pace since its first report."""
        now = self.clock()
        said = _count(self.progress.get("seconds_left"))
        if said is not None:
            return max(0.0, said - (now - self.progress_at))
        if self.first_done is None or self.done is None or self.total is None or self.done <= self.first_done[1]:
            return None
        pace = (self.progress_at - self.first_done[0]) / (self.done - self.first_done[1])
        return max(0.0, pace * (self.total - self.done) - (now - self.progress_at))

    def begin(self, step: Step, attempt: int) -> None:
        """A step's process is about to start."""
        self.step, self.attempt, self.step_began = step, attempt, self.clock()
        self.states[step.name] = "running"
        self.progress, self.first_done, self.sample = {}, None, None
        self.series, self.from_lines = {}, set()
        if attempt > 1:
            for line in read_metrics(self.metrics_path(step)):
                self.line(step, line)

    def line(self, step: Step, line: Mapping[str, Any]) -> None:
        """A new line of metrics."""
        add_line(self.series, line)
        self.from_lines |= {key for key in self.series if key not in self.from_lines}

    def report(self, step: Step, progress: Mapping[str, Any]) -> None:
        """New progress."""
        now = self.clock()
        if progress.get("note") != self.progress.get("note"):
            self.first_done = None  # another part of the step, counted anew
            if self.progress.get("note"):
                self.series.clear()  # and with numbers of its own
                self.from_lines.clear()
        self.progress, self.progress_at = progress, now
        if self.done is not None and self.first_done is None:
            self.first_done = (now, self.done)
        for key, number in from_progress(progress):
            if key not in self.from_lines:
                self.series.setdefault(key, Series()).add(int(self.done or 0), number)
        sample = progress.get("sample")
        if isinstance(sample, Mapping) and now - self.sample_at >= SAMPLE_SECONDS:
            self.sample = (str(sample.get("question", "")), str(sample.get("completion", "")))
            self.sample_at = now

    def end(self, step: Step, manifest: Manifest) -> None:
        """The step is committed."""
        self.states[step.name] = "done"
        self.step = None

    def skip(self, step: Step, manifest: Manifest) -> None:
        """The step was done already."""
        self.states[step.name] = "done"

    def observer(self, tell: Callable[[str, Any], None]) -> Observer:
        """An observer that keeps this up to date and then tells what happened: "begin", "report", "end", "skip" or "notice"."""

        def on_begin(step: Step, attempt: int) -> None:
            with self.lock:
                self.begin(step, attempt)
            tell("begin", step)

        def on_line(step: Step, line: Mapping[str, Any]) -> None:
            with self.lock:
                self.line(step, line)
            if line.get("kind") == "notice":
                tell("notice", f"{step.name}: {line.get('notice', '')}")
            tell("report", step)

        def on_progress(step: Step, progress: Mapping[str, Any]) -> None:
            with self.lock:
                self.report(step, progress)
            tell("report", step)

        def on_end(step: Step, manifest: Manifest) -> None:
            with self.lock:
                series = self.series
                self.end(step, manifest)
            tell("end", (step, manifest, series))

        def on_skip(step: Step, manifest: Manifest) -> None:
            self.skip(step, manifest)
            tell("skip", step)

        return Observer(on_begin, on_line, on_progress, on_end, on_skip, lambda line: tell("notice", line))


def _count(found: Any) -> float | None:
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
