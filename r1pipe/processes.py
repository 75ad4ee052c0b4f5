"""Telling processes apart: who is alive, who only has the same number, who was left over."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def machine() -> str:
    """Identity of this boot of this machine, and of the process namespace: process numbers mean something only within it."""
    parts = [_read(PROC / "sys/kernel/random/boot_id"), _link(PROC / "self/ns/pid")]
    return ":".join(parts) if any(parts) else sys.platform


def started(process: int) -> str:
    """When a process started, as an opaque text; empty when there is no such live process (a zombie counts as gone)."""
    if sys.platform == "linux":
        try:
            stat = (PROC / str(process) / "stat").read_bytes()
        except OSError:
            return ""
        fields = stat[stat.rindex(b")") + 2 :].split()  # the name in brackets may hold anything, also brackets
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    import psutil

    try:
        found = psutil.Process(process)
        return "" if found.status() == psutil.STATUS_ZOMBIE else f"{found.create_time():.1f}"
    except psutil.Error:
        return ""


def alive(process: int, since: str) -> bool:
    """Whether that very process still runs: same number, same start."""
    return bool(since) and started(process) == since


def marked(variable: str, value: str) -> list[int]:
    """Processes of this user, except this one, that were started with an environment variable of that value."""
    needle = f"{variable}={value}"
    if sys.platform != "linux":
        import psutil

        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(variable) == value and process.pid != os.getpid():
                    found.append(process.pid)
            except (psutil.Error, OSError):
                continue  # gone meanwhile, or another user's
        return found
    return [pid for pid in _numbers() if pid != os.getpid() and needle.encode() in _environment(pid)]


def end(processes: Iterable[int], wait: float = 10.0) -> list[int]:
    """End processes at once (SIGKILL) and wait until they are gone; returns those that were there."""
    ended = []
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
            ended.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    deadline = time.monotonic() + wait
    while any(started(process) for process in ended) and time.monotonic() < deadline:
        time.sleep(0.01)
    return ended


def _numbers() -> list[int]:
    return [int(entry) for entry in os.listdir(PROC) if entry.isdigit()]


def _environment(process: int) -> list[bytes]:
    """The environment that a process was started with; empty when it may not be read."""
    try:
        return (PROC / str(process) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
