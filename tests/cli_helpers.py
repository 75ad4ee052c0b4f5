"""Running the command line in tests, on a finished run of the scripted chain that is made once."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripted_chain import BASE_FOLDER, write_model

from r1pipe import console
from r1pipe.cli import main

TESTS = Path(__file__).parent
ROOT = TESTS.parent


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(folder: Path, **extra: str) -> dict[str, str]:
    """Settings of a child process: the scripted chain, runs below `folder`, a fixed width."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "COLUMNS", "R1PIPE_DEBUG", "NO_COLOR", "FORCE_COLOR")
    }
    return kept | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}",
        "R1PIPE_PIPELINES": "scripted_chain:load",
        BASE_FOLDER: str(base_model()),
        "R1PIPE_RUNS": str(folder / "runs"),
        "TERM": "xterm-256color",
        **extra,
    }


def r1pipe(folder: Path, *arguments: str, columns: int = 100, **extra: str) -> Done:
    """Run a command in this process, as if typed in `folder`, with its output going nowhere near a terminal."""
    wanted = environment(folder, COLUMNS=str(columns), **extra)
    encoding = wanted.get("PYTHONIOENCODING", "utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    before, place, streams = dict(os.environ), Path.cwd(), (sys.stdout, sys.stderr)
    console.forget()
    try:
        os.environ.clear()
        os.environ.update(wanted)
        os.chdir(folder)
        sys.stdout, sys.stderr = out, err
        try:
            main(list(arguments))
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.stdout, sys.stderr = streams
        os.chdir(place)
        os.environ.clear()
        os.environ.update(before)
        console.forget()
    return Done(code, *(_text(stream, encoding) for stream in (out, err)))


def _text(stream: io.TextIOWrapper, encoding: str) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(encoding)


def child(folder: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own and wait for it."""
    command = [sys.executable, "-m", "r1pipe", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment(folder, **extra), timeout=300, check=False
    )


@cache
def base_model() -> Path:
    """A base model's folder."""
    folder = _temporary() / "base"
    write_model(folder, 0)
    return folder


@cache
def finished_folder() -> Path:
    """A folder with a finished run "nano" in it; not to be changed."""
    folder = _temporary()
    done = r1pipe(folder, "run-all")
    assert done.code == 0, done.err
    return folder


def copy_of_finished(target: Path) -> Path:
    """The same, in a folder of one's own."""
    shutil.copytree(finished_folder() / "runs", target / "runs", symlinks=True)
    return target


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="r1pipe-cli-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
