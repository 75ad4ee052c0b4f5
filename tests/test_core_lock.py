"""The lock: one process at a time, and no lock that outlives its holder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from core_helpers import LOADER, Toy, drive, wait_for

from r1pipe import processes
from r1pipe.errors import StateError
from r1pipe.lock import describe_lock, hold, is_live, read_lock
from r1pipe.runner import execute

pytest_plugins = ("core_fixtures",)


def write_lock(path: Path, age: float = 0.0, **changes: Any) -> None:
    """A lock as another process would have written it so many seconds ago."""
    path.unlink(missing_ok=True)
    with hold(path):
        content = read_lock(path)
    path.write_text(json.dumps(content | {"token": "theirs"} | changes))
    os.utime(path, (time.time() - age, time.time() - age))


def gone_process() -> int:
    """The number of a process that does not exist any more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_lock_is_there_while_held_and_gone_after(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    with hold(path) as token:
        assert read_lock(path)["token"] == token
        assert read_lock(path)["pid"] == os.getpid()
        assert is_live(path)
    assert os.listdir(tmp_path) == []
    assert not is_live(path)


def test_a_live_holder_is_named_and_keeps_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    with hold(path) as token:
        with pytest.raises(StateError) as caught, hold(path):
            pass
        assert re.search(rf"being worked on: process {os.getpid()} on \S+, last heartbeat 0 s ago", caught.value.problem)
        assert read_lock(path)["token"] == token


def test_a_live_holder_on_this_machine_keeps_the_lock_however_old_its_heartbeat_is(tmp_path: Path) -> None:
    """A suspended laptop beats late; its process is still there."""
    path = tmp_path / "lock.json"
    write_lock(path, age=100_000)
    with pytest.raises(StateError, match="last heartbeat 1667 min ago"), hold(path):
        pass


@pytest.mark.parametrize("what", ["process ended", "its number was given to another"])
def test_a_lock_of_a_process_that_is_gone_is_taken_over_at_once_with_a_notice(tmp_path: Path, what: str) -> None:
    path = tmp_path / "lock.json"
    write_lock(path, **({"pid": gone_process()} if what == "process ended" else {"process_started": "1"}))
    notices: list[str] = []
    with hold(path, notices.append):
        assert read_lock(path)["token"] != "theirs"
    assert len(notices) == 1
    assert re.search(r"took over run \S+: process \d+ that held it is gone", notices[0])
    assert os.listdir(tmp_path) == []


def test_a_lock_of_another_machine_is_respected_for_ten_minutes(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    write_lock(path, age=590, host="other", machine="x")
    with pytest.raises(StateError, match=r"process \d+ on other, last heartbeat 10 min ago"), hold(path):
        pass
    write_lock(path, age=610, host="other", machine="x")
    notices: list[str] = []
    with hold(path, notices.append):
        pass
    assert "on other, last heartbeat 10 min ago" in notices[0]


def test_a_lock_from_before_a_restart_of_this_machine_is_taken_over_after_three_minutes(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    write_lock(path, age=100, machine="an earlier boot")
    with pytest.raises(StateError), hold(path):
        pass
    write_lock(path, age=200, machine="an earlier boot")
    with hold(path):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b'{"host": 5, "pid": [], "token": 7}'])
def test_a_damaged_lock_is_judged_by_its_age(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock.json"
    path.write_bytes(content)
    with pytest.raises(StateError), hold(path):
        pass
    os.utime(path, (1, 1))
    with hold(path):
        pass


def test_the_heartbeat_keeps_a_lock_fresh(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    with hold(path, beat=0.02):
        os.utime(path, (1, 1))
        wait_for(lambda: path.stat().st_mtime > 1, 20)


def test_a_lock_that_was_taken_away_is_neither_refreshed_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    with hold(path, beat=0.02):
        path.write_text('{"token": "theirs"}')
        os.utime(path, (1, 1))
        time.sleep(0.2)
        assert path.stat().st_mtime == 1
    assert read_lock(path) == {"token": "theirs"}


def test_of_many_that_want_an_abandoned_lock_one_gets_it(tmp_path: Path) -> None:
    for _ in range(20):
        path = tmp_path / "lock.json"
        write_lock(path, process_started="1")
        inside, most, refused = [0], [0], [0]
        start = threading.Barrier(8)

        def want(path: Path = path, inside: list[int] = inside, most: list[int] = most, refused: list[int] = refused,
                 start: threading.Barrier = start) -> None:  # fmt: skip
            start.wait()
            try:
                with hold(path):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    time.sleep(0.05)
                    inside[0] -= 1
            except StateError:
                refused[0] += 1

        threads = [threading.Thread(target=want) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most[0] == 1
        assert refused[0] <= 7
        assert os.listdir(tmp_path) == []


def test_a_second_runner_is_refused_while_the_first_works(toy: Toy) -> None:
    toy.set("work.double.fail=wait")
    runner = drive("toy")
    wait_for(toy.run.lock_path.exists)
    with pytest.raises(StateError, match=f"being worked on: process {runner.pid} on"):
        execute(toy.run, toy.pipeline, toy.recipe, loader=LOADER)
    assert str(runner.pid) in describe_lock(toy.run.lock_path)
    assert {place.state for place in toy.plan()} <= {"todo", "partial", "done"}  # looking needs no lock
    runner.terminate()
    runner.communicate(timeout=60)
    assert runner.returncode == 75


def test_a_step_whose_run_was_taken_over_ends(toy: Toy) -> None:
    toy.set("work.double.fail=wait")
    runner = drive("toy")
    wait_for(toy.path("work/double", "waiting").exists)
    worker = json.loads(toy.path("work/double", "worker.json").read_bytes())["pid"]
    toy.run.lock_path.write_text('{"token": "theirs", "host": "other"}')
    wait_for(lambda: not processes.started(worker), 20)
    output, _ = runner.communicate(timeout=60)
    assert runner.returncode == 1
    assert "StateError run demo was taken over by another process" in output
    assert read_lock(toy.run.lock_path)["token"] == "theirs"


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    since = processes.started(os.getpid())
    assert processes.alive(os.getpid(), since)
    assert not processes.alive(os.getpid(), "1")
    assert not processes.alive(gone_process(), since)
    child = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: not processes.started(child.pid), 10)  # a zombie counts as gone
    child.wait()
