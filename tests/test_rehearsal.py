"""verify-resume: what it shortens, how it compares weights, what it calls exact."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import save_file

from r1pipe.errors import ArtifactError, StateError
from r1pipe.opening import Opened, open_recipe
from r1pipe.rehearsal import Rehearsal, _verdict, report_lines, shortened, training_step
from r1pipe.rundir import RunDir
from r1pipe.stages.mixed_rl import Config as MixedConfig
from r1pipe.train.settings import GrpoSettings
from r1pipe.weights import Difference, compare_weights

TRAINING = ["cold-start", "reasoning-rl", "rejection-sft/train", "mixed-rl/reward-models", "mixed-rl/train"]


def nano() -> Opened:
    return Opened(RunDir(Path("nowhere")), *open_recipe("nano"), exists=False)


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("count", [1, 3])
def test_every_training_step_can_be_shortened_to_settings_that_are_right(name: str, count: int) -> None:
    opened = nano()
    step = opened.pipeline.step(name)
    launches = {**opened.recipe.launches, name: opened.recipe.launches[name].model_copy(update={"processes": count})}
    short, last = shortened(replace(opened.recipe, launches=launches), step)
    config = short.configs[name]
    assert last <= 8
    if isinstance(config, GrpoSettings):
        assert config.steps == last
        assert config.answers_per_step % count == 0
        assert config.refresh_reference == last // 2
        assert config.kl == opened.recipe.configs[name].kl
        assert config.learning_rate == opened.recipe.configs[name].learning_rate
    assert short.launches[name].checkpoint_every <= last // 2
    others = [other.name for other in opened.pipeline.steps if other.name != name]
    assert all(short.configs[other] == opened.recipe.configs[other] for other in others)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_short_run_asks_general_prompts_however_few_the_recipe_asks(minibatches: int) -> None:
    sets = ["mixed-rl.train.general_share=0.05", f"mixed-rl.train.minibatches={minibatches}"]
    opened = Opened(RunDir(Path("nowhere")), *open_recipe("nano", sets), exists=False)
    short, _ = shortened(opened.recipe, opened.pipeline.step("mixed-rl/train"))
    config = short.configs["mixed-rl/train"]
    assert isinstance(config, MixedConfig)
    assert 0 < round(config.questions_per_rollout * config.general_share) < config.questions_per_rollout


def test_of_a_stage_the_step_that_trains_is_meant_and_one_that_trains_nothing_is_refused() -> None:
    assert training_step(nano(), "rejection-sft").name == "rejection-sft/train"
    assert training_step(nano(), "mixed-rl/reward-models").name == "mixed-rl/reward-models"
    with pytest.raises(StateError, match="trains nothing") as refused:
        training_step(nano(), "evaluate")
    assert "reasoning-rl" in refused.value.hint


def model(folder: Path, name: str = "model.safetensors", **tensors: numpy.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / name)
    return folder


def test_weights_are_compared_bit_for_bit_over_all_files(tmp_path: Path) -> None:
    ones, twos = numpy.ones((3, 2), numpy.float32), numpy.full(4, 2.0, numpy.float16)
    one = model(tmp_path / "one", a=ones, b=twos)
    model(tmp_path / "two", "model-1.safetensors", a=ones)
    two = model(tmp_path / "two", "model-2.safetensors", b=twos)
    assert compare_weights(one, two) == Difference(2, 0, 0.0)
    nudged = ones.copy()
    nudged[1, 1] = numpy.nextafter(numpy.float32(1), numpy.float32(2))
    found = compare_weights(one, model(tmp_path / "three", a=nudged, b=twos))
    assert (found.tensors, found.differing, found.where) == (2, 1, "a")
    assert found.largest == pytest.approx(2.0**-23)
    negative = compare_weights(
        model(tmp_path / "z", a=numpy.zeros(1, numpy.float32)), model(tmp_path / "n", a=numpy.array([-0.0], "f"))
    )
    assert (negative.differing, negative.largest) == (1, 0.0)  # equal numbers, other bits


def test_bfloat16_weights_differ_by_what_they_mean(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    for name, value in (("one", 1.5), ("two", -2.0)):
        (tmp_path / name).mkdir()
        save_torch({"a": torch.tensor([value, 4.0], dtype=torch.bfloat16)}, str(tmp_path / name / "model.safetensors"))
    assert compare_weights(tmp_path / "one", tmp_path / "two").largest == 3.5


def test_other_names_or_shapes_or_no_weights_are_not_called_equal(tmp_path: Path) -> None:
    one = model(tmp_path / "one", a=numpy.zeros(4, numpy.float32))
    assert compare_weights(one, model(tmp_path / "two", b=numpy.zeros(4, numpy.float32))).largest == math.inf
    assert compare_weights(one, model(tmp_path / "three", a=numpy.zeros((2, 2), numpy.float32))).largest == math.inf
    assert compare_weights(one, model(tmp_path / "nan", a=numpy.full(4, numpy.nan, numpy.float32))).largest == math.inf
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="has no weights"):
        compare_weights(one, tmp_path / "empty")


def test_only_equal_weights_are_exact_and_a_difference_is_measured_against_the_machines_own() -> None:
    same, small, large = Difference(9, 0, 0.0), Difference(9, 4, 1e-6, "a"), Difference(9, 4, 1e-2, "a")
    assert _verdict({"model": same}, {}) == "exact"
    assert _verdict({"model": small}, {"model": same}) == "different"
    assert _verdict({"model": small}, {"model": small}) == "within the machine's own noise"
    assert _verdict({"model": large}, {"model": small}) == "different"
    assert _verdict({"model": replace(small, largest=math.inf)}, {"model": replace(small, largest=math.inf)}) == "different"


def test_the_outcome_says_where_it_was_killed_and_what_differs() -> None:
    found = Rehearsal("cold-start", "different", 8, 4, 4, {"model": Difference(24, 3, 0.5, "head")}, {}, 5, "cpu", 12.0)
    said = "\n".join(report_lines(found))
    assert "killed after the checkpoint of step 4 and resumed from step 4" in said
    assert "3 of 24 tensors differ, by at most 0.5 (head)" in said
    assert "the losses differ from step 5 on" in said
    assert not found.passed
