"""What runs in a scoring process: take a task, work it out within limits, answer, take the next.

Started by `r1pipe.rewards.service`, one task at a time over a pipe, one JSON object a line. The limits live here, so the clock of
a task starts when the task does: memory by RLIMIT_AS, processor time by RLIMIT_CPU (whose signal ends the process, also when its
parent has died), no files written, no new processes. The wall clock is the parent's, which kills.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PARENT_CHECK_SECONDS = 5.0
START_SECONDS = 120.0
"""How long imports may take; importing SymPy on a busy machine takes seconds."""
ANSWER_CHARS = 4000
"""Longest text that a task may give back."""


def limit_process(memory_bytes: int) -> None:
    """Limits that hold for the whole life of the process."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_task(seconds: float) -> None:
    """Processor time for one task, counted from now; a little more than the wall clock allows."""
    used = time.process_time()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds) + 2, hard))


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Call the function that the task names; what it raises becomes part of the answer."""
    module, _, name = task["function"].partition(":")
    try:
        value = getattr(import_module(module), name)(*task["arguments"])
    except MemoryError:
        return {"failure": "memory"}
    except RecursionError:
        return {"failure": "nested too deeply"}
    except Exception as error:  # the boundary: what a library raises on hostile text is a result, and travels with its name
        return {"failure": f"{type(error).__name__}: {str(error)[:200]}"}
    return {"value": value}


def warm(module: str) -> dict[str, Any]:
    """Import a module, and what its `warm` function imports, before the clock of any task runs."""
    limit_task(START_SECONDS)
    loaded = import_module(module)
    if hasattr(loaded, "warm"):
        loaded.warm()
    return {"ready": True}


def lines(parent: int) -> Iterator[bytes]:
    """Lines of standard input until it closes, or until the parent is gone (a fork of it may hold our pipe open)."""
    rest = b""
    while True:
        if not select.select([0], [], [], PARENT_CHECK_SECONDS)[0]:
            if os.getppid() != parent:
                return
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def main() -> None:
    """Serve tasks from standard input until it closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 1)  # what libraries print must not look like an answer
    limit_process(int(sys.argv[1]))
    for line in lines(os.getppid()):
        task = json.loads(line)
        if "warm" in task:
            result = json.dumps(warm(task["warm"]))
        else:
            limit_task(task["seconds"])
            result = json.dumps(run_task(task))
        answers.write((result if len(result) <= ANSWER_CHARS else '{"failure": "answer too long"}') + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
