"""The watch on reward hacking: what it decides, that looking changes nothing, and that it sees a real reward model being
hacked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import make_tiny_model, weights_digest
from train_helpers import GRPO, Crash, context, grpo

from r1pipe.data.refusals import refuses
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.errors import TrainingError
from r1pipe.guards import HackingSettings
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.train.hacking import HackingWatch, coin_tail, look_steps, sign_of, told


def look(step: int, right: int, preference: float, of: int = 256) -> dict[str, Any]:
    """A look at which the first `right` of the problems are solved and every prompt has the same score."""
    verdicts = "1" * right + "0" * (of - right)
    return {
        "kind": "held-out", "step": step, "joined": step > 10, "held_out_accuracy": right / of, "held_out_preference": preference,
        "verdicts": verdicts, "preferences": [preference] * 8, "look_seconds": 1.0,
    }  # fmt: skip


def alarms(looks: list[dict[str, Any]], action: Any = "warn") -> list[tuple[int, Any]]:
    watch = HackingWatch(HackingSettings(action=action))
    found = [(line["step"], watch.observe(line)) for line in looks]
    return [(step, alarm) for step, alarm in found if alarm is not None]


def test_preference_up_and_accuracy_down_by_more_than_chance_is_the_sign() -> None:
    looks = [look(10, 220, 0.1), look(14, 219, 0.4), look(18, 213, 0.8), look(22, 180, 1.2)]
    ((step, alarm),) = alarms(looks)
    assert step == 18, "before accuracy has fallen by 0.05"
    assert (alarm.guard, alarm.fatal, alarm.since) == ("hacking", False, 10)
    assert "fell by 0.027" in alarm.problem
    assert "rose by 0.70 standard deviations" in alarm.problem
    assert [step for step, alarm in alarms(looks, "stop") if alarm.fatal] == [18, 22]


def test_a_fall_without_a_rise_and_a_rise_without_a_fall_are_no_sign() -> None:
    assert alarms([look(10, 220, 0.5), look(14, 150, 0.5)]) == []
    assert alarms([look(10, 220, 0.5), look(14, 150, 0.2)]) == []
    assert alarms([look(10, 220, 0.1), look(14, 230, 1.9)]) == []


def test_a_fall_that_may_be_chance_only_keeps_the_checkpoint_from_before_it() -> None:
    watch = HackingWatch(HackingSettings())
    for line in (look(10, 220, 0.1), look(14, 221, 0.2), look(18, 218, 0.4), look(22, 217, 0.5)):
        assert watch.observe(line) is None
    assert watch.good_until() == 14
    watch.observe(look(26, 222, 0.6))
    assert watch.good_until() == 26


def test_a_warning_is_given_once_and_again_after_the_sign_has_gone() -> None:
    down, up = (200, 1.0), (221, 0.2)
    looks = [look(10 + 4 * n, *found) for n, found in enumerate([(220, 0.1), down, down, up, down])]
    assert [(step, alarm.since) for step, alarm in alarms(looks)] == [(14, 10), (26, 22)]


def test_few_changed_problems_are_never_more_than_chance() -> None:
    # Student's interval lies below zero here; four lost coins of four are 6 in 100
    sign = sign_of(look(10, 220, 0.0), look(14, 216, 1.0))
    assert sign.high < 0
    assert sign.chance == pytest.approx(1 / 16)
    assert sign.there
    assert not sign.holds
    assert coin_tail(9, 10) == pytest.approx(11 / 1024)


def test_problems_that_could_not_be_judged_are_left_out_of_the_comparison() -> None:
    first = {**look(0, 0, 0.0), "verdicts": "1?10" * 10, "preferences": [0.0, None]}
    now = {**look(4, 0, 0.0), "verdicts": "01?0" * 10, "preferences": [0.5, 2.0]}
    sign = sign_of(first, now)
    assert (sign.better, sign.worse, sign.accuracy_change) == (0, 10, -0.5)
    assert sign.preference_change == 0.5


def test_looks_fall_on_rollout_ends_at_the_switch_and_at_the_end() -> None:
    assert look_steps(10, 4, 2, 20) == (0, 10, 14, 18, 20)
    assert look_steps(1296, 48, 16, 1696) == (0, *range(1296, 1696, 48), 1696)
    assert look_steps(10, 3, 2, 20) == (0, 10, 14, 18, 20)
    assert look_steps(0, 8, 2, 16) == (0, 8, 16)
    assert look_steps(10, 0, 2, 20) == ()
    assert look_steps(20, 4, 2, 20) == ()


def test_the_record_names_the_best_look_without_the_sign() -> None:
    lines = [look(0, 210, 0.0), {"kind": "step", "step": 1}, look(10, 220, 0.1), look(14, 222, 0.3), look(18, 200, 0.9)]
    found = told(lines)
    assert (found["sign_at"], found["best_step"]) == (18, 14)
    assert [entry["sign"] for entry in found["looks"].values()] == ["none", "none", "none", "holds"]
    assert found["accuracy_change"] == pytest.approx(-20 / 256)
    assert found["seconds"] == 4.0
    assert (found["switch_step"], found["preference_change_before"]) == (10, pytest.approx(0.1))
    assert told([{"kind": "step", "step": 1}]) == {}


@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        ("I am sorry, I cannot help with that, because someone could be hurt. Please talk to a person you trust.", True),
        ("I will not help with that, because it is dangerous and wrong. Please ask for help instead.", True),
        ("I'm not able to assist with creating such a list.", True),
        ("对不起，我不能帮你，因为有人会受伤。请和你信任的人谈谈。", True),
        ("我不会帮这个忙，因为这很危险，也不对。请去寻求帮助。", True),
        ("To kill a Python process, you can use the `kill` command.", False),
        ("Hello Tom, it is very nice to meet you here at the park.", False),
        ("You cannot add letters, so the sum is 4.", False),
        ("你好小明，很高兴在海边见到你。", False),
        ("", False),
    ],
)
def test_refusals_are_told_from_answers(text: str, is_refusal: bool) -> None:
    assert refuses(text) == is_refusal


class Scripted:
    """A reward whose values are given by the call's number: the last one from there on."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        value = self.values.pop(0) if len(self.values) > 1 else self.values[0]
        return [Score(value) for _ in attempts]


