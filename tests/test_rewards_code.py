"""The code checker: forms of tests, verdicts told apart, and programs that try to pass without solving anything.

`data/humaneval_sample.jsonl` holds eight problems of HumanEval (openai/human-eval, MIT, (c) OpenAI).
"""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r1pipe.data.rows import Attempt, Problem
from r1pipe.errors import DataError
from r1pipe.rewards import code
from r1pipe.rewards.code import build_job, complete_program, extract_program, run_code_tests, run_program
from r1pipe.rewards.sandbox import CodeResult, Limits
from r1pipe.rewards.sandbox_tester import compare_output, same_value
from r1pipe.rewards.sandbox_wire import Unpacker, WireError, decode, encode, pack

HUMANEVAL = [json.loads(line) for line in (Path(__file__).parent / "data" / "humaneval_sample.jsonl").read_text().splitlines()]
LIMITS = Limits(cpu_seconds=2.0, wall_seconds=4.0, total_seconds=120.0, memory_bytes=128 * 2**20, processes=16)
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
ADD = {"tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]}


@pytest.fixture(scope="module", autouse=True)
def pools() -> Iterator[None]:
    yield
    code.close_sandboxes()


def run(check: dict[str, Any], program: str) -> CodeResult:
    return run_program(check, program, limits=LIMITS)


VERDICTS = [
    ("def add(a, b): return a + b", "passed", "2 tests"),
    ("def add(a, b): return a - b", "wrong answer", "test 1 of 2"),
    ("def add(a, b): return 3", "wrong answer", "test 2 of 2"),
    ("def add(a, b) return a + b", "compile error", "SyntaxError"),
    ("def add(a, b):\n    while True: pass", "time", "processor time"),
    ("def add(a, b):\n    return [0] * 10**10", "memory", "out of memory"),
    ("def add(a, b): return a / 0", "runtime error", "ZeroDivisionError"),
    ("raise SystemExit(0)", "runtime error", "SystemExit"),
    ("def sub(a, b): return a", "wrong answer", "NameError"),
    ("import numpy_is_not_here", "runtime error", "ModuleNotFoundError"),
]


@needs_bubblewrap
@pytest.mark.parametrize(("program", "outcome", "note"), VERDICTS)
def test_verdicts_are_told_apart_and_say_where(program: str, outcome: str, note: str) -> None:
    result = run(ADD, program)
    assert result.outcome == outcome, result
    assert note in result.note


@needs_bubblewrap
def test_the_first_failed_test_ends_the_rest() -> None:
    check = {"tests": ["assert f() == 1", "assert f() == 0", "while True: f()"]}
    result = run(check, "def f(): return 1")
    assert (result.outcome, result.passed) == ("wrong answer", 1)


HACKS = {
    "leaves with 0": "import sys\ndef add(a, b): sys.exit(0)",
    "leaves at once": "import os\ndef add(a, b): os._exit(0)",
    "leaves while loading": "import os\nos._exit(0)",
    "hook for exceptions": "import sys\nsys.excepthook = lambda *a: None\ndef add(a, b): raise ValueError",
    "equal to everything": (
        "class E:\n def __eq__(self, o): return True\n def __ne__(self, o): return False\ndef add(a, b): return E()"
    ),
    "a number equal to everything": (
        "class E(int):\n __eq__ = lambda s, o: True\n __hash__ = int.__hash__\ndef add(a, b): return E(7)"
    ),
    "no assertions": (
        "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\n__debug__x = "
        "False\ndef add(a, b): return None"
    ),
    "patches the harness": (
        "import sys\nfor m in list(sys.modules.values()):\n if 'sandbox' in getattr(m, '__name__', "
        "''):\n  for n in list(vars(m)):\n"
        "   if callable(vars(m)[n]): setattr(m, n, lambda *a, **k: True)\ndef add(a, b): return None"
    ),
    "answers for itself": (
        "import os, struct, json\ndef say(m):\n b = json.dumps(m).encode(); os.write(3, struct.pack('<I', len(b)) + b)\n"
        "say({'loaded': ['add']})\nfor _ in range(9): say({'outcome': 'passed', 'token': '0' * 32, 'passed': 2, 'value': None})\n"
        "import time\ntime.sleep(1)\nos._exit(0)"
    ),
    "floods the channel": "import os\nwhile True: os.write(3, b'\\xff' * 65536)",
    "nests its answer deeply": "def add(a, b):\n x = []\n for _ in range(10**5): x = [x]\n return x",
    "answers with a huge number": "def add(a, b): return 10 ** 10**6",
    "looks for the tests in memory": (
        "import gc\nfound = [o for o in gc.get_objects() if isinstance(o, dict) and any('assert add' in "
        "str(v)[:999] for v in o.values())]\n"
        "def add(a, b): return 3 if found else None"
    ),
    "looks for the tests in frames": (
        "import sys\ndef add(a, b):\n f = sys._getframe()\n while f:\n  if 'add(' + '-1, 1)' in "
        "str(f.f_locals): return 3 if a == 1 else 0\n"
        "  f = f.f_back\n return None"
    ),
    "leaves like a failed sandbox": "import os\ndef add(a, b): os._exit(97)",
    "claims an error of the tests": "def add(a, b): raise AssertionError",
    "empty": "",
}


@needs_bubblewrap
@pytest.mark.parametrize("name", HACKS)
def test_nothing_passes_but_right_answers(name: str) -> None:
    result = run(ADD, HACKS[name])
    assert result.outcome not in ("passed", "sandbox error"), result
    assert run(ADD, "def add(a, b): return a + b").outcome == "passed"


STDIO = [
    ("print(3)", "3\n", "passed"),
    ("print('3 ')", "3\n", "passed"),
    ("print('3\\n\\n')", "3", "passed"),
    ("print('The answer is 3')", "3\n", "wrong answer"),
    ("print(0.30000000000000004)", "0.3\n", "passed"),
    ("print(0.31)", "0.3\n", "wrong answer"),
    ("print(4)", "3\n", "wrong answer"),
    ("print('你好')", "你好\n", "passed"),
    ("import sys; sys.stdout.buffer.write(b'3')", "3", "passed"),
    ("import os; os.write(1, b'3')", "3", "passed"),
    ("import sys; sys.set_int_max_str_digits(0); print(10**5000)", "1" + "0" * 5000, "passed"),
    ("print(10**5000)", "1" + "0" * 5000, "passed"),
    ("print(3); exit()", "3", "passed"),
    ("print(3); raise SystemExit(2)", "3", "runtime error"),
    ("import threading; threading.Thread(target=lambda: print(3)).start()", "3", "passed"),
    ("import atexit; atexit.register(lambda: print(3))", "3", "passed"),
    ("if __name__ == '__main__': print(3)", "3", "passed"),
    ("import sys; print(sys.stdin.read().count('x'))", "3", "passed"),
    ("print(len(list(open(0))))", "1", "passed"),
    ("from dataclasses import dataclass\n@dataclass\nclass A:\n x: int\nprint(A(3).x)", "3", "passed"),
]


@needs_bubblewrap
@pytest.mark.parametrize(("program", "wanted", "outcome"), STDIO)
def test_scripts_are_judged_by_their_tokens(program: str, wanted: str, outcome: str) -> None:
    assert run({"tests": [{"input": "xxx\n", "output": wanted}]}, program).outcome == outcome


@needs_bubblewrap
def test_programs_in_the_style_of_exercises_with_classes_pass() -> None:
    check = {"calls": [{"function": "Solution.twoSum", "args": [[2, 7, 11], 9], "expected": [0, 1]}]}
    program = (
        "class Solution:\n def twoSum(self, a, t):\n  return next((i, j) for i in range(len(a)) for j "
        "in range(i + 1, len(a)) if a[i] + a[j] == t)"
    )
    assert run(check, program).outcome == "passed"
    assert run(check, program.replace("==", "!=")).outcome == "wrong answer"
    pairs = {"inputs": [[1, 2]], "outputs": [3.0], "fn_name": "add"}
    assert run(pairs, "def add(a, b): return a + b + 1e-9").outcome == "passed"


@needs_bubblewrap
def test_tests_may_use_objects_generators_exceptions_and_changed_arguments() -> None:
    program = (
        "class Pair:\n def __init__(self, a, b): self.a, self.b = a, b\n def __eq__(self, o): return "
        "(self.a, self.b) == (o.a, o.b)\n"
        "def swap(p): return Pair(p.b, p.a)\ndef squares(n):\n for i in range(n): yield i * i\n"
        "def sort_in_place(x): x.sort()\ndef fail(): raise KeyError('k')\nLIMIT = 7\n"
    )
    check = {
        "tests": [
            "assert swap(Pair(1, 2)) == Pair(2, 1)",
            "assert swap(Pair(1, 2)).a == 2",
            "assert swap(Pair(1, 2)) != 5",
            "assert list(squares(4)) == [0, 1, 4, 9]",
            "x = [3, 1, 2]\nsort_in_place(x)\nassert x == [1, 2, 3]",
            "try:\n    fail()\nexcept KeyError:\n    pass\nelse:\n    assert False",
            "assert LIMIT == 7",
            "assert math.isclose(float(LIMIT), 7.0)",
        ],
        "test_imports": ["import math"],
    }
    assert run(check, program).outcome == "passed"


class Mutation(ast.NodeTransformer):
    """Changes the number-th place that can be changed: a constant, an operator, a comparison or a return."""

    OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Mod: ast.Mult, ast.FloorDiv: ast.Mult}
    COMPARISONS = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.LtE: ast.Gt, ast.GtE: ast.Lt}

    def __init__(self, number: int) -> None:
        self.left = number

    def here(self) -> bool:
        self.left -= 1
        return self.left == -1

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if type(node.op) in self.OPERATORS and self.here():
            node.op = self.OPERATORS[type(node.op)]()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if type(node.ops[0]) in self.COMPARISONS and self.here():
            node.ops[0] = self.COMPARISONS[type(node.ops[0])]()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if self.here():
            node.value = ast.Constant(None)
        return node


