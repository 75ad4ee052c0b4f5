"""The engine over a real Ray cluster of this machine, joined by its address: what fails is a row or is made again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from r1pipe.engines.base import Completion, Sampling, completion_seed
from r1pipe.errors import EngineError
from r1pipe.pipeline import locate_base

pytestmark = [pytest.mark.slow, pytest.mark.ray]

NANO = locate_base("nano")
ONE = Sampling()
FAULTY = "faulty_engine:open_engine"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that was there before: one head node, started from the command line as on a real cluster."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}", "--node-ip-address=127.0.0.1",
        "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=100000000",
    ]  # fmt: skip
    path = os.pathsep.join([*(str(Path(__file__).parents[up]) for up in (0, 1)), os.environ.get("PYTHONPATH", "")])
    log = tmp_path_factory.mktemp("ray") / "head.log"
    with log.open("wb") as output:
        head = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 240
        while "Ray runtime started" not in log.read_text():
            assert head.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        children = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        _, left = psutil.wait_procs([psutil.Process(head.pid), *children], timeout=15)
        for process in left:
            process.kill()


def answers(
    cluster: str, asked: list[str], sampling: Sampling = ONE, dtype: str = "float32", **options: int
) -> list[list[Completion]]:
    from r1pipe.engines.ray_engine import open_workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster)
        patch.setenv("R1PIPE_RAY", json.dumps({"block": 4, "cpus": 0.5, **options}))
        engine = open_workers(FAULTY, NANO, "", None, dtype)
    try:
        return list(engine.generate(asked, sampling))
    finally:
        engine.close()


def expected(asked: list[str], sampling: Sampling) -> list[list[str]]:
    return [
        [f"{question} {completion_seed(sampling, place, sample)}" for sample in range(sampling.samples)]
        for place, question in enumerate(asked)
    ]


def texts(found: list[list[Completion]]) -> list[list[str]]:
    return [[one.text for one in several] for several in found]


def test_workers_of_a_cluster_answer_in_order_however_many_there_are(cluster: str) -> None:
    asked, sampling = [f"q{n}" for n in range(18)], Sampling(2, seed=3)
    one = answers(cluster, asked, sampling, workers=1)
    assert texts(one) == expected(asked, sampling)
    assert one[0][0] == Completion(expected(asked, sampling)[0][0], 3, "stop", ids=(5, 6, 1), log_probs=(-0.1,) * 3)
    assert answers(cluster, asked, sampling, workers=2, block=5) == one


def test_a_worker_that_dies_once_costs_nothing(cluster: str, tmp_path: Path) -> None:
    asked = [*(f"q{n}" for n in range(6)), f"die once {tmp_path / 'died'}", *(f"q{n}" for n in range(7, 12))]
    found = answers(cluster, asked, workers=2)
    assert (tmp_path / "died").exists()
    assert texts(found) == expected(asked, Sampling())


def test_a_question_that_ends_its_worker_each_time_is_a_row_and_takes_nobody_along(cluster: str) -> None:
    asked = [*(f"q{n}" for n in range(5)), "die", *(f"q{n}" for n in range(6, 12))]
    found = answers(cluster, asked, Sampling(2), workers=1)
    assert [(one.finish, one.note) for one in found[5]] == [("error", "its worker died each time")] * 2
    wanted = expected(asked, Sampling(2))
    assert [texts(found)[place] for place in range(12) if place != 5] == [wanted[place] for place in range(12) if place != 5]


def test_what_an_engine_raises_is_written_into_the_rows_of_its_block(cluster: str) -> None:
    asked = ["q0", "q1", "q2", "q3", "raise", "q5", "q6", "q7", "q8"]
    found = answers(cluster, asked, workers=1)
    bad = [place for place, several in enumerate(found) if several[0].finish == "error"]
    assert bad == [4]
    assert "RuntimeError: no answer to 'raise'" in found[4][0].note


def test_a_worker_that_has_nothing_left_to_do_does_not_end_the_others(cluster: str) -> None:
    asked = ["wait 3", *(f"q{n}" for n in range(1, 9))]
    assert texts(answers(cluster, asked, workers=2, block=1)) == expected(asked, Sampling())


def test_nothing_answered_at_all_is_an_error(cluster: str) -> None:
    with pytest.raises(EngineError, match="no worker answered anything"):
        answers(cluster, ["raise a", "raise b"], workers=1)


def test_workers_that_cannot_open_their_engine_end_the_step(cluster: str) -> None:
    with pytest.raises(EngineError, match="cannot be opened"):
        answers(cluster, ["q"], dtype="bfloat16", workers=1)


def test_nobody_at_the_address_is_an_error_that_names_it() -> None:
    with pytest.raises(EngineError, match=r"RAY_ADDRESS=127\.0\.0\.1:9"):
        answers("127.0.0.1:9", ["q"])


@pytest.mark.parametrize("text", ["[1]", "{", '{"worker": 2}'])
def test_options_that_are_none_are_refused(text: str) -> None:
    from r1pipe.engines.ray_engine import read_options

    with pytest.raises(EngineError, match="R1PIPE_RAY"):
        read_options({"R1PIPE_RAY": text})
