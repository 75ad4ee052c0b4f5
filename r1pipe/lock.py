"""One process at a time works on a run: a lock file with a heartbeat, taken over when its holder is gone.

The file appears with its content in one go (a link), so nobody reads half a lock. A holder on this machine is judged by its
process; a holder elsewhere by the age of its last heartbeat, which needs clocks that agree to within minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r1pipe.errors import ArtifactError, StateError
from r1pipe.manifest import describe_os_error
from r1pipe.processes import alive, machine, started

BEAT_SECONDS = 60.0
PATIENCE_SECONDS = 600.0


@contextmanager
def hold(
    path: Path,
    notice: Callable[[str], None] = lambda line: None,
    beat: float = BEAT_SECONDS,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[str]:
    """Hold the lock for the length of a `with` block; yields its token.

    Args:
        notice: told when an abandoned lock is taken over.
        beat: seconds between heartbeats.
        patience: seconds without a heartbeat after which a lock from another machine counts as abandoned.

    Raises:
        StateError: another live process holds it; names host, process and age of the last heartbeat.
    """
    token = _acquire(path, notice, patience)
    over = threading.Event()
    heart = threading.Thread(target=_beat, args=(path, token, beat, over), name="lock-heartbeat", daemon=True)
    heart.start()
    try:
        yield token
    finally:
        over.set()
        heart.join()
        if read_lock(path).get("token") == token:
            path.unlink(missing_ok=True)


def read_lock(path: Path) -> dict[str, Any]:
    """What a lock says; empty when there is none or it cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def check_held(path: Path, token: str) -> None:
    """Check that the lock is still ours.

    Raises:
        StateError: another process took it over meanwhile (this one must have been silent for too long), or it was removed.
    """
    if read_lock(path).get("token") != token:
        raise StateError(
            f"run {path.parent.name} was taken over by another process: {describe_lock(path) or 'the lock is gone'}",
            "nothing was committed; let the other process finish, then r1pipe resume",
        )


def describe_lock(path: Path) -> str:
    """Who holds a lock and since when, for people; empty when nobody does."""
    lock, age = read_lock(path), _age(path)
    if age is None:
        return ""
    return f"process {lock.get('pid', '?')} on {lock.get('host', '?')}, last heartbeat {_words(age)} ago"


def is_live(path: Path, patience: float = PATIENCE_SECONDS) -> bool:
    """Whether a lock is there and its holder still works."""
    return _abandoned(path, patience) is None and path.exists()


def _acquire(path: Path, notice: Callable[[str], None], patience: float) -> str:
    """Get the lock or raise `StateError`; returns the token."""
    token = uuid.uuid4().hex
    content = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started": started(os.getpid()),
        "machine": machine(),
        "token": token,
    }
    temporary = path.with_name(f".{path.name}.{token}.tmp")
    try:
        with _alone(path.parent):
            temporary.write_text(json.dumps(content))
            _take(path, temporary, token, notice, patience)
            for stray in path.parent.glob(f".{path.name}.*.tmp"):  # ours, and what a kill left in this very place
                stray.unlink(missing_ok=True)
    except OSError as error:
        raise ArtifactError(f"{path} could not be written: {describe_os_error(error)}", "make room or mend the disk") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if read_lock(path).get("token") != token:  # another process took the same abandoned lock in the same moment
        raise StateError(f"run {path.parent.name} was taken by another process: {describe_lock(path)}", "wait for it")
    return token


def _take(path: Path, temporary: Path, token: str, notice: Callable[[str], None], patience: float) -> None:
    """Put the prepared lock in place, in the place of an abandoned one if need be."""
    for _ in range(10):
        if _create(temporary, path):
            return
        before = read_lock(path).get("token")
        reason = _abandoned(path, patience)
        if reason is not None:
            if _remove(path, before, token):
                notice(f"took over run {path.parent.name}: {reason}")
        elif path.exists():  # else it was given back between two looks
            raise StateError(
                f"run {path.parent.name} is being worked on: {describe_lock(path)}",
                f"wait, or stop that process; if you are sure that it is gone, remove {path}",
            )
    raise StateError(f"{path} changes hands too fast", "try again")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process of this machine at a time in the `with` block, so that two do not take over the same lock.

    Between machines, and on file systems that cannot do this, `check_held` finds out who lost before anything is committed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create(temporary: Path, path: Path) -> bool:
    """Put the prepared lock in place unless there is one."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with open(descriptor, "wb") as file:
            file.write(temporary.read_bytes())
    os.utime(path)
    return True


def _remove(path: Path, before: str | None, token: str) -> bool:
    """Remove an abandoned lock; puts it back when it turns out to be a fresh one."""
    aside = path.with_name(f".{path.name}.{token}.old.tmp")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False
    fresh = read_lock(aside).get("token") != before
    if fresh:
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink()
    return not fresh


def _abandoned(path: Path, patience: float) -> str | None:
    """Why a lock counts as abandoned; None when it does not (or is not there)."""
    lock, age = read_lock(path), _age(path)
    if age is None:
        return None
    here = lock.get("host") == socket.gethostname()
    if here and lock.get("machine") == machine():
        holder = lock.get("pid")
        if isinstance(holder, int) and alive(holder, str(lock.get("process_started"))):
            return None
        return f"process {holder} that held it is gone"
    # the same name, but another boot or another container: a live holder there would have beaten within three minutes
    limit = min(patience, 3 * BEAT_SECONDS) if here else patience
    return f"{describe_lock(path)}" if age > limit else None


def _age(path: Path) -> float | None:
    """Seconds since the last heartbeat; None when there is no lock."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return None


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _beat(path: Path, token: str, beat: float, over: threading.Event) -> None:
    """Refresh the lock's time until it is given back, or is not ours any more."""
    while not over.wait(beat):
        if read_lock(path).get("token") == token:
            with contextlib.suppress(OSError):  # a file system that hiccups; the next beat tries again
                os.utime(path)
