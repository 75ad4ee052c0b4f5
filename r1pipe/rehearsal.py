"""`r1pipe verify-resume`: proof, on the user's own machine, that a killed and resumed training step is the same step.

The step is run twice in a scratch folder, on the inputs of an existing run and with the recipe's settings shortened: once
unbroken, and once killed without warning (SIGKILL, all its processes) in its middle and resumed. Both are real steps with real
worker processes. Then the weights are compared bit for bit. Where they differ (GPUs add up in another order each time), a second
unbroken run shows how much of the difference is the machine's own.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from r1pipe import processes
from r1pipe.errors import StateError, StepFailed
from r1pipe.fork import fork
from r1pipe.guards import GuardSettings
from r1pipe.launch import BEGUN, StopRequest
from r1pipe.manifest import Manifest, read_begun
from r1pipe.metrics import read_metrics
from r1pipe.observer import Observer
from r1pipe.opening import Opened, loader
from r1pipe.recipe import Launch, Recipe
from r1pipe.rundir import RunDir
from r1pipe.runner import execute
from r1pipe.stage import Step
from r1pipe.stages.mixed_rl import RewardModelsConfig
from r1pipe.train.settings import GrpoSettings, SftSettings
from r1pipe.train.short import REHEARSAL_ROWS
from r1pipe.weights import Difference, compare_weights

MOST_MINIBATCHES, MOST_GROUP, MOST_TOKENS, ROLLOUTS = 2, 4, 32, 4
"""What reinforcement learning is shortened to."""
SUPERVISED_STEPS, ROWS_PER_PROCESS = 8, 4
"""What supervised training is shortened to."""
LOOK_SECONDS = 0.005

OFF = GuardSettings(entropy_steps=0, kl_steps=0, zero_reward_rollouts=0, truncated_rollouts=0, flat_rollouts=0)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What was done and what came of it.

    Attributes:
        step: the step that was tried.
        verdict: "exact", "within the machine's own noise", or "different".
        steps: optimizer steps of the short run.
        killed_after: the checkpoint's step that was on the disk when the processes were killed.
        resumed_from: the step from which the second process went on.
        models: output name -> how the weights differ.
        noise: output name -> how the weights of two unbroken runs differ; empty when that was not needed.
        first_difference: first optimizer step whose loss differs; None when none does.
        device: what it was trained on.
        seconds: how long all of it took.
        folder: where the scratch runs are, when they were kept.
    """

    step: str
    verdict: str
    steps: int
    killed_after: int
    resumed_from: int
    models: dict[str, Difference]
    noise: dict[str, Difference]
    first_difference: int | None
    device: str
    seconds: float
    folder: str = ""

    @property
    def passed(self) -> bool:
        """Whether resuming can be trusted here."""
        return self.verdict != "different"


def verify_resume(
    opened: Opened,
    named: str,
    keep: bool = False,
    observer: Observer | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Rehearsal:
    """Prove that a training step of a run resumes exactly; the run itself is only read.

    Args:
        named: stage or step; of a stage with several steps, the one that trains.
        keep: leave the scratch runs where they are.
        tell: is given a line before each part, for whoever waits.

    Raises:
        StateError: the step does not train, what it reads is not there, or it could not be killed in its middle.
    """
    step = training_step(opened, named)
    short, last = shortened(opened.recipe, step)
    begin = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=".verify-resume-", dir=opened.run.root.parent))
    try:
        with _few_rows(short.launches[step.name].processes):
            tell(f"{step.name}, shortened to {last} optimizer steps: first unbroken")
            whole = _Scratch(opened, step, short, scratch, "unbroken", observer)
            manifest = whole.finish()
            killed = _Scratch(opened, step, short, scratch, "killed", observer)
            tell(f"the same again, to be killed after step {last // 2}")
            killed_after = killed.run_and_kill(last // 2)
            tell(f"killed after the checkpoint of step {killed_after}; going on from there")
            killed.finish()
            models = _compare(whole, killed)
            noise: dict[str, Difference] = {}
            if any(difference.differing for difference in models.values()):
                tell("the weights differ; a second unbroken run shows how much of it is the machine's own")
                again = _Scratch(opened, step, short, scratch, "again", observer)
                again.finish()
                noise = _compare(whole, again)
        return Rehearsal(
            step=step.name,
            verdict=_verdict(models, noise),
            steps=len(_losses(whole)),
            killed_after=killed_after,
            resumed_from=killed.resumed_from(),
            models=models,
            noise=noise,
            first_difference=_first_difference(_losses(whole), _losses(killed)),
            device=manifest.device,
            seconds=time.monotonic() - begin,
            folder=os.fspath(scratch) if keep else "",
        )
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)


