"""The whole of the paper, small and real: R1-Zero, traces from it, the four stages; killed on the way, it ends the same."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from test_chain import SMALL, kill_during, r1pipe, sets

from r1pipe.data.tables import read_table
from r1pipe.pipeline import load

pytestmark = pytest.mark.heavy

FULL = [value for value in SMALL if not value.startswith("prepare.traces")] + [
    "zero.train.steps=8", "zero.train.questions_per_step=8", "zero.train.group=4", "zero.train.minibatches=2",
    "zero.train.refresh_reference=4", "zero.sample.problems=96", "zero.sample.samples=4", "zero.sample.problems_per_shard=32",
    "zero.build.rewrite.rows_per_shard=4",
]  # fmt: skip


def digests(run: Path) -> dict[str, str]:
    """Weights and tables that Zero's steps made."""
    files = [*run.glob("0-zero/*/model/model.safetensors"), *run.glob("0-zero/*/*/part-*.parquet")]
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.parent.name != "rollouts"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    r1pipe("run-all", "--recipe", "nano-full", "--run", "whole", *sets(FULL), cwd=folder)
    return folder / "runs" / "whole"


def test_one_command_goes_from_the_base_to_r1_by_way_of_zero(whole: Path) -> None:
    assert {str(path.parent.relative_to(whole)) for path in whole.rglob("manifest.json")} == {
        step.folder for step in load("r1-full").steps
    }
    table = json.loads((whole / "5-evaluate/results.json").read_text())["checkpoints"]
    assert list(table) == ["base", "zero", "dev1", "dev2", "dev3", "r1"]
    outcomes = Counter(row["outcome"] for row in read_table(whole / "0-zero/build/ledger"))
    assert outcomes.total() == 96 * 4
    traces = list(read_table(whole / "0-zero/build/traces"))
    assert len(traces) == outcomes["kept"] > 0
    assert json.loads((whole / "1-cold-start/manifest.json").read_text())["summary"]["rows"] == len(traces)


def test_zero_killed_in_training_and_in_sampling_ends_with_the_same_weights_attempts_and_traces(whole: Path) -> None:
    folder, until = whole.parent.parent, ["--until", "zero/build"]
    kill_during(
        "0-zero/train", folder, ["run-all", "--recipe", "nano-full", "--run", "killed", *sets(FULL), *until], whole_tree=True
    )
    kill_during("0-zero/sample", folder, ["run-all", "--run", "killed", *until], whole_tree=False)
    r1pipe("run-all", "--run", "killed", *until, cwd=folder)
    made = digests(folder / "runs" / "killed")
    assert {Path(name).parts[1] for name in made} == {"train", "sample", "build"}
    assert made == digests(whole)
