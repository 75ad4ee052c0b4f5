"""Is each step of an answer right? A rule for problems that carry the plan of their solution, as the built-in ones do.

A step is a claim that a careful solver of these problems makes: an equation ("12+5=17"), a comparison ("34<51"), a parity
("7 is odd", "7是奇数"). It is right when it is the next claim of the plan, or a look back that undoes the claim just made; a
claim that is wrong, that belongs to another problem, or that only says again what was said, is not: true sums that lead nowhere
must not pay. What follows from a wrong claim is wrong as well, until the claim is put right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1pipe.data.chat import CLOSE, OPEN
from r1pipe.data.nano.choices import right_index
from r1pipe.data.nano.plans import run_plan
from r1pipe.data.rows import Attempt, Problem

_CLAIM = re.compile(
    r"(?P<left>\d{1,9}) ?(?P<operator>[-+*/×÷]) ?(?P<right>\d{1,9}) ?= ?(?P<result>\d{1,9})"
    r"|(?P<first>\d{1,9}) ?(?P<sign>[<>]) ?(?P<second>\d{1,9})"
    r"|(?P<number>\d{1,9}) ?(?:is |是)(?P<parity>even|odd|偶数|奇数)"
)
_PARITIES = {"even": "even", "偶数": "even", "odd": "odd", "奇数": "odd"}
_OPERATORS = {"×": "*", "÷": "/"}
_INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step of an answer.

    Attributes:
        end: characters of the completion up to the step's end.
        claim: what it says, in one spelling.
        score: 1.0 when it is right, else 0.0.
    """

    end: int
    claim: str
    score: float


def has_plan(problem: Problem) -> bool:
    """Whether the steps of its answers can be judged."""
    return bool(problem.check.get("plan"))


def judged_steps(attempt: Attempt) -> list[JudgedStep]:
    """The steps of an attempt's thinking, in order; empty for a problem without a plan."""
    plan = attempt.problem.check.get("plan")
    if not plan:
        return []
    expected, undone = _expected(plan)
    at, looked_back = 0, False
    steps = []
    for end, claim in _claims(attempt):
        if at < len(expected) and claim == expected[at]:
            at, looked_back, score = at + 1, False, 1.0
        elif at and not looked_back and claim == undone.get(expected[at - 1]):
            looked_back, score = True, 1.0
        else:
            score = 0.0
        steps.append(JudgedStep(end, claim, score))
    return steps


def _claims(attempt: Attempt) -> list[tuple[int, str]]:
    """(characters of the completion up to its end, the claim) of every claim in the thinking; without a closing tag, in all."""
    text = attempt.completion
    close = text.rfind(CLOSE)
    start = text.find(OPEN)
    begin, end = (start + len(OPEN) if start >= 0 else 0), (close if close >= 0 else len(text))
    return [(found.end(), _spelled(found)) for found in _CLAIM.finditer(text, begin, max(begin, end))]


def _spelled(found: re.Match[str]) -> str:
    """A claim in one spelling."""
    part = found.groupdict()
    if part["operator"]:
        operator = _OPERATORS.get(part["operator"], part["operator"])
        return f"{int(part['left'])}{operator}{int(part['right'])}={int(part['result'])}"
    if part["sign"]:
        return f"{int(part['first'])}{part['sign']}{int(part['second'])}"
    return f"{int(part['number'])} {_PARITIES[part['parity']]}"


def _expected(plan: Sequence[Any] | Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """(the claims of a right solution in order, claim -> the claim that undoes it)."""
    if isinstance(plan, Mapping):
        return _choice(plan), {}
    claims, undone = [], {}
    for left, operator, right, result in run_plan([(left, operator, right) for left, operator, right in plan]):
        claims.append(f"{left}{operator}{right}={result}")
        if operator != "*" or right:
            undone[claims[-1]] = f"{result}{_INVERSE[operator]}{right}={left}"
    return claims, undone


def _choice(plan: Mapping[str, Any]) -> list[str]:
    """The claims that settle a choice: look at one option after the other, up to the right one or through all."""
    ask, values = plan["ask"], plan["values"]
    until = right_index(dict(plan)) + 1
    if ask == "sum":
        return [f"{a}+{b}={a + b}" for a, b in values[:until]]
    if ask in ("even", "odd"):
        return [f"{value} {'odd' if value % 2 else 'even'}" for value in values[:until]]
    best, claims = values[0], []
    for value in values[1:]:
        claims.append(f"{best}{'<' if best < value else '>'}{value}")
        best = value if (value > best) == (ask == "largest") else best
    return claims
