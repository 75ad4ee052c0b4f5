"""Selects in processes that are killed at a given moment: `python selection_driver.py SPEC.json`.

SPEC is {"given", "folder", "processes", "attempts": [[place, nth time], ...]}; then one attempt that is left alone. The outcome
of each goes to standard output, one JSON object a line. "time" kills the step after so many milliseconds, "worker" kills
processes that it has started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sampling_driver as driver
from sampling_helpers import number
from test_selection import context_of

import r1pipe.data.tables as tables
import r1pipe.stages.selection.judging as judging
import r1pipe.stages.selection.reading as reading
import r1pipe.stages.selection.run as run
from r1pipe.engines.base import Completion, Sampling
from r1pipe.recipe import Launch
from r1pipe.stages.selection import work
from r1pipe.stages.selection.writing import Layout

PLACES: dict[str, tuple[Any, str]] = {
    "judging": (judging, "write_part"),
    "reading": (reading, "write_columns"),
    "flushing": (tables.os, "fsync"),
    "renaming": (tables.os, "replace"),
    "choosing": (run, "choose"),
    "scattering": (run, "scatter"),
    "gathering": (run, "gather"),
    "ledger": (run, "_write_ledger"),
    "report": (run, "_report"),
    "recording": (run, "write_atomic"),
    "clearing": (run.shutil, "rmtree"),
}
"""Moment -> the function at whose nth call the process dies."""
ROWS_PER_PART = 7


class Judge:
    """An engine whose verdicts follow from the request."""

    prefix = ""

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        for question in questions:
            said = ("correct", "correct", "incorrect", "no verdict")[number(question, below=4)]
            yield [Completion(json.dumps({"analysis": "", "verdict": said}), 5, "stop")]

    def close(self) -> None:
        """Holds nothing."""


def open_judge(model: str, **options: Any) -> Judge:
    return Judge()


def context(given: Path, folder: Path, processes: int) -> Any:
    """The step over given tables in a folder of its own, with small parts."""
    judge = {"engine": "selection_driver:open_judge", "model": "judge", "rows_per_shard": 5}
    step = context_of(given, keep_per_problem=2, judge=judge)
    folder.mkdir(exist_ok=True)
    step.folder, step.launch = folder, Launch(threads=processes)
    step.output = lambda name: folder / ("report.json" if name == "report" else name)
    return step


def small_parts(processes: int) -> None:
    """A selection of several parts, by so many processes (1: by the step's own)."""
    Layout.of = classmethod(lambda cls, rows, size: cls(rows, ROWS_PER_PART))  # type: ignore[method-assign, assignment]
    work.WORTH_A_PROCESS = 4096 if processes > 1 else 1 << 40


def main() -> None:
    driver.preload()
    spec = json.loads(Path(sys.argv[1]).read_text())
    folder, processes = Path(spec["folder"]), spec.get("processes", 1)
    for place, count in [*spec["attempts"], ["", 0]]:

        def select(place: str = place, count: int = count) -> None:
            small_parts(processes)
            if place == "time":
                threading.Timer(count / 1000, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            elif place == "worker":
                threading.Thread(target=driver.hunt, args=(count,), daemon=True).start()
            elif place:
                driver.die_at(*PLACES[place], count)
            run.select(context(Path(spec["given"]), folder, processes))

        outcome = driver.attempt(select, Path(spec["given"]).parent / "log.txt")
        print(json.dumps({"place": place, "count": count, "outcome": outcome}), flush=True)


if __name__ == "__main__":
    main()
