"""The scoring service: limits, order, threads, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from r1pipe.errors import EngineError
from r1pipe.rewards.service import Outcome, Pool, overlapped


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(size=2)
    yield made
    made.close()


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_results_come_back_in_the_order_of_the_tasks(pool: Pool) -> None:
    outcomes = pool.map("math:factorial", [(number,) for number in range(30)])
    assert [outcome.value for outcome in outcomes[:5]] == [1, 1, 2, 6, 24]
    assert len(outcomes) == 30
    assert not any(outcome.failure for outcome in outcomes)


def test_a_bad_task_costs_only_itself(pool: Pool) -> None:
    mixed = pool.map("builtins:pow", [(2, 10), (7, 10**9), (3, 3)], seconds=1.0)
    assert mixed[0] == Outcome(1024)
    assert mixed[1].failure in ("time", "memory", "crash")
    assert mixed[2] == Outcome(27)


def test_memory_is_limited_in_the_process_and_not_in_ours(pool: Pool) -> None:
    before = psutil.Process().memory_info().rss
    outcomes = pool.map("operator:mul", [("x" * 1000, 10**7), ("ab", 2)], seconds=10.0)
    assert outcomes[0].failure == "memory"
    assert outcomes[1] == Outcome("abab")
    assert psutil.Process().memory_info().rss - before < 200 << 20


def test_a_crash_is_reported_as_one_and_the_next_task_runs(pool: Pool) -> None:
    outcomes = pool.map("os:abort", [()]) + pool.map("math:sqrt", [(9,)])
    assert [outcome.failure for outcome in outcomes] == ["crash", ""]


def test_an_exception_is_a_result_with_its_name(pool: Pool) -> None:
    (outcome,) = pool.map("math:sqrt", [(-1,)])
    assert outcome.value is None
    assert outcome.failure.startswith("ValueError")


def test_what_a_task_prints_is_not_taken_for_an_answer(pool: Pool) -> None:
    outcomes = pool.map("builtins:print", [('{"value": 1}',), ("x",)])
    assert outcomes == [Outcome(None), Outcome(None)]


def test_a_task_cannot_write_a_file(pool: Pool, tmp_path: object) -> None:
    target = f"{tmp_path}/marker"
    (outcome,) = pool.map("shutil:copyfile", [(__file__, target)])
    assert outcome.failure
    assert not os.path.exists(target) or os.path.getsize(target) == 0


def test_several_threads_share_one_pool(pool: Pool) -> None:
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        results[number] = [outcome.value for outcome in pool.map("math:factorial", [(number,)] * 20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [1] * 20, 1: [1] * 20, 2: [2] * 20, 3: [6] * 20, 4: [24] * 20}


def test_the_clock_of_a_task_starts_when_it_runs_not_while_it_waits() -> None:
    pool = Pool(size=1)
    outcomes = pool.map("time:sleep", [(0.3,)] * 5, seconds=1.2)  # 1.5 s together
    pool.close()
    assert [outcome.failure for outcome in outcomes] == [""] * 5


def test_a_task_that_a_busy_machine_kept_waiting_gets_its_seconds(pool: Pool) -> None:
    modulus, exponent = 2**13000 - 1, 2**1500
    began = time.process_time()
    pow(3, exponent, modulus)
    seconds = 2 * (time.process_time() - began)
    one = Pool(size=1)
    cpu = min(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        assert one.map("math:sqrt", [(9,)])[0].value == 3.0
        for pid in [other.pid for other in others] + [worker.process.pid for worker in one._idle]:
            os.sched_setaffinity(pid, {cpu})
        (outcome,) = one.map("builtins:pow", [(3, exponent, modulus)], seconds=seconds)
    finally:
        for other in others:
            other.kill()
            other.wait()
        one.close()
    assert outcome.failure == ""


def test_a_process_is_replaced_after_its_share_of_tasks() -> None:
    pool = Pool(size=1, recycle_after=3)
    pids = [outcome.value for outcome in pool.map("os:getpid", [()] * 7)]
    pool.close()
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]


def test_closing_leaves_no_process_behind() -> None:
    before = children()
    pool = Pool(size=2)
    pool.map("math:sqrt", [(1,)] * 8)
    assert children() - before
    pool.close()
    assert children() - before == set()
    with pytest.raises(RuntimeError, match="closed"):
        pool.map("math:sqrt", [(1,)])


def test_a_worker_that_cannot_start_says_so() -> None:
    pool = Pool(size=1, memory_mib=1)
    with pytest.raises(EngineError, match=r"scoring process (could not import|ended while starting)"):
        pool.map("math:sqrt", [(1,)])


@pytest.mark.parametrize("busy", [False, True])
def test_no_worker_survives_a_parent_that_is_killed(busy: bool) -> None:
    code = f"""
        import threading, time
        from r1pipe.rewards.service import Pool
        pool = Pool(size=1)
        print(pool.map("os:getpid", [()])[0].value, flush=True)
        if {busy}:
            threading.Thread(target=pool.map, args=("builtins:pow", [(7, 10**9)], 2.0), daemon=True).start()
        time.sleep(60)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    if busy:
        time.sleep(1.0)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 120  # the limit is on processor time, of which a busy machine gives little
    while psutil.pid_exists(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(worker)


def test_an_alarm_that_someone_else_set_still_rings() -> None:
    from r1pipe.rewards.maths.check import Request, check

    rung: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    pool = Pool(size=1)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        check([Request("1/2", "\\boxed{\\int_0^1 x\\,dx}"), Request("2", "\\boxed{9^{9^{9}}}")], pool)
        time.sleep(0.3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        pool.close()
    assert len(rung) == 1


def test_scoring_overlaps_with_the_making_of_the_next_batch() -> None:
    events: list[str] = []

    def batches() -> Iterator[int]:
        for number in range(3):
            events.append(f"make {number}")
            yield number

    started = threading.Event()

    def work(number: int) -> int:
        started.set()
        return number * 10

    results = []
    for batch, result in overlapped(batches(), work):
        events.append(f"scored {batch}")
        results.append((batch, result))
    assert results == [(0, 0), (1, 10), (2, 20)]
    assert events.index("make 1") < events.index("scored 0")


def test_an_error_in_scoring_reaches_the_caller() -> None:
    def work(number: int) -> int:
        raise KeyError(number)

    with pytest.raises(KeyError):
        list(overlapped(iter([1, 2]), work))
