"""Decimals that do not end, and intervals in the notation of French schools, written the way that the parser reads them."""

from __future__ import annotations

import re
from fractions import Fraction

from r1pipe.rewards.maths.clean import GAP

MAX_PERIOD = 40
ENOUGH_DIGITS = 6
"""A decimal cut off with dots stands for what it begins only with this many places."""
_NUMBER = r"(?<![\w.,])(\d{1,40})\.(\d{0,40})"
_OVERLINE = re.compile(rf"{_NUMBER}(?:\\overline\s*\{{\s*(\d{{1,{MAX_PERIOD}}})\s*\}}|\((\d{{1,{MAX_PERIOD}}})\))(?![\d.])")
_DOTS = re.compile(rf"{_NUMBER}\\dot\s*(?:\{{(\d)\}}|(\d))(?:(\d{{0,{MAX_PERIOD}}})\\dot\s*(?:\{{(\d)\}}|(\d)))?(?![\d.])")
_MARKED = re.compile(r"(?<=[\d.])((?:\d[\u0304\u0305])+)")
_DOTTED = re.compile(r"(\d)\u0307")
_GOES_ON = re.compile(rf"{_NUMBER}[ {GAP}]*(?:\\dots|\.\.\.)[ {GAP}]*$")
_REVERSED = re.compile(r"([\[\]])([^\[\]();]{1,60}[,;][^\[\]();]{1,60})([\[\]])")


def ended(source: str) -> str:
    """Cleaned text with each repeating decimal as the fraction that it is: 0.\\overline{3}, 0.(3), 0.\\dot{3}, 0.333…"""
    if "." not in source:
        return source
    if not source.isascii():
        source = _MARKED.sub(lambda match: f"\\overline{{{re.sub('[^0-9]', '', match.group(1))}}}", source)
        source = _DOTTED.sub(r"\\dot{\1}", source)
    if "\\" not in source and "(" not in source and "..." not in source:
        return source
    source = _OVERLINE.sub(lambda m: _fraction(m.group(1), m.group(2), m.group(3) or m.group(4)), source)
    source = _DOTS.sub(lambda m: _fraction(m.group(1), m.group(2), "".join(group or "" for group in m.groups()[2:])), source)
    return _GOES_ON.sub(_going_on, source)


def _fraction(whole: str, fixed: str, period: str) -> str:
    """0.1 with 6 repeated is (16 - 1) / 90."""
    value = Fraction(int(whole + fixed + period) - int(whole + fixed), (10 ** len(period) - 1) * 10 ** len(fixed))
    return f"(\\frac{{{value.numerator}}}{{{value.denominator}}})"


def _going_on(match: re.Match[str]) -> str:
    """0.333… repeats what stands three times at its end, or twice when it is longer; other decimals with dots stay."""
    digits = match.group(2)
    for size in range(1, len(digits) // 2 + 1):
        times = 3 if size < 3 else 2
        period = digits[-size:]
        if digits.endswith(period * times):
            return _fraction(match.group(1), digits[: len(digits) - size * times], period)
    return f"{match.group(1)}.{digits}" if len(digits) >= ENOUGH_DIGITS else match.group(0)


def outward_brackets(source: str) -> str:
    """]1,2[ as (1,2), and [1,2[ as [1,2)."""
    if "[" not in source and "]" not in source:
        return source

    def turned(match: re.Match[str]) -> str:
        opening, inside, closing = match.groups()
        if opening == "[" and closing == "]":
            return match.group(0)
        return f"{'[' if opening == '[' else '('}{inside}{']' if closing == ']' else ')'}"

    return _REVERSED.sub(turned, source)
