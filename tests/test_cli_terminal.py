"""The live view on a real terminal (a pseudo one): what is drawn, that a model cannot draw, and Ctrl-C from the keyboard."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_helpers import environment, r1pipe

ALLOWED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""The sequences by which rich draws: colours, cursor movement, erasing."""


def on_a_terminal(
    folder: Path, arguments: list[str], act: Callable[[str], bytes], columns: int = 80, **extra: str
) -> tuple[str, int]:
    """Run a command on a terminal of its own.

    Args:
        act: given all output so far, returns what to type now.

    Returns:
        Everything that the terminal was sent, and the exit code.
    """
    process, master = pty.fork()
    if process == 0:
        os.chdir(folder)
        env = environment(folder, **extra)
        os.execvpe(sys.executable, [sys.executable, "-m", "r1pipe", *arguments], env)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    sent, deadline = b"", time.monotonic() + 300
    try:
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.2)[0]:
                continue
            try:
                chunk = os.read(master, 65536)
            except OSError:  # the other side is closed: the command has ended
                break
            if not chunk:
                break
            sent += chunk
            if typed := act(sent.decode("utf-8", "replace")):
                os.write(master, typed)
        else:
            os.kill(process, signal.SIGKILL)
            pytest.fail(f"still running: {sent[-500:]!r}")
    finally:
        os.close(master)
        _, status = os.waitpid(process, 0)
    return sent.decode("utf-8", "replace"), os.waitstatus_to_exitcode(status)


def nothing(_: str) -> bytes:
    return b""


def test_the_live_view_shows_the_chain_the_numbers_and_what_is_done(tmp_path: Path) -> None:
    assert r1pipe(tmp_path, "run-all", "--until", "cold-start").code == 0
    sent, code = on_a_terminal(tmp_path, ["run-all", "--until", "reasoning-rl"], nothing, R1PIPE_SCRIPTED_PAUSE="0.3")
    assert code == 0
    drawn = ALLOWED.sub("", sent)
    for words in (
        "▶ reasoning-rl → Dev2",
        "○ rejection-sft/sample",
        "of 12",
        "left",
        "accuracy",
        "no signal",
        "KL",
        "✓ reasoning-rl → Dev2",
    ):
        assert words in drawn, words
    assert "accuracy 0.25 → 0.80" in drawn
    assert "r1pipe resume nano" in drawn
    controls = {character for character in drawn if ord(character) < 32 and character not in "\r\n"}
    assert controls == set()
    assert "\\x1b]0;title\\x07" in drawn  # a model's attempt to name the window, shown as text
    assert "\u202e" not in drawn


def test_ctrl_c_on_the_keyboard_stops_and_resume_goes_on(tmp_path: Path) -> None:
    typed: list[float] = []

    def press(sent: str) -> bytes:
        if not typed and "step 2 of 8" in ALLOWED.sub("", sent):
            typed.append(time.monotonic())
            return b"\x03"
        return b""

    arguments = ["run-all", "--until", "cold-start"]
    sent, code = on_a_terminal(tmp_path, arguments, press, R1PIPE_SCRIPTED_PAUSE="0.5")
    assert typed
    assert code == 75
    drawn = ALLOWED.sub("", sent)
    assert "stopping cold-start at its next safe point; once more to stop now" in drawn
    assert "^C" not in drawn
    assert "r1pipe resume nano" in drawn.splitlines()[-1]
    sent, code = on_a_terminal(tmp_path, ["resume"], nothing, columns=140)
    assert code == 0
    drawn = ALLOWED.sub("", sent)
    assert "run nano goes on as it was asked to, until cold-start; r1pipe resume nano --until evaluate goes further" in drawn
    assert "resuming" in drawn
    assert "starting" not in drawn
    assert "✓ cold-start → Dev1" in drawn
    assert "2 of 9 steps done" in drawn


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    sent, code = on_a_terminal(tmp_path, ["run-all", "--until", "prepare"], nothing, TERM="dumb")
    assert code == 0
    assert "\x1b" not in sent
    assert "[1/9] prepare: begins" in sent