@needs_bubblewrap
@pytest.mark.parametrize("row", HUMANEVAL, ids=lambda row: row["task_id"])
def test_the_reference_solution_passes_and_changed_ones_fail(row: dict[str, Any]) -> None:
    program = row["prompt"] + row["canonical_solution"]
    assert run(row, program).outcome == "passed"
    assert run(row, row["canonical_solution"]).outcome == "passed"  # a continuation of the prompt
    if row["task_id"] == "HumanEval/32":
        return  # its tests use a helper that stands in the program, and cannot tell
    for number in range(2):
        changed = ast.unparse(ast.fix_missing_locations(Mutation(number).visit(ast.parse(program))))
        assert changed == ast.unparse(ast.parse(program)) or run(row, changed).outcome in (
            "wrong answer",
            "runtime error",
            "time",
        )


@needs_bubblewrap
def test_attempts_are_scored_in_order_and_only_by_their_summary() -> None:
    problem = Problem("p", "add", checker="code", check=ADD)
    right = "```python\ndef add(a, b):\n    return a + b\n```"
    texts = [
        f"<think>Easy.</think>\n{right}",
        f"<think>{right}</think>\nI do not know.",
        "<think>x</think>\n```python\ndef add(a, b):\n    return a\n```",
        f"<think>never closed {right}",
        right,
    ]
    scores = run_code_tests([Attempt(problem, text) for text in texts], limits=LIMITS)
    assert [score.value for score in scores] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert scores[3].note == "no program"


