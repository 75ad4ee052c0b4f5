"""How a problem is solved, as data: the plan that worked solutions are written from.

A plan is a list of steps `[left, operator, right]` of whole numbers, in which `null` stands for the result of the step before. It
travels in `Problem.check["plan"]`, so that a worked solution can be written for a row that was read back from a file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from r1pipe.data.rows import Kind, Problem

LARGEST = 99
"""The largest number that any step of a solution may reach."""

PlanStep = tuple[int | None, str, int | None]


@dataclass(frozen=True, slots=True)
class Draft:
    """A problem before it is a row: what a generator decides."""

    question: str
    answer: str
    checker: str
    source: str
    check: dict[str, Any] = field(default_factory=dict)

    def problem(self, domain: str, language: str, kind: Kind = "verifiable") -> Problem:
        """The row, with an id made from the question."""
        name = "nano-" + hashlib.sha256(self.question.encode()).hexdigest()[:16]
        return Problem(
            id=name,
            question=self.question,
            answer=self.answer,
            checker=self.checker,
            language=language,
            domain=domain,
            source=self.source,
            kind=kind,
            check=self.check,
        )


def compute(left: int, operator: str, right: int) -> int:
    """The whole number that a step gives; a division that leaves a rest is rounded down (only a slip leads to one)."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    return left // right if right else left


def run_plan(plan: list[PlanStep]) -> list[tuple[int, str, int, int]]:
    """The steps with every number filled in: (left, operator, right, result)."""
    steps: list[tuple[int, str, int, int]] = []
    for left, operator, right in plan:
        a = steps[-1][3] if left is None else left
        b = steps[-1][3] if right is None else right
        steps.append((a, operator, b, compute(a, operator, b)))
    return steps


def in_range(plan: list[PlanStep]) -> bool:
    """Whether every number of the plan lies between 0 and `LARGEST` and every division comes out even."""
    for left, operator, right, result in run_plan(plan):
        if not all(0 <= number <= LARGEST for number in (left, right, result)):
            return False
        if operator == "/" and (right == 0 or left % right):
            return False
    return True