def training_step(opened: Opened, named: str) -> Step:
    """The step that is meant.

    Raises:
        RecipeError: there is no such step. StateError: it trains nothing.
    """
    known = (GrpoSettings, SftSettings, RewardModelsConfig)
    steps = opened.pipeline.select(named)
    training = [step for step in steps if issubclass(step.config, known)]
    if not training:
        every = [step.name for step in opened.pipeline.steps if issubclass(step.config, known)]
        raise StateError(f"{named} trains nothing that could be resumed", f"steps that train: {', '.join(every)}")
    return training[-1]


def shortened(recipe: Recipe, step: Step) -> tuple[Recipe, int]:
    """(the recipe with the step cut short, its optimizer steps): everything that decides how resuming works is kept.

    The reference is refreshed in the middle, where the run is killed; preference rewards join after that.
    """
    config, launch = recipe.configs[step.name], recipe.launches[step.name]
    if isinstance(config, GrpoSettings):
        changes, every, last = _short_grpo(config, launch.processes)
    else:
        changes, every, last = _short_supervised(config, launch.processes), 2, SUPERVISED_STEPS
    quick: dict[str, Any] = {
        "checkpoint_every": every, "guards": OFF, "hacking": {"every": 0}, "report_to": (), "stall_minutes": 0.0,
        "keep_attempts": 0,
    }  # fmt: skip
    return replace(
        recipe,
        configs={**recipe.configs, step.name: step.config.model_validate({**config.model_dump(), **changes})},
        launches={**recipe.launches, step.name: Launch.model_validate({**launch.model_dump(), **quick})},
    ), last


def _short_grpo(config: GrpoSettings, count: int) -> tuple[dict[str, Any], int, int]:
    minibatches = min(config.minibatches, MOST_MINIBATCHES)
    last = ROLLOUTS * minibatches
    changes: dict[str, Any] = {
        "steps": last,
        "minibatches": minibatches,
        "group": min(config.group, MOST_GROUP),
        "questions_per_step": max(2, count),
        "max_completion_tokens": min(config.max_completion_tokens, MOST_TOKENS),
        "refresh_reference": last // 2 if config.refresh_reference else 0,
    }
    if config.raised_completion_tokens is not None:
        changes |= {"raised_completion_tokens": 2 * MOST_TOKENS, "raise_from_step": last - minibatches}
    if "preference_from_step" in type(config).model_fields:
        changes["preference_from_step"] = last - minibatches
    if getattr(config, "general_share", 0):
        changes["general_share"] = 0.5  # of so few questions at least one, and not all
    return changes, minibatches, last


def _short_supervised(config: Any, count: int) -> dict[str, Any]:
    batch = {"epochs": 1, "batch": ROWS_PER_PROCESS * count}
    if isinstance(config, RewardModelsConfig):
        return {name: {**getattr(config, name).model_dump(), **batch} for name in ("helpfulness", "safety")}
    return batch


@contextmanager
def _few_rows(count: int) -> Iterator[None]:
    """For the length of a `with` block, supervised steps train on the first rows only."""
    before = os.environ.get(REHEARSAL_ROWS)
    os.environ[REHEARSAL_ROWS] = str(SUPERVISED_STEPS * ROWS_PER_PROCESS * count)
    try:
        yield
    finally:
        os.environ.pop(REHEARSAL_ROWS)
        if before is not None:
            os.environ[REHEARSAL_ROWS] = before


