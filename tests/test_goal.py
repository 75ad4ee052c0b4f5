"""How far a run was asked to go outlives a stop: resuming goes on with the same and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import r1pipe
from core_helpers import Toy

from r1pipe.errors import ArtifactError, StateError, StepFailed, Stopped
from r1pipe.goal import Goal, read_goal, record_goal
from r1pipe.launch import StopRequest
from r1pipe.rundir import RunDir

pytest_plugins = ("core_fixtures",)


def test_what_was_asked_for_is_kept_until_it_is_done(toy: Toy) -> None:
    toy.set("work.double.fail=ours")
    with pytest.raises(StepFailed):
        toy.execute(until="work/double")
    assert read_goal(toy.run) == Goal(until="work/double")
    toy.set("work.double.fail=")
    with pytest.raises(StateError):
        toy.execute(only="work")  # it was begun with other settings
    assert read_goal(toy.run) == Goal(until="work/double"), "a refused start asks for nothing"
    toy.execute(only="work/double", redo=["work/double"])
    assert read_goal(toy.run) == Goal()
    assert not toy.run.goal_path.exists()


def test_a_stop_before_the_first_step_that_is_left_keeps_it_too(toy: Toy) -> None:
    stop = StopRequest()
    stop.count = 1
    with pytest.raises(Stopped):
        toy.execute(until="numbers", stop=stop)
    assert read_goal(toy.run) == Goal(until="numbers")
    with pytest.raises(Stopped):
        toy.execute(stop=stop)
    assert read_goal(toy.run) == Goal(), "the command that came last counts"


def test_a_record_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "goal.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"goal\.json is not JSON"):
        read_goal(RunDir(tmp_path))


def test_resume_goes_as_far_as_was_asked_says_so_and_goes_elsewhere_when_told(tmp_path: Path) -> None:
    assert r1pipe(tmp_path, "run-all", "--until", "prepare").code == 0
    run = RunDir(tmp_path / "runs/nano")
    record_goal(run, Goal(until="cold-start"))
    assert "r1pipe resume nano   goes on until cold-start" in r1pipe(tmp_path, "status").out
    done = r1pipe(tmp_path, "resume", columns=200)
    assert "goes on as it was asked to, until cold-start; r1pipe resume nano --until evaluate goes further" in done.err
    assert "2 of 9 steps done" in done.out
    record_goal(run, Goal(only="rejection-sft/sample"))
    done = r1pipe(tmp_path, "resume", "--until", "reasoning-rl", columns=200)
    assert "as it was asked to" not in done.err
    assert "3 of 9 steps done" in done.out
    record_goal(run, Goal(only="rejection-sft/sample"))
    done = r1pipe(tmp_path, "resume", columns=200)
    assert "goes on as it was asked to, rejection-sft/sample alone" in done.err
    assert "4 of 9 steps done" in done.out
    record_goal(run, Goal(until="prepare"))
    assert "4 of 9 steps done" in r1pipe(tmp_path, "resume").out
    assert not run.goal_path.exists(), "it was done already"
