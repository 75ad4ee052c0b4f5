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
    files = [*run.rglob("model.safetensors"), *run.rglob("part-*.parquet")]
    kept = [path for path in files if not {"checkpoints", "rollouts"} & set(path.parts)]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def test_one_command_goes_from_the_base_to_r1_by_way_of_zero_and_a_killed_run_ends_the_same(tmp_path: Path) -> None:
    command = ["run-all", "--recipe", "nano-full", "--run", "whole", *sets(FULL)]
    r1pipe(*command, cwd=tmp_path)
    whole = tmp_path / "runs" / "whole"
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

    command[command.index("whole")] = "killed"
    kill_during("0-zero/train", tmp_path, command, whole_tree=True)
    kill_during("0-zero/sample", tmp_path, ["resume", "killed"], whole_tree=False)
    r1pipe("resume", "killed", cwd=tmp_path)
    assert digests(tmp_path / "runs" / "killed") == digests(whole)
