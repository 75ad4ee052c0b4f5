"""Runs that are lost stop by themselves, show the batch, and leave the last good checkpoint; runs that are well go on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tiny import make_tiny_model, weights_digest
from train_helpers import GRPO, Crash, Rule, context, grpo

from r1pipe.errors import TrainingError
from r1pipe.guards import Alarm, Guards, GuardSettings
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part

NANO = [json.loads(line) for line in (Path(__file__).parent / "data" / "nano-metrics.jsonl").read_text().splitlines()]
"""What stages 2 and 4 of a run of the embedded recipe wrote, shares by domain left out."""


def alarms(lines: list[dict[str, Any]], settings: GuardSettings | None = None) -> list[tuple[int, Alarm]]:
    guards = Guards(settings or GuardSettings())
    found = [(index, guards.observe(line)) for index, line in enumerate(lines)]
    return [(index, alarm) for index, alarm in found if alarm is not None]


def steps(key: str, values: list[float]) -> list[dict[str, Any]]:
    return [{"kind": "step", "step": number, "loss": 0.1, key: value} for number, value in enumerate(values, start=1)]


def rollouts(**columns: list[Any]) -> list[dict[str, Any]]:
    length = len(next(iter(columns.values())))
    return [{"kind": "rollout", "step": 2 * n, **{key: values[n] for key, values in columns.items()}} for n in range(length)]


def test_nothing_fires_on_a_run_of_the_embedded_recipe() -> None:
    for stage in ("reasoning-rl", "mixed-rl/train"):
        lines = [line for line in NANO if line["stage"] == stage]
        assert {line["kind"] for line in lines} == {"step", "rollout"}
        assert alarms(lines) == []


def test_the_same_run_with_the_entropy_of_a_collapsed_one_is_stopped() -> None:
    lines = [line for line in NANO if line["stage"] == "reasoning-rl"]
    collapsed = [{**line, "entropy": line["entropy"] / 100} if line["kind"] == "step" else line for line in lines]
    (_, first), *_ = alarms(collapsed)
    assert first.guard == "entropy"
    assert "for 16 steps in a row" in first.problem


def test_a_sign_must_last_without_a_break() -> None:
    low, high = 0.001, 0.1
    settings = GuardSettings(entropy_below=0.01, entropy_steps=4)
    assert alarms(steps("entropy", [high, low, low, low, high, low, low, low]), settings) == []
    (index, alarm), *_ = alarms(steps("entropy", [high, low, low, low, low]), settings)
    assert (index, alarm.since, alarm.values) == (4, 1, (low,) * 4)  # step 1 was good, and so is its checkpoint


def test_a_policy_that_has_left_its_reference_is_stopped_and_one_wild_step_is_not() -> None:
    assert alarms(steps("kl", [0.01, 1e6, 0.01, 0.01])) == []
    (index, alarm), *_ = alarms(steps("kl", [0.01, 20.0, 20.0, 1e6, math.inf]))
    assert (index, alarm.guard, alarm.fatal) == (4, "kl", True)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_at_once(loss: float) -> None:
    ((index, alarm),) = alarms([{"kind": "step", "step": 1, "loss": 0.0}, {"kind": "step", "step": 2, "loss": loss}])
    assert (index, alarm.guard) == (1, "loss")


def test_a_reward_at_zero_is_named_and_one_that_has_not_joined_does_not_count() -> None:
    settings = GuardSettings(zero_reward_rollouts=3)
    zero, joined_late = [{"accuracy": 0.5, "format": 0.0}] * 3, [{"accuracy": None, "format": 0.1}] * 9
    ((_, alarm),) = alarms(rollouts(rewards=zero), settings)
    assert "reward format has been zero for every answer for 3 rollouts in a row" in alarm.problem
    assert alarms(rollouts(rewards=joined_late), settings) == []
    assert alarms(rollouts(rewards=[{"penalty": 0.0}] * 9), settings) == []  # no penalty is what one hopes for


def test_answers_that_are_all_cut_off_stop_the_run() -> None:
    settings = GuardSettings(truncated_rollouts=3)
    assert alarms(rollouts(truncated_share=[1.0, 1.0, 0.5, 1.0, 1.0]), settings) == []
    ((index, alarm),) = alarms(rollouts(truncated_share=[0.2, 1.0, 0.97, 1.0]), settings)
    assert (index, alarm.guard, alarm.since) == (3, "truncated", 2)


def test_groups_without_signal_are_a_warning_that_is_given_once() -> None:
    lines = rollouts(flat_share=[0.95] * 9, flat_right=[0.9] * 9, flat_wrong=[0.05] * 9)
    ((index, alarm),) = alarms(lines)
    assert (index, alarm.fatal) == (3, False)
    assert "90% all right, 5% all wrong" in alarm.problem


def test_a_guard_of_length_zero_is_off() -> None:
    off = GuardSettings(entropy_steps=0, kl_steps=0, zero_reward_rollouts=0, truncated_rollouts=0, flat_rollouts=0)
    lines = [*steps("entropy", [0.0] * 40), *steps("kl", [1e9] * 40)]
    lines += rollouts(truncated_share=[1.0] * 40, flat_share=[1.0] * 40, rewards=[{"accuracy": 0.0}] * 40)
    assert alarms(lines, off) == []


def test_counting_goes_on_from_the_metrics_alone_wherever_they_are_cut() -> None:
    settings = GuardSettings(entropy_below=0.08, entropy_steps=6, zero_reward_rollouts=2)
    whole = Guards(settings)
    for line in NANO:
        whole.observe(line)
    for cut in range(0, len(NANO), 7):
        resumed = Guards(settings)
        for line in NANO[:cut]:
            resumed.observe(line)
        for line in NANO[cut:]:
            resumed.observe(line)
        assert resumed == whole


# ----------------------------------------------------------------------------- with a trainer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


STRICT: dict[str, Any] = {"keep_checkpoints": 1, "guards": {"zero_reward_rollouts": 3, "zero_rewards": ("quiet",)}}
LONGER = GRPO.model_copy(update={"steps": 12})


def quiet(crash_at: int = -1) -> Mix:
    """Rewards that fall silent in the third rollout."""
    return Mix((Part("quiet", Rule(crash_at, zero_from=3), 1.0), Part("rule", Rule(), 1.0)))


@pytest.fixture(scope="module")
def silenced(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run whose accuracy reward fell silent, and what it said when it stopped."""
    folder = tmp_path_factory.mktemp("silenced")
    with pytest.raises(TrainingError) as stopped:
        grpo(
            context(folder, **STRICT),
            base,
            LONGER,
            mix=quiet(),
        )
    return folder, str(stopped.value)


