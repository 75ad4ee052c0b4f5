"""The record that a finished step leaves, and how two records are compared.

A step is done if and only if its manifest exists. It is written last, under a temporary name that is then renamed. Whether a
finished step still fits the recipe is decided by comparing settings key by key; the comparison is the message.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from r1pipe.errors import ArtifactError
from r1pipe.files import describe_os_error, sync_folder, write_atomic
from r1pipe.graph import Pipeline, section_of
from r1pipe.stage import ArtifactKind, Step

__all__ = [
    "ABSENT", "FORMAT", "Begun", "Change", "FileRecord", "InputRecord", "Manifest", "OutputRecord", "Record", "changes",
    "describe_os_error", "new_id", "read_begun", "read_manifest", "sync_folder", "to_json", "write_atomic",
]  # fmt: skip

FORMAT = 1
"""Version of the manifest's own layout."""

ABSENT = "(not set)"
"""Shown for the side of a change on which the key does not exist."""

R = TypeVar("R", bound="Record")

Change = tuple[str, Any, Any]
"""A dotted recipe key, its value then, its value now."""


class Record(BaseModel):
    """Base of what is stored: frozen; keys added by later versions are ignored on reading."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class FileRecord(Record):
    """One file of an output: its size in bytes and the SHA-256 of its content."""

    size: int
    sha256: str


class InputRecord(Record):
    """What a step read. `step` is "base" for the recipe's base model, which has no build; `model` then says which one."""

    step: str
    output: str = ""
    build: str = ""
    digest: str
    model: str = ""


class OutputRecord(Record):
    """What a step wrote: digest over all files, total size in bytes, and each file by its path below the output."""

    kind: ArtifactKind
    digest: str
    size: int
    files: dict[str, FileRecord]


class Manifest(Record):
    """The record of a finished step.

    Attributes:
        step, stage, makes: names, and the checkpoint's name in the paper when the step makes one.
        revision: the step's revision when it was made.
        settings: the slice of the recipe that decides what is made, in full (see `r1pipe.recipe.Recipe.settings`).
        seed: the run's seed.
        build: id minted at this commit; readers record it, and go stale when it changes.
        inputs, outputs: by name.
        summary: what the step itself reported.
        launch: processes, threads and so on; for the record only, never compared.
        versions: package -> version; commit: git commit of the working folder, if any.
        host, platform, device: where it was made.
        wall_seconds: of the attempt that finished; attempts: how many it took.
        peak_memory_bytes: largest resident size of the step's process; peak_device_bytes: the accelerator's, 0 without one.
        started, finished: ISO 8601, UTC; `started` of the first attempt.
    """

    format: Literal[1] = 1
    step: str
    stage: str
    makes: str = ""
    pipeline: str
    revision: int
    settings: dict[str, Any]
    seed: int
    build: str
    inputs: dict[str, InputRecord]
    outputs: dict[str, OutputRecord]
    summary: dict[str, Any]
    launch: dict[str, Any] = {}
    versions: dict[str, str] = {}
    commit: str = ""
    host: str = ""
    platform: str = ""
    device: str = "cpu"
    wall_seconds: float = 0.0
    attempts: int = 1
    peak_memory_bytes: int = 0
    peak_device_bytes: int = 0
    started: str = ""
    finished: str = ""


class Begun(Record):
    """What a step was begun with; written before its process starts, rewritten (same `id`) at each further attempt.

    Attributes:
        id: names this beginning; the result that a process hands over must carry it.
        attempt: counted from 1.
        settings, inputs: as in `Manifest`; the step's process works from these, not from the recipe.
        launch: as the process needs it, without its environment variables.
    """

    format: Literal[1] = 1
    id: str
    step: str
    pipeline: str
    attempt: int
    revision: int
    seed: int
    settings: dict[str, Any]
    inputs: dict[str, InputRecord]
    launch: dict[str, Any]
    host: str
    started: str


def new_id() -> str:
    """A fresh id for a build or a beginning."""
    return uuid.uuid4().hex