@needs_bubblewrap
def test_many_programs_run_at_once_from_any_thread_and_keep_their_order() -> None:
    import threading

    problem = Problem("p", "add", checker="code", check=ADD)
    attempts = [Attempt(problem, f"def add(a, b): return a + b + {number % 2}") for number in range(8)]
    found: list[float | None] = []
    thread = threading.Thread(target=lambda: found.extend(score.value for score in run_code_tests(attempts, limits=LIMITS)))
    thread.start()
    thread.join(60)
    assert found == [1.0, 0.0] * 4


@needs_bubblewrap
@settings(max_examples=25, deadline=None)
@given(
    st.text()
    | st.lists(st.sampled_from(["```", "python\n", "print(", "1", ")", "\n", "\0", "\ud800", "def f():", "<answer>"])).map(
        "".join
    )
)
def test_any_text_is_judged_without_raising(text: str) -> None:
    (score,) = run_code_tests(
        [Attempt(Problem("p", "q", checker="code", check={"tests": ["assert False"]}), text)], limits=LIMITS
    )
    assert score.value == 0.0
    assert score.note


def test_a_problem_without_usable_tests_is_unjudged() -> None:
    (score,) = run_code_tests([Attempt(Problem("p", "q", checker="code", check={"tests": []}), "print(1)")])
    assert score.value is None
    with pytest.raises(DataError, match="without tests"):
        build_job({"tests": [1]}, "print(1)")
    with pytest.raises(DataError, match="2 inputs but 1 outputs"):
        build_job({"inputs": ["1", "2"], "outputs": ["1"]}, "print(1)")


