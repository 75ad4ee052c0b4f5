"""The processes among which the passes over texts are shared out, and what is asked of them.

Small tables are read in the step's own process: starting others would take longer. A worker ends when its parent does. What a
worker is given at its start goes through a pipe that nobody reads any more when it is killed just then, and what does not fit
into the pipe would be written for ever: so the reader, which may be large, goes through a file.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r1pipe.errors import EngineError
from r1pipe.manifest import write_atomic
from r1pipe.stages.selection.reading import Reader

WORTH_A_PROCESS = 24 * 1024 * 1024
"""Bytes of Parquet for which a process is started."""
AHEAD = 16
"""Tasks that are handed out at once; those are finished when the user asks to stop."""
_PARENT_CHECK_SECONDS = 1.0
_held: list[Any] = []


def processes_for(size: int, threads: int | None) -> int:
    """How many processes read tables of so many bytes; 0 for none but the step's own."""
    cores = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads or os.cpu_count() or 1
    return 0 if size < WORTH_A_PROCESS else max(1, min(cores, -(-size // WORTH_A_PROCESS)))


@contextmanager
def team(count: int, reader: Reader, folder: Path) -> Iterator[Executor | None]:
    """Processes that hold the reader, handed over in a file of the folder; None for the step's own process."""
    if not count:
        _held[:] = [reader]
        try:
            yield None
        finally:
            _held.clear()
        return
    from multiprocessing import get_context

    handed = folder / "reader.pickle"
    write_atomic(handed, pickle.dumps(reader))
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin, initargs=(handed, os.getpid()))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def each(
    pool: Executor | None, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], stop: Callable[[], bool]
) -> Iterator[Any]:
    """What the function says of each task, as they finish; ends early when asked to stop, after the tasks under way.

    Raises:
        EngineError: a process of the team was ended from outside. What the function raises comes through.
    """
    if pool is None:
        for task in tasks:
            if stop():
                return
            yield function(*task)
        return
    handed = 0
    running: set[Future[Any]] = set()
    while True:
        try:
            while len(running) < AHEAD and handed < len(tasks) and not stop():
                running.add(pool.submit(function, *tasks[handed]))
                handed += 1
            if not running:
                return
            done, running = wait(running, timeout=5, return_when=FIRST_COMPLETED)
            results = [future.result() for future in done]
        except BrokenProcessPool as broken:
            raise EngineError(
                f"one of the processes that share the texts was ended, after {handed} of {len(tasks)} tasks were handed out",
                "r1pipe resume goes on; if the machine was out of memory, with a lower launch.threads",
            ) from broken
        yield from results


def read(*task: Any) -> int:
    """`Reader.read` in whichever process holds the reader."""
    reader: Reader = _held[0]
    return reader.read(*task)


def _begin(handed: Path, parent: int) -> None:
    _held[:] = [pickle.loads(handed.read_bytes())]
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    """End when the parent is gone: nobody would read what this process writes."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
