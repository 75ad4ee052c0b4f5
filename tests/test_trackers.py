"""Experiment trackers: offline and in the step's folder by default, refused in words when they are not installed, and real
event files that are read back."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from cli_helpers import r1pipe

from r1pipe.errors import RecipeError
from r1pipe.launch import environment
from r1pipe.recipe import Launch
from r1pipe.trackers import PACKAGES, check_trackers, tracker_environment


def test_a_tracker_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError, match=r"no tracker 'tensorbord'(?s:.)*did you mean 'tensorboard'"):
        check_trackers(["tensorbord"])
    check_trackers([])


def test_a_tracker_that_is_not_installed_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "wandb", "no_such_package_here")
    done = r1pipe(tmp_path, "run-all", "--set", 'launch.report_to=["wandb"]')
    assert done.code == 2
    assert "no_such_package_here is not installed" in done.err
    assert "pip install no_such_package_here" in done.err
    assert not (tmp_path / "runs").exists()


def test_trackers_stay_on_this_machine_unless_the_launch_says_otherwise(tmp_path: Path) -> None:
    kept = tracker_environment(["wandb", "mlflow", "tensorboard"], tmp_path, offline=True)
    assert kept["WANDB_MODE"] == "offline"
    assert kept["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/trackers/mlflow.db"
    assert kept["TENSORBOARD_LOGGING_DIR"].startswith(str(tmp_path))
    open_to_the_web = tracker_environment(["wandb", "mlflow"], tmp_path, offline=False)
    assert "WANDB_MODE" not in open_to_the_web
    assert "MLFLOW_TRACKING_URI" not in open_to_the_web
    chosen = environment(Launch(env={"WANDB_MODE": "online"}), {}, kept)
    assert chosen["WANDB_MODE"] == "online"
    assert tracker_environment([], tmp_path, offline=True) == {}


SMALL = (
    "prepare.problems.count=60", "prepare.traces.count=24", "prepare.general.count=8", "prepare.general_traces.count=8",
    "prepare.pairs.count=8", "prepare.labels.count=8", "prepare.evaluation.count=8", "prepare.general_evaluation.count=8",
    "cold-start.epochs=1", "cold-start.batch=8", "launch.threads=1",
)  # fmt: skip


def trained(folder: Path, tracker: str) -> Path:
    """The folder of a tracker after a real training step with it."""
    if importlib.util.find_spec(PACKAGES[tracker]) is None:
        pytest.skip(f"{PACKAGES[tracker]} is not installed")
    sets = [word for one in (*SMALL, f'launch.report_to=["{tracker}"]') for word in ("--set", one)]
    done = r1pipe(folder, "run-all", "--until", "cold-start", "--plain", *sets, R1PIPE_PIPELINES="r1pipe.pipeline:load")
    assert done.code == 0, done.out + done.err
    return folder / "runs/nano/1-cold-start/trackers"


@pytest.mark.slow
def test_tensorboard_gets_the_numbers_of_every_step(tmp_path: Path) -> None:
    import json

    place = trained(tmp_path, "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(place / "tensorboard"))
    events.Reload()
    losses = events.Scalars("train/loss")
    lines = [json.loads(line) for line in (place.parent / "metrics.jsonl").read_text().splitlines()]
    expected = {line["step"]: line["loss"] for line in lines if line.get("kind") == "step"}
    assert {event.step: event.value for event in losses} == pytest.approx(expected, rel=1e-4)
    assert len(expected) > 1


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("tracker", "files"), [("wandb", "wandb/offline-run-*/*.wandb"), ("mlflow", "mlflow.db"), ("trackio", "trackio/*")]
)
def test_the_other_trackers_write_into_the_steps_folder(tmp_path: Path, tracker: str, files: str) -> None:
    place = trained(tmp_path, tracker)
    written = [path for path in place.glob(files) if path.stat().st_size > 0]
    assert written, sorted(str(path.relative_to(place)) for path in place.rglob("*"))
