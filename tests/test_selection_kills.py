"""Kills of the selection at every kind of moment, and of its processes. What is resumed makes the rows, the ledger and the report
of an unbroken one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import selection_driver
from sampling_helpers import enlarge, small_disk
from test_selection import QUESTION, attempt, general_row, many, thinking, write_inputs

from r1pipe.data.tables import read_table
from r1pipe.errors import EngineError
from r1pipe.stages.selection import work
from r1pipe.stages.selection.run import select
from r1pipe.stages.selection.writing import Layout

TESTS = Path(__file__).parent
MOMENTS = [
    ["recording", 1], ["judging", 2], ["renaming", 3], ["reading", 1], ["reading", 4], ["flushing", 5], ["choosing", 1],
    ["scattering", 1], ["gathering", 1], ["gathering", 3], ["ledger", 1], ["report", 1], ["recording", 1], ["recording", 2],
    ["clearing", 3],
]  # fmt: skip


def given(tmp_path: Path) -> Path:
    """Tables with rows for every reason, in parts."""
    rng, folder = random.Random(3), tmp_path / "given"
    rows = many(12, problems=50)
    item = QUESTION.format(n=17, m=23)
    rows += [attempt(f"e{n}", text=f"I know this one: {item} {thinking(rng)}") for n in range(3)]
    copied = thinking(rng, 200)
    rows += [attempt(f"c{n}", text=copied + " Done." * n, question=QUESTION.format(n=5, m=6)) for n in range(4)]
    rng.shuffle(rows)
    general = [general_row(number) for number in range(30)]
    write_inputs(folder, [rows[start : start + 20] for start in range(0, len(rows), 20)], general, [item])
    return folder


def unbroken(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an unbroken selection makes in this process."""
    monkeypatch.setattr(Layout, "of", classmethod(lambda cls, rows, size: cls(rows, selection_driver.ROWS_PER_PART)))
    monkeypatch.setattr(work, "WORTH_A_PROCESS", 1 << 40)
    select(selection_driver.context(folder, target, 1))
    return made(target)


def made(folder: Path) -> dict[str, Any]:
    """All that a selection leaves: rows, reasons, report, card, verdicts, and the names of its files (what a killed write left
    under a temporary name is removed by whoever starts the step again)."""
    return {
        "rows": list(read_table(folder / "selection")),
        "ledger": list(read_table(folder / "ledger")),
        "verdicts": list(read_table(folder / "verdicts")),
        "report": json.loads((folder / "report.json").read_text()),
        "card": (folder / "selection/README.md").read_text(),
        "files": sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".tmp" and path.name != "progress.json"
        ),
    }


def drive(folder: Path, attempts: list[list[Any]], **spec: Any) -> list[str]:
    """How each attempt at the step ended, the last one undisturbed."""
    path = folder.with_suffix(".json")
    path.write_text(json.dumps({"given": str(folder.parent / "given"), "folder": str(folder), "attempts": attempts, **spec}))
    done = run_driver(path)
    assert done[-1] == "done", (folder.parent / "log.txt").read_text()[-3000:]
    return done[:-1]


def run_driver(path: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(TESTS / "selection_driver.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["outcome"] for line in done.stdout.splitlines()]


def test_a_selection_killed_at_every_kind_of_moment_ends_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = unbroken(given(tmp_path), tmp_path / "whole", monkeypatch)
    assert len(whole["files"]) > 10
    assert {"", "overlaps an evaluation item", "near copy of another row", "judged wrong by a model"} <= {
        row["reason"] for row in whole["ledger"]
    }
    assert drive(tmp_path / "killed", MOMENTS) == ["killed"] * len(MOMENTS)
    assert made(tmp_path / "killed") == whole


def test_a_process_of_the_selection_that_is_killed_while_it_starts_is_an_error_and_no_endless_wait(tmp_path: Path) -> None:
    over = threading.Event()

    def hunt() -> None:
        while not over.wait(0.005):
            for child in psutil.Process().children():
                with suppress(psutil.Error):
                    if any("multiprocessing.spawn" in word for word in child.cmdline()):
                        child.kill()

    hunter = threading.Thread(target=hunt, daemon=True)
    hunter.start()
    large: Any = SimpleNamespace(read=None, words="x" * (1 << 20))
    try:
        with pytest.raises(EngineError, match="was ended"), work.team(2, large, tmp_path) as pool:
            list(work.each(pool, work.read, [(1,), (2,), (3,)], lambda: False))
    finally:
        over.set()
        hunter.join()


@pytest.mark.heavy
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_kills_of_a_selection_at_random_moments_change_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, processes: int
) -> None:
    rng = random.Random(seed)
    whole = unbroken(given(tmp_path), tmp_path / "whole", monkeypatch)
    places = [*selection_driver.PLACES, "time", "time", *(["worker"] * 4 if processes > 1 else [])]
    attempts = [
        [place, rng.randint(20, 4000) if place == "time" else rng.randint(1, 6)]
        for place in (rng.choice(places) for _ in range(12))
    ]
    drive(tmp_path / "killed", attempts, processes=processes)
    assert made(tmp_path / "killed") == whole


@pytest.mark.heavy
def test_a_disk_that_is_full_stops_a_selection_and_more_room_resumes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk gets a little more room after each time that it was full, so that it is full at many places."""
    with small_disk(tmp_path / "disk", "16k") as disk:
        whole = unbroken(given(tmp_path), tmp_path / "whole", monkeypatch)
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps({"given": str(tmp_path / "given"), "folder": str(disk / "step"), "attempts": []}))
        outcomes: list[str] = []
        for room in range(32, 2048, 32):
            outcomes += run_driver(spec)
            if outcomes[-1] == "done":
                break
            enlarge(disk, f"{room}k")
        assert outcomes[-1] == "done", outcomes
        assert set(outcomes[:-1]) == {"disk full"}, (outcomes, (tmp_path / "log.txt").read_text()[-3000:])
        assert len(outcomes) > 3
        assert made(disk / "step") == whole
