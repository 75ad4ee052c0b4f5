"""Kills: of the sampling process at every kind of moment, of its scorers and its engine, and a disk that is full. What a resumed
step has made is, shard for shard, what an unbroken one makes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sampling_helpers import PAUSE, SERVED, context, enlarge, problems, shards, small_disk

from r1pipe.rewards.service import Pool
from r1pipe.stages.sampling import sample

TESTS = Path(__file__).parent
SETTINGS: dict[str, dict[str, Any]] = {
    "fixed": {"samples": 2},
    "rounds": {"samples": 5, "adaptive": {"enough": 2, "hopeless_after": 3, "budget_tokens": 9000}},
}
MOMENTS: dict[str, list[list[Any]]] = {
    "fixed": [["generating", 1], ["scoring", 2], ["writing", 2], ["renaming", 2], ["counting", 1]],
    "rounds": [["generating", 5], ["scoring", 3], ["flushing", 1], ["flushing", 3], ["progress", 2]],
}


def drive(folder: Path, attempts: list[list[Any]], settings: dict[str, Any], **spec: Any) -> list[str]:
    """How each attempt ended, the last one undisturbed."""
    path = folder.with_suffix(".json")
    path.write_text(json.dumps({"folder": str(folder), "problems": 48, "attempts": attempts, "settings": settings, **spec}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(TESTS / "sampling_driver.py"), str(path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["outcome"] == "done", folder.with_suffix(".log").read_text()[-3000:]
    return [line["outcome"] for line in lines[:-1]]


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_step_killed_at_every_kind_of_moment_ends_with_the_same_shards(tmp_path: Path, kind: str) -> None:
    sample(context(tmp_path / "whole", problems(48), **SETTINGS[kind]))
    outcomes = drive(tmp_path / "killed", MOMENTS[kind], SETTINGS[kind])
    assert outcomes == ["killed"] * len(MOMENTS[kind])
    assert shards(tmp_path / "killed") == shards(tmp_path / "whole")


def test_a_full_disk_stops_the_step_and_making_room_resumes_it(tmp_path: Path) -> None:
    sample(context(tmp_path / "whole", problems(48), samples=2))
    outcomes = drive(tmp_path / "full", [["limit", 1], ["limit", 4]], SETTINGS["fixed"])
    assert outcomes == ["disk full", "disk full"]
    log = (tmp_path / "full.log").read_text()
    assert "could not be written: no space left" in log
    assert "make room or mend the disk, then r1pipe resume" in log
    assert shards(tmp_path / "full") == shards(tmp_path / "whole")


def test_an_engine_whose_process_dies_stops_the_step_and_is_started_again(tmp_path: Path) -> None:
    sample(context(tmp_path / "whole", problems(48), samples=2))
    step = context(tmp_path / "step", problems(48), samples=2, engine=SERVED)
    sample(step)
    assert shards(tmp_path / "step") == shards(tmp_path / "whole")


def test_a_scoring_process_that_is_killed_costs_no_verdict(tmp_path: Path) -> None:
    pool = Pool(size=1)
    try:
        (tmp_path / "first").write_text("")
        script = "scoring_tasks:die_once"
        outcomes = pool.map(script, [(str(tmp_path / name),) for name in ("first", "second", "third")], seconds=30)
        assert [outcome.value for outcome in outcomes] == ["alive"] * 3
        always = pool.map("scoring_tasks:die", [(), ()], seconds=30)
        assert [outcome.failure for outcome in always] == ["crash", "crash"]
        assert pool.map(script, [(str(tmp_path / "second"),)], seconds=30)[0].value == "alive"
    finally:
        pool.close()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_moments_lose_nothing(tmp_path: Path, seed: int) -> None:
    rng, kind = random.Random(seed), list(SETTINGS)[seed % 2]
    sample(context(tmp_path / "whole", problems(48), **SETTINGS[kind]))
    places = ["generating", "scoring", "writing", "flushing", "renaming", "counting", "progress", "time", "limit"]
    attempts = []
    for _ in range(12):
        place = rng.choice(places)
        attempts.append([place, rng.randint(1, 6) if place != "time" else rng.randint(20, 6000)])
    drive(tmp_path / "killed", attempts, SETTINGS[kind])
    assert shards(tmp_path / "killed") == shards(tmp_path / "whole")


@pytest.mark.heavy
@pytest.mark.parametrize("place", ["scorer", "engine"])
def test_kills_of_scorers_and_of_the_engine_at_random_moments_change_no_row(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"samples": 2, **({"engine": SERVED} if place == "engine" else {})}
    sample(context(tmp_path / "whole", problems(48, symbolic=place == "scorer"), samples=2))
    if place == "engine":
        monkeypatch.setenv(PAUSE, "0.1")  # else the step may be over before the first kill
    drive(tmp_path / "killed", [[place, seed] for seed in range(4)], settings, symbolic=place == "scorer")
    assert "a process of the step was killed" in (tmp_path / "killed.log").read_text()
    assert shards(tmp_path / "killed") == shards(tmp_path / "whole")


@pytest.mark.heavy
def test_a_small_disk_that_is_full_stops_the_step_and_more_room_resumes_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "48k") as disk:
        sample(context(tmp_path / "whole", problems(48), samples=2))
        step = disk / "step"
        path = tmp_path / "spec.json"
        spec = {"folder": str(step), "problems": 48, "settings": SETTINGS["fixed"], "attempts": []}
        path.write_text(json.dumps(spec))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
        command = [sys.executable, str(TESTS / "sampling_driver.py"), str(path)]
        first = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert '"disk full"' in first.stdout, first.stdout + first.stderr
        enlarge(disk, "8m")
        assert '"done"' in subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout
        assert shards(step) == shards(tmp_path / "whole")
