"""The functions that answers use, each bounded. All take the `Evaluation` first, then exact or mpmath numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths import matrix
from r1pipe.rewards.maths.evaluate import (
    MAX_ANGLE,
    MAX_BITS,
    MAX_EXPONENT,
    MAX_FACTORIAL,
    Evaluation,
    TooLarge,
    Undefined,
    shaped,
)

Value = Any
Function = Callable[..., Value]


def _analytic(name: str, limit: int = MAX_ANGLE) -> Function:
    """A function of mpmath, for arguments up to a limit."""

    def function(at: Evaluation, x: Value) -> Value:
        number = at.number(x)
        if abs(number) > limit:
            raise TooLarge(name)
        try:
            return at.finite(getattr(at.mp, name)(number))
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise Undefined(name) from error

    return function


def _log(at: Evaluation, x: Value, base: Value | None = None) -> Value:
    if x == 0 or base == 0 or base == 1:
        raise Undefined("logarithm")
    if isinstance(x, (int, Fraction)) and isinstance(base, (int, Fraction)) and x > 0 and base > 1:
        power = _exact_log(Fraction(x), Fraction(base))
        if power is not None:
            return power
    result = at.mp.log(at.number(x))
    return at.finite(result if base is None else result / at.mp.log(at.number(base)))


def _exact_log(x: Fraction, base: Fraction) -> Fraction | None:
    """log_2 8 is 3 exactly."""
    sign = 1 if x >= 1 else -1
    value, reached, power = x if x >= 1 else 1 / x, Fraction(1), 0
    if value.numerator.bit_length() > 2000:
        return None
    while reached < value:
        reached *= base
        power += 1
        if power > 2000:
            return None
    return Fraction(sign * power) if reached == value else None


def _log10(at: Evaluation, x: Value) -> Value:
    return _log(at, x, Fraction(10))


def _exp(at: Evaluation, x: Value) -> Value:
    number = at.number(x)
    if abs(number) > MAX_EXPONENT:
        raise TooLarge("exp")
    return at.mp.exp(number)


def _whole(x: Value) -> int:
    if isinstance(x, (int, Fraction)) and x == int(x):
        return int(x)
    raise Undefined("a whole number is wanted")


def _factorial(at: Evaluation, x: Value) -> Value:
    number = _whole(x)
    if number < 0:
        raise Undefined("factorial")
    if number > MAX_FACTORIAL:
        raise TooLarge("factorial")
    return Fraction(math.factorial(number))


def _binom(at: Evaluation, n: Value, k: Value) -> Value:
    top, below = _whole(n), _whole(k)
    if top < 0 or below < 0:
        raise Undefined("binomial")
    if min(below, top - below) * max(top, 2).bit_length() > MAX_BITS // 4:
        raise TooLarge("binomial")
    return Fraction(math.comb(top, below))


def _rounding(down: bool) -> Function:
    def function(at: Evaluation, x: Value) -> Value:
        if isinstance(x, (int, Fraction)):
            return Fraction(math.floor(x) if down else math.ceil(x))
        number = at.number(x)
        if at.mp.im(number) != 0 or at.mp.isinf(number) or abs(number) > MAX_ANGLE:
            raise Undefined("floor")
        nearest = at.mp.nint(number)
        if abs(number - nearest) < at.mp.mpf(10) ** (-at.mp.dps + 35):  # a whole number but for rounding
            return Fraction(int(nearest))
        return Fraction(int(at.mp.floor(number) if down else at.mp.ceil(number)))

    return function


def _abs(at: Evaluation, x: Value) -> Value:
    if isinstance(x, tuple):  # |A| of a matrix is its determinant
        return _det(at, x)
    return abs(x) if isinstance(x, (int, Fraction)) else abs(at.number(x))


def _det(at: Evaluation, x: Value) -> Value:
    if not isinstance(x, tuple):
        raise Undefined("determinant")
    return shaped(matrix.determinant, x, at.plus, at.times)


def _of_whole_numbers(function: Callable[..., int]) -> Function:
    return lambda at, *numbers: Fraction(function(*(_whole(number) for number in numbers)))


def _extreme(largest: bool) -> Function:
    def function(at: Evaluation, *numbers: Value) -> Value:
        if any(at.mp.im(at.number(number)) != 0 for number in numbers):
            raise Undefined("maximum")
        return (max if largest else min)(numbers, key=at.number)

    return function


def _root(index: int) -> Function:
    return lambda at, x: at.power(x, Fraction(1, index))


FUNCTIONS: dict[str, Function] = {
    **{name: _analytic(name) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _analytic(name) for name in ("asin", "acos", "atan", "acot", "asinh", "acosh", "atanh")},
    **{name: _analytic(name, MAX_EXPONENT) for name in ("sinh", "cosh", "tanh")},
    "ln": _log, "log": _log, "lg": _log10, "exp": _exp, "sqrt": _root(2), "cbrt": _root(3), "abs": _abs, "det": _det,
    "floor": _rounding(True), "ceil": _rounding(False), "factorial": _factorial, "binom": _binom,
    "gcd": _of_whole_numbers(math.gcd), "lcm": _of_whole_numbers(math.lcm), "max": _extreme(True), "min": _extreme(False),
    "re": lambda at, x: at.mp.re(at.number(x)), "im": lambda at, x: at.mp.im(at.number(x)), "arg": lambda at,
    x: at.mp.arg(at.number(x)),
    "div": lambda at, x, y: at.divide(x, y),
}  # fmt: skip
ARGUMENTS: dict[str, tuple[int, ...]] = {
    "log": (1, 2), "binom": (2,), "div": (2,), "gcd": tuple(range(1, 21)), "lcm": tuple(range(1, 21)), "max": tuple(range(1, 21)),
    "min": tuple(range(1, 21)),
}  # fmt: skip
"""How many arguments a function takes; one where it is not named here."""
