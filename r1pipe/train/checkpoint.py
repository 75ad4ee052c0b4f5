"""Checkpoints that are whole or are not used.

A trainer writes a checkpoint file by file, in place; a kill in the middle leaves a folder that looks like the newest
checkpoint and is none. So a checkpoint counts only when it is **sealed**: after everything is written, `seal` records size and
SHA-256 of every file, and the settings the state belongs to, in `whole.json`, written last by rename. `newest_whole` verifies
and falls back to the one before, saying so. What trainers leave out (the reference policy and the step of its last refresh) is
written into the checkpoint before the seal, so that a resumed run trains against the same reference.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r1pipe.artifact import file_record
from r1pipe.errors import TrainingError
from r1pipe.manifest import write_atomic

SEAL = "whole.json"
NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")
"""Members without which the trainer silently starts that part afresh. Random states are checked per process below."""


def step_of(checkpoint: Path) -> int:
    """The optimizer step of `checkpoint-N`."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoint folders, newest first, whole or not."""
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir() and path.name.rsplit("-", 1)[1].isdigit()]
    return sorted(found, key=step_of, reverse=True)


def seal(checkpoint: Path, belongs_to: Mapping[str, Any]) -> None:
    """Flush every file to disk, then record sizes, digests and what the state belongs to. Called last, by one process."""
    files = {}
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != SEAL):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        files[path.relative_to(checkpoint).as_posix()] = file_record(path).model_dump()
    record = {"step": step_of(checkpoint), "belongs_to": dict(belongs_to), "files": files}
    write_atomic(checkpoint / SEAL, json.dumps(record, indent=1, sort_keys=True).encode())


def fault_of(checkpoint: Path) -> str:
    """Why a checkpoint is not whole, in words; empty when it is."""
    try:
        record = json.loads((checkpoint / SEAL).read_text())
        entries, processes = record["files"].items(), int(record["belongs_to"].get("processes", 1))
        wanted = [(str(name), int(entry["size"]), str(entry["sha256"])) for name, entry in entries]
    except FileNotFoundError:
        return f"{SEAL} is missing: its writing was interrupted"
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"{SEAL} is torn"
    for name, size, sha256 in wanted:
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, recorded were {size}"
        if file_record(path).sha256 != sha256:
            return f"{name} has changed since it was written"
    random_states = ["rng_state.pth"] if processes == 1 else [f"rng_state_{rank}.pth" for rank in range(processes)]
    missing = [name for name in (*NEEDED, *random_states) if name not in record["files"]]
    return f"{', '.join(missing)} was never written" if missing else ""


def newest_whole(folder: Path, belongs_to: Mapping[str, Any]) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint, and a notice for each newer one that was passed over.

    Raises:
        TrainingError: when the checkpoint belongs to other settings, naming each key with both values.
    """
    notices = []
    for checkpoint in checkpoints(folder):
        if fault := fault_of(checkpoint):
            notices.append(f"{checkpoint.name} is not whole ({fault}); looking at the one before")
            continue
        recorded = json.loads((checkpoint / SEAL).read_text())["belongs_to"]
        differing = [
            f"  {key}: {recorded.get(key)!r} -> {belongs_to.get(key)!r}"
            for key in sorted({*recorded, *belongs_to})
            if recorded.get(key) != belongs_to.get(key)
        ]
        if differing:
            raise TrainingError(
                "\n".join([f"{checkpoint.name} belongs to other settings:", *differing]),
                "set them back, or redo the step with `r1pipe run-all --redo STEP`",
            )
        return checkpoint, notices
    return None, notices


def rotate(folder: Path, keep: int, good_until: int | None = None) -> None:
    """Delete sealed checkpoints beyond the newest `keep`, and every unsealed one older than the newest sealed one.

    Args:
        good_until: when a guard has begun to count, the last step before what it counts: the newest checkpoint up to there stays,
            however many bad ones come after it.
    """
    sealed = [path for path in checkpoints(folder) if (path / SEAL).is_file()]
    if not sealed:
        return
    newest = step_of(sealed[0])
    good = [path for path in sealed if good_until is not None and step_of(path) <= good_until][:1]
    for path in checkpoints(folder):
        if path in good:
            continue
        if path in sealed[keep:] or (path not in sealed and step_of(path) < newest):
            # the seal goes first: a deletion that is interrupted must not leave a folder that looks whole
            (path / SEAL).unlink(missing_ok=True)
            shutil.rmtree(path)


def check_space(folder: Path, last: Path | None) -> None:
    """Refuse to begin a save that cannot fit: the last checkpoint's size and a fifth more must be free (bytes).

    Raises:
        TrainingError: naming the bytes needed and free.
    """
    if last is None:
        return
    needed = int(1.2 * sum(path.stat().st_size for path in last.rglob("*") if path.is_file()))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TrainingError(
            f"the disk of {folder.name} has {free:,} bytes free and the next checkpoint needs about {needed:,}",
            "free some space, then `r1pipe resume`; the last checkpoint is kept",
        )