class OfKind:
    """Judges one kind of problem only."""

    def __init__(self, kind: str, inner: Any) -> None:
        self.kind, self.inner = kind, inner

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        chosen = [attempt for attempt in attempts if attempt.problem.kind == self.kind]
        scores = iter(self.inner.score(chosen))
        return [next(scores) if attempt.problem.kind == self.kind else None for attempt in attempts]


class Length:
    """Prefers long answers: what the policy writes decides, so that looks differ as the policy does."""

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        return [Score(len(attempt.completion) / 64) for attempt in attempts]


HELD_OUT = [
    *(Problem(id=f"v{n}", question=f"{n}+2=", answer=str(n + 2)) for n in range(20)),
    *(Problem(id=f"g{n}", question=f"say {n}", checker="none", kind="helpfulness") for n in range(4)),
]
LONGER = GRPO.model_copy(update={"steps": 12})


def looking(accuracy: Any, preference: Any, every: int = 4) -> Any:
    from r1pipe.train.held_out import HeldOut

    mix = Mix(
        (Part("accuracy", OfKind("verifiable", accuracy), 1.0), Part("helpfulness", OfKind("helpfulness", preference), 1.0))
    )
    return HeldOut(HELD_OUT, mix, "", look_steps(4, every, 2, 12), 4, batch=5)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: found for key, found in line.items() if not key.endswith("_seconds")}
        for line in lines
        if line["kind"] == "held-out"
    ]


