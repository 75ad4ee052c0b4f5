"""Every method in its stage, by the command line: worker processes killed in the middle (SIGKILL) and resumed bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_chain import SMALL, r1pipe, sets

pytestmark = pytest.mark.heavy

METHODS = ("grpo", "rft", "online-rft", "grpo-process", "reinforce-loo", "ppo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose cold start is finished."""
    folder = tmp_path_factory.mktemp("methods")
    r1pipe("run-all", "--recipe", "nano", "--run", "start", "--until", "cold-start", *sets(SMALL), cwd=folder)
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_stage_with_any_method_is_killed_and_resumed_bit_for_bit(method: str, folder: Path) -> None:
    r1pipe("fork", "start", method, "--before", "reasoning-rl", "--set", f"reasoning-rl.method={method}", cwd=folder)
    found = json.loads(r1pipe("verify-resume", "reasoning-rl", "--run", method, "--json", cwd=folder).stdout)
    assert found["verdict"] == "exact"
    assert all(model["differing"] == 0 and model["tensors"] > 20 for model in found["models"].values())
    assert 0 < found["resumed_from"] < found["steps"]


def test_the_plan_says_what_a_value_model_costs_before_it_starts(folder: Path) -> None:
    said = r1pipe("plan", "--recipe", "nano", "--run", "other", "--set", "reasoning-rl.method=ppo", cwd=folder).stdout
    assert "the value model is as large as the policy and trained beside it: 1.8 times the memory of GRPO" in " ".join(
        said.split()
    )
