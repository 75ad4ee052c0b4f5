"""Where and with what something was made: for the record, never compared."""

from __future__ import annotations

import datetime
import platform
import socket
import subprocess
from functools import cached_property

PACKAGES = (
    "r1pipe",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "datasets",
    "tokenizers",
    "safetensors",
    "numpy",
    "pyarrow",
    "sympy",
    "math-verify",
    "reasoning-gym",
    "vllm",
    "ray",
    "deepspeed",
)


class Provenance:
    """Facts about this machine and installation, each found out once, when it is first needed."""

    @cached_property
    def host(self) -> str:
        """Name of the machine."""
        return socket.gethostname()

    @cached_property
    def platform(self) -> str:
        """System and processor, e.g. "Linux x86_64"."""
        return f"{platform.system()} {platform.machine()}"

    @cached_property
    def versions(self) -> dict[str, str]:
        """Versions of Python and of the packages that decide results, as far as they are installed."""
        from importlib import metadata  # here, because reading commands need none of it

        found = {"python": platform.python_version()}
        for package in PACKAGES:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return found

    @cached_property
    def commit(self) -> str:
        """Git commit of the working folder, with "+" when tracked files differ from it; empty outside a repository."""
        commit = _git("rev-parse", "HEAD")
        return f"{commit}+" if commit and _git("status", "--porcelain", "--untracked-files=no") else commit


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    """Output of a git command; empty when there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