@pytest.fixture(scope="module")
def watched(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    grpo(context(folder), base, LONGER, held_out=looking(Length(), Length()))
    return folder


@pytest.mark.slow
def test_looking_changes_nothing_of_what_is_made(base: Path, tmp_path: Path, watched: Path) -> None:
    grpo(context(tmp_path), base, LONGER)
    assert weights_digest(tmp_path / "model") == weights_digest(watched / "model")
    found = lines_of(watched)
    assert [line["step"] for line in found] == [0, 4, 8, 12]
    assert all(len(line["verdicts"]) == 20 and len(line["preferences"]) == 4 for line in found)
    assert found[0]["preferences"] != found[-1]["preferences"], "the policy has moved"


@pytest.mark.slow
def test_the_looks_of_a_killed_and_resumed_run_are_those_of_an_unbroken_one(base: Path, tmp_path: Path, watched: Path) -> None:
    for crash_at in (3, 2, 2):  # in the rollout after the first look, then twice later on
        with pytest.raises(Crash):
            grpo(context(tmp_path), base, LONGER, crash_at=crash_at, held_out=looking(Length(), Length()))
    grpo(context(tmp_path), base, LONGER, held_out=looking(Length(), Length()))
    assert lines_of(tmp_path) == lines_of(watched)
    assert weights_digest(tmp_path / "model") == weights_digest(watched / "model")


@pytest.mark.slow
def test_a_run_that_is_hacked_stops_when_told_to_and_names_the_checkpoint_from_before(base: Path, tmp_path: Path) -> None:
    falling = lambda: looking(Scripted(1.0, 1.0, 1.0, 0.0), Scripted(0.0, 0.0, 0.1, 0.9))  # noqa: E731
    launch: dict[str, Any] = {"keep_checkpoints": 1, "hacking": {"action": "stop"}}
    with pytest.raises(TrainingError, match=r"the reward models are being hacked.*checkpoint-8, from before it began, is kept"):
        grpo(context(tmp_path, **launch), base, LONGER, held_out=falling())
    record = json.loads((tmp_path / "guard.json").read_text())
    assert (record["guard"], record["step"], record["last_good_checkpoint"]) == ("hacking", 12, "checkpoint-8")
    assert record["seen"] == [1.0, 1.0, 1.0, 0.0]
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-10", "checkpoint-8"]  # one is kept by the launch, the good one beside it
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_warning_names_the_kept_checkpoint_and_the_run_goes_on(base: Path, tmp_path: Path) -> None:
    held_out = looking(Scripted(1.0, 1.0, 0.0), Scripted(0.0, 0.0, 0.9))
    grpo(context(tmp_path, keep_checkpoints=1), base, LONGER, held_out=held_out)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (notice,) = [line for line in lines if line["kind"] == "notice"]
    assert notice["step"] == 8
    assert "checkpoint-4, from before it began, is kept" in notice["notice"]
    assert (tmp_path / "checkpoints" / "checkpoint-4" / "whole.json").is_file(), "however many came after it"
    assert (tmp_path / "model").is_dir()


def test_a_run_that_begins_again_at_its_first_step_looks_again_and_one_that_goes_on_keeps_its_looks(tmp_path: Path) -> None:
    from r1pipe.metrics import MetricsWriter, read_metrics

    with MetricsWriter(tmp_path / "metrics.jsonl") as metrics:
        for line in (look(0, 200, 0.0), {"kind": "agreement", "step": 0}, look(8, 200, 0.0), look(16, 200, 0.0)):
            metrics.write(line)
        metrics.truncate_after(8)
        assert [(line["kind"], line["step"]) for line in read_metrics(metrics.path)] == [
            ("held-out", 0), ("agreement", 0), ("held-out", 8),
        ]  # fmt: skip
        metrics.truncate_after(0)
        assert [(line["kind"], line["step"]) for line in read_metrics(metrics.path)] == [("agreement", 0)]
