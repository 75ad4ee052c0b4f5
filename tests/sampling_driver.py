"""Samples in processes that are killed at a given moment: `python sampling_driver.py SPEC.json`.

SPEC is {"folder", "problems", "symbolic", "settings", "attempts": [[place, nth time], ...]}; then one attempt that is left alone.
The outcome of each goes to standard output, one JSON object a line. "limit" instead of a place is a limit on the size of files
from the nth part on, as a full disk would be; "scorer" and "engine" kill a process that the step has started, not the step.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import sampling_helpers as helpers

import r1pipe.data.tables as tables
import r1pipe.metrics as metrics
import r1pipe.stages.sampling as sampling
import r1pipe.stages.scoring as scoring

PLACES: dict[str, tuple[Any, str]] = {
    "generating": (helpers.Stub, "generate"),
    "scoring": (scoring, "scored_rows"),
    "writing": (sampling, "write_part"),
    "flushing": (tables.os, "fsync"),  # the part is written under its temporary name
    "renaming": (tables.os, "replace"),
    "counting": (sampling.ShardTally, "add"),  # the part is there, nobody was told
    "progress": (metrics, "write_atomic"),
}
"""Moment -> the function at whose nth call the process dies."""


def die_at(owner: Any, name: str, count: int) -> None:
    """Replace a function by one that kills this process at its nth call."""
    original = getattr(owner, name)
    calls = 0

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, counting)


def fill_disk_at(count: int) -> None:
    """From the nth part on, no file can grow beyond a size that no part is below."""
    original, calls = sampling.write_part, 0

    def limited(*arguments: Any) -> Path:
        nonlocal calls
        calls += 1
        if calls == count:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        return original(*arguments)

    sampling.write_part = limited


def hunt(seed: int) -> None:
    """Kill processes that this one has started, at random moments, some times."""
    rng = random.Random(seed)
    for _ in range(rng.randint(3, 6)):
        time.sleep(rng.uniform(0.05, 1.5))
        prey = psutil.Process().children()
        if prey:
            try:
                rng.choice(prey).kill()
            except psutil.NoSuchProcess:
                continue
            print("a process of the step was killed", flush=True)


def prepare(place: str, count: int) -> None:
    """Set the trap."""
    if place == "limit":
        fill_disk_at(count)
    elif place == "time":
        threading.Timer(count / 1000, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    elif place in ("scorer", "engine"):
        threading.Thread(target=hunt, args=(count,), daemon=True).start()
    else:
        die_at(*PLACES[place], count)


def attempt(work: Callable[[], Any], log: Path) -> str:
    """Do the work in a forked child; "done", "killed", or how it failed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        try:
            work()
            code = 0
        except BaseException as error:
            code = 74 if tables_full(error) else 1
            with contextlib.suppress(OSError):  # the log stands under the same limit
                print(error, flush=True)
                traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
    return {0: "done", 74: "disk full"}.get(os.WEXITSTATUS(status), "failed")


def tables_full(error: BaseException) -> bool:
    from r1pipe.files import is_disk_full

    return is_disk_full(error)


def preload() -> None:
    """Import once what every attempt needs, so that only sampling is done again."""
    import py3langid
    import pyarrow.parquet

    import r1pipe.rewards.maths.check
    import r1pipe.rewards.readability

    assert py3langid
    assert pyarrow.parquet
    assert r1pipe.rewards.readability
    assert r1pipe.rewards.maths.check


def main() -> None:
    preload()
    spec = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(spec["folder"])
    asked = helpers.problems(spec["problems"], spec.get("symbolic", False))
    for place, count in [*spec["attempts"], ["", 0]]:

        def work(place: str = place, count: int = count) -> None:
            context = helpers.context(folder, asked, **spec["settings"])
            if place:
                prepare(place, count)
            sampling.sample(context)

        outcome = attempt(work, folder.parent / f"{folder.name}.log")
        there = len(list((folder / "attempts").glob("part-*.parquet")))
        print(json.dumps({"place": place, "count": count, "outcome": outcome, "parts": there}), flush=True)


if __name__ == "__main__":
    main()
