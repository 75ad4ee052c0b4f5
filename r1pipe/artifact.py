"""What an output must be before a step counts as done, and the digests by which artifacts are told apart."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from r1pipe.errors import ArtifactError
from r1pipe.manifest import FileRecord, OutputRecord, to_json, write_atomic
from r1pipe.stage import ArtifactKind

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json", "tiktoken.model")
"""A model folder must hold one of these."""

BASE_FILES = (
    "*.safetensors", "*.safetensors.index.json", "*config.json", "*.model", "*.jinja", "*.py",
    "tokenizer*.json", "vocab*", "merges.txt", "*_tokens*.json", "chat_template*", "tekken.json",
)  # fmt: skip
"""What is loaded from a base model's folder; notes and other formats beside it are not part of its identity."""

SMALL_BASE = 32 * 1024 * 1024
"""A base model or an input of fewer bytes is hashed every time; a larger base is known by its files' sizes and times."""


GIVE_TEMPLATE = (
    "add chat_template.jinja to its folder; for a base model --set chat.template=built-in gives it one of r1pipe's, "
    "--set chat.template=FILE one of yours"
)
"""What to do about a model without a chat template."""


def check_artifact(path: Path, kind: ArtifactKind, chat_template: bool = True) -> None:
    """Check that an output is whole.

    model: config.json, weights in safetensors (headers readable, files of full size, every shard of the index), tokenizer
    files, chat template. table: folder of part-*.parquet, each readable, at least one row in all. json: one JSON file.
    folder: a folder with at least one file. Symbolic links are refused: they would break when the run is moved.

    Raises:
        ArtifactError: names the file and what is wrong with it.
    """
    if not path.exists():
        raise ArtifactError(f"{path} is missing")
    if kind == "json":
        _read_json(path)
        return
    if not path.is_dir():
        raise ArtifactError(f"{path} is a file, where a folder is expected")
    files = _files(path)
    if not files:
        raise ArtifactError(f"{path} is empty")
    if kind == "table":
        _check_table(path)
    elif kind == "model":
        check_model(path, chat_template)


def check_model(folder: Path, chat_template: bool = True) -> None:
    """Check that a folder holds a whole model: see `check_artifact`.

    Args:
        chat_template: whether one is needed; a base model may lack it.
    """
    _read_json(folder / "config.json")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = _read_json(index).get("weight_map", {})
        if not isinstance(shards, Mapping) or not shards:
            raise ArtifactError(f"{index} names no weights")
        weights = sorted({folder / str(name) for name in shards.values()})
    else:
        weights = [folder / "model.safetensors"]
    for file in weights:
        check_safetensors(file)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ArtifactError(f"{folder} has no tokenizer (one of {', '.join(TOKENIZER_FILES)})")
    settings = _read_json(folder / "tokenizer_config.json")
    if chat_template and not (folder / "chat_template.jinja").is_file() and not settings.get("chat_template"):
        raise ArtifactError(f"{folder} has no chat template (chat_template.jinja, or in tokenizer_config.json)", GIVE_TEMPLATE)