def to_json(record: BaseModel | Mapping[str, Any]) -> bytes:
    """Readable JSON, ending with a newline. Non-finite numbers are refused."""
    data = record.model_dump(mode="json") if isinstance(record, BaseModel) else dict(record)
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_manifest(path: Path, step: Step | None = None) -> Manifest:
    """A finished step's record.

    Raises:
        ArtifactError: the file is missing, torn, of another layout, or belongs to another step than `step`.
    """
    manifest = _read(path, Manifest, step.name if step else "STEP")
    if step is not None and manifest.step != step.name:
        raise ArtifactError(
            f"{path} belongs to step {manifest.step!r}, not to {step.name!r}", "was a folder copied or renamed by hand?"
        )
    return manifest


def read_begun(path: Path) -> Begun | None:
    """What a step was begun with; None when it was not begun. `ArtifactError` when the file is torn."""
    return _read(path, Begun) if path.is_file() else None


def _read(path: Path, model: type[R], step: str = "STEP") -> R:
    """Read and validate one of our records; `step` is named in the advice."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {describe_os_error(error)}", "check its rights and the disk") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is torn or not ours: {error}", f"r1pipe run-all --redo {step} makes it again") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise ArtifactError(f"{path} is not a record of this version of r1pipe (format {found!r}, wanted {FORMAT})")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ArtifactError(f"{path} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def changes(
    recorded: Mapping[str, Any], now: Mapping[str, Any], step: Step | None = None, pipeline: Pipeline | None = None
) -> list[Change]:
    """The settings that differ, as (dotted recipe key, then, now), in alphabetical order; empty when nothing does.

    Args:
        recorded: settings from a manifest or a beginning.
        now: settings from today's recipe.
        step, pipeline: when given, recorded sections are first read through today's models, so that a setting which did not
            exist then takes its default and does not count as a change.
    """
    then = _read_as_today(recorded, step, pipeline) if step is not None and pipeline is not None else dict(recorded)
    flat_then, flat_now = _flatten(then), _flatten(now)
    return [
        (key, flat_then.get(key, ABSENT), flat_now.get(key, ABSENT))
        for key in sorted(flat_then.keys() | flat_now.keys())
        if key not in flat_then or key not in flat_now or not _same(flat_then[key], flat_now[key])
    ]


def _read_as_today(recorded: Mapping[str, Any], step: Step, pipeline: Pipeline) -> dict[str, Any]:
    """The recorded settings with the defaults of settings that were added since."""
    result: dict[str, Any] = json.loads(json.dumps(recorded))
    models: dict[tuple[str, ...], type[BaseModel]] = {(name,): pipeline.shared[name] for name in step.shares}
    models[section_of(step)] = step.config
    for path, model in models.items():
        parent = result
        for part in path[:-1]:
            parent = parent.setdefault(part, {})
        parent[path[-1]] = _fill(parent.get(path[-1], {}), model)
    return result


def _fill(section: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """A recorded section through today's model; keys that are settings no longer stay, so that they show as a change."""
    known: dict[str, Any] = json.loads(json.dumps(section))
    dropped: list[tuple[tuple[Any, ...], Any]] = []
    while True:
        try:
            filled: dict[str, Any] = model.model_validate(known).model_dump(mode="json")
        except ValidationError as error:
            unknown = [tuple(e["loc"]) for e in error.errors() if e["type"] == "extra_forbidden"]
            removed = [(loc, value) for loc in unknown if (value := _pop(known, loc)) is not None]
            if not removed:
                return section  # a value that is not allowed any more: compared as it stands
            dropped += removed
            continue
        for loc, value in dropped:
            target = filled
            for part in loc[:-1]:
                target = target.setdefault(str(part), {})
            target[str(loc[-1])] = value[0]
        return filled


def _pop(tree: Any, loc: tuple[Any, ...]) -> tuple[Any] | None:
    """Take out the value at a location; None when the location does not exist as plain keys."""
    for part in loc[:-1]:
        if not isinstance(tree, dict) or part not in tree:
            return None
        tree = tree[part]
    return (tree.pop(loc[-1]),) if isinstance(tree, dict) and loc[-1] in tree else None


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def _same(then: Any, now: Any) -> bool:
    """Equal as settings: 1 and 1.0 are, True and 1 are not."""
    if isinstance(then, bool) or isinstance(now, bool):
        return then is now
    return bool(then == now)
