"""The process in which one step runs: `python -m r1pipe.worker RUNDIR STEP`.

It works from what the runner wrote down when the step was begun, not from the recipe, which may have been edited since. It hands
over its result as the last thing it writes, and it does not outlive the runner: a run that another process takes over later must
not have two writers.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import platform
import resource
import signal
import sys
import threading
import time
import tomllib
import traceback
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from r1pipe import processes
from r1pipe.artifact import sync_artifact
from r1pipe.errors import ArtifactError, R1PipeError, StateError, Stopped
from r1pipe.files import DISK_FULL_EXIT, is_disk_full
from r1pipe.graph import DEFAULT_LOADER, Pipeline, section_of
from r1pipe.launch import BASE, LOADER, LOCK, PIPELINE, RUNNER, SHAPE
from r1pipe.lock import read_lock
from r1pipe.manifest import Begun, read_begun, to_json, write_atomic
from r1pipe.metrics import finite
from r1pipe.recipe import Launch, pipeline_name
from r1pipe.rundir import RunDir
from r1pipe.stage import Step, StepContext

WATCH_SECONDS = 0.25
EXIT_SECONDS = 30.0
"""So long may the interpreter take to shut down once the result is written."""


def main(arguments: list[str] | None = None) -> int:
    """Run one step; the exit code is 0 (done), 1 (failed; see error.json), 74 (the disk is full) or 75 (stopped)."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())  # only a flag: nothing is interrupted in its middle
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    root, name = sys.argv[1:3] if arguments is None else arguments
    run = RunDir(Path(root))
    named = os.environ.get(PIPELINE) or pipeline_name(run.recipe_path)
    pipeline = load_pipeline(os.environ.get(LOADER, DEFAULT_LOADER), named)
    shape = os.environ.get(SHAPE)  # not there when it was started by hand
    pipeline = pipeline.shaped(tomllib.loads(run.recipe_path.read_text()) if shape is None else json.loads(shape or "{}"))
    step = pipeline.step(name)
    begun = read_begun(run.begun_path(step))
    if begun is None:
        raise StateError(f"step {name} of {run.root} was not begun", "start it with r1pipe run")
    _follow_runner(run, step, stop)
    if _is_first():
        me = {"pid": os.getpid(), "started": processes.started(os.getpid()), "machine": processes.machine(), "begun": begun.id}
        write_atomic(run.worker_path(step), to_json(me), durable=False)
    return _run(run, pipeline, step, begun, stop)


def load_pipeline(loader: str, name: str) -> Pipeline:
    """The pipeline of that name, from "module:function"."""
    module, _, function = loader.partition(":")
    pipeline = getattr(importlib.import_module(module), function)(name)
    if not isinstance(pipeline, Pipeline):
        raise TypeError(f"{loader} returned {type(pipeline).__name__}, not a Pipeline")
    return pipeline


def _is_first() -> bool:
    """Whether this process speaks for the step; under a launcher, only the first one does."""
    return os.environ.get("RANK", "0") == "0"


def _run(run: RunDir, pipeline: Pipeline, step: Step, begun: Begun, stop: threading.Event) -> int:
    """Run the step and hand over its result or its error."""
    begin = time.monotonic()
    try:
        summary = step.run(_context(run, pipeline, step, begun, stop))
        if not isinstance(summary, Mapping):
            raise TypeError(f"step {step.name} returned {type(summary).__name__}, where a summary (a dict) is expected")
        if _is_first():
            for name in step.writes:
                if (path := run.output_path(step, name)).exists():  # a missing one is the runner's to name
                    sync_artifact(path)
            device, device_bytes = _device()
            result = {
                "begun": begun.id,
                "summary": finite(summary),
                "seconds": time.monotonic() - begin,
                "peak_memory_bytes": _peak_memory(),
                "device": device,
                "peak_device_bytes": device_bytes,
            }
            write_atomic(run.result_path(step), to_json(result))
        return 0
    except Stopped as stopped:
        print(stopped, flush=True)
        _hand_over_error(run, step, begun, stopped)  # a launcher may turn our exit code into its own
        return Stopped.exit_code
    except BaseException as error:  # also SystemExit: a step that leaves has not finished
        with contextlib.suppress(OSError):  # the log may be on the disk that is full
            traceback.print_exc()
        _hand_over_error(run, step, begun, error)
        return DISK_FULL_EXIT if is_disk_full(error, run.step_dir(step)) else 1


