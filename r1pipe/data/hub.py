"""Data sets of the Hugging Face hub as rows: `hf:owner/name`, at one commit.

`datasets` finds out which files make up a split and fetches them, once; they are read by `r1pipe.data.readers`, because the
library's own JSON reader guesses types (a column of dates becomes timestamps, "007" beside a bare number becomes 7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1pipe.data.jsonl import OnBad
from r1pipe.data.readers import KINDS, read_rows
from r1pipe.data.sources import HUB as PREFIX
from r1pipe.errors import DataError

COMMIT = re.compile(r"[0-9a-f]{40}")
_PACKED = (".gz", ".zst", ".bz2", ".xz")


@dataclass(frozen=True, slots=True)
class Hub:
    """Which rows of a data set.

    Attributes:
        name: "owner/name", or a folder of this machine that is laid out in the same way.
        revision: the commit; anything else moves.
        subset: the data set's configuration; empty for its default.
        split: e.g. "train".
    """

    name: str
    revision: str = ""
    subset: str = ""
    split: str = "train"


def hub_rows(hub: Hub, bad: OnBad | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) for every row of the split, file by file.

    Raises:
        DataError: no commit is named, or the data set cannot be fetched or read.
    """
    refuse_unpinned(hub)
    for name, path, kind in files_of(hub)[1]:
        shown = f"{PREFIX}{hub.name} {name}"
        for where, row in read_rows(path, _renamed(bad, path, shown), kind):
            yield where.replace(str(path), shown, 1), row


def _renamed(bad: OnBad | None, path: Path, shown: str) -> OnBad | None:
    """Tell of a bad row by the file's name in the data set, not by that of its copy."""
    if bad is None:
        return None
    told = bad
    return lambda where, why, row: told(where.replace(str(path), shown, 1), why, row)


def refuse_unpinned(hub: Hub) -> None:
    """Refuse what is not one commit; a folder of this machine has none and is taken as it is.

    Raises:
        DataError: with the command that says which commit is the newest.
    """
    if not COMMIT.fullmatch(hub.revision) and not Path(hub.name).expanduser().is_dir():
        raise DataError(
            f"{PREFIX}{hub.name} needs a commit, not {hub.revision!r}: what a branch holds changes under a finished run",
            f'set revision = "…" (40 hex digits); `r1pipe data preview {PREFIX}{hub.name}` says which commit is the newest',
        )


def files_of(hub: Hub) -> tuple[str, list[tuple[str, Path, str]]]:
    """The commit that the revision means now, and the files of the split: name in the data set, copy here, kind.

    Raises:
        DataError: it cannot be fetched, there is no such split, or its files are of another kind.
    """
    import datasets

    folder = Path(hub.name).expanduser()
    try:
        builder = datasets.load_dataset_builder(
            str(folder) if folder.is_dir() else hub.name, hub.subset or None, revision=hub.revision or None
        )
        files: dict[str, list[str]] = {str(split): list(map(str, found)) for split, found in builder.config.data_files.items()}
        if hub.split not in files:
            raise DataError(f"{PREFIX}{hub.name} has no split {hub.split!r}", f"its splits: {', '.join(files)}; set split = …")
        odd = next((name for name in files[hub.split] if _kind(name) is None), None)
        if odd is not None:
            raise DataError(
                f"{PREFIX}{hub.name}: {odd} is none of {', '.join(KINDS)}", "convert the data set, or name one of its files"
            )
        copies = datasets.DownloadManager(dataset_name=builder.dataset_name).download_and_extract(files[hub.split])
    except (OSError, ValueError) as error:
        raise DataError(
            f"{PREFIX}{hub.name} at {hub.revision or 'its newest commit'} cannot be fetched: {str(error).splitlines()[0][:300]}",
            "check name, revision and subset; a step uses the network only with [launch] offline = false",
        ) from error
    names = [_short(name, folder) for name in files[hub.split]]
    commits = {found[1] for name in files[hub.split] if (found := re.search(r"@([0-9a-f]{40})/", name))}
    commit = commits.pop() if len(commits) == 1 else ""
    return commit, [(name, Path(copy), _kind(name) or "") for name, copy in zip(names, copies, strict=True)]


def _short(name: str, folder: Path) -> str:
    """A file's name inside the data set."""
    if name.startswith("hf://"):
        return re.sub(r"^hf://datasets/[^@]+@[^/]+/", "", name)
    path = Path(name)
    return path.relative_to(folder.resolve()).as_posix() if path.is_relative_to(folder.resolve()) else path.name


def _kind(name: str) -> str | None:
    """How a file is read, by its name without the ending of a packer."""
    bare = name
    for ending in _PACKED:
        bare = bare.removesuffix(ending)
    return KINDS.get(Path(bare).suffix.lower())
