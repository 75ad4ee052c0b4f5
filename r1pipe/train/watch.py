"""What a training run is watched with: where its numbers go, its guards, and how it stops when one of them fires.

Light: no torch here. The callback (`r1pipe.train.callbacks`) and the reward side (`r1pipe.train.rollouts`) both report to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from r1pipe.errors import TrainingError
from r1pipe.guards import Alarm, Guards, GuardSettings, HackingSettings
from r1pipe.manifest import write_atomic
from r1pipe.metrics import MetricsWriter, finite, read_metrics
from r1pipe.train.checkpoint import SEAL, checkpoints, step_of
from r1pipe.train.hacking import HackingWatch

GUARD_FILE = "guard.json"
"""Why a run was stopped by a guard, with the batch: in the step's folder."""
ANEW = "r1pipe run-all --redo STEP --set KEY=VALUE   makes it anew; resumed as it is, it stops again while the sign lasts"
"""How to go on after a guard: a plain resume would stop at the same place."""
ADAPTERS = "adapter_config.json"
"""In a checkpoint that holds adapters only: nothing can start from it by itself."""
SHOWN_CHARACTERS = 200
"""Of a question or an answer in a message; guard.json has them whole."""


class Reference(Protocol):
    """Where the reference policy lives; see `r1pipe.train.reference`."""

    def refresh(self) -> None:
        """Make it a copy of the policy."""

    def save(self, path: Path) -> None:
        """Write its weights to a file."""

    def load(self, path: Path) -> None:
        """Take its weights from a file."""


class Extra(Protocol):
    """State of a run that the trainer knows nothing of."""

    def save(self, checkpoint: Path) -> None:
        """Write it into a checkpoint's folder, before the seal."""

    def load(self, checkpoint: Path) -> None:
        """Take it up from a checkpoint's folder."""


@dataclass(frozen=True)
class Together:
    """Several such states as one."""

    parts: tuple[Extra, ...]

    def save(self, checkpoint: Path) -> None:
        """Write each of them."""
        for part in self.parts:
            part.save(checkpoint)

    def load(self, checkpoint: Path) -> None:
        """Take each of them up."""
        for part in self.parts:
            part.load(checkpoint)