def _context(run: RunDir, pipeline: Pipeline, step: Step, begun: Begun, stop: threading.Event) -> StepContext:
    """What the step may look at, from what was written down when it was begun."""
    steps = {other.name: other for other in pipeline.steps}
    base = os.environ.get(BASE)
    return StepContext(
        step=step,
        config=step.config.model_validate(reduce(lambda tree, part: tree[part], section_of(step), begun.settings)),
        shared={name: pipeline.shared[name].model_validate(begun.settings[name]) for name in step.shares},
        launch=Launch.model_validate(begun.launch),
        inputs={name: run.input_path(source, steps, Path(base) if base else None) for name, source in step.reads.items()},
        input_digests={name: record.digest for name, record in begun.inputs.items()},
        folder=run.step_dir(step),
        seed=begun.seed,
        stop_requested=stop.is_set,
    )


def _hand_over_error(run: RunDir, step: Step, begun: Begun, error: BaseException) -> None:
    """Write error.json, unless another process of the step already did: the first failure is the one that matters."""
    ours = isinstance(error, R1PipeError)
    content = {
        "begun": begun.id,
        "type": type(error).__name__,
        "problem": error.problem if isinstance(error, R1PipeError) else str(error),
        "hint": error.hint if isinstance(error, R1PipeError) else "",
        "traceback": "" if ours else "".join(traceback.format_exception(error)),
        "rank": os.environ.get("RANK", "0"),
    }
    path = run.error_path(step)
    prepared = path.with_name(f".error.{os.getpid()}.json")
    try:
        write_atomic(prepared, to_json(content), durable=False)
        with contextlib.suppress(FileExistsError):
            os.link(prepared, path)
    except (ArtifactError, OSError) as unwritten:
        with contextlib.suppress(OSError):
            print(f"error.json could not be written: {unwritten}", flush=True)  # the log, which the runner shows, has the rest
    finally:
        prepared.unlink(missing_ok=True)


def _follow_runner(run: RunDir, step: Step, stop: threading.Event) -> None:
    """End with the runner; stop when it asks."""
    runner, _, since = os.environ.get(RUNNER, "").partition(":")
    if not runner:
        return  # started by hand
    if sys.platform == "linux" and os.getppid() == int(runner):
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    _check_runner(int(runner), since)
    token = os.environ.get(LOCK, "")
    threading.Thread(target=_watch, args=(run, step, int(runner), since, token, stop), name="runner-watch", daemon=True).start()


def _watch(run: RunDir, step: Step, runner: int, since: str, token: str, stop: threading.Event) -> None:
    """Look after the runner, the lock and the wish to stop, for as long as the process lives."""
    while True:
        _check_runner(runner, since)
        holder = read_lock(run.lock_path).get("token")
        if token and holder and holder != token:
            _leave(f"run {run.name} was taken over by another process")
        if run.stop_path(step).exists():
            stop.set()
        time.sleep(WATCH_SECONDS)


def _check_runner(runner: int, since: str) -> None:
    if not processes.alive(runner, since):
        _leave(f"the runner (process {runner}) is gone")


def _leave(why: str) -> None:
    """End at once, with everything that was started in this session."""
    os.write(2, f"worker ends: {why}\n".encode())
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _peak_memory() -> int:
    """Largest resident size in bytes of this process or of the largest process it started."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * unit


def _device() -> tuple[str, int]:
    """Name of the accelerator that was used and the largest memory taken on it; looks only when torch was imported anyway."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cpu", 0
    return str(torch.cuda.get_device_name()), int(torch.cuda.max_memory_allocated())


def _leave_in_time(code: int) -> None:
    """A thread that hangs at exit must not keep the step from ending: everything is on the disk by now."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    exit_code = main()
    _leave_in_time(exit_code)
    sys.exit(exit_code)
