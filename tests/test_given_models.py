"""A step-scoring model of the user's is an input: recorded when the step begins, and a change of it makes the step stale."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from r1pipe.errors import DataError
from r1pipe.given import changed_files, file_inputs
from r1pipe.opening import open_recipe


def model(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@pytest.mark.parametrize("name", ["reasoning-rl", "mixed-rl/train", "zero/train"])
def test_every_rl_step_tracks_the_model_that_scores_its_steps(name: str, tmp_path: Path) -> None:
    section = name.split("/")[0] + (".train" if "/" in name else "")
    sets = [f"{section}.method=grpo-process", f'{section}.process={{steps = "model", model = "{model(tmp_path / "judge")}"}}']
    if name == "mixed-rl/train":
        sets.append("mixed-rl.train.general_share=0")
    pipeline, recipe = open_recipe("nano-full", sets)
    step = pipeline.step(name)
    records = file_inputs(step, recipe)
    assert list(records) == ["process.model config.json", "process.model model.safetensors"]
    assert not changed_files(step, recipe, records)

    weights = tmp_path / "judge" / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    (tmp_path / "judge" / "notes.txt").write_text("no part of the model")
    assert not changed_files(step, recipe, records), "touched, or beside the model, is not changed"
    weights.write_bytes(b"others")
    (reason,) = changed_files(step, recipe, records)
    assert reason == f"it was made from {weights}, which was changed since"


def test_a_step_scoring_model_that_is_not_there_is_named_before_the_step_begins(tmp_path: Path) -> None:
    process = f'reasoning-rl.process={{steps = "model", model = "{tmp_path / "none"}"}}'
    pipeline, recipe = open_recipe("nano", ["reasoning-rl.method=grpo-process", process])
    with pytest.raises(DataError) as error:
        file_inputs(pipeline.step("reasoning-rl"), recipe)
    assert str(tmp_path / "none") in error.value.problem
