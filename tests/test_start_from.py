"""A step of reinforcement learning starts from a model that the recipe names, such as the checkpoint that a guard kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_helpers import copy_of_finished, r1pipe
from test_zero import context
from tiny import make_tiny_model

from r1pipe.stages import zero
from r1pipe.stages.own import own_files


def test_the_files_of_the_model_are_part_of_what_is_made_and_a_missing_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-4"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "optimizer.pt"):
        (folder / name).write_bytes(b"{}")
    config = zero.Config(steps=16, start_from=str(folder))
    loaded = ("config.json", "model.safetensors", "tokenizer.json")
    assert own_files(config, {}) == {f"start_from {name}": folder / name for name in loaded}
    gone = zero.Config(steps=16, start_from="gone")
    assert own_files(gone, {}) == {"start_from config.json": Path("gone/config.json")}
    assert own_files(zero.Config(steps=16), {}) == {}


def test_the_command_that_a_guard_names_starts_a_second_run_from_the_checkpoint(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    kept = folder / "runs/nano/2-reasoning-rl/model"
    fork = ["fork", "nano", "second", "--before", "reasoning-rl", "--set", f"reasoning-rl.start_from={kept}"]
    assert r1pipe(folder, *fork, "--set", "reasoning-rl.kl=0.01").code == 0
    assert f"starts from {kept}, not from what the step before made" in r1pipe(folder, "plan", "--run", "second", columns=300).out
    done = r1pipe(folder, "resume", "second", "--until", "reasoning-rl")
    assert done.code == 0, done.err
    assert "start_from model.safetensors" in r1pipe(folder, "inspect", "reasoning-rl", "--run", "second", columns=200).out
    (kept / "model.safetensors").unlink()
    again = ["run-all", "--run", "second", "--until", "reasoning-rl", "--redo", "reasoning-rl"]
    refused = r1pipe(folder, *again, columns=300)
    assert refused.code == 2
    assert "model.safetensors is missing" in refused.err
    (kept / "adapter_config.json").write_text("{}")
    assert "holds adapters and no whole model" in r1pipe(folder, *again, columns=300).err


@pytest.mark.slow
def test_training_starts_from_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    base, other = make_tiny_model(tmp_path / "base"), make_tiny_model(tmp_path / "other", seed=7)
    settings: dict[str, Any] = {"accuracy": {"name": "test_zero:EvenBytes"}, "start_from": str(other), "learning_rate": 1e-9}
    run = context(tmp_path, base, **settings)
    zero.train(run)
    made = load_file(run.output("model") / "model.safetensors")
    started, left = (load_file(folder / "model.safetensors") for folder in (other, base))
    name = "model.layers.0.mlp.up_proj.weight"
    assert abs(made[name] - started[name]).max() < 1e-6
    assert abs(made[name] - left[name]).max() > 1e-3
