"""A checkpoint is whole or is not used: each way in which one can be broken, and what is kept and deleted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from r1pipe.errors import TrainingError
from r1pipe.train.checkpoint import NEEDED, SEAL, check_space, fault_of, newest_whole, rotate, seal
from r1pipe.train.watch import Watch

SETTINGS = {"kl": 0.1, "steps": 8, "processes": 1, "lora": None}
MEMBERS = ("model.safetensors", *NEEDED, "rng_state.pth")


def make(folder: Path, step: int, sealed: bool = True, processes: int = 1) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    ranks = ["rng_state.pth"] if processes == 1 else [f"rng_state_{rank}.pth" for rank in range(processes)]
    for name in ("model.safetensors", *NEEDED, *ranks):
        (path / name).write_bytes(f"{name} of step {step}".encode() * 40)
    if sealed:
        seal(path, {**SETTINGS, "processes": processes})
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_is_missing_cut_or_changed_makes_a_resume_fall_back_with_a_notice(member: str, tmp_path: Path) -> None:
    old = make(tmp_path, 2)
    for spoil in (
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(path.read_bytes()[::-1]),
        lambda path: path.write_bytes(b""),
    ):
        new = make(tmp_path, 4)
        spoil(new / member)
        found, (notice,) = newest_whole(tmp_path, SETTINGS)
        assert found == old
        assert "checkpoint-4 is not whole" in notice
        assert member in notice
        shutil.rmtree(new)


@pytest.mark.parametrize("member", ["optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state.pth"])
def test_state_that_was_never_written_is_missed_although_the_seal_is_right(member: str, tmp_path: Path) -> None:
    path = make(tmp_path, 4, sealed=False)
    (path / member).unlink()
    seal(path, SETTINGS)
    assert fault_of(path) == f"{member} was never written"
    assert newest_whole(tmp_path, SETTINGS)[0] is None


def test_the_random_state_of_every_process_is_needed(tmp_path: Path) -> None:
    path = make(tmp_path, 4, processes=3)
    assert fault_of(path) == ""
    (path / "rng_state_2.pth").unlink()
    seal(path, {**SETTINGS, "processes": 3})
    assert fault_of(path) == "rng_state_2.pth was never written"


def test_an_empty_folder_and_a_torn_seal_are_no_checkpoints(tmp_path: Path) -> None:
    old = make(tmp_path, 2)
    torn = make(tmp_path, 4)
    (torn / SEAL).write_bytes((torn / SEAL).read_bytes()[:50])
    (tmp_path / "checkpoint-6").mkdir()
    found, notices = newest_whole(tmp_path, SETTINGS)
    assert found == old
    assert ["checkpoint-6" in notices[0], "checkpoint-4" in notices[1], "torn" in notices[1]] == [True] * 3


@pytest.mark.parametrize(
    "seal_text", ["{}", "[]", "null", '{"files": [], "belongs_to": {}}', '{"files": {"a": 1}, "belongs_to": {}}']
)
def test_a_seal_that_is_json_and_no_seal_is_torn(seal_text: str, tmp_path: Path) -> None:
    old, torn = make(tmp_path, 2), make(tmp_path, 4)
    (torn / SEAL).write_text(seal_text)
    found, notices = newest_whole(tmp_path, SETTINGS)
    assert (found, notices) == (old, ["checkpoint-4 is not whole (whole.json is torn); looking at the one before"])


def test_checkpoints_can_be_moved_with_their_run(tmp_path: Path) -> None:
    make(tmp_path / "here", 4)
    shutil.move(tmp_path / "here", tmp_path / "there")
    found, notices = newest_whole(tmp_path / "there", SETTINGS)
    assert (found, notices) == (tmp_path / "there" / "checkpoint-4", [])
    assert str(tmp_path) not in (tmp_path / "there" / "checkpoint-4" / SEAL).read_text()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("kl", 0.2, "kl: 0.1 -> 0.2"), ("processes", 2, "processes: 1 -> 2"), ("lora", {"rank": 4}, "lora: None -> {'rank': 4}")],
)
def test_other_settings_are_refused_by_name(key: str, value: object, said: str, tmp_path: Path) -> None:
    make(tmp_path, 4)
    with pytest.raises(TrainingError) as refused:
        newest_whole(tmp_path, {**SETTINGS, key: value})
    assert said in refused.value.problem


def test_rotation_keeps_the_newest_sealed_ones_and_the_last_good_one(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        make(tmp_path, step)
    make(tmp_path, 5, sealed=False)
    make(tmp_path, 10, sealed=False)  # being written
    rotate(tmp_path, 2, good_until=5)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-4", "checkpoint-6", "checkpoint-8"]
    rotate(tmp_path, 2)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-6", "checkpoint-8"]


def test_a_deletion_that_is_interrupted_leaves_nothing_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (2, 4):
        make(tmp_path, step)
    monkeypatch.setattr(shutil, "rmtree", lambda path: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError, match="killed"):
        rotate(tmp_path, 1)
    assert fault_of(tmp_path / "checkpoint-2") == f"{SEAL} is missing: its writing was interrupted"


def test_a_save_that_cannot_fit_is_not_begun_and_the_bytes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = make(tmp_path, 4)
    size = sum(path.stat().st_size for path in last.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size))
    with pytest.raises(TrainingError, match=f"{size:,} bytes free and the next checkpoint needs about {int(1.2 * size):,}"):
        check_space(tmp_path, last)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * size))
    check_space(tmp_path, last)


def test_checkpoints_fall_on_rollout_boundaries_whatever_interval_is_asked_for() -> None:
    def interval(every: int, boundary: int) -> int:
        return Watch("toy", Path(), 64, boundary, every, 2, {}, None, Path(), lambda: False, 0.0).interval  # type: ignore[arg-type]

    assert [interval(every, 4) for every in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 12]
    assert interval(3, 1) == 3


def test_the_seal_holds_the_size_and_digest_of_every_file(tmp_path: Path) -> None:
    record = json.loads((make(tmp_path, 4) / SEAL).read_text())
    assert set(record["files"]) == set(MEMBERS)
    assert all(len(entry["sha256"]) == 64 and entry["size"] > 0 for entry in record["files"].values())
