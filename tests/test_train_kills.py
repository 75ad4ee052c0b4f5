"""Training that is killed (SIGKILL) at the worst moments, one after the other, ends with the weights of training that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import make_tiny_model, weights_digest

pytestmark = pytest.mark.slow

KILLS: dict[str, list[tuple[str, int]]] = {
    # between two checkpoints; in a checkpoint's middle; before its seal; while the one before is deleted; before that
    "sft": [("minibatch", 4), ("saving", 1), ("seal", 1), ("deleting", 2), ("rotate", 1)],
    # in a rollout; right after the reference was refreshed; while that is saved; before the seal; in the rollout that follows
    "grpo": [("scoring", 3), ("refreshed", 2), ("saving", 1), ("seal", 1), ("scoring", 3)],
    # in the first rollout with the reward that joins late, and in the update that follows it
    "late": [("scoring", 3), ("minibatch", 1)],
    # with the reference as a second adapter: in a rollout; right after its refresh; in a checkpoint with it; in the next rollout
    "lora": [("scoring", 3), ("refreshed", 2), ("rng", 1), ("seal", 1), ("scoring", 3)],
    "rm": [("minibatch", 4), ("saving", 1), ("seal", 1)],
}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every kind of training, unbroken and killed; (folders, outcomes of each attempt) by name."""
    root = tmp_path_factory.mktemp("kills")
    base = make_tiny_model(root / "base")
    specs = [
        {"name": f"{kind} {how}", "kind": kind, "base": str(base), "folder": str(root / f"{kind}-{how}"), "kills": kills}
        for kind, places in KILLS.items()
        for how, kills in (("unbroken", []), ("killed", places))
    ]
    (root / "specs.json").write_text(json.dumps(specs))
    driver = Path(__file__).parent / "kill_driver.py"
    done = subprocess.run(
        [sys.executable, str(driver), str(root / "specs.json")], capture_output=True, text=True, timeout=1800,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(driver.parent), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {"root": root, "lines": lines, "stderr": done.stderr}


@pytest.mark.parametrize("kind", KILLS)
def test_killed_at_the_worst_moments_training_ends_with_the_weights_of_an_unbroken_run(
    kind: str, attempts: dict[str, Any]
) -> None:
    outcomes = [(line["place"], line["outcome"]) for line in attempts["lines"] if line["name"] == f"{kind} killed"]
    assert outcomes == [*((place, "killed") for place, _ in KILLS[kind]), (None, "done")], attempts["stderr"][-3000:]
    output = "rm" if kind == "rm" else "model"
    whole, killed = (attempts["root"] / f"{kind}-{how}" / output for how in ("unbroken", "killed"))
    assert weights_digest(killed) == weights_digest(whole) != weights_digest(attempts["root"] / "base")


def test_the_kills_left_what_a_resume_must_not_take_for_a_checkpoint(attempts: dict[str, Any]) -> None:
    left = {(line["name"], number): line["left"] for number, line in enumerate(attempts["lines"])}
    sft = [names for (name, _), names in sorted(left.items(), key=lambda item: item[0][1]) if name == "sft killed"]
    assert sft[0] == ["checkpoint-2"]
    assert sft[1] == sft[2] == ["checkpoint-2", "checkpoint-4"]  # the newer one torn, then complete and without its seal
    assert sft[3] == ["checkpoint-2", "checkpoint-4"]  # the older one has lost its seal and waits to be deleted
    assert sft[4] == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]  # sealed; the older ones were to be deleted


def test_numbers_and_rollouts_of_a_killed_run_are_written_once(attempts: dict[str, Any]) -> None:
    for kind in ("grpo", "late", "lora"):
        whole, killed = (
            [json.loads(line) for line in (attempts["root"] / f"{kind}-{how}" / "metrics.jsonl").read_text().splitlines()]
            for how in ("unbroken", "killed")
        )
        told = [{k: v for k, v in line.items() if k != "step_seconds"} for line in killed if line["kind"] in ("step", "rollout")]
        assert told == [
            {k: v for k, v in line.items() if k != "step_seconds"} for line in whole if line["kind"] in ("step", "rollout")
        ]


def test_resumed_runs_say_where_they_go_on(attempts: dict[str, Any]) -> None:
    said = attempts["stderr"]
    assert said.count("toy: starting at step 0 of 8, over 1 processes") == 2 * len([kind for kind in KILLS if kind != "rm"])
    assert "toy: resuming at step 6 of 8" in said
