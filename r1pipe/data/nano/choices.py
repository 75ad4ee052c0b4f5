"""Built-in multiple choice: four options, one right letter.

The plan of a choice is a dictionary: what is asked, and the numbers of the options.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from r1pipe.data.nano.plans import Draft

LETTERS = "ABCD"

ENGLISH_ASKS: dict[str, str] = {
    "largest": "Which number is the largest?",
    "smallest": "Which number is the smallest?",
    "even": "Which number is even?",
    "odd": "Which number is odd?",
    "sum": "Which sum equals {target}?",
}
CHINESE_ASKS: dict[str, str] = {
    "largest": "下面哪个数最大？",
    "smallest": "下面哪个数最小？",
    "even": "下面哪个数是偶数？",
    "odd": "下面哪个数是奇数？",
    "sum": "下面哪个和等于{target}？",
}


def english(rng: random.Random) -> Iterator[Draft]:
    """Choices asked in English."""
    return _choices(rng, ENGLISH_ASKS)


def chinese(rng: random.Random) -> Iterator[Draft]:
    """Choices asked in Chinese."""
    return _choices(rng, CHINESE_ASKS)


def right_index(plan: dict[str, Any]) -> int:
    """The position of the right option."""
    ask, values = plan["ask"], plan["values"]
    if ask in ("largest", "smallest"):
        return int(values.index(max(values) if ask == "largest" else min(values)))
    if ask == "sum":
        return int([a + b for a, b in values].index(plan["target"]))
    return int([value % 2 for value in values].index(1 if ask == "odd" else 0))


def _choices(rng: random.Random, asks: dict[str, str]) -> Iterator[Draft]:
    while True:
        plan = _plan(rng, rng.choice(list(asks)))
        options = [f"{v[0]}+{v[1]}" if isinstance(v, list) else str(v) for v in plan["values"]]
        lines = [asks[plan["ask"]].format(target=plan.get("target", ""))]
        lines += [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True)]
        answer = LETTERS[right_index(plan)]
        yield Draft("\n".join(lines), answer, "choice", "nano/choice", {"options": options, "plan": plan})


def _plan(rng: random.Random, ask: str) -> dict[str, Any]:
    if ask in ("largest", "smallest"):
        return {"ask": ask, "values": rng.sample(range(10, 100), 4)}
    if ask == "sum":
        totals = rng.sample(range(20, 90), 4)
        values = []
        for total in totals:
            first = rng.randint(5, total - 5)
            values.append([first, total - first])
        return {"ask": ask, "values": values, "target": rng.choice(totals)}
    wanted = 1 if ask == "odd" else 0
    numbers = [2 * rng.randint(5, 48) + 1 - wanted for _ in range(4)]
    numbers[rng.randrange(4)] = 2 * rng.randint(5, 48) + wanted
    return {"ask": ask, "values": numbers}