@dataclass
class Watch:
    """What the callback needs to know of its step.

    Attributes:
        what: label in the progress line, e.g. "reasoning-rl".
        folder: the checkpoints' folder.
        steps: planned optimizer steps.
        boundary: checkpoints fall on multiples of this many steps (a rollout; 1 for SFT).
        checkpoint_every: steps between checkpoints, rounded up to a boundary.
        keep: sealed checkpoints to keep.
        belongs_to: what a checkpoint's state belongs to; see `checkpoint.seal`.
        metrics: where the step's metrics go.
        progress: path of the progress file.
        stop_requested: True once the user asked to stop.
        stall_minutes: how long a step may take before the run counts as stalled.
        guards: what is counted to know when going on would be wrong.
        evidence: the batch that is trained on now, as JSON values; empty where there is none to show.
        extra: further state that goes into every checkpoint.
        at_start: called once everything is as the checkpoint left it, before the first step.
        reference: the reference policy, when there is one.
        refresh: steps between copies of the policy into the reference (0: never).
        live: latest numbers for the progress file, filled by the reward side.
        before_step: called with the number of steps done before each optimizer step, also the first after a resume.
        hacking: what the looks at held-out problems add up to.
        look: called with the number of steps done at each rollout's end, and at the start of a run that begins at step 0; returns
            whether it looked, and then a checkpoint is due. Raises when going on would be wrong.
    """

    what: str
    folder: Path
    steps: int
    boundary: int
    checkpoint_every: int
    keep: int
    belongs_to: Mapping[str, Any]
    metrics: MetricsWriter
    progress: Path
    stop_requested: Callable[[], bool]
    stall_minutes: float
    guards: Guards = field(default_factory=lambda: Guards(GuardSettings()))
    evidence: Callable[[], dict[str, Any]] = dict
    extra: Extra | None = None
    at_start: Callable[[], None] = lambda: None
    reference: Reference | None = None
    refresh: int = 0
    live: dict[str, Any] = field(default_factory=dict)
    before_step: Callable[[int], None] = lambda step: None
    hacking: HackingWatch = field(default_factory=lambda: HackingWatch(HackingSettings()))
    look: Callable[[int], bool] = lambda step: False
    started: float = field(default_factory=time.monotonic)
    first_step: int = 0

    @property
    def interval(self) -> int:
        """Steps between checkpoints."""
        return -(-self.checkpoint_every // self.boundary) * self.boundary

    def count_again(self) -> None:
        """Bring guards and looks to where they were when the metrics' last line was written: called on starting and resuming."""
        self.guards, self.hacking = Guards(self.guards.settings), HackingWatch(self.hacking.settings)
        for line in read_metrics(self.metrics.path):
            self.guards.observe(line)
            self.hacking.observe(line)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Let the guards see a line that was just written.

        Raises:
            TrainingError: a guard says that going on would be wrong; what it saw and the batch are written down first.
        """
        alarm = self.guards.observe(line) or self.hacking.observe(line)
        if alarm is None:
            return
        if not alarm.fatal:
            kept = f"; {self.kept(alarm.since)[1]}" if alarm.guard == "hacking" else ""
            self.notice(int(line["step"]), alarm.problem + kept + (f"; {alarm.hint}" if alarm.hint else ""))
            return
        raise self.alarmed(alarm, int(line["step"]))

    def notice(self, step: int, text: str) -> None:
        """Tell the user something that stops nothing."""
        self.metrics.write({"kind": "notice", "step": step, "notice": text})
        print(f"{self.what}: {text}", flush=True)

    def kept(self, since: int) -> tuple[str, str]:
        """The newest whole checkpoint up to a step ("" when there is none), and what to say of it."""
        sealed = [path for path in checkpoints(self.folder) if (path / SEAL).is_file()]
        good = next((path.name for path in sealed if step_of(path) <= since), "")
        return good, f"{good}, from before it began, is kept" if good else "it began before the first checkpoint"

    def good_until(self) -> int | None:
        """The step up to which the policy was good as far as guards and looks know; None when neither has anything to say."""
        known = (self.guards.suspect_since(), self.hacking.good_until())
        return min((step for step in known if step is not None), default=None)

    def alarmed(self, alarm: Alarm, step: int) -> TrainingError:
        """The error that a guard stops with: writes `guard.json` and says what is in it."""
        evidence = self.evidence()
        good, kept = self.kept(alarm.since)
        record = {
            "guard": alarm.guard,
            "step": step,
            "problem": alarm.problem,
            "seen": list(alarm.values),
            "good_before_step": alarm.since,
            "last_good_checkpoint": good,
            "batch": evidence,
        }
        write_atomic(self.progress.parent / GUARD_FILE, json.dumps(finite(record), ensure_ascii=False, indent=1).encode())
        problem = "\n".join([f"{self.what}: {alarm.problem}; {kept}", *_shown(evidence)])
        ways = [alarm.hint, ANEW]
        if good and not (self.folder / good / ADAPTERS).is_file():
            start = f"--set STEP.start_from={self.folder / good}"
            ways.append(f"r1pipe fork RUN NEW --before STEP {start} --set KEY=VALUE   goes on from {good} in a second run")
        return TrainingError(problem, "\n".join(ways))


def _shown(evidence: Mapping[str, Any]) -> list[str]:
    """The batch in a few lines."""
    if not evidence:
        return []
    lines = [f"the batch is rollout {evidence['rollout']} ({evidence['table'] or GUARD_FILE}); some of its answers:"]
    for attempt in evidence["attempts"]:
        question, answer = (_line(attempt[name]) for name in ("question", "completion"))
        scores = ", ".join(f"{name} {value}" for name, value in attempt["scores"].items())
        lines += [f"  asked     {question}", f"  answered  {answer}", f"            {attempt['finish']}, {scores}"]
    return lines


def _line(text: str) -> str:
    """Text as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"
