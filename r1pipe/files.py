"""Writing files so that a crash leaves the old content or the new, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from r1pipe.errors import ArtifactError

DISK_FULL_EXIT = 74
"""Exit code of a step's process that found the disk full, when it may not even be able to write down why."""

NOTHING_FREE = 2**20
"""Bytes: less than this free is no space left."""


def write_atomic(path: Path, content: bytes, durable: bool = True) -> None:
    """Replace a file in one go: a reader, also one after a crash, sees the old content or the new, never a mixture.

    Args:
        durable: also wait until it is on the disk (file and folder), for records that later decisions rest on.

    Raises:
        ArtifactError: there is no space left, or the file system refused.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ArtifactError(
            f"{path} could not be written: {describe_os_error(error)}", "make room or mend the disk, then r1pipe resume"
        ) from error


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries (a rename, a removal) are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have no such call for folders
            raise
    finally:
        os.close(descriptor)


def is_disk_full(error: BaseException, folder: Path | None = None) -> bool:
    """Whether an error, or the one that caused it, says that there is no space left (or no quota, or that a file is too big).

    Args:
        folder: where was written; libraries that write weights have errors of their own, so the disk itself is looked at too.
    """
    cause = error.__cause__
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or (cause is not None and is_disk_full(cause)):
        return True
    if os.strerror(errno.ENOSPC) in str(error):  # DuckDB's errors are no OSError
        return True
    return folder is not None and folder.is_dir() and shutil.disk_usage(folder).free < NOTHING_FREE


def describe_os_error(error: OSError) -> str:
    """What went wrong, in words; disk-full errors say so."""
    if is_disk_full(error):
        return f"no space left ({error.strerror})"
    return error.strerror or str(error)
