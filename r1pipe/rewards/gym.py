"""Reasoning Gym's own scorers, by the name of the data set.

Full marks are right, anything less is wrong: the paper's accuracy reward is binary. Three scorers give full marks for wrong
answers and are corrected here (`DECIDED`, `REQUIRED`); those that evaluate the answer as Python or by SymPy only get to see
harmless characters. `score` and `exact` run in a scoring process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Any

Entry = Mapping[str, Any]

FULL_MARKS = 1.0 - 1e-9
MAX_EVALUATED_CHARS = 600

_EVALUATED = frozenset({"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"})
"""Scorers that call `eval` on the answer, and never give full marks when they have to."""
_PARSED = frozenset({"countdown", "puzzle24", "simple_integration", "intermediate_integration", "polynomial_multiplication"})
"""Scorers that hand the answer to `sympy.parse_expr`, which evaluates it as Python."""
_TUPLES = frozenset({"arc_agi", "rearc"})
"""Their entries hold tuples, which files turn into lists."""

_GRID = re.compile(r"[\w\s,\-]*")
_FORMULA = re.compile(
    r"(?:[\d\s+\-*/^(),=]|\.\d|\d\.|(?<![\w.])(?:[A-Za-z]|sin|cos|tan|exp|log|ln|sqrt|asin|acos|atan|sinh|cosh|tanh|pi|Abs|erf|Ei|li)(?![\w]))*"
)
_HAZARD = re.compile(
    r"\d{15,}|(?:\*\*|\^)[^+\-]*(?:\*\*|\^)[^+\-]*(?:\*\*|\^)|(?:\*\*|\^)\s*\(?\s*\d{4,}|\d\s*(?:\*\*|\^)\s*\(?\s*\d+\s*(?:\*\*|\^)"
)


def refused(dataset: str, answer: str) -> str:
    """Why an answer is not given to a scorer that would evaluate it; empty when it may be."""
    if dataset in _EVALUATED and not _GRID.fullmatch(answer):
        return "only plain rows of symbols are read"
    if dataset in _PARSED:
        if len(answer) > MAX_EVALUATED_CHARS or _HAZARD.search(answer):
            return "a formula too large to work out"
        if "_" in answer or not _FORMULA.fullmatch(answer):
            return "not a plain formula"
    return ""


def _halting(answer: str, entry: Entry) -> bool:
    """game_of_life_halting: the scorer takes any text for True."""
    return answer.strip().rstrip(".").lower() == str(entry["answer"]).lower()


def _coin_flip(answer: str, entry: Entry) -> bool:
    """coin_flip: the scorer gives "0" full marks for sharing its first character with 0.1."""
    try:
        return abs(Fraction(answer.replace(",", "").strip()) - Fraction(str(entry["answer"]))) <= Fraction(1, 10_000)
    except (ValueError, ZeroDivisionError):
        return False


def _puzzle24(answer: str, entry: Entry) -> bool:
    """puzzle24: the scorer does not look whether the given numbers were used; this is one more condition."""
    return sorted(int(number) for number in re.findall(r"\d+", answer)) == sorted(entry["metadata"]["numbers"])


def _decimal(answer: str, entry: Entry) -> bool:
    """chain_sum and products: what their scorers do, without the two seconds that importing the package takes."""
    try:
        return Decimal(answer.replace(",", "").strip()) == Decimal(str(entry["answer"]).replace(",", ""))
    except InvalidOperation:
        return False


DECIDED: dict[str, Callable[[str, Entry], bool]] = {
    "chain_sum": _decimal,
    "products": _decimal,
    "game_of_life_halting": _halting,
    "coin_flip": _coin_flip,
}
"""Data set -> the check that takes the place of its scorer: the same one, or one that corrects it."""
REQUIRED: dict[str, Callable[[str, Entry], bool]] = {"puzzle24": _puzzle24}
"""Data set -> a condition that must hold before its scorer is asked."""


def warm() -> None:
    """Import what the tasks need."""
    import reasoning_gym  # noqa: F401


@lru_cache(maxsize=128)
def scorer(dataset: str) -> Any:
    """The data set's object, which holds its scorer."""
    import reasoning_gym

    return reasoning_gym.create_dataset(dataset, size=1, seed=0)


def exact(dataset: str) -> str:
    """ "exact" when the scorer compares text only (then nobody needs to ask it), "own" when it does more, "unknown" for no such
    data set.
    """
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        return "unknown"
    return "exact" if DATASETS[dataset][0].score_answer is ProceduralDataset.score_answer else "own"


def score(dataset: str, entry: dict[str, Any], answer: str) -> float:
    """What the data set's scorer says of an answer, 0 to 1."""
    if dataset in _TUPLES:
        entry = {**entry, "metadata": {name: tuples(value) for name, value in entry["metadata"].items()}}
    return float(scorer(dataset).score_answer(answer, entry))


def tuples(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(tuples(item) for item in value) if isinstance(value, list) else value
