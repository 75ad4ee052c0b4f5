"""A runner in a process of its own, for tests that stop or kill it: `python core_driver.py PIPELINE [KILL_AT [REDO...]]`.

It executes the run "demo" under the current folder and prints what it is told. With KILL_AT above 0 it kills itself just before
its call of that number which changes the disk (fsync, replace, rename, link, unlink, rmdir).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import toy_pipeline

from r1pipe.errors import R1PipeError
from r1pipe.observer import Observer
from r1pipe.recipe import load_recipe
from r1pipe.rundir import RunDir
from r1pipe.runner import execute

CALLS = ("fsync", "replace", "rename", "link", "unlink", "rmdir")


def killed_at(name: str, limit: int, seen: list[int]) -> Callable[..., Any]:
    """The os function, with a kill before the call of that number."""
    real = getattr(os, name)

    def call(*arguments: Any, **options: Any) -> Any:
        seen[0] += 1
        if seen[0] == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    return call


def main() -> int:
    pipeline = toy_pipeline.load(sys.argv[1])
    redo = sys.argv[3:]
    if len(sys.argv) > 2 and int(sys.argv[2]):
        seen = [0]
        for name in CALLS:
            setattr(os, name, killed_at(name, int(sys.argv[2]), seen))
    run = RunDir(Path("runs/demo"))
    watch = Observer(
        on_step_begin=lambda step, attempt: print(f"begin {step.name} {attempt}", flush=True),
        on_line=lambda step, line: print(f"line {line['step']}", flush=True),
        on_step_end=lambda step, manifest: print(f"end {step.name}", flush=True),
        notice=lambda line: print(f"notice {line}", flush=True),
    )
    try:
        execute(run, pipeline, load_recipe(run.recipe_path, pipeline), observer=watch, loader="toy_pipeline:load", redo=redo)
    except R1PipeError as error:
        print(f"{type(error).__name__} {error}", flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
