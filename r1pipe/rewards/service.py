"""The scoring service: a pool of worker processes for checks that may hang, explode or crash.

    outcomes = shared_pool().map("r1pipe.rewards.maths.symbolic:compare_texts", [(gold, answer), …], seconds=5)

Order is kept; a bad task costs only itself; the caller may be any thread, and several may call at once. Processes are started
afresh (never forked from one that holds torch), on first use, and replaced after `recycle_after` tasks. A task that passes its
time or memory is killed with its process. Workers end when their input closes, so none survives the parent, however it dies.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from r1pipe.errors import EngineError
from r1pipe.rewards.worker import START_SECONDS

KILLS = 2
"""So often a task is tried again whose process was ended from outside: by a person, or because the machine had no memory left."""
BUSY_PATIENCE = 8
"""A task that still waits for a processor after its seconds gets its share later, but no longer than this many times them."""
Batch = TypeVar("Batch")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task.

    Attributes:
        value: what the function returned; None when it failed.
        failure: empty, or "time", "memory", "crash", or the exception that the function raised.
    """

    value: Any = None
    failure: str = ""


@dataclass
class Worker:
    """One process and its pipe. Belongs to one caller at a time.

    Attributes:
        used: processor seconds that it had used when its task began. latest: when its task is ended in any case.
    """

    process: subprocess.Popen[str]
    tasks: int = 0
    used: float = 0.0
    latest: float = 0.0
    warm: set[str] = field(default_factory=set)
    buffer: str = ""

    def send(self, task: dict[str, Any]) -> None:
        """Hand over a task; a broken pipe shows when the answer is read."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the process is dead: reading its answer finds the end of the file and reports a crash
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()

    def read(self) -> dict[str, Any] | None:
        """The next message; None when the process has ended; {} while a line is incomplete."""
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), 65536)
        if not chunk:
            return None
        self.buffer += chunk.decode("utf-8", "replace")
        line, newline, rest = self.buffer.partition("\n")
        if not newline:
            return {}
        self.buffer = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def was_killed(self) -> bool:
        """Whether the process was ended from outside; one that crashes, or uses up its time, ends with other signals."""
        with suppress(subprocess.TimeoutExpired):  # its pipe has closed: it is about to end
            self.process.wait(timeout=5)
        return self.process.returncode in (-signal.SIGKILL, -signal.SIGTERM)

    def stop(self, patience: float = 0.0) -> None:
        """Close its input, wait as long as patience lasts, then kill; never leaves a zombie."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if patience <= 0:
            self.process.kill()
        with suppress(BrokenPipeError):  # it had died with a task unread
            self.process.stdin.close()
        try:
            self.process.wait(timeout=max(patience, 0.01))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@dataclass
