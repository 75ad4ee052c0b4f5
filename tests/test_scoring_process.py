"""The process that scores answers beside generation: what it gives, and what happens when it is ended or its rewards fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sampling_helpers import context, problems, shards

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.engines import base
from r1pipe.errors import DataError, EngineError
from r1pipe.processes import alive, started
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part, RewardSpec
from r1pipe.stages import sampling, scoring
from r1pipe.stages.sampling import Work, sample
from r1pipe.stages.scoring import Made, scored_rows, scorer

MADE = [Made(Attempt(Problem(str(n), f"What is {n}?", str(n)), f"It is {n}.", "", "stop", 4), 0) for n in range(5)]

ENOUGH = [made.attempt.problem for made in MADE] * (scoring.WORTH_A_PROCESS // len(MADE))


@dataclass(frozen=True)
class Dies:
    """Ends its own process as often as there are lines left in a file."""

    left: Path

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """1 each, in a process that survives."""
        lines = self.left.read_text().splitlines()
        if lines:
            self.left.write_text("\n".join(lines[1:]))
            os.kill(os.getpid(), signal.SIGKILL)
        return [Score(1.0, str(os.getpid())) for _ in attempts]


@dataclass(frozen=True)
class Refuses:
    """A reward that raises."""

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """Never any."""
        raise DataError("the answer 3 is not one that this reward knows", "mend the reward")


@dataclass
class Locked:
    """A reward that no other process can be given."""

    lock: Any = field(default_factory=threading.Lock)

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """Notes where it ran."""
        return [Score(1.0, str(os.getpid())) for _ in attempts]


def mix(reward: Any) -> Mix:
    return Mix((Part("own", reward, 1.0),))


def test_a_large_step_is_scored_in_a_process_of_its_own_with_the_rows_that_the_step_itself_would_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(context(tmp_path / "thread", problems(48), samples=2))
    made: list[int] = []
    monkeypatch.setattr(scoring, "scored_rows", lambda *arguments: made.append(1))
    monkeypatch.setattr(scoring, "WORTH_A_PROCESS", 96)
    sample(context(tmp_path / "process", problems(48), samples=2))
    assert not made, "scored in the step's own process"
    assert shards(tmp_path / "process") == shards(tmp_path / "thread")


def test_a_scoring_process_that_is_ended_is_started_again_and_costs_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = tmp_path / "left"
    left.write_text("once\ntwice")
    with scorer(mix(Dies(left)), ENOUGH, 1, alone=False) as score:
        rows = score(MADE)
    assert [row["id"] for row in rows] == [made.attempt.problem.id for made in MADE]
    assert f'"{os.getpid()}"' not in rows[0]["scores"]
    assert "started again (2 of 2 times)" in capsys.readouterr().out


def test_one_that_is_ended_again_and_again_stops_the_step_and_says_what_to_do(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.write_text("\n".join("again" for _ in range(9)))
    with scorer(mix(Dies(left)), ENOUGH, 1, alone=False) as score, pytest.raises(EngineError, match="ended 3 times") as raised:
        score(MADE)
    assert "r1pipe resume" in raised.value.hint


def test_what_a_reward_raises_in_the_process_comes_through_with_its_hint() -> None:
    with scorer(mix(Refuses()), ENOUGH, 1, alone=False) as score, pytest.raises(DataError, match="the answer 3") as raised:
        score(MADE)
    assert raised.value.hint == "mend the reward"


def test_rewards_that_cannot_be_sent_are_used_where_they_are_and_the_log_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with scorer(mix(Locked()), ENOUGH, 1, alone=False) as score:
        rows = score(MADE)
    assert f'"{os.getpid()}"' in rows[0]["scores"]
    assert "cannot be sent to another one" in capsys.readouterr().out


def test_the_scoring_process_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, time
from test_scoring_process import ENOUGH, MADE, Dies, mix
from pathlib import Path
from r1pipe.stages import scoring
if __name__ == "__main__":
    left = Path({str(tmp_path / "left")!r}); left.write_text("")
    with scoring.scorer(mix(Dies(left)), ENOUGH, 1, False) as score:
        print(score(MADE)[0]["scores"], flush=True)
        time.sleep(60)
"""
    file = tmp_path / "parent.py"
    file.write_text(script)
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline().split(b'"')[3])
        since = started(child)
        assert alive(child, since)
        parent.kill()
    deadline = time.monotonic() + 15
    while alive(child, since):
        assert time.monotonic() < deadline, "it outlives its parent"
        time.sleep(0.1)


def test_few_attempts_are_scored_without_starting_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "ScoringProcess", None)
    with scorer(mix(Locked()), ENOUGH[:8], 8, alone=False) as score:
        assert score(MADE) == scored_rows(mix(Locked()), MADE)


def test_beside_an_engine_that_needs_the_whole_processor_answers_are_scored_in_turns_and_all_is_loaded_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scoring, "ScoringProcess", None)
    rules = Mix.build([RewardSpec(name="accuracy"), RewardSpec(name="language")])
    asked: list[int] = []
    own = Mix.score

    def noted(self: Mix, attempts: Sequence[Attempt], step: int | None = None) -> Any:
        asked.append(len(attempts))
        return own(self, attempts, step)

    monkeypatch.setattr(Mix, "score", noted)
    with scorer(rules, ENOUGH, 1, alone=True) as score:
        rows = score(MADE)
    assert asked == [1, 5], "one problem of the only kind there is, then the answers"
    assert rows == scored_rows(rules, MADE)


def test_a_step_that_scores_in_turns_makes_the_same_rows_and_generates_nothing_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(context(tmp_path / "beside", problems(48), samples=2))
    monkeypatch.setattr(base, "on_processor", lambda name: True)
    at_work = threading.Lock()
    own_score, own_sample = Work._score, sampling.sample_attempts

    def alone(own: Any) -> Any:
        def wrapped(*arguments: Any) -> Any:
            assert at_work.acquire(blocking=False), "generated and scored at once"
            try:
                return own(*arguments)
            finally:
                at_work.release()

        return wrapped

    monkeypatch.setattr(Work, "_score", alone(own_score))
    monkeypatch.setattr(sampling, "sample_attempts", alone(own_sample))
    sample(context(tmp_path / "turns", problems(48), samples=2))
    assert shards(tmp_path / "turns") == shards(tmp_path / "beside")


def test_getting_ready_asks_no_reward_of_a_persons_own() -> None:
    counted = Refuses()
    scoring.get_ready(mix(counted), ENOUGH[:5])
