"""The code checker: run the tests of a problem against the program of a response, in the sandbox.

A problem's `check` says what the tests are, in one of the forms that data sets use:

- `{"tests": [{"input": "1 2\\n", "output": "3\\n"}, …]}`: a script with standard input and output;
- `{"inputs": […], "outputs": […]}`: the same, or calls when there is an `fn_name` (APPS, LiveCodeBench);
- `{"tests": ["assert f(1) == 2", …], "test_imports": […]}` or `test_list` (MBPP): assertions;
- `{"test": "def check(candidate): …", "entry_point": "f", "prompt": "…"}` (HumanEval);
- `{"calls": [{"function": "f", "args": [1], "expected": 2}, …]}`: calls, "Solution.f" for a method.

The first test that fails ends the rest. A program that cannot be run for want of a sandbox is unjudged, never wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from r1pipe.data.chat import answer_block, split_response
from r1pipe.data.rows import Attempt
from r1pipe.errors import DataError
from r1pipe.rewards.base import Score
from r1pipe.rewards.sandbox import CodeResult, Limits, SandboxPool
from r1pipe.rewards.sandbox_command import SandboxMode

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = frozenset({"python", "py", "python3", "py3"})
_POOLS: dict[tuple[int, SandboxMode, Limits], SandboxPool] = {}


def extract_program(summary: str) -> str:
    """The program of a summary: its last fenced block (of Python, if any says so), else the summary as it is."""
    text = (answer_block(summary) or "").strip() or summary
    found: list[tuple[str, str, str]] = _FENCE.findall(text) or _FENCE.findall(summary)
    blocks = [(language.lower(), body) for _, language, body in found]
    if not blocks:
        return text.strip("\n")
    tagged = [body for language, body in blocks if language in _PYTHON]
    bare = [body for language, body in blocks if not language]
    return (tagged or bare or [blocks[-1][1]])[-1]


def build_job(check: dict[str, Any], program: str) -> dict[str, Any]:
    """The job for the sandbox. Raises DataError when `check` has no tests in a form that is known."""
    if "entry_point" in check and "test" in check:
        source = complete_program(str(check.get("prompt", "")), str(check["entry_point"]), program)
        return {"kind": "check", "source": source, "test": str(check["test"]), "entry_point": str(check["entry_point"])}
    if "calls" in check:
        return {"kind": "calls", "source": program, "calls": [dict(call) for call in check["calls"]]}
    if "inputs" in check and "outputs" in check:
        return _job_of_pairs(check, program)
    tests = check.get("test_list") or check.get("asserts") or check.get("tests")
    if isinstance(tests, list) and tests:
        if all(isinstance(test, str) for test in tests):
            setup = [*check.get("test_imports", []), *([check["test_setup_code"]] if check.get("test_setup_code") else [])]
            return {"kind": "asserts", "source": program, "tests": tests, "setup": setup}
        if all(isinstance(test, dict) and "input" in test and "output" in test for test in tests):
            pairs = [{"input": _lines(test["input"]), "output": _lines(test["output"])} for test in tests]
            return {"kind": "stdio", "source": program, "tests": pairs}
    raise DataError(
        f"a code problem without tests that can be run (check has {', '.join(sorted(check)) or 'nothing'})",
        "give tests as input/output pairs, assertions, calls, or test with entry_point; see docs/sandbox.md",
    )


def _lines(text: Any) -> str:
    """Text as it is, a list as lines (some data sets keep inputs so)."""
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _job_of_pairs(check: dict[str, Any], program: str) -> dict[str, Any]:
    """Parallel lists of inputs and outputs: calls when a function is named, else standard input and output."""
    inputs, outputs = check["inputs"], check["outputs"]
    if len(inputs) != len(outputs):
        raise DataError(f"{len(inputs)} inputs but {len(outputs)} outputs in a code problem", "give one output for each input")
    if check.get("fn_name"):
        name = check["fn_name"]
        calls = [{"function": name, "args": args, "expected": wanted} for args, wanted in zip(inputs, outputs, strict=True)]
        return {"kind": "calls", "source": program, "calls": calls}
    pairs = [{"input": _lines(given), "output": _lines(wanted)} for given, wanted in zip(inputs, outputs, strict=True)]
    return {"kind": "stdio", "source": program, "tests": pairs}


def complete_program(prompt: str, entry_point: str, program: str) -> str:
    """A HumanEval program: the prompt and its continuation, or what stands before the function in the prompt and the whole
    function."""
    defined = re.compile(rf"^(?:async )?def {re.escape(entry_point)}\b|^{re.escape(entry_point)}\s*=", re.MULTILINE)
    if not defined.search(program):
        return prompt + program
    start = defined.search(prompt)
    return prompt[: start.start()] + "\n" + program if start else program


def run_program(
    check: dict[str, Any], program: str, sandbox: SandboxMode = "bubblewrap", limits: Limits | None = None
) -> CodeResult:
    """Run one program against the tests of a problem's `check`; raises DataError only for tests in no known form."""
    return _pool(sandbox, limits or Limits()).run(build_job(check, program))


def run_code_tests(attempts: Sequence[Attempt], sandbox: SandboxMode = "bubblewrap", limits: Limits | None = None) -> list[Score]:
    """One score an attempt, in order: 1.0 all tests passed, 0.0 not, unjudged where there was no sandbox or no usable tests.

    Args:
        attempts: attempts at code problems; the program is taken from the summary.
        sandbox: "bubblewrap", or "none" to run programs without isolation (see `r1pipe.rewards.sandbox.DANGER`).
        limits: what each program may use; by default `Limits()`.
    """
    scores: list[Score | None] = [None] * len(attempts)
    jobs: list[dict[str, Any]] = []
    places: list[int] = []
    for place, attempt in enumerate(attempts):
        summary = split_response(attempt.text).summary
        program = extract_program(summary)
        if not program.strip():
            scores[place] = Score(0.0, "no program")
            continue
        try:
            jobs.append(build_job(attempt.problem.check, program))
            places.append(place)
        except DataError as error:
            scores[place] = Score(None, error.problem)
    for place, result in zip(places, _pool(sandbox, limits or Limits()).run_many(jobs) if jobs else [], strict=True):
        scores[place] = score_of(result)
    return [score or Score(None, "not run") for score in scores]


def score_of(result: CodeResult) -> Score:
    """A result as a score: a sandbox error is unjudged."""
    if result.outcome == "sandbox error":
        return Score(None, f"sandbox error: {result.note}")
    return Score(1.0 if result.outcome == "passed" else 0.0, f"{result.outcome}: {result.note}")


def close_sandboxes() -> None:
    """End all idle sandboxes of this process; they also end with it."""
    for key in [key for key in _POOLS if key[0] == os.getpid()]:
        _POOLS.pop(key).close()


def _pool(sandbox: SandboxMode, limits: Limits) -> SandboxPool:
    """The pool of this process (a forked process must not share its parent's)."""
    key = (os.getpid(), sandbox, limits)
    if key not in _POOLS:
        _POOLS[key] = SandboxPool(sandbox, limits)
    return _POOLS[key]
