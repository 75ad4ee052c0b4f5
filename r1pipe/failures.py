"""From how a step's process ended to the error that the user reads."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from r1pipe.errors import StepFailed, Stopped
from r1pipe.files import DISK_FULL_EXIT
from r1pipe.launch import Ended, last_lines
from r1pipe.manifest import Begun
from r1pipe.rundir import RunDir, runs_root
from r1pipe.stage import Step


def failure(run: RunDir, step: Step, begun: Begun, ended: Ended) -> StepFailed | Stopped:
    """Why the step's process ended without finishing, as the error to raise."""
    error = read_error(run, step, begun)
    if ended.code == Stopped.exit_code or error.get("type") == Stopped.__name__ or (ended.stopped and ended.code < 0):
        where = "at once" if ended.code < 0 and not error else "at a safe point"
        return Stopped(f"step {step.name} of run {run.name} stopped {where}", f"r1pipe resume {shown(run)}   goes on from there")
    advice, said = str(error.get("hint", "")), last_lines(run.log_path(step, begun.attempt))
    if error:
        name, what = str(error.get("type")), str(error.get("problem"))
        ours = not error.get("traceback")
        problem = f"step {step.name} failed: {what if ours else f'{name}: {what}'}"
        said = [] if ours else said
        if "OutOfMemory" in name or name == "MemoryError":
            advice = f'a smaller micro_batch under [launch.steps."{step.name}"] needs less memory and changes nothing else'
    elif ended.code < 0:
        name = signal.Signals(-ended.code).name if -ended.code in signal.valid_signals() else f"signal {-ended.code}"
        problem = f"step {step.name} was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    elif ended.code == 0:
        problem = f"the process of step {step.name} ended without handing over a result"
    else:
        problem = f"the process of step {step.name} ended with exit code {ended.code}"
    if ended.code == DISK_FULL_EXIT:
        problem = problem if error else f"step {step.name} failed: there is no space left on the disk"
        advice = f"make room on the disk that holds {run.root}"
    if said:
        problem += "\nlast lines of its log:\n" + "\n".join(f"  {line}" for line in said)
    return StepFailed(problem, how_to_go_on(run, step, begun.attempt, _to_type(advice, run, step)))


def _to_type(advice: str, run: RunDir, step: Step) -> str:
    """Advice of a step's process, which knows neither the run's name nor its own, as it can be typed."""
    named = advice.replace("run-all --redo STEP", f"run-all --run {shown(run)} --redo STEP")
    named = named.replace("fork RUN", f"fork {shown(run)}")
    return named.replace("inspect STEP", f"inspect STEP --run {shown(run)}").replace("STEP", step.name)


def read_error(run: RunDir, step: Step, begun: Begun) -> dict[str, Any]:
    """What the step's process said of its failure; empty when it could say nothing."""
    try:
        error = json.loads(run.error_path(step).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return error if isinstance(error, dict) and error.get("begun") == begun.id else {}


def how_to_go_on(run: RunDir, step: Step, attempt: int, advice: str) -> str:
    """Advice, then where to look, then the command that goes on."""
    lines = [advice, f"log: {run.log_path(step, attempt)}", f"r1pipe resume {shown(run)}   goes on where it stopped"]
    return "\n".join(line for line in lines if line)


def shown(run: RunDir) -> str:
    """How the user names the run on the command line."""
    return run.name if run.root.parent.resolve() == runs_root().resolve() else os.fspath(run.root)
