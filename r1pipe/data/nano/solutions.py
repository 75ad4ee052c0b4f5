"""Worked solutions: what a careful first-person solver writes, sentence by sentence, in English or Chinese.

A solution is written from the problem's plan (`Problem.check["plan"]`). Each sentence can be asked for in either language, and a
solver can slip: a slip is a small arithmetic or reading error that is carried through to the answer, as a person's would be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from r1pipe.data.nano.choices import LETTERS
from r1pipe.data.nano.plans import compute
from r1pipe.data.rows import Problem

_FIRST = {
    "en": {"+": "First I add: ", "-": "First I subtract: ", "*": "First I multiply: ", "/": "First I divide: "},
    "zh": {"+": "先算加法：", "-": "先算减法：", "*": "先算乘法：", "/": "先算除法："},
}
_THEN = {
    "en": {"+": "Then I add: ", "-": "Then I subtract: ", "*": "Then I multiply: ", "/": "Then I divide: "},
    "zh": {"+": "再算加法：", "-": "再算减法：", "*": "再算乘法：", "/": "再算除法："},
}
_STOP = {"en": ". ", "zh": "。"}
_CHECKS = {
    "en": ("Let me check: {}, yes", "Wait, let me check: {}, good"),
    "zh": ("检查一下：{}，对", "等等，我检查一下：{}，没错"),
}
_ANSWERS = {
    "en": ("The answer is \\boxed{{{}}}.", "So the answer is \\boxed{{{}}}."),
    "zh": ("答案是\\boxed{{{}}}。", "所以答案是\\boxed{{{}}}。"),
}
_COMPARE = {
    "en": {
        "largest": "I compare: {}. The largest is {}, option {}",
        "smallest": "I compare: {}. The smallest is {}, option {}",
        "even": "I look at each: {}. The even one is {}, option {}",
        "odd": "I look at each: {}. The odd one is {}, option {}",
        "sum": "I add each: {}. That is {}, option {}",
    },
    "zh": {
        "largest": "我来比较：{}。最大的是{}，选项{}",
        "smallest": "我来比较：{}。最小的是{}，选项{}",
        "even": "我看每个数：{}。偶数是{}，选项{}",
        "odd": "我看每个数：{}。奇数是{}，选项{}",
        "sum": "我算每个和：{}。得到{}，选项{}",
    },
}
_PARITY = {"en": (" is even", " is odd"), "zh": ("是偶数", "是奇数")}
_JOIN = {"en": ", ", "zh": "，"}
_INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}


@dataclass(frozen=True, slots=True)
class Worked:
    """A worked solution: the sentences of the thinking, and the answer they lead to."""

    sentences: tuple[str, ...]
    answer: str


def other(language: str) -> str:
    """The other of the two languages."""
    return "zh" if language == "en" else "en"


def work(problem: Problem, rng: random.Random, languages: tuple[str, ...], *, slip: bool = False, check: bool = False) -> Worked:
    """Solve a problem in sentences.

    Args:
        problem: a verifiable problem of this package (its plan is in `check`).
        rng: decides wording and, with `slip`, the error.
        languages: one language is drawn from these for each sentence; give one to stay in it.
        slip: make one error and carry it through; the answer is then wrong, but for a choice that was settled before the error.
        check: end with a look back at the last step, where the solution has one.
    """
    plan = problem.check["plan"]
    if isinstance(plan, dict):
        return _work_choice(plan, rng, rng.choice(languages), slip)
    return _work_steps(plan, rng, languages, slip, check)


def worked_trace(problem: Problem, rng: random.Random, reflect: bool = False) -> tuple[str, str]:
    """A right, readable solution in the problem's language: (thinking, summary).

    The thinking is in the first person, with a look back ("let me check", "等等") when `reflect` is set; the summary is one short
    sentence that ends in the boxed answer.
    """
    worked = work(problem, rng, (problem.language,), check=reflect)
    return "".join(worked.sentences).strip(), answer_sentence(worked.answer, problem.language, rng)


def answer_sentence(answer: str, language: str, rng: random.Random) -> str:
    """The sentence that gives the boxed answer."""
    return rng.choice(_ANSWERS[language]).format(answer)


def slipped(number: int, rng: random.Random) -> int:
    """A number a careless solver might get instead: off by one or two, by ten, or with its digits swapped."""
    options = [number + 1, number - 1, number + 10, number - 10, number + 2, number - 2]
    if number >= 10:
        options.append(int(str(number)[::-1]))
    usable = [option for option in options if 0 <= option != number]
    return rng.choice(usable)


def _work_steps(plan: list[Any], rng: random.Random, languages: tuple[str, ...], slip: bool, check: bool) -> Worked:
    sentences: list[str] = []
    slip_at = rng.randrange(len(plan)) if slip else -1
    left, operator, right, result = 0, "+", 0, 0
    for index, (first, operator, second) in enumerate(plan):
        left, right = (result if first is None else first), (result if second is None else second)
        result = compute(left, operator, right)
        if index == slip_at:
            result = slipped(result, rng)
        language = rng.choice(languages)
        lead = (_FIRST if index == 0 else _THEN)[language][operator]
        sentences.append(f"{lead}{left}{operator}{right}={result}{_STOP[language]}")
    undoable = operator != "*" or right != 0
    if check and undoable:
        language = rng.choice(languages)
        undone = f"{result}{_INVERSE[operator]}{right}={left}"
        sentences.append(rng.choice(_CHECKS[language]).format(undone) + _STOP[language])
    return Worked(tuple(sentences), str(result))


def _work_choice(plan: dict[str, Any], rng: random.Random, language: str, slip: bool) -> Worked:
    ask, values = plan["ask"], plan["values"]
    slip_at = rng.randrange(1, len(values)) if slip else -1
    if ask in ("largest", "smallest"):
        parts, at = _compare_all(values, ask == "largest", slip_at)
    elif ask == "sum":
        parts, at = _add_all(values, plan["target"], slip_at, rng)
    else:
        parts, at = _name_parities(values, 1 if ask == "odd" else 0, slip_at, language)
    found = f"{values[at][0]}+{values[at][1]}" if ask == "sum" else str(values[at])
    sentence = _COMPARE[language][ask].format(_JOIN[language].join(parts), found, LETTERS[at])
    return Worked((sentence + _STOP[language],), LETTERS[at])


def _compare_all(values: list[int], largest: bool, slip_at: int) -> tuple[list[str], int]:
    """Compare the best so far with the next; the slip misreads one comparison."""
    best, parts = 0, []
    for index in range(1, len(values)):
        wins = (values[index] > values[best]) == largest
        if index == slip_at:
            wins = not wins
        sign = "<" if wins == largest else ">"
        parts.append(f"{values[best]}{sign}{values[index]}")
        best = index if wins else best
    return parts, best


def _add_all(values: list[list[int]], target: int, slip_at: int, rng: random.Random) -> tuple[list[str], int]:
    """Add until the target is met; the slip takes one wrong sum for the target."""
    parts = []
    for index, (a, b) in enumerate(values):
        total = target if index == slip_at else a + b
        parts.append(f"{a}+{b}={total}")
        if total == target:
            return parts, index
    return parts, rng.randrange(len(values))


def _name_parities(values: list[int], wanted: int, slip_at: int, language: str) -> tuple[list[str], int]:
    """Name each number even or odd until the wanted kind is met; the slip misnames one."""
    parts: list[str] = []
    for index, value in enumerate(values):
        parity = value % 2 if index != slip_at else 1 - value % 2
        parts.append(f"{value}{_PARITY[language][parity]}")
        if parity == wanted:
            return parts, index
    return parts, len(values) - 1
