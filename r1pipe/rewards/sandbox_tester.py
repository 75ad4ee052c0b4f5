"""Runs the tests of one attempt against its program, and judges. Runs in the sandbox, out of the program's sight.

Tests come as standard input and output, as assertions (MBPP), as a `check(candidate)` function (HumanEval) or as calls with
expected results. The functions of the program that tests call are stand-ins that ask the program's process. The first test that
fails ends the rest. Only a verdict that comes after the last test carries the job's token."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from typing import Any

from r1pipe.rewards.sandbox_watch import Program, Stop, short_text
from r1pipe.rewards.sandbox_wire import Unpacker, WireError, pack

TOLERANCE = 1e-6
BACKSTOP_SECONDS = 2.0
"""After the total time, for tests that are busy themselves and do not look at the clock."""
TESTER_MEMORY = 2 * 2**30


def main(job_fd: int, server: socket.socket, limits: dict[str, Any]) -> int:
    """Read the job, judge, answer; the exit code of the process."""
    unpacker = Unpacker()
    jobs: list[dict[str, Any]] = []
    while not jobs:
        data = os.read(job_fd, 1 << 20)
        if not data:
            return 0
        jobs += unpacker.feed(data)
    job = jobs[0]
    limits = {**limits, **job.get("limits", {})}
    limits["total_end"] = time.monotonic() + limits["total_seconds"]
    backstop = limits["total_seconds"] + BACKSTOP_SECONDS
    signal.setitimer(signal.ITIMER_REAL, backstop)  # the default action ends this process, and with it everything
    resource.setrlimit(resource.RLIMIT_AS, (TESTER_MEMORY, TESTER_MEMORY))
    passed = 0
    try:
        for _ in TESTS[job["kind"]](job, server, limits):
            passed += 1
        answer = {"outcome": "passed", "note": f"{passed} tests", "passed": passed, "token": job["token"]}
    except Stop as stop:
        answer = {"outcome": stop.outcome, "note": stop.note, "passed": passed}
    except (WireError, MemoryError, RecursionError) as error:
        answer = {"outcome": "wrong answer", "note": f"an answer that cannot be read: {type(error).__name__}", "passed": passed}
    data = pack(answer)
    while data:
        data = data[os.write(job_fd, data) :]
    return 0


def run_stdio(job: dict[str, Any], server: socket.socket, limits: dict[str, Any]) -> Any:
    """One process a test: its input on stdin, its output compared token by token."""
    for number, test in enumerate(job["tests"], 1):
        with Program(server, limits, job["source"], "stdio", test["input"].encode()) as program:
            program.start_clock(f"test {number} of {len(job['tests'])}")
            program.wait_for_end()
            text = program.output.decode("utf-8", "replace")
        difference = compare_output(text, test["output"])
        if difference:
            raise Stop("wrong answer", f"test {number} of {len(job['tests'])}: {difference}")
        yield


def compare_output(got: str, wanted: str) -> str:
    """What differs between two outputs, or nothing: tokens must be equal, decimals within 1e-6 (absolute or relative)."""
    ours, theirs = got.split(), wanted.split()
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if one != other and not _same_decimal(one, other):
            return f"token {place} is {one[:40]!r}, wanted {other[:40]!r}"
    if len(ours) != len(theirs):
        return f"{len(ours)} tokens of output, wanted {len(theirs)}"
    return ""


def _same_decimal(one: str, other: str) -> bool:
    if not any(sign in other for sign in ".eE") or max(len(one), len(other)) > 400:
        return False
    try:
        x, y = float(one.replace("_", "x")), float(other)
    except ValueError:
        return False
    return x == y or abs(x - y) <= TOLERANCE * max(1.0, abs(y))


def run_asserts(job: dict[str, Any], server: socket.socket, limits: dict[str, Any]) -> Any:
    """Statements that assert something of the program's names, one after the other in one namespace."""
    codes = [compile(test, f"test {number}", "exec", dont_inherit=True) for number, test in enumerate(job["tests"], 1)]
    with Program(server, limits, job["source"], "serve") as program:
        program.load()
        namespace = program.namespace(codes)
        for setup in job.get("setup", []):
            exec(setup, namespace)
        for number, code in enumerate(codes, 1):
            program.start_clock(f"test {number} of {len(codes)}")
            _hold(lambda code=code: exec(code, namespace), f"test {number} of {len(codes)}")
            yield


