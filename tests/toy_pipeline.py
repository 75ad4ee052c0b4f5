"""A pipeline of tiny steps that run in real worker processes: what the runner's tests run instead of training.

numbers -> double -> total          (double runs under the toy "training" loop: it can be stopped and resumed)
base    -> start  -> total
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.errors import Stopped, TrainingError
from r1pipe.graph import Pipeline
from r1pipe.manifest import write_atomic
from r1pipe.metrics import METRICS, PROGRESS, MetricsWriter, write_progress
from r1pipe.stage import Base, Output, Step, StepConfig, StepContext

TALLY = "R1PIPE_TOY_TALLY"
"""Environment variable: a file to which each execution of a step appends its name."""


class Chat(StepConfig):
    system: str = ""


class Inner(StepConfig):
    weight: float = 1.0


class NumbersConfig(StepConfig):
    count: PositiveInt = 5
    rate: float = 0.5
    label: str = "plain"
    flag: bool = False
    inner: Inner = Inner()
    weights: dict[str, float] = Field(default_factory=dict)


class DoubleConfig(StepConfig):
    steps: PositiveInt = 6
    factor: int = 2
    pause: float = 0.0
    fail: str = ""
    ranks: bool = False


class StartConfig(StepConfig):
    bonus: int = 0


class TotalConfig(StepConfig):
    sign: int = 1


def tally(context: StepContext) -> None:
    """Count an execution."""
    if path := os.environ.get(TALLY):
        with open(path, "a") as file:
            file.write(context.step.name + "\n")


def numbers(context: StepContext) -> dict[str, Any]:
    tally(context)
    write_atomic(context.output("values"), json.dumps([context.seed + i for i in range(context.config.count)]).encode())
    return {"count": context.config.count}


def double(context: StepContext) -> dict[str, Any]:
    """A loop with a checkpoint at each step, as training has."""
    if context.config.ranks and os.environ["RANK"] != "0":
        return follow(context)
    tally(context)
    config, state_path = context.config, context.folder / "state.json"
    values = json.loads(context.inputs["values"].read_bytes())
    state = json.loads(state_path.read_bytes()) if state_path.exists() else {"step": 0, "sum": 0}
    with MetricsWriter(context.folder / METRICS) as metrics:
        metrics.truncate_after(state["step"])
        for step in range(state["step"] + 1, config.steps + 1):
            if context.stop_requested():
                raise Stopped(f"stopped after step {step - 1} of {config.steps}")
            fail(config.fail, step, context)
            time.sleep(config.pause)
            state = {"step": step, "sum": state["sum"] + config.factor * values[step % len(values)] * step}
            metrics.write({"step": step, "sum": state["sum"]})
            write_atomic(state_path, json.dumps(state).encode())
            write_progress(context.folder / PROGRESS, {"done": step, "total": config.steps})
    folder = context.output("model")
    folder.mkdir(exist_ok=True)
    if config.fail != "lies":
        (folder / "sum.txt").write_text(str(state["sum"]))
    if config.fail == "litter":
        litter(context.folder)
    extra = {"world": int(os.environ["WORLD_SIZE"])} if config.ranks else {}
    return {"sum": state["sum"], "system": context.shared["chat"].system, **extra}


def follow(context: StepContext) -> dict[str, Any]:
    """What the second of two processes does: wait for the first, or stop with it."""
    if context.config.fail == "rank":
        raise TrainingError("the second process ran dry", "give it data")
    while not (context.output("model") / "sum.txt").exists():
        if context.stop_requested():
            raise Stopped("stopped too")
        time.sleep(0.01)
    return {}


def litter(folder: Path) -> None:
    """Leave a process behind, in a session of its own."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    (folder / "child").write_text(str(child.pid))


def fail(how: str, step: int, context: StepContext) -> None:
    """Go wrong in the way that the recipe asks for, at step 3."""
    folder = context.folder
    if step != 3 or not how:
        return
    if how == "rank":
        time.sleep(600)  # as in a collective that the other process never reaches
    if how == "wait":  # until somebody opens the gate, a file in the current folder
        (folder / "waiting").touch()
        while not Path("gate").exists():
            if context.stop_requested():
                raise Stopped("stopped at step 2")
            time.sleep(0.01)
    if how == "ours":
        raise TrainingError("the loss is not finite at step 3", "lower the learning rate")
    if how == "theirs":
        raise ZeroDivisionError("something nobody expected")
    if how == "exit":
        raise SystemExit(0)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (folder / "deaf").touch()
        time.sleep(600)
    if how == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        (folder / "big").write_bytes(b"x" * 100_000)


def start(context: StepContext) -> dict[str, Any]:
    tally(context)
    folder = context.output("model")
    folder.mkdir(exist_ok=True)
    (folder / "sum.txt").write_text(str((context.inputs["base"] / "config.json").stat().st_size + context.config.bonus))
    return {"base": context.input_digests["base"]}


def total(context: StepContext) -> dict[str, Any]:
    tally(context)
    parts = [int((context.inputs[name] / "sum.txt").read_text()) for name in ("left", "right")]
    write_atomic(context.output("answer"), json.dumps({"total": context.config.sign * sum(parts)}).encode())
    return {"total": context.config.sign * sum(parts)}


TOY = Pipeline(
    name="toy",
    steps=(
        Step("numbers", "0-numbers", numbers, NumbersConfig, writes={"values": "json"}),
        Step("start", "1-start", start, StartConfig, reads={"base": Base()}, writes={"model": "folder"}, makes="One"),
        Step(
            "work/double",
            "2-work/double",
            double,
            DoubleConfig,
            reads={"values": Output("numbers", "values")},
            writes={"model": "folder"},
            shares=("chat",),
            launcher="accelerate",
        ),
        Step(
            "work/total",
            "2-work/total",
            total,
            TotalConfig,
            reads={"left": Output("start", "model"), "right": Output("work/double", "model")},
            writes={"answer": "json"},
        ),
    ),
    shared={"chat": Chat},
)


SHORT = Pipeline(name="short", steps=(TOY.steps[0], TOY.steps[2]), shared={"chat": Chat})
ONE = Pipeline(name="one", steps=TOY.steps[:1])


def load(name: str) -> Pipeline:
    """What a worker process calls to find its pipeline."""
    return {"toy": TOY, "short": SHORT, "one": ONE}[name]
