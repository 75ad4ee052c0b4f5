"""How much time the sandbox adds: the same tests in the sandbox and in a bare `python -I` subprocess, one after the other.

    python benchmarks/sandbox_speed.py --humaneval humaneval.jsonl --mbpp mbpp_sanitized.jsonl --rows 60

Each program runs both ways before the next one, so that a busy machine slows both. Prints one JSON object: seconds and ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from r1pipe.rewards.code import build_job
from r1pipe.rewards.sandbox import Limits, SandboxServer

OWN = [
    ({"tests": [f"assert add({n}, 1) == {n + 1}" for n in range(5)]}, "def add(a, b):\n    return a + b\n"),
    ({"tests": ["assert fib(20) == 6765"]}, "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"),
    ({"tests": [{"input": "3 4\n", "output": "7\n"}]}, "print(sum(map(int, input().split())))\n"),
]


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()] if path else []


def bare(check: dict[str, Any], program: str, seconds: float = 60) -> bool:
    """Whether all tests pass in a bare interpreter; one process, or one for each input."""
    if "entry_point" in check:
        source, inputs = f"{program}\n{check['test']}\ncheck({check['entry_point']})\n", [""]
    elif isinstance(check["tests"][0], str):
        source, inputs = "\n".join([*check.get("test_imports", []), program, *check["tests"]]), [""]
    else:
        source, inputs = program, [test["input"] for test in check["tests"]]
    command = [sys.executable, "-I", "-c", source]
    ran = [subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds) for text in inputs]
    return all(process.returncode == 0 for process in ran)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--humaneval", default="")
    parser.add_argument("--mbpp", default="")
    parser.add_argument("--rows", type=int, default=60, help="rows of each file")
    arguments = parser.parse_args()
    work = OWN * 10
    work += [(row, row["prompt"] + row["canonical_solution"]) for row in read(arguments.humaneval)[: arguments.rows]]
    work += [({"tests": row["test_list"], **row}, row["code"]) for row in read(arguments.mbpp)[: arguments.rows]]
    started = time.perf_counter()
    server = SandboxServer("bubblewrap", Limits())
    start = time.perf_counter() - started
    ours = theirs = 0.0
    for check, program in work:
        began = time.perf_counter()
        passed = server.run(build_job(check, program)).outcome == "passed"
        middle = time.perf_counter()
        assert bare(check, program), program
        theirs += time.perf_counter() - middle
        ours += middle - began
        assert passed, program
    server.close()
    seconds = {"sandbox_seconds": ours, "bare_seconds": theirs, "ratio": ours / theirs, "start_seconds": start}
    print(json.dumps({"programs": len(work), **{key: round(value, 3) for key, value in seconds.items()}}))


if __name__ == "__main__":
    main()