def check_safetensors(file: Path) -> None:
    """Check that a weights file is whole: its header can be read, and it is as long as the header says.

    Raises:
        ArtifactError: names the file and both sizes.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
            if not 0 < length <= size - 8:
                raise ArtifactError(f"{file} is torn: {size} bytes do not hold its header")
            header = json.loads(stream.read(length))
    except FileNotFoundError:
        raise ArtifactError(f"{file} is missing") from None
    except ValueError as error:
        raise ArtifactError(f"{file} is torn or not safetensors: {error}") from error
    try:
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise ArtifactError(f"{file} is not safetensors: its header does not describe tensors") from error
    if not ends:
        raise ArtifactError(f"{file} holds no tensors")
    promised = 8 + length + max(ends)
    if promised != size:
        raise ArtifactError(f"{file} is torn: {size} bytes, where its header promises {promised}")


def table_rows(folder: Path) -> int:
    """Number of rows of a table, from the footers of its parts.

    Raises:
        ArtifactError: there is no part, or one cannot be read.
    """
    import pyarrow.parquet

    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise ArtifactError(f"{folder} has no part-*.parquet")
    rows = 0
    for part in parts:
        try:
            rows += pyarrow.parquet.read_metadata(part).num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise ArtifactError(f"{part} is torn or not Parquet: {str(error).splitlines()[0]}") from error
    return rows


def digest_artifact(path: Path, kind: ArtifactKind) -> OutputRecord:
    """Sizes and SHA-256 of every file of an artifact, and one digest over all of them (names and contents, not times)."""
    files = _records(path, _files(path)) if path.is_dir() else {path.name: file_record(path)}
    return OutputRecord(kind=kind, digest=digest_of(files), size=sum(record.size for record in files.values()), files=files)


def check_files(path: Path, record: OutputRecord, contents: bool = False) -> None:
    """Check that an artifact's files are there in their recorded sizes; with `contents`, that their digests agree too.

    Raises:
        ArtifactError: names the file, what was promised and what was found.
    """
    for name, promised in record.files.items():
        file = path / name if path.is_dir() else path
        if not file.is_file():
            raise ArtifactError(f"{file} is missing; its manifest promises {promised.size} bytes")
        size = file.stat().st_size
        if size != promised.size:
            raise ArtifactError(f"{file} has {size} bytes; its manifest promises {promised.size}")
        if contents and (found := file_record(file)).sha256 != promised.sha256:
            raise ArtifactError(f"{file} was altered: SHA-256 {found.sha256[:12]}, its manifest promises {promised.sha256[:12]}")
    if contents and path.is_dir():
        found_now = {file.relative_to(path).as_posix() for file in _files(path) if not file.name.startswith(".")}
        extra = found_now - record.files.keys()  # hidden files, which file browsers leave behind, are loaded by nothing
        if extra:
            raise ArtifactError(f"{path / min(extra)} is not in its manifest")


def base_files(folder: Path) -> list[Path]:
    """The files that make up a base model: configuration, safetensors weights, tokenizer, chat template; sorted."""
    return sorted(
        file
        for file in folder.iterdir()
        if not file.name.startswith(".") and file.is_file() and any(fnmatch(file.name, pattern) for pattern in BASE_FILES)
    )


def digest_base(folder: Path, cache: Path | None = None, write_cache: bool = True) -> str:
    """Identity of a base model: one digest over its files. Large models are hashed once and then known by size and time.

    Args:
        cache: JSON file that remembers digests (`RunDir.base_path`).
        write_cache: whether to remember what was hashed anew.

    Raises:
        ArtifactError: the folder holds no model, or one with quantised weights.
    """
    files = base_files(folder)
    if not any(file.suffix == ".safetensors" for file in files):
        raise ArtifactError(
            f"base model {folder}: there are no safetensors weights", "r1pipe reads no pickled weights (.bin, .pt)"
        )
    if (method := _quantisation(folder / "config.json")) is not None:
        raise ArtifactError(
            f"base model {folder} is quantised ({method})",
            "training would round its weights, and adapters could not be merged into them; name the model that it was made from",
        )
    stats = {file.name: file.stat() for file in files}
    large = sum(stat.st_size for stat in stats.values()) >= SMALL_BASE
    known = _read_cache(cache) if cache is not None and large else {}
    records: dict[str, FileRecord] = {}
    for file in files:
        entry, stat = known.get(file.name), stats[file.name]
        if entry is not None and (entry.get("size"), entry.get("mtime_ns")) == (stat.st_size, stat.st_mtime_ns):
            records[file.name] = FileRecord(size=stat.st_size, sha256=str(entry.get("sha256")))
    missing = [file for file in files if file.name not in records]
    records |= _records(folder, missing)
    if missing and large and cache is not None and write_cache:
        entries = {name: {**records[name].model_dump(), "mtime_ns": stats[name].st_mtime_ns} for name in sorted(records)}
        write_atomic(cache, to_json({"format": 1, "files": entries}))
    return digest_of(records)


def file_record(path: Path) -> FileRecord:
    """Size and SHA-256 of one file, read in pieces."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(size=os.fstat(file.fileno()).st_size, sha256=digest)


def digest_of(files: Mapping[str, FileRecord]) -> str:
    """One digest over names, sizes and contents."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{files[name].size}\0{files[name].sha256}\n".encode())
    return digest.hexdigest()


def sync_artifact(path: Path) -> None:
    """Wait until an artifact's files are on the disk."""
    from r1pipe.manifest import sync_folder

    for file in _files(path) if path.is_dir() else [path]:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    for folder in {file.parent for file in _files(path)} if path.is_dir() else {path.parent}:
        sync_folder(folder)


def _files(folder: Path) -> list[Path]:
    """Every file below a folder, sorted; symbolic links are refused."""
    found: list[Path] = []
    for entry in sorted(folder.rglob("*")):
        if entry.is_symlink():
            raise ArtifactError(f"{entry} is a symbolic link; it would break when the run is moved", "write the file itself")
        if entry.is_file():
            found.append(entry)
    return found


def _records(root: Path, files: Iterable[Path]) -> dict[str, FileRecord]:
    """Records of several files; large ones hashed side by side (hashing releases the interpreter)."""
    paths = list(files)
    if sum(path.stat().st_size for path in paths) < SMALL_BASE:  # threads would take longer to load than to help
        return {path.relative_to(root).as_posix(): file_record(path) for path in paths}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=min(8, len(paths)) or 1) as pool:
        return {
            path.relative_to(root).as_posix(): record for path, record in zip(paths, pool.map(file_record, paths), strict=True)
        }


def _check_table(folder: Path) -> None:
    if table_rows(folder) == 0:
        raise ArtifactError(f"{folder} has no rows")


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object (an empty one for other JSON values)."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except ValueError as error:
        raise ArtifactError(f"{path} is torn or not JSON: {error}") from error
    return data if isinstance(data, dict) else {}


def _quantisation(config: Path) -> str | None:
    """How a model's weights are quantised, by its config.json; None when they are not."""
    said = _read_json(config).get("quantization_config") if config.is_file() else None
    return str(said.get("quant_method", "by a method that it does not name")) if isinstance(said, dict) else None


def _read_cache(path: Path) -> dict[str, dict[str, Any]]:
    """What is remembered of a base model's files; nothing when there is no cache. It is only ever a short cut."""
    try:
        files = json.loads(path.read_bytes()).get("files", {})
    except (FileNotFoundError, ValueError, AttributeError):
        return {}
    return files if isinstance(files, dict) else {}