class Pool:
    """Worker processes, shared by all threads of this process.

    Attributes:
        size: most processes at once.
        memory_mib: address space of one process.
        recycle_after: tasks after which a process is replaced.
    """

    size: int = field(default_factory=lambda: max(1, min(8, os.cpu_count() or 1)))
    memory_mib: int = 1024
    recycle_after: int = 2000
    _idle: list[Worker] = field(default_factory=list, repr=False)
    _alive: int = field(default=0, repr=False)
    _closed: bool = field(default=False, repr=False)
    _change: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def map(self, function: str, arguments: Sequence[Sequence[Any]], seconds: float = 5.0) -> list[Outcome]:
        """Call `module:function` on each tuple of arguments (JSON values), each within the memory limit and `seconds` of wall
        time; more of it where the machine is so busy that the task did not get its seconds.
        """
        outcomes: list[Outcome] = [Outcome()] * len(arguments)
        waiting = deque(range(len(arguments)))
        busy: dict[int, tuple[Worker, int | None, float]] = {}
        killed: Counter[int | None] = Counter()
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or busy:
                    while len(busy) < len(waiting) + sum(1 for _, index, _ in busy.values() if index is not None):
                        worker = self._take(block=not busy)
                        if worker is None:
                            break
                        assert worker.process.stdout is not None
                        selector.register(worker.process.stdout, selectors.EVENT_READ)
                        self._begin(busy, worker, waiting, function, arguments, seconds)
                    self._step(selector, busy, waiting, outcomes, killed, function, arguments, seconds)
            except BaseException:
                for worker, _, _ in busy.values():  # Ctrl-C: what is running belongs to nobody now
                    self._discard(worker)
                raise
        return outcomes

    def _begin(
        self, busy: dict[int, tuple[Worker, int | None, float]], worker: Worker, waiting: deque[int], function: str,
        arguments: Sequence[Sequence[Any]], seconds: float,
    ) -> None:  # fmt: skip
        """Give a worker its next task; first, once, the imports that the task needs, so that they cost no task its time."""
        assert worker.process.stdout is not None
        module = function.partition(":")[0]
        if module not in worker.warm:
            worker.warm.add(module)
            busy[worker.process.stdout.fileno()] = (worker, None, time.monotonic() + START_SECONDS)
            worker.send({"warm": module})
            return
        index = waiting.popleft()
        worker.tasks += 1
        worker.used, worker.latest = processor_time(worker.process.pid)[0], time.monotonic() + BUSY_PATIENCE * seconds
        busy[worker.process.stdout.fileno()] = (worker, index, time.monotonic() + seconds)
        worker.send({"function": function, "arguments": list(arguments[index]), "seconds": seconds})

    def _step(
        self, selector: selectors.BaseSelector, busy: dict[int, tuple[Worker, int | None, float]], waiting: deque[int],
        outcomes: list[Outcome], killed: Counter[int | None], function: str, arguments: Sequence[Sequence[Any]], seconds: float,
    ) -> None:  # fmt: skip
        """Wait for the next answer or deadline, and deal with all that are due."""
        now = time.monotonic()
        soonest = min((deadline for _, _, deadline in busy.values()), default=now)
        ready = {key.fd for key, _ in selector.select(max(0.0, soonest - now))}
        for number, (worker, index, deadline) in list(busy.items()):
            message: dict[str, Any] | None = {}
            if number in ready:
                message = worker.read()
            elif time.monotonic() < deadline:
                continue
            elif index is not None and (rest := _left(worker, seconds)) > 0:
                busy[number] = (worker, index, min(time.monotonic() + rest, worker.latest))
                continue
            if message == {} and time.monotonic() < deadline:
                continue  # half a line
            if message is None and killed[index] < KILLS and worker.was_killed():
                killed[index] += 1
                if index is not None:
                    waiting.append(index)
            elif index is None and not (message and message.get("ready")):
                self._failed_start(worker, message)
            elif index is not None:
                outcomes[index] = _outcome(message)
            keep = bool(message) and worker.tasks < self.recycle_after
            if keep and waiting:
                self._begin(busy, worker, waiting, function, arguments, seconds)
                continue
            assert worker.process.stdout is not None
            selector.unregister(worker.process.stdout)
            del busy[number]
            if keep:
                self._give_back(worker)
            else:
                self._discard(worker)

    def _failed_start(self, worker: Worker, message: dict[str, Any] | None) -> None:
        code = worker.process.poll()
        what = "ended" if message is None else f"was not ready after {START_SECONDS:.0f} s"
        raise EngineError(
            f"a scoring process {what} while starting (exit code {code}, memory limit {self.memory_mib} MiB)",
            "run `python -c 'import math_verify, reasoning_gym'` to see whether the packages work; give the pool more memory_mib",
        )

    def _take(self, block: bool) -> Worker | None:
        """An idle worker, or a new one while there is room; waits for one only with `block`."""
        with self._change:
            while True:
                if self._closed:
                    raise RuntimeError("the scoring pool is closed")
                if self._idle:
                    return self._idle.pop()
                if self._alive < self.size:
                    self._alive += 1
                    break
                if not block:
                    return None
                self._change.wait()
        try:
            return Worker(self._start())
        except BaseException:
            with self._change:
                self._alive -= 1
                self._change.notify()
            raise

    def _start(self) -> subprocess.Popen[str]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from r1pipe.rewards.worker import main; main()"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.Popen(
            [sys.executable, "-c", code, str(self.memory_mib << 20)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the parent to handle
        )

    def _give_back(self, worker: Worker) -> None:
        with self._change:
            if not self._closed:
                self._idle.append(worker)
                self._change.notify()
                return
        self._discard(worker)

    def _discard(self, worker: Worker) -> None:
        worker.stop()
        with self._change:
            self._alive -= 1
            self._change.notify()

    def close(self) -> None:
        """End all idle workers; those at work end when their caller is done with them."""
        with self._change:
            self._closed = True
            idle, self._idle = self._idle, []
            self._change.notify_all()
        for worker in idle:
            worker.stop(patience=1.0)
            self._alive -= 1


def processor_time(pid: int) -> tuple[float, bool]:
    """(processor seconds of a process, whether it runs or waits for a processor); (0, False) where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == b"R"


def _left(worker: Worker, seconds: float) -> float:
    """Processor seconds that the task of a worker was promised and has not had, because the machine is busy; else 0."""
    used, running = processor_time(worker.process.pid)
    left = seconds - (used - worker.used)
    return left if running and left > 0.1 * seconds and time.monotonic() < worker.latest else 0.0


def _outcome(message: dict[str, Any] | None) -> Outcome:
    if message is None:
        return Outcome(failure="crash")
    if not message:
        return Outcome(failure="time")
    return Outcome(message.get("value"), message.get("failure", ""))


_shared: dict[int, Pool] = {}
_shared_lock = threading.Lock()


def shared_pool() -> Pool:
    """This process's pool, made on first use and closed at exit; a forked child gets its own."""
    with _shared_lock:
        pool = _shared.get(os.getpid())
        if pool is None:
            _shared.clear()  # what a parent left to its fork is the parent's
            pool = _shared[os.getpid()] = Pool()
            atexit.register(pool.close)
        return pool


def overlapped(batches: Iterable[Batch], work: Callable[[Batch], Result]) -> Iterator[tuple[Batch, Result]]:
    """Score one batch while the next is being generated: yields (batch, work(batch)) in order, one batch behind `batches`."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scoring") as executor:
        before: tuple[Batch, Any] | None = None
        for batch in batches:
            future = executor.submit(work, batch)
            if before is not None:
                yield before[0], before[1].result()
            before = (batch, future)
        if before is not None:
            yield before[0], before[1].result()