def run_check(job: dict[str, Any], server: socket.socket, limits: dict[str, Any]) -> Any:
    """A `check(candidate)` function, as in HumanEval."""
    code = compile(job["test"], "tests", "exec", dont_inherit=True)
    with Program(server, limits, job["source"], "serve") as program:
        program.load()
        if job["entry_point"] not in program.names:
            raise Stop("runtime error", f"no function {job['entry_point']} in the program")
        namespace = program.namespace([code])
        exec(code, namespace)
        program.start_clock("check")
        _hold(lambda: namespace["check"](program.get(job["entry_point"])), "check")
        yield


def run_calls(job: dict[str, Any], server: socket.socket, limits: dict[str, Any]) -> Any:
    """Calls with arguments and expected results; tuples and lists are the same, decimals are compared within 1e-6."""
    with Program(server, limits, job["source"], "serve") as program:
        program.load()
        for number, call in enumerate(job["calls"], 1):
            where = f"test {number} of {len(job['calls'])}"
            program.start_clock(where)
            holder, _, name = call["function"].rpartition(".")
            wanted_name = holder or name
            if wanted_name not in program.names:
                raise Stop("runtime error", f"no name {wanted_name} in the program")
            results: list[Any] = []

            _hold(lambda call=call, results=results: results.append(_call(program, call)), where)
            if not same_value(results[0], call["expected"]):
                raise Stop("wrong answer", f"{where}: got {_short(results[0])}, wanted {_short(call['expected'])}")
            yield


def _call(program: Program, call: dict[str, Any]) -> Any:
    """The result of one call; "Solution.f" is the method f of a new Solution."""
    holder, _, name = call["function"].rpartition(".")
    function = getattr(program.get(holder)(), name) if holder else program.get(name)
    return function(*call.get("args", []), **call.get("kwargs", {}))


def same_value(got: Any, wanted: Any) -> bool:
    """Equal as JSON data: lists and tuples alike, floats within 1e-6, booleans and numbers apart."""
    if isinstance(got, (list, tuple)) and isinstance(wanted, (list, tuple)):
        return len(got) == len(wanted) and all(map(same_value, got, wanted))
    if isinstance(got, dict) and isinstance(wanted, dict):
        if not all(isinstance(key, str) for key in got):
            got = {str(key): value for key, value in got.items()}
        return got.keys() == wanted.keys() and all(same_value(got[key], wanted[key]) for key in wanted)
    if isinstance(got, bool) or isinstance(wanted, bool):
        return got is wanted
    if isinstance(got, (int, float)) and isinstance(wanted, float):
        return got == wanted or abs(got - wanted) <= TOLERANCE * max(1.0, abs(wanted))
    return bool(got == wanted)


TESTS = {"stdio": run_stdio, "asserts": run_asserts, "check": run_check, "calls": run_calls}


def _hold(test: Any, where: str) -> None:
    """Run a test; what it raises is a verdict."""
    try:
        test()
    except (Stop, WireError):
        raise
    except AssertionError as error:
        if getattr(error, "from_program", False):
            raise Stop("runtime error", f"{where}: {error}") from error
        raise Stop("wrong answer", f"{where}: assertion failed {short_text(str(error))}".rstrip()) from error
    except MemoryError as error:
        raise Stop("memory", f"{where}: out of memory") from error
    except BaseException as error:
        outcome = "runtime error" if getattr(error, "from_program", False) else "wrong answer"
        raise Stop(outcome, f"{where}: {type(error).__name__} {short_text(str(error))}".rstrip()) from error


def _short(value: Any) -> str:
    try:
        return short_text(repr(value))
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
