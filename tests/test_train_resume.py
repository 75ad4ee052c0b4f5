"""Killed and resumed training ends with the same weights, bit for bit, as training that was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny import make_tiny_model, weights_digest
from train_helpers import GRPO, PROBLEMS, Crash, context, grpo

from r1pipe.data.rows import Attempt, Score
from r1pipe.data.schedule import prompt_order
from r1pipe.errors import Stopped, TrainingError
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.train.settings import RewardModelSettings, SftSettings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def unbroken(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    grpo(context(folder), base)
    return folder


def test_grpo_moves_the_weights(unbroken: Path, base: Path) -> None:
    assert weights_digest(unbroken / "model") != weights_digest(base)


@pytest.mark.parametrize("crash_at", [1, 2, 3, 4])
def test_grpo_crashed_in_any_rollout_and_resumed_ends_with_the_same_weights(
    crash_at: int, base: Path, unbroken: Path, tmp_path: Path
) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, crash_at=crash_at)
    grpo(context(tmp_path), base)
    assert weights_digest(tmp_path / "model") == weights_digest(unbroken / "model")
    steps = [
        line["step"] for line in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()) if line["kind"] == "step"
    ]
    assert steps == list(range(1, 9))


def test_a_resumed_run_keeps_the_reference_of_its_last_refresh(base: Path, tmp_path: Path, unbroken: Path) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, crash_at=4)  # after the checkpoint of step 6; the reference is of step 4
    checkpoint = tmp_path / "checkpoints" / "checkpoint-6"
    assert (checkpoint / "reference.safetensors").is_file()
    (checkpoint / "reference.safetensors").unlink()  # torn: falls back to the checkpoint before, never to another reference
    grpo(context(tmp_path), base)
    assert weights_digest(tmp_path / "model") == weights_digest(unbroken / "model")
    assert "checkpoint-6 is not whole" in (tmp_path / "metrics.jsonl").read_text()


def test_a_reward_that_joins_late_gives_the_same_weights_across_a_crash_at_the_switch(base: Path, tmp_path: Path) -> None:
    grpo(context(tmp_path / "whole"), base, late=4)
    with pytest.raises(Crash):
        grpo(context(tmp_path / "broken"), base, crash_at=3, late=4)
    grpo(context(tmp_path / "broken"), base, late=4)
    assert weights_digest(tmp_path / "broken" / "model") == weights_digest(tmp_path / "whole" / "model")
    lines = [json.loads(line) for line in (tmp_path / "broken" / "metrics.jsonl").read_text().splitlines()]
    joined = {line["step"]: line["rewards"]["late"] for line in lines if line["kind"] == "rollout"}
    assert [joined[step] is None for step in (0, 2, 4, 6)] == [True, True, False, False]


def test_grpo_stops_at_a_rollouts_end_when_asked_and_goes_on_exactly(base: Path, unbroken: Path, tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="step 2 of 8"):
        grpo(context(tmp_path, stop=lambda: True), base)
    grpo(context(tmp_path), base)
    assert weights_digest(tmp_path / "model") == weights_digest(unbroken / "model")


def test_a_torn_newest_checkpoint_is_passed_over(base: Path, unbroken: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, crash_at=4)
    weights = tmp_path / "checkpoints" / "checkpoint-6" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    (tmp_path / "checkpoints" / "checkpoint-7").mkdir()  # begun and killed at once
    grpo(context(tmp_path), base)
    assert weights_digest(tmp_path / "model") == weights_digest(unbroken / "model")


def test_a_checkpoint_of_other_settings_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, crash_at=3)
    with pytest.raises(TrainingError, match=r"kl: 0\.1 -> 0\.2"):
        grpo(context(tmp_path), base, settings=GRPO.model_copy(update={"kl": 0.2}))


def test_training_that_would_do_nothing_is_an_error(base: Path, tmp_path: Path, unbroken: Path) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, crash_at=4)
    shutil.copytree(tmp_path / "checkpoints" / "checkpoint-6", tmp_path / "checkpoints" / "checkpoint-8")
    seal = tmp_path / "checkpoints" / "checkpoint-8" / "whole.json"
    seal.write_text(seal.read_text().replace('"step": 6', '"step": 8'))
    with pytest.raises(TrainingError, match="nothing would be trained"):
        grpo(context(tmp_path), base)


def test_equal_rewards_leave_the_weights_bit_for_bit(base: Path, tmp_path: Path) -> None:
    class Same:
        def score(self, attempts: list[Attempt]) -> list[Score | None]:
            return [Score(0.7) for _ in attempts]

    from r1pipe.train.grpo import train_grpo

    settings = GRPO.model_copy(update={"kl": 0.0, "refresh_reference": 0, "steps": 4})
    order = prompt_order(
        verifiable=list(range(40)), general=[], rollouts=2, questions=4, general_from=0, general_share=0.0, seed=3
    )
    mix = Mix((Part("same", Same(), 1.0),))
    train_grpo(context(tmp_path), settings, policy=base, problems=PROBLEMS, order=order, mix=mix, system="", what="toy")
    assert weights_digest(tmp_path / "model") == weights_digest(base)


def test_sft_stopped_after_any_step_ends_with_the_same_weights(base: Path, tmp_path: Path) -> None:
    from r1pipe.train.sft import train_sft

    examples = [(f"{n}+1=", f"<think>\n{n} and one\n</think>\n\n{n + 1}") for n in range(20)]
    settings = SftSettings(epochs=2, batch=6, learning_rate=1e-2, max_tokens=256)
    whole = train_sft(context(tmp_path / "whole"), settings, model=base, examples=examples, system="", what="toy")
    assert (whole["steps"], whole["rows"], whole["rows_too_long"]) == (8, 20, 0)
    for _ in range(8):
        try:
            train_sft(
                context(tmp_path / "broken", stop=lambda: True), settings, model=base, examples=examples, system="", what="toy"
            )
        except Stopped:
            continue
        break
    assert weights_digest(tmp_path / "broken" / "model") == weights_digest(tmp_path / "whole" / "model")


def test_reward_models_resume_exactly_and_state_their_held_out_accuracy(base: Path, tmp_path: Path) -> None:
    from r1pipe.engines.text import judged_ids, load_tokenizer
    from r1pipe.train.reward_model import Judged, train_reward_model

    tokenizer = load_tokenizer(base)
    rows = [
        Judged(
            f"q{n}",
            judged_ids(tokenizer, f"q{n}", "", "yes" * (1 + n % 3)),
            judged_ids(tokenizer, f"q{n}", "", "no" * (1 + n % 4)),
        )
        for n in range(120)
    ]
    settings = RewardModelSettings(epochs=2, batch=16, learning_rate=5e-3, max_tokens=64, held_out_share=0.3)
    options = {"base": base, "rows": rows, "output": "rm", "what": "toy"}
    whole = train_reward_model(context(tmp_path / "whole", outputs=("rm",)), settings, **options)
    assert whole["accuracy"] > 0.9
    stopped = 0
    for _ in range(30):
        try:
            train_reward_model(context(tmp_path / "broken", stop=lambda: True, outputs=("rm",)), settings, **options)
        except Stopped:
            stopped += 1
            continue
        break
    assert stopped > 2
    assert weights_digest(tmp_path / "broken" / "rm") == weights_digest(tmp_path / "whole" / "rm")


def test_adapters_train_resume_exactly_and_hand_on_a_merged_model(base: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from r1pipe.train.settings import LoraSettings

    settings = GRPO.model_copy(update={"lora": LoraSettings(rank=4, alpha=8.0), "refresh_reference": 0, "steps": 6})
    grpo(context(tmp_path / "whole"), base, settings=settings)
    with pytest.raises(Crash):
        grpo(context(tmp_path / "broken"), base, settings=settings, crash_at=3)
    grpo(context(tmp_path / "broken"), base, settings=settings)
    assert weights_digest(tmp_path / "broken" / "model") == weights_digest(tmp_path / "whole" / "model") != weights_digest(base)
    merged = AutoModelForCausalLM.from_pretrained(str(tmp_path / "whole" / "model"))
    assert not [name for name, _ in merged.named_parameters() if "lora" in name]


def test_a_checkpoint_of_another_number_of_processes_is_refused_by_name(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from r1pipe.train.checkpoint import newest_whole, seal

    with pytest.raises(Crash):
        grpo(context(tmp_path), base, crash_at=3)
    newest = tmp_path / "checkpoints" / "checkpoint-4"
    recorded = json.loads((newest / "whole.json").read_text())["belongs_to"]
    seal(newest, recorded)
    with pytest.raises(TrainingError, match="processes: 1 -> 2"):
        newest_whole(tmp_path / "checkpoints", {**recorded, "processes": 2})


def test_a_checkpoint_of_another_arithmetic_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path, dtype="float32"), base, crash_at=3)
    with pytest.raises(TrainingError, match="dtype: 'float32' -> 'bfloat16'"):
        grpo(context(tmp_path, dtype="bfloat16"), base)
    assert grpo(context(tmp_path, dtype="auto"), base)["steps"] == 8


def test_fewer_rows_than_processes_are_refused_in_words(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from r1pipe.train.sft import train_sft

    monkeypatch.setenv("WORLD_SIZE", "3")
    examples = [(f"{n}+1=", f"<think>\n{n} and one\n</think>\n\n{n + 1}") for n in range(2)]
    with pytest.raises(TrainingError, match="2 rows cannot be shared out over 3 processes"):
        train_sft(context(tmp_path), SftSettings(batch=6), model=base, examples=examples, system="", what="toy")


def test_a_gradient_that_is_not_finite_stops_before_the_weights_change(base: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    poisoned = AutoModelForCausalLM.from_pretrained(str(base))
    with torch.no_grad():
        poisoned.model.norm.weight[0] = 3e38  # finite weights whose forward pass overflows
    folder = tmp_path / "poisoned"
    shutil.copytree(base, folder)
    poisoned.save_pretrained(str(folder))
    from r1pipe.train.sft import train_sft

    examples = [(f"{n}+1=", f"<think>\n{n} and one\n</think>\n\n{n + 1}") for n in range(8)]
    settings = SftSettings(epochs=1, batch=4, learning_rate=1e-2, max_tokens=256)
    with pytest.raises(TrainingError, match=r"gradient of step 1 is (nan|inf); the weights were not changed"):
        train_sft(context(tmp_path / "run"), settings, model=folder, examples=examples, system="", what="toy")
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))


def test_with_adapters_the_reference_is_replaced_by_the_policy_and_is_in_the_checkpoint(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from r1pipe.train.settings import LoraSettings

    settings = GRPO.model_copy(update={"lora": LoraSettings(rank=4, alpha=8.0)})
    grpo(context(tmp_path, keep_checkpoints=9), base, settings=settings)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    distance = {line["step"]: line["kl"] for line in lines if line["kind"] == "step"}
    assert distance[1] == 0.0  # the first reference is the input model
    assert distance[3] > 0.0
    assert distance[5] == 0.0  # the reference of step 4 is the policy of step 4
    assert distance[7] > 0.0
    saved = load_file(str(tmp_path / "checkpoints" / "checkpoint-6" / "reference.safetensors"))
    then = load_file(str(tmp_path / "checkpoints" / "checkpoint-4" / "adapter_model.safetensors"))
    assert len(saved) == len(then) > 20
    for name, weights in then.items():
        assert saved[name.replace(".weight", ".default.weight")].equal(weights)
    assert not (tmp_path / "checkpoints" / "checkpoint-2" / "reference.safetensors").exists()


def test_a_run_that_was_moved_while_it_was_down_goes_on_exactly_and_looks_at_the_engine_again(
    base: Path, unbroken: Path, tmp_path: Path
) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path / "here"), base, crash_at=3)
    shutil.move(tmp_path / "here", tmp_path / "there")
    grpo(context(tmp_path / "there"), base)
    assert weights_digest(tmp_path / "there" / "model") == weights_digest(unbroken / "model")
    lines = [json.loads(line) for line in (tmp_path / "there" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "agreement"] == [0, 4]
