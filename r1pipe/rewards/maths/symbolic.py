"""What SymPy must decide (integrals, sums, limits), by Math-Verify's parser and comparison. Runs in a scoring process only.

Math-Verify's own time limits use an alarm signal and are switched off: the service kills instead.
"""

from __future__ import annotations

import re
from typing import Any

MAX_CHARS = 1000
MAX_POWER_NESTING = 2
_LONG_DIGITS = re.compile(r"\d{60,}")
_BIG_POWER = re.compile(r"\^\s*\{?\s*\d{5,}")
_BIG_FACTORIAL = re.compile(r"\d{4,}\s*!|!\s*!|\)\s*!\s*[\^!]")
_BOUND = re.compile(r"\\(?:sum|prod)\s*(?:_\s*(?:\{[^{}]*\}|\w))?\s*\^\s*(?:\{([^{}]*)\}|(\w+))")
_LOST = re.compile(r"\\dots|\\ldots|\\cdots|\.\.\.|…")


def warm() -> None:
    """Import what the tasks need."""
    import math_verify  # noqa: F401


def hazard(text: str) -> str:
    """Why a text is not handed to SymPy at all; empty when it may be."""
    if len(text) > MAX_CHARS:
        return f"{len(text)} characters"
    if _LONG_DIGITS.search(text):
        return "a very long number"
    if power_nesting(text) > MAX_POWER_NESTING:
        return "powers of powers of powers"
    if _BIG_POWER.search(text):
        return "a very large exponent"
    if _BIG_FACTORIAL.search(text):
        return "a factorial too large"
    if any(re.search(r"\d{4,}|[\^!]", one or two) for one, two in _BOUND.findall(text)):
        return "a sum of very many terms"
    return "dots, which the parser would drop" if _LOST.search(text) else ""


def power_nesting(text: str) -> int:
    """How deeply exponents stand in exponents: 1 for x^2, 2 for x^{2^n}, 3 for a^b^c^d."""
    deepest = 0
    open_braces: list[int] = []
    level = 0
    previous = ""
    for character in text:
        if character == "{":
            open_braces.append(level)
        elif character == "}" and open_braces:
            level = open_braces.pop()
        elif character == "^":
            level += 1
            deepest = max(deepest, level)
        elif character in "+-*/=,;()[]& " and previous != "^" and not open_braces:
            level = 0
        elif character in "+-*/=,;& " and previous != "^" and open_braces:
            level = open_braces[-1]
        previous = character if character != " " else previous
    return deepest


def parse(text: str) -> Any:
    """A SymPy object from LaTeX; None when nothing was parsed."""
    from math_verify import LatexExtractionConfig
    from math_verify import parse as parse_latex

    bare = text.replace("$", "").replace("\\(", "").replace("\\)", "").replace("\\[", "").replace("\\]", "").strip()
    found = parse_latex(
        f"${bare}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
        raise_on_error=False,
    )
    return [item for item in found if not isinstance(item, str)] or None


def compare_texts(gold: str, answer: str) -> str:
    """ "right", "wrong", or "gold" when the gold answer cannot be parsed."""
    from math_verify import verify

    wanted = parse(gold)
    if wanted is None:
        return "gold"
    found = parse(answer)
    if found is None:
        return "wrong"
    return "right" if verify(wanted, found, timeout_seconds=None, raise_on_error=False) else "wrong"


def check_gold(gold: str) -> str:
    """ "right" when a gold answer equals itself, so that a failed comparison was the answer's doing."""
    return compare_texts(gold, gold)
