"""The commands on the pipelines r1-zero and r1-full: what they would do, what they show of Zero, and what a server needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import r1pipe


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    done = r1pipe(folder, "run-all", "--recipe", "nano-full")
    assert done.code == 0, done.err
    return folder


def test_plan_says_how_zero_is_asked_and_that_nothing_rewrites(tmp_path: Path) -> None:
    out = " ".join(r1pipe(tmp_path, "plan", "--recipe", "nano-full", columns=200).out.split())
    assert "12 steps would run" in out
    assert "questions are put in the base's own chat template; language consistency is measured and not rewarded" in out
    assert "rewriting: skipped, no engine is set" in out
    assert "6 checkpoints × 352 questions × 2 samples" in out
    assert "Dev1 learns from what Zero wrote" in out


def test_the_whole_of_the_paper_runs_in_one_command_and_zero_stands_in_the_table(full: Path) -> None:
    status = r1pipe(full, "status", columns=160).out
    assert "Base ── zero/train ──▶ Zero" in status
    assert "Zero" in r1pipe(full, "inspect", "evaluate/results", columns=160).out
    shown = json.loads(r1pipe(full, "status", "--json").out)
    assert shown["lineage"]["chains"] == [["Base", "Zero"], ["Base", "Dev1", "Dev2"], ["Base", "Dev3", "R1"]]
    cold_start = json.loads((full / "runs/nano-full/1-cold-start/manifest.json").read_text())
    build = json.loads((full / "runs/nano-full/0-zero/build/manifest.json").read_text())
    assert cold_start["inputs"]["traces"]["build"] == build["build"]


def test_the_ledger_and_the_traces_can_be_looked_into(full: Path) -> None:
    assert "kept 50 of 120 attempts" in r1pipe(full, "status", columns=160).out
    assert "skipped, no engine is set" in r1pipe(full, "inspect", "zero/build", columns=160).out
    assert "R1-Zero, thinking as sampled" in r1pipe(full, "inspect", "zero/build/traces", "--limit", "1", columns=160).out
    ledger = r1pipe(full, "inspect", "zero/build/ledger", "--limit", "1", columns=160)
    assert ledger.code == 0
    assert all(words in ledger.out for words in ("kept", "answer alone", "outcome   dropped 70   kept 50"))


def test_an_attempt_of_the_ledger_is_found_by_its_reason(full: Path) -> None:
    ledger = "zero/build/ledger"
    rows = json.loads(r1pipe(full, "inspect", ledger, "--limit", "200", "--json").out)["rows"]
    dropped = next(row for row in rows if row["outcome"] == "dropped")
    with_reason = json.loads(r1pipe(full, "inspect", ledger, "--find", dropped["reason"], "--json").out)
    assert with_reason["matching"] == sum(dropped["reason"] in row["reason"] for row in rows)


def test_another_setting_of_the_builder_blocks_what_read_its_traces(full: Path) -> None:
    plan = json.loads(r1pipe(full, "plan", "--run", "nano-full", "--set", "zero.build.most=10", "--json").out)
    would = {step["step"]: step["would"] for step in plan["steps"]}
    assert (would["zero/train"], would["zero/sample"], would["zero/build"]) == ("is kept", "is kept", "blocks")
    assert (would["cold-start"], would["evaluate"], would["mixed-rl/reward-models"]) == ("blocks", "blocks", "is kept")


def test_zero_alone_is_a_pipeline_of_three_steps(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, "run-all", "--recipe", "nano-zero")
    assert done.code == 0, done.err
    assert sorted(path.parent.name for path in (tmp_path / "runs/nano-zero").rglob("manifest.json")) == [
        "0-prepare", "1-evaluate", "train",
    ]  # fmt: skip
    table = json.loads((tmp_path / "runs/nano-zero/1-evaluate/results.json").read_text())["checkpoints"]
    assert list(table) == ["base", "zero"]


def test_a_server_that_is_not_named_is_missed_before_anything_starts(tmp_path: Path) -> None:
    rewrite = ("--set", 'zero.build.rewrite={ engine = "openai", model = "m" }')
    done = r1pipe(tmp_path, "run-all", "--recipe", "nano-full", *rewrite, OPENAI_BASE_URL="")
    assert done.code == 2
    assert "OPENAI_BASE_URL is not set" in done.err
    assert not (tmp_path / "runs").exists()
    named = ("--set", 'launch.env={ OPENAI_BASE_URL = "http://localhost:9/v1" }')
    planned = r1pipe(tmp_path, "plan", "--recipe", "nano-full", *rewrite, *named, OPENAI_BASE_URL="", columns=200)
    assert planned.code == 0
    assert "rewriting: by m (openai)" in planned.out
