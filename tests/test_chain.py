"""The whole chain, small and real: the embedded base through all steps, killed on the way, against a run that was not."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

SMALL = [
    "prepare.problems.count=200", "prepare.traces.count=48", "prepare.general.count=24", "prepare.general_traces.count=24",
    "prepare.pairs.count=120", "prepare.labels.count=120", "prepare.evaluation.count=16", "prepare.general_evaluation.count=8",
    "cold-start.epochs=1", "cold-start.batch=16",
    "reasoning-rl.steps=6", "reasoning-rl.questions_per_step=2", "reasoning-rl.group=4", "reasoning-rl.minibatches=2",
    "reasoning-rl.refresh_reference=4",
    "rejection-sft.sample.problems=64", "rejection-sft.sample.samples=2", "rejection-sft.sample.problems_per_shard=16",
    "rejection-sft.train.epochs=1", "rejection-sft.train.batch=16",
    "mixed-rl.reward-models.helpfulness.min_accuracy_above=0", "mixed-rl.reward-models.safety.min_accuracy_above=0",
    "mixed-rl.train.steps=4", "mixed-rl.train.questions_per_step=4", "mixed-rl.train.group=4", "mixed-rl.train.minibatches=2",
    "mixed-rl.train.refresh_reference=2", "mixed-rl.train.preference_from_step=2",
    "evaluate.problems=16", "evaluate.general=8", "evaluate.samples=2",
    "launch.checkpoint_every=2", "launch.threads=1",
]  # fmt: skip
STEPS = [
    "0-prepare", "1-cold-start", "2-reasoning-rl", "3-rejection-sft/sample", "3-rejection-sft/select", "3-rejection-sft/train",
    "4-mixed-rl/reward-models", "4-mixed-rl/train", "5-evaluate",
]  # fmt: skip


def r1pipe(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "r1pipe", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "COLUMNS": "120"},
    )
    if check and done.returncode:
        raise AssertionError(
            f"r1pipe {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done


def sets(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def manifests(run: Path) -> dict[str, dict[str, Any]]:
    return {
        step: json.loads((run / step / "manifest.json").read_text()) for step in STEPS if (run / step / "manifest.json").exists()
    }


def digests(run: Path) -> dict[str, str]:
    files = [*run.rglob("model.safetensors"), *run.glob("3-rejection-sft/*/*/part-*.parquet")]
    kept = [path for path in files if "checkpoints" not in path.parts]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    r1pipe("run-all", "--run", "whole", *sets(SMALL), cwd=folder)
    return folder / "runs" / "whole"


def test_run_all_leaves_every_step_finished_and_a_table_of_five_checkpoints(finished: Path) -> None:
    assert list(manifests(finished)) == STEPS
    table = json.loads((finished / "5-evaluate" / "results.json").read_text())["checkpoints"]
    assert list(table) == ["base", "dev1", "dev2", "dev3", "r1"]
    assert all(0 <= row["pass_at_1"] <= 1 and row["helpfulness"] is not None for row in table.values())


def test_stage_3_trains_the_base_that_stage_1_trained(finished: Path) -> None:
    steps = manifests(finished)
    first, third = steps["1-cold-start"]["inputs"]["base"], steps["3-rejection-sft/train"]["inputs"]["base"]
    assert first["digest"] == third["digest"]
    assert first["digest"] != steps["2-reasoning-rl"]["outputs"]["model"]["digest"]


def test_preference_rewards_join_at_their_step_and_not_before(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "4-mixed-rl/train/metrics.jsonl").read_text().splitlines()]
    rollouts = {line["step"]: line["rewards"] for line in lines if line["kind"] == "rollout"}
    assert set(rollouts) == {0, 2}
    assert rollouts[0]["helpfulness"] is None
    assert rollouts[0]["safety"] is None
    assert rollouts[2]["helpfulness"] is not None or rollouts[2]["safety"] is not None


def test_a_finished_run_does_nothing_again(finished: Path) -> None:
    before = {name: manifest["build"] for name, manifest in manifests(finished).items()}
    begun = time.monotonic()
    r1pipe("run-all", "--run", "whole", cwd=finished.parent.parent)
    assert time.monotonic() - begun < 10  # 3 s on an idle machine, measured in the benchmarks
    assert {name: manifest["build"] for name, manifest in manifests(finished).items()} == before


def test_the_reading_commands_answer_for_a_finished_run(finished: Path) -> None:
    folder = finished.parent.parent
    status = json.loads(r1pipe("status", "whole", "--json", cwd=folder).stdout)
    assert "done" in json.dumps(status)
    for arguments in (["plan", "--run", "whole"], ["inspect", "--run", "whole"], ["inspect", "reasoning-rl", "--run", "whole"]):
        assert r1pipe(*arguments, cwd=folder).stdout.strip()
    shown = r1pipe("inspect", "rejection-sft/sample/attempts", "--run", "whole", "--limit", "2", cwd=folder).stdout
    assert "accuracy" in shown


def kill_during(step: str, folder: Path, command: list[str], whole_tree: bool) -> None:
    """Start a command, wait until the step has made a checkpoint or a part, and kill its processes without warning."""
    process = subprocess.Popen(
        [sys.executable, "-m", "r1pipe", *command],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    place = folder / "runs" / "killed" / step
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        if list(place.glob("checkpoints/**/whole.json")) or list(place.glob("attempts/part-*.parquet")):
            break
        time.sleep(0.02)
    victims = psutil.Process(process.pid).children(recursive=True)
    for victim in [psutil.Process(process.pid), *victims] if whole_tree else victims:
        victim.kill()
    process.wait(timeout=60)
    assert not (place / "manifest.json").exists()


def test_a_run_killed_in_four_steps_ends_with_the_same_models_and_tables_bit_for_bit(finished: Path) -> None:
    folder = finished.parent.parent
    command = ["run-all", "--run", "killed", *sets(SMALL)]
    kill_during("1-cold-start", folder, command, whole_tree=False)
    kill_during("2-reasoning-rl", folder, ["resume", "killed"], whole_tree=True)
    kill_during("3-rejection-sft/sample", folder, ["resume", "killed"], whole_tree=True)
    kill_during("4-mixed-rl/train", folder, ["resume", "killed"], whole_tree=False)
    before = {name: manifest["build"] for name, manifest in manifests(folder / "runs" / "killed").items()}
    r1pipe("resume", "killed", cwd=folder)
    after = manifests(folder / "runs" / "killed")
    assert list(after) == STEPS
    assert {name: after[name]["build"] for name in before} == before
    assert digests(folder / "runs" / "killed") == digests(finished)


@pytest.mark.heavy
@pytest.mark.parametrize("step", ["cold-start", "reasoning-rl", "rejection-sft", "mixed-rl/reward-models", "mixed-rl"])
def test_verify_resume_kills_a_short_copy_of_a_step_and_leaves_the_run_as_it_was(step: str, finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    found = json.loads(r1pipe("verify-resume", step, "--run", "whole", "--json", cwd=finished.parent.parent).stdout)
    assert found["verdict"] == "exact"
    assert all(model["differing"] == 0 and model["tensors"] > 20 for model in found["models"].values())
    assert 0 < found["resumed_from"] < found["steps"]
    assert found["killed_after"] >= found["resumed_from"] > 0
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    assert [path.name for path in finished.parent.iterdir() if path.name.startswith(".verify")] == []


def test_a_stopped_run_says_how_to_go_on_and_exits_with_75(finished: Path) -> None:
    folder = finished.parent.parent
    r1pipe("fork", "whole", "stopped", "--before", "reasoning-rl", cwd=folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "r1pipe", "resume", "stopped"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    place = folder / "runs" / "stopped" / "2-reasoning-rl"
    deadline = time.monotonic() + 300
    while not list(place.glob("checkpoints/**/whole.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 75
    assert "r1pipe resume stopped" in output


def test_a_changed_setting_of_the_selection_reruns_what_follows_it_and_nothing_else(finished: Path) -> None:
    folder = finished.parent.parent
    r1pipe("fork", "whole", "changed", "--before", "mixed-rl", cwd=folder)
    refused = r1pipe(
        "run-all",
        "--run",
        "changed",
        "--set",
        "rejection-sft.select.general_share=0.4",
        "--until",
        "rejection-sft",
        cwd=folder,
        check=False,
    )
    assert refused.returncode == 1
    assert "general_share" in refused.stdout + refused.stderr
    r1pipe("run-all", "--run", "changed", "--redo", "rejection-sft/select", "--until", "rejection-sft", cwd=folder)
    old, new = manifests(finished), manifests(folder / "runs" / "changed")
    same = [name for name in new if new[name]["build"] == old[name]["build"]]
    assert same == STEPS[:4]
    assert list(new) == STEPS[:6]


def test_a_changed_launch_value_reruns_nothing(finished: Path) -> None:
    folder = finished.parent.parent
    before = {name: manifest["build"] for name, manifest in manifests(finished).items()}
    r1pipe("run-all", "--run", "whole", "--set", "launch.micro_batch=8", "--set", "launch.threads=2", cwd=folder)
    assert {name: manifest["build"] for name, manifest in manifests(finished).items()} == before


def test_two_processes_train_one_step_together(finished: Path) -> None:
    folder = finished.parent.parent
    r1pipe("fork", "whole", "two", "--before", "cold-start", cwd=folder)
    r1pipe("run-all", "--run", "two", "--set", "launch.processes=2", "--until", "cold-start", cwd=folder)
    manifest = json.loads((folder / "runs" / "two" / "1-cold-start" / "manifest.json").read_text())
    assert manifest["launch"]["processes"] == 2
    log = "".join(path.read_text() for path in (folder / "runs" / "two" / "1-cold-start" / "logs").iterdir())
    assert "over 2 processes" in log