class _Scratch:
    """One short run of the step in the scratch folder, sharing the finished steps of the user's run by links."""

    def __init__(self, opened: Opened, step: Step, recipe: Recipe, root: Path, name: str, observer: Observer | None) -> None:
        self.opened, self.step, self.recipe, self.observer = opened, step, recipe, observer
        self.run: RunDir = fork(opened.run, name, step.name, opened.pipeline, root)

    def finish(self) -> Manifest:
        """Run the step to its end."""
        (manifest,) = execute(
            self.run, self.opened.pipeline, self.recipe, only=self.step.name, observer=self.observer, loader=loader()
        )
        return manifest

    def run_and_kill(self, at: int) -> int:
        """Run the step and kill all its processes once the checkpoint of step `at` is whole; returns that checkpoint's step."""
        found: list[int] = []
        over = threading.Event()
        killer = threading.Thread(target=self._kill, args=(at, found, over), daemon=True)
        killer.start()
        wish = StopRequest()
        try:
            execute(self.run, self.opened.pipeline, self.recipe, None, self.step.name, (), self.observer, loader(), wish)
        except StepFailed:
            if not found:
                raise
            return found[0]
        finally:
            over.set()
            killer.join()
        raise StateError(
            f"the short run of {self.step.name} was over before it could be killed",
            "try it on a quieter machine, or with a step that takes longer",
        )

    def _kill(self, at: int, found: list[int], over: threading.Event) -> None:
        while not over.is_set():
            sealed = [int(path.parent.name.rsplit("-", 1)[1]) for path in self._checkpoints().rglob("checkpoint-*/whole.json")]
            if ready := [number for number in sealed if number >= at]:
                begun = read_begun(self.run.begun_path(self.step))
                if begun is not None and processes.end(processes.marked(BEGUN, begun.id)):
                    found.append(max(ready))
                    return
            time.sleep(LOOK_SECONDS)

    def _checkpoints(self) -> Path:
        return self.run.step_dir(self.step) / "checkpoints"

    def resumed_from(self) -> int:
        """The step at which the second process went on, by its own words."""
        said = re.findall(
            r"resuming at step (\d+) of", self.run.log_path(self.step, 2).read_text(encoding="utf-8", errors="replace")
        )
        return int(said[0]) if said else 0


def _compare(one: _Scratch, other: _Scratch) -> dict[str, Difference]:
    names = [name for name, kind in one.step.writes.items() if kind == "model"]
    return {name: compare_weights(one.run.output_path(one.step, name), other.run.output_path(one.step, name)) for name in names}


def _losses(scratch: _Scratch) -> dict[tuple[str, int], float | None]:
    """(metrics file, step) -> loss."""
    folder = scratch.run.step_dir(scratch.step)
    return {
        (path.name, int(line["step"])): line.get("loss")
        for path in sorted(folder.glob("metrics*.jsonl"))
        for line in read_metrics(path)
        if line.get("kind") == "step"
    }


def _first_difference(one: Mapping[tuple[str, int], float | None], other: Mapping[tuple[str, int], float | None]) -> int | None:
    return min(
        (step for name, step in one.keys() | other.keys() if one.get((name, step)) != other.get((name, step))), default=None
    )


def _verdict(models: Mapping[str, Difference], noise: Mapping[str, Difference]) -> str:
    if not any(difference.differing for difference in models.values()):
        return "exact"
    most = max(difference.largest for difference in models.values())
    own = max((difference.largest for difference in noise.values()), default=0.0)
    return "within the machine's own noise" if math.isfinite(most) and most <= 2 * own else "different"


def report_json(found: Rehearsal) -> dict[str, Any]:
    """The outcome, for programs."""
    return {**asdict(found), "passed": found.passed}


def report_lines(found: Rehearsal) -> list[str]:
    """The outcome, for people."""
    lines = [
        f"{found.step} on {found.device}: {found.steps} optimizer steps unbroken, "
        f"and the same killed after the checkpoint of step {found.killed_after} and resumed from step {found.resumed_from}",
    ]
    for name, difference in found.models.items():
        if not difference.differing:
            lines.append(f"{name}: all {difference.tensors} tensors are the same, bit for bit")
            continue
        own = found.noise.get(name)
        lines.append(
            f"{name}: {difference.differing} of {difference.tensors} tensors differ, by at most {difference.largest:.3g} "
            f"({difference.where}); two unbroken runs differ by at most {own.largest if own else 0.0:.3g}"
        )
    if found.first_difference is not None:
        lines.append(f"the losses differ from step {found.first_difference} on")
    lines.append(f"verdict: {found.verdict}")
    if found.folder:
        lines.append(f"the scratch runs are in {found.folder}")
    return lines