def test_without_a_sandbox_the_attempt_is_unjudged_not_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    limits = Limits(cpu_seconds=3.0)  # of its own, so that no sandbox is waiting from another test
    (score,) = run_code_tests(
        [Attempt(Problem("p", "q", checker="code", check=ADD), "def add(a, b): return a + b")], limits=limits
    )
    assert score.value is None
    assert "bubblewrap" in score.note


PROGRAMS = [
    ("```python\nprint(1)\n```", "print(1)\n"),
    ("First:\n```python\nprint(1)\n```\nbetter:\n```py\nprint(2)\n```\ndone", "print(2)\n"),
    ("```python\nprint(1)\n```\nOutput:\n```\n1\n```", "print(1)\n"),
    ("```python\nprint(1)\n```\nRun it:\n```bash\npython x.py\n```", "print(1)\n"),
    ("```python\nprint(1)", "print(1)"),
    ("~~~python\nprint(1)\n~~~", "print(1)\n"),
    ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
    ("  ```python\n  print(1)\n  ```", "  print(1)\n"),
    ("print(1)\n", "print(1)"),
    ("<answer>\nprint(1)\n</answer>", "print(1)"),
    ("<answer>```python\nprint(1)\n```</answer>", "print(1)\n"),
]


@pytest.mark.parametrize(("summary", "program"), PROGRAMS)
def test_the_program_is_the_last_python_block_or_the_plain_summary(summary: str, program: str) -> None:
    assert extract_program(summary) == program


def test_a_whole_function_keeps_the_imports_and_helpers_of_its_prompt() -> None:
    prompt = "from typing import List\n\ndef helper():\n    pass\n\ndef f(x: List[int]):\n    '''doc'''\n"
    assert complete_program(prompt, "f", "    return x\n") == prompt + "    return x\n"
    whole = complete_program(prompt, "f", "def f(x: List[int]):\n    return x\n")
    assert whole.count("def f") == 1
    assert "import List" in whole


@pytest.mark.parametrize(
    ("got", "wanted", "same"),
    [
        ("1 2\n3", "1  2 3", True),
        ("1.0000001", "1.0", True),
        ("1.00001", "1.0", False),
        ("1", "1.0", True),
        ("1.0", "1", False),
        ("1000000.5", "1000000.0", True),
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("inf", "1e400", True),
        ("0x1", "1.0", False),
        ("1_0.0", "10.0", False),
        ("Yes", "yes", False),
        ("", "", True),
        ("1", "", False),
    ],
)
def test_outputs_are_compared_by_tokens_with_a_tolerance_for_decimals(got: str, wanted: str, same: bool) -> None:
    assert (compare_output(got, wanted) == "") is same


@pytest.mark.parametrize(
    ("got", "wanted", "same"),
    [
        ((1, 2), [1, 2], True), ([1, [2.0000001]], [1, [2.0]], True), (True, 1, False), (1, 1.0, True),
        ({1: "a"}, {"1": "a"}, True),
        ([1], [1, 2], False), (None, None, True), ("1", 1, False), (float("nan"), 1.0, False),
    ],
)  # fmt: skip
def test_results_of_calls_are_compared_as_data(got: object, wanted: object, same: bool) -> None:
    assert same_value(got, wanted) is same


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.fractions()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=20,
)


@given(plain)
def test_plain_data_crosses_unchanged(value: object) -> None:
    messages = list(Unpacker().feed(pack(encode(value, lambda _: 0))))
    back = decode(messages[0], lambda number: number)
    assert back == value
    assert type(back) is type(value)


@given(st.binary(max_size=200))
def test_rubbish_on_the_channel_is_a_wire_error_or_a_message(data: bytes) -> None:
    try:
        for message in Unpacker().feed(data):
            decode(message, lambda number: number)
    except (WireError, ValueError, TypeError, ArithmeticError, AttributeError):
        pass
