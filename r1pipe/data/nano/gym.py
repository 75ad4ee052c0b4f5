"""English arithmetic and equations from Reasoning Gym: its prompts, its answers, its scorers.

Its generators are asked for small numbers, and of what they give only items are kept whose solution stays between 0 and 99. From
`basic_arithmetic` only items are kept that mean the same when worked left to right and when products come first, because the
generator works left to right whatever the operators. The library is imported when the first item is asked for.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from r1pipe.data.nano.plans import Draft, PlanStep, in_range, run_plan

_ENDLESS = 2**40  # items are made on demand from seed + index, so a size only has to be out of reach

_EQUATION = re.compile(r"(?:(\d+) ([+-]) )?(?:(\d+)\*)?[a-z](?: ([+-]) (\d+))? = (\d+)")


def arithmetic(rng: random.Random) -> Iterator[Draft]:
    """Sums of two or three terms (`chain_sum`, `basic_arithmetic`)."""
    sums = _entries("chain_sum", rng, min_terms=2, max_terms=3, min_digits=1, max_digits=2)
    mixed = _entries(
        "basic_arithmetic",
        rng,
        min_terms=2,
        max_terms=3,
        min_digits=1,
        max_digits=1,
        operators=["+", "-", "*"],
        allow_parentheses=False,
        allow_negation=False,
        format_style="natural",
    )
    while True:
        entry = next(sums if rng.random() < 0.6 else mixed)
        plan = chain_plan(entry["metadata"]["expression"])
        if in_range(plan) and str(run_plan(plan)[-1][3]) == entry["answer"]:
            yield _draft(entry, plan)


def equations(rng: random.Random) -> Iterator[Draft]:
    """Equations in one unknown (`simple_equations`)."""
    items = _entries(
        "simple_equations",
        rng,
        min_terms=2,
        max_terms=2,
        min_value=1,
        max_value=10,
        operators=["+", "-", "*"],
        operators_weights=[0.5, 0.5, 0.0],
    )
    while True:
        entry = next(items)
        plan = equation_plan(entry["metadata"]["equation"])
        if plan is not None and in_range(plan) and str(run_plan(plan)[-1][3]) == entry["answer"]:
            yield _draft(entry, plan)


def chain_plan(expression: str) -> list[PlanStep]:
    """The steps for a chain of two or three whole numbers joined by +, -, *, products first."""
    first, *rest = expression.split()
    numbers, operators = [int(first), *map(int, rest[1::2])], rest[::2]
    if len(numbers) == 2:
        return [(numbers[0], operators[0], numbers[1])]
    if operators[1] == "*" and operators[0] != "*":
        return [(numbers[1], "*", numbers[2]), (numbers[0], operators[0], None)]
    return [(numbers[0], operators[0], numbers[1]), (None, operators[1], numbers[2])]


def equation_plan(equation: str) -> list[PlanStep] | None:
    """The steps that solve `a*x + b = c`, `a*x - b = c` or `b - a*x = c`; None for an equation of another form."""
    found = _EQUATION.fullmatch(equation)
    if found is None:
        return None
    before, sign, factor, after_sign, after, total = found.groups()
    if (before is None) == (after is None):
        return None
    if before is not None:
        plan: list[PlanStep] = [(int(before), "-", int(total)) if sign == "-" else (int(total), "-", int(before))]
    else:
        plan = [(int(total), "-" if after_sign == "+" else "+", int(after))]
    return [*plan, (None, "/", int(factor))] if factor is not None else plan


def _entries(name: str, rng: random.Random, **settings: Any) -> Iterator[dict[str, Any]]:
    """Items of a generator without end, from a seed that the given stream of random numbers decides."""
    import reasoning_gym

    items = reasoning_gym.create_dataset(name, seed=rng.getrandbits(48), size=_ENDLESS, **settings)
    return (items[index] for index in range(_ENDLESS))


def _draft(entry: dict[str, Any], plan: list[PlanStep]) -> Draft:
    name = entry["metadata"]["source_dataset"]
    plain = json.loads(json.dumps(entry))  # tuples become lists, so that the row is equal to itself once read from a file
    check = {"dataset": name, "entry": plain, "plan": [list(step) for step in plan]}
    return Draft(entry["question"], entry["answer"], "logic", f"reasoning-gym/{name}", check)
