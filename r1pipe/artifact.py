"""What an output must be before a step counts as done, and the digests by which artifacts are told apart."""

from __future__ import annotations

from pathlib import Path

from r1pipe.manifest import FileRecord, OutputRecord
from r1pipe.stage import ArtifactKind


def check_artifact(path: Path, kind: ArtifactKind, chat_template: bool = True) -> None:
    """Check that an output is whole.

    model: config.json, weights in safetensors (headers readable, files of full size, every shard of the index), tokenizer
    files, chat template. table: folder of part-*.parquet, each readable, at least one row in all. json: one JSON file.
    folder: a folder with at least one file. Symbolic links are refused: they would break when the run is moved.

    Raises:
        ArtifactError: names the file and what is wrong with it.
    """
    raise NotImplementedError


def digest_artifact(path: Path, kind: ArtifactKind) -> OutputRecord:
    """Sizes and SHA-256 of every file of an artifact, and one digest over all of them (names and contents, not times)."""
    raise NotImplementedError


def check_files(path: Path, record: OutputRecord, contents: bool = False) -> None:
    """Check that an artifact's files are there in their recorded sizes; with `contents`, that their digests agree too.

    Raises:
        ArtifactError: names the file, what was promised and what was found.
    """
    raise NotImplementedError


def base_files(folder: Path) -> list[Path]:
    """The files that make up a base model: configuration, safetensors weights, tokenizer, chat template; sorted."""
    raise NotImplementedError


def digest_base(folder: Path, cache: Path | None = None) -> str:
    """Identity of a base model: one digest over its files. Large files are hashed once and then known by size and time.

    Args:
        cache: JSON file that remembers digests (`RunDir.base_path`); written only when something was hashed anew.
    """
    raise NotImplementedError


def file_record(path: Path) -> FileRecord:
    """Size and SHA-256 of one file, read in pieces."""
    raise NotImplementedError
