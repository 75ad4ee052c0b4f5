"""Kills: of the worker, of the runner, of both, at random moments and at each change that the runner makes on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from core_helpers import Toy, drive, make_toy, open_toy, wait_for
from toy_pipeline import ONE, SHORT, TOY

from r1pipe import processes
from r1pipe.graph import Pipeline
from r1pipe.launch import BEGUN
from r1pipe.manifest import read_begun

pytest_plugins = ("core_fixtures",)

SUM = sum(2 * (3 + step % 5) * step for step in range(1, 7))


def outputs(toy: Toy) -> dict[str, bytes]:
    """Content of everything that the steps made, by path."""
    kinds = {step.folder: step for step in toy.pipeline.steps}
    found = {}
    for folder, step in kinds.items():
        paths = [toy.run.output_path(step, name) for name in step.writes] + [toy.run.metrics_path(step)]
        for path in paths:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    found[f"{folder}:{file.relative_to(toy.run.step_dir(step))}"] = file.read_bytes()
    return found


def finished_steps(toy: Toy) -> set[str]:
    return {step.name for step in toy.pipeline.steps if toy.run.manifest_path(step).exists()}


def go_on(toy: Toy) -> None:
    """Resume, and check that no finished step was run again."""
    done, before = finished_steps(toy), toy.tally()
    toy.execute()
    assert {name: toy.tally()[name] for name in done} == {name: before[name] for name in done}
    assert set(toy.states().values()) == {"done"}
    stray = {path for path in toy.run.root.rglob(".*") if path.is_file()}
    assert stray == {toy.run.worked_path}, "nothing but the mark of when the run was worked on"


def worker_of(toy: Toy) -> int:
    """Process of the step that is running; 0 when there is none."""
    for step in toy.pipeline.steps:
        path = toy.run.worker_path(step)
        if path.exists() and not toy.run.manifest_path(step).exists():
            return int(json.loads(path.read_bytes())["pid"])
    return 0


def kill(victim: str, runner: int, worker: int) -> None:
    if victim == "worker":
        with contextlib.suppress(ProcessLookupError):  # it may have ended since it was looked up
            os.kill(worker, signal.SIGKILL)
    elif victim == "runner":
        os.kill(runner, signal.SIGKILL)
    else:
        os.killpg(runner, signal.SIGKILL)


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return make_toy(tmp_path, monkeypatch, SHORT)


@pytest.mark.parametrize("victim", ["worker", "runner", "group"])
def test_a_kill_in_the_middle_of_a_step_loses_nothing_finished(short: Toy, victim: str) -> None:
    short.set("work.double.fail=wait")
    runner = drive("short")
    wait_for(short.path("work/double", "waiting").exists)
    begun = read_begun(short.path("work/double", "begun.json"))
    assert begun is not None
    worker = worker_of(short)
    kill(victim, runner.pid, worker)
    output, _ = runner.communicate(timeout=60)
    if victim == "worker":
        assert runner.returncode == 1
        assert "StepFailed step work/double was killed by SIGKILL (out of memory?)" in output
    else:
        assert runner.returncode == -signal.SIGKILL
        assert short.run.lock_path.exists()
        wait_for(lambda: not processes.started(worker), 20)  # a step does not outlive its runner
        wait_for(lambda: processes.marked(BEGUN, begun.id) == [], 20)
    Path("gate").touch()
    go_on(short)
    assert (outputs(short)["2-work/double:model/sum.txt"], short.tally()["work/double"]) == (str(SUM).encode(), 2)
    if victim != "worker":
        assert short.notices == [f"took over run demo: process {runner.pid} that held it is gone"]


@pytest.mark.slow
def test_a_worker_whose_launcher_shields_it_still_ends_with_the_runner(short: Toy) -> None:
    """Under a launcher the worker is not the runner's child, so no signal of the system tells it; it has to look."""
    short.set("work.double.fail=wait", "launch.launcher_args=['--num_machines', '1']")
    runner = drive("short")
    wait_for(short.path("work/double", "waiting").exists, 200)
    worker = worker_of(short)
    assert processes.started(worker)
    os.kill(runner.pid, signal.SIGKILL)
    runner.communicate(timeout=60)
    wait_for(lambda: not processes.started(worker), 20)


@pytest.mark.parametrize(
    ("pipeline", "sets"),
    [
        pytest.param(ONE, [], marks=pytest.mark.slow),
        pytest.param(SHORT, ["work.double.steps=2"], marks=pytest.mark.heavy),
    ],
    ids=["one step", "two steps"],
)
def test_a_kill_at_each_change_on_the_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, sets: list[str]
) -> None:
    seen: list[dict[str, bytes]] = []
    for limit in range(1, 100):
        here = tmp_path / str(limit)
        here.mkdir()
        toy = make_toy(here, monkeypatch, pipeline, sets)
        runner = drive(pipeline.name, str(limit))
        output, _ = runner.communicate(timeout=120)
        if runner.returncode == 0:
            break
        assert runner.returncode == -signal.SIGKILL, output
        go_on(toy)
        seen.append(outputs(toy))
    unbroken = outputs(toy)
    assert unbroken["0-numbers:values.json"] == b"[3, 4, 5, 6, 7]"
    assert len(seen) >= 10 * len(pipeline.steps)  # two records of fsync, replace, fsync a step, and what is removed after them
    assert all(outcome == unbroken for outcome in seen)


@pytest.mark.slow
def test_a_kill_at_each_change_of_a_redo_leaves_whole_steps_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_folder: Path
) -> None:
    for limit in range(1, 9):
        here = tmp_path / str(limit)
        shutil.copytree(finished_folder, here)
        toy = open_toy(here, monkeypatch)
        unbroken = outputs(toy)
        runner = drive("toy", str(limit), "work/total")
        runner.communicate(timeout=120)
        assert runner.returncode == -signal.SIGKILL
        folder = toy.path("work/total")
        assert not folder.exists() or (folder / "manifest.json").exists() or not (folder / "answer.json").exists()
        go_on(toy)
        assert outputs(toy) == unbroken


@pytest.mark.heavy
def test_twenty_kills_at_random_moments_end_with_the_outputs_of_an_unbroken_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    dice = random.Random(seed)
    unbroken = make_toy(tmp_path, monkeypatch, TOY, ["work.double.pause=0.05"])
    begin = time.monotonic()
    assert drive("toy").wait() == 0
    length = time.monotonic() - begin
    for number in range(20):
        here = tmp_path / str(number)
        here.mkdir()
        toy = make_toy(here, monkeypatch, TOY, ["work.double.pause=0.05"])
        runner = drive("toy")
        time.sleep(dice.uniform(0, length))
        victim = dice.choice(["worker", "runner", "group"])
        worker = worker_of(toy)
        if runner.poll() is None and (worker or victim != "worker"):
            kill(victim, runner.pid, worker)
        runner.communicate(timeout=120)
        go_on(toy)
        assert outputs(toy) == _of(unbroken, tmp_path), f"seed {seed}, kill {number}"


def _of(toy: Toy, folder: Path) -> dict[str, bytes]:
    """The outputs of a run that lies in another folder than the current one."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        return outputs(toy)
    finally:
        os.chdir(here)
