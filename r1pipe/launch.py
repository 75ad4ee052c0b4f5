"""How a step's process is started, watched and stopped.

The process gets a session of its own, so that a Ctrl-C in the terminal reaches the runner alone; the runner then asks the step to
stop at its next safe point. When the process is over, whatever it left behind in its session is ended too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from r1pipe import processes
from r1pipe.metrics import MetricsTail, read_progress
from r1pipe.observer import Observer
from r1pipe.recipe import Launch
from r1pipe.rundir import RunDir
from r1pipe.stage import Step
from r1pipe.trackers import FOLDER as TRACKERS
from r1pipe.trackers import tracker_environment

RUNNER, LOCK, BASE, BEGUN = "R1PIPE_RUNNER", "R1PIPE_LOCK", "R1PIPE_BASE", "R1PIPE_BEGUN"
LOADER, PIPELINE, SHAPE = "R1PIPE_LOADER", "R1PIPE_PIPELINE", "R1PIPE_SHAPE"
"""Environment variables by which the runner speaks to a step's process; BEGUN also marks all its descendants."""

LOOK_SECONDS = 0.1
"""How often metrics, progress and the wish to stop are looked at; the end of the process is noticed at once."""

QUIET = {
    "TOKENIZERS_PARALLELISM": "false",  # forking after use would deadlock
    "PYTHONHASHSEED": "0",  # the order of a set must not differ between a run and its resume
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # looking for them costs more than a tenth of the start
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


@dataclass(slots=True)
class StopRequest:
    """How often the user asked to stop: once means at the next safe point, twice means now."""

    count: int = 0
    _before: dict[signal.Signals, Any] = field(default_factory=dict)

    def ask(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Ask; also usable as a signal handler."""
        self.count += 1

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Count Ctrl-C, SIGTERM and a closed terminal as wishes to stop, for the length of a `with` block."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before[number] = signal.signal(number, self.ask)
        try:
            yield self
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step's process ended: its exit code (negative: the signal), seconds from start to end, whether it was told to."""

    code: int
    seconds: float
    stopped: bool


def command(run_root: Path, step: Step, launch: Launch) -> list[str]:
    """The command line of a step's process: plain python, or `accelerate launch` when there is more than it can do.

    One process needs no launcher, which would cost some seconds. `--multi_gpu` also starts several processes on a machine
    without a GPU, which `--cpu` does not.
    """
    worker = ["-m", "r1pipe.worker", os.fspath(run_root), step.name]
    if step.launcher == "python" or (launch.processes == 1 and not launch.launcher_args):
        return [sys.executable, *worker]
    arguments = list(launch.launcher_args)
    chosen = {argument.split("=")[0] for argument in arguments}
    if "--config_file" not in chosen:
        if launch.processes > 1 and not chosen & {"--multi_gpu", "--use_fsdp", "--use_deepspeed", "--use_megatron_lm"}:
            arguments.append("--multi_gpu")
        for flag, value in (
            ("--num_machines", "1"),
            ("--mixed_precision", "no"),
            ("--dynamo_backend", "no"),
            ("--main_process_port", "0"),
        ):
            arguments += [flag, value] if flag not in chosen else []
    if "--num_processes" not in chosen:
        arguments += ["--num_processes", str(launch.processes)]
    return [sys.executable, "-m", "accelerate.commands.launch", *arguments, *worker]


def environment(launch: Launch, extra: Mapping[str, str], trackers: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a step's process: the user's own, quiet, offline unless allowed, threads shared out, trackers, `env`."""
    result = dict(os.environ)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = str(launch.threads or result.get("OMP_NUM_THREADS") or max(1, cores // launch.processes))
    result |= QUIET | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    if launch.offline:
        result |= OFFLINE
    return {**result, **(trackers or {}), **launch.env, **extra}


def run_process(
    run: RunDir, step: Step, attempt: int, launch: Launch, extra: Mapping[str, str], observer: Observer, stop: StopRequest
) -> Ended:
    """Start a step's process, pass on what it reports, forward the wish to stop, and wait for its end."""
    log = run.log_path(step, attempt)
    log.parent.mkdir(parents=True, exist_ok=True)
    tail, progress = MetricsTail(run.metrics_path(step)), _Progress(run.progress_path(step))
    trackers = {}
    if step.launcher == "accelerate" and launch.report_to:
        trackers = tracker_environment(launch.report_to, run.step_dir(step), launch.offline)
        (run.step_dir(step) / TRACKERS).mkdir(exist_ok=True)
    begin, asked = time.monotonic(), 0
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(run.root, step, launch),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(launch, extra, trackers),
            start_new_session=True,
        )
    try:
        with _exit_signal(process) as over:
            while not over(LOOK_SECONDS):
                _report(step, tail, progress, observer)
                if stop.count > asked:
                    asked = stop.count
                    _ask_to_stop(run, step, process, launch, asked, observer)
    finally:
        _end_session(process, extra.get(BEGUN, ""))
    _report(step, tail, progress, observer)
    return Ended(process.wait(), time.monotonic() - begin, asked > 0)


def last_lines(log: Path, count: int = 6) -> list[str]:
    """The last lines of a log that say something; of a progress bar, how it stood last."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line.rstrip().rpartition("\r")[2][:300] for line in text.split("\n") if line.strip()][-count:]


class _Progress:
    """Notices when a progress file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int]:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return (0, 0)
        return (stat.st_mtime_ns, stat.st_ino)

    def changed(self) -> dict[str, Any]:
        """The new progress; empty when nothing changed since the last call."""
        stamp = self._stamp()
        if stamp == self._seen:
            return {}
        self._seen = stamp
        return read_progress(self.path)


def _report(step: Step, tail: MetricsTail, progress: _Progress, observer: Observer) -> None:
    """Pass on what is new."""
    for line in tail.new_lines():
        observer.on_line(step, line)
    if now := progress.changed():
        observer.on_progress(step, now)


def _ask_to_stop(
    run: RunDir, step: Step, process: subprocess.Popen[bytes], launch: Launch, asked: int, observer: Observer
) -> None:
    """First wish: at the next safe point. Second: now."""
    if asked >= 2:
        observer.notice(f"stopping {step.name} now")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return
    observer.notice(f"stopping {step.name} at its next safe point; once more to stop now")
    with contextlib.suppress(OSError):  # on a full disk the signal below still tells a single process
        run.stop_path(step).write_text(json.dumps({"asked": time.time()}))
    if command(run.root, step, launch)[1:3] == [
        "-m",
        "r1pipe.worker",
    ]:  # a launcher would kill its processes instead of passing it on
        process.send_signal(signal.SIGTERM)


@contextmanager
def _exit_signal(process: subprocess.Popen[bytes]) -> Iterator[Any]:
    """Yields a function that waits up to so many seconds and says whether the process has ended (it is not reaped yet)."""
    if not hasattr(os, "pidfd_open"):
        yield lambda seconds: _ended_soon(process, seconds)
        return
    descriptor = os.pidfd_open(process.pid)
    try:
        yield lambda seconds: bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _ended_soon(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Polls, where the system has no descriptor for a process."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_session(process: subprocess.Popen[bytes], mark: str) -> None:
    """End whatever is left in the process's session, and its descendants that left it."""
    if process.returncode is None:  # not reaped: its number, and so its group, cannot have been given to another
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if mark:
        processes.end(processes.marked(BEGUN, mark))
