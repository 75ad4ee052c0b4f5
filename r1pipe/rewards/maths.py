"""Maths answers: exact comparison of numbers and normalised text."""

from __future__ import annotations

import re
from fractions import Fraction

from r1pipe.data.chat import answer_block
from r1pipe.rewards.base import Score

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?")


def last_box(text: str) -> str | None:
    """Content of the last balanced box; None without one."""
    for start in reversed([match.end() for match in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]):
        depth = 1
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[start:end]
    return None


def number(text: str) -> Fraction | None:
    """The number that a text is; None when it is something else."""
    plain = re.sub(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", text.strip().strip("$").rstrip(".")).replace(",", "").replace(" ", "")
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        return None


def judge(gold: str, summary: str) -> Score:
    """Right when the final answer of the summary equals the gold answer."""
    found = last_box(summary) or answer_block(summary)
    if found is None:
        numbers = _NUMBER.findall(summary)
        found = numbers[-1] if numbers else summary
    if not found.strip():
        return Score(0.0, "empty answer")
    wanted = number(gold)
    same = number(found) == wanted if wanted is not None else found.strip(" $.") == gold.strip(" $.")
    return Score(float(same), f"answered {found.strip()[:60]}, wanted {gold[:60]}")