@pytest.mark.slow
def test_a_run_whose_reward_falls_silent_stops_keeps_the_last_good_checkpoint_and_shows_the_batch(
    silenced: tuple[Path, str],
) -> None:
    folder, said = silenced
    record = json.loads((folder / "guard.json").read_text())
    assert (record["guard"], record["step"], record["good_before_step"]) == ("zero quiet", 8, 4)
    kept = sorted(path.name for path in (folder / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-4", "checkpoint-8"]  # one is kept by the launch, the good one beside it
    assert "checkpoint-4, from before it began, is kept" in said
    assert "r1pipe run-all --redo STEP --set KEY=VALUE   makes it anew" in said
    start = f"--set STEP.start_from={folder / 'checkpoints' / 'checkpoint-4'} --set KEY=VALUE   goes on from checkpoint-4"
    assert f"r1pipe fork RUN NEW --before STEP {start} in a second run" in said
    assert "rollout 4 (rollouts/part-00004.parquet)" in said
    batch = record["batch"]
    assert len(batch["problems"]) == 4
    assert len(batch["attempts"]) == 4
    for attempt in batch["attempts"]:
        assert attempt["question"] in said
        assert attempt["scores"]["quiet"] == 0.0
    assert (folder / "rollouts" / "part-00004.parquet").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", [5])
def test_a_run_that_is_killed_while_a_guard_counts_stops_where_the_unbroken_run_stops(
    crash_at: int, base: Path, tmp_path: Path, silenced: tuple[Path, str]
) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path, **STRICT), base, LONGER, mix=quiet(crash_at))
    with pytest.raises(TrainingError):
        grpo(context(tmp_path, **STRICT), base, LONGER, mix=Mix((Part("quiet", Rule(zero_from=1), 1.0), quiet().parts[1])))
    assert json.loads((tmp_path / "guard.json").read_text()) == json.loads((silenced[0] / "guard.json").read_text())


@pytest.mark.slow
def test_a_loosened_guard_lets_the_stopped_run_go_on_to_the_weights_of_a_run_without_guards(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="entropy has collapsed"):
        grpo(context(tmp_path / "stopped", guards={"entropy_below": 100.0, "entropy_steps": 5}), base)
    saved = sorted(path.name for path in (tmp_path / "stopped" / "checkpoints").glob("checkpoint-*"))
    assert saved == ["checkpoint-2", "checkpoint-4"]
    grpo(context(tmp_path / "stopped", guards={"entropy_steps": 0}), base)
    grpo(context(tmp_path / "free"), base)
    assert weights_digest(tmp_path / "stopped" / "model") == weights_digest(tmp_path / "free" / "model")


@pytest.mark.slow
def test_cut_off_answers_and_a_distant_policy_stop_a_real_run(base: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="cut off at the length limit"):
        grpo(context(tmp_path / "cut", guards={"truncated_share": 0.5, "truncated_rollouts": 2}), base)
    wild = GRPO.model_copy(update={"learning_rate": 1.0, "refresh_reference": 0})
    with pytest.raises(TrainingError, match="has left its reference"):
        grpo(context(tmp_path / "wild", guards={"kl_above": 0.5, "kl_steps": 2}), base, wild)


@pytest.mark.slow
def test_flat_groups_are_told_to_the_user_and_the_run_goes_on(base: Path, tmp_path: Path) -> None:
    mix = Mix((Part("accuracy", Rule(zero_from=1), 1.0),))
    settings = GRPO.model_copy(update={"steps": 4, "refresh_reference": 0})
    grpo(context(tmp_path, guards={"flat_rollouts": 2}), base, settings, mix=mix)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (notice,) = [line["notice"] for line in lines if line["kind"] == "notice"]
    assert "100% of the groups have no signal" in notice
    assert "100% all wrong" in notice
