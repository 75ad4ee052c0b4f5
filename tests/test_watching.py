"""Watching a run: in the terminal while another process works on it, and as a page on this machine's own address."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import copy_of_finished, environment, finished_folder, r1pipe
from scripted_chain import PAUSE

from r1pipe.errors import StateError
from r1pipe.report.serve import PATIENCE, Pages, Server, open_server


def test_a_finished_run_says_so_and_what_to_type() -> None:
    done = r1pipe(finished_folder(), "watch", "nano")
    assert done.code == 0, done.err
    assert "run nano is finished: r1pipe report nano" in done.err


def test_a_run_that_works_elsewhere_is_followed_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "r1pipe", "run-all", "--until", "cold-start"]
    wanted = environment(tmp_path, **{PAUSE: "0.2"})
    with subprocess.Popen(command, cwd=tmp_path, env=wanted, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as working:
        deadline = time.monotonic() + 120
        while not (tmp_path / "runs/nano/lock.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        seen = r1pipe(tmp_path, "watch", "nano", "--plain")
        assert working.wait(timeout=120) == 0
    assert "[2/9] cold-start -> Dev1: done in" in seen.out
    assert "loss 2.50 → 0.31" in seen.out
    assert seen.code == 1
    assert "7 steps are left: r1pipe resume nano" in seen.err


# --- the page


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name, found in environment(finished_folder()).items():
        monkeypatch.setenv(name, found)
    with open_server(0, Pages(finished_folder() / "runs/nano")) as opened:
        thread = threading.Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()


def asked(server: Server, path: str, host: str = "") -> tuple[int, str, str]:
    request = urllib.request.Request(server.url.rstrip("/") + path, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["Content-Type"]


def test_the_page_is_served_to_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, page, kind = asked(server, "/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert "run nano" in page
    assert "connect-src 'self'" in page
    assert asked(server, "/version")[1] == asked(server, "/version")[1] != ""
    assert asked(server, "/", "evil.example:80")[0] == 403
    assert asked(server, "/", f"localhost:{server.server_port}")[0] == 200
    assert asked(server, "/../recipe.toml")[0] == 404


def test_a_port_that_is_taken_is_named(server: Server) -> None:
    with pytest.raises(StateError, match=f"port {server.server_port}"):
        open_server(server.server_port, server.pages)


def test_the_page_changes_with_the_run_but_not_all_the_time(tmp_path: Path) -> None:
    copy_of_finished(tmp_path)
    run, now = tmp_path / "runs/nano", [100.0]
    pages = Pages(run, clock=lambda: now[0])
    first = pages.version()
    with (run / "2-reasoning-rl/metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "step", "step": 99, "kl": 0.5}\n')
    assert pages.version() == first
    now[0] += PATIENCE
    assert pages.version() != first


def test_a_run_that_cannot_be_read_is_an_answer_and_not_a_crash(server: Server, tmp_path: Path) -> None:
    server.pages = Pages(tmp_path / "gone")
    status, words, kind = asked(server, "/")
    assert status == 503
    assert "gone" in words
    assert kind.startswith("text/plain")
