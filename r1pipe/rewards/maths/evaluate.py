"""Whether two expressions are the same: exact where numbers are rational, to 60 and then 150 digits where they are not.

Nothing is ever simplified. Names get rational values, several times over, and the two sides are worked out; a difference
counts as zero only when it shrinks as the precision grows, so 2^-300 and 2^-301 stay different and √2·√3 and √6 are equal.
Every operation is bounded (bits of a number, size of an exponent or factorial) and raises `TooLarge` instead of hanging.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any

from r1pipe.rewards.maths import matrix
from r1pipe.rewards.maths.tokens import Node

Value = Any
"""An int or Fraction (exact), an mpmath number, or a matrix (tuple of rows)."""

MAX_BITS, MAX_FACTORIAL, MAX_EXPONENT, MAX_ANGLE = 120_000, 3000, 10**6, 10**30
BUDGET = 100_000
"""Work that one judgement may take: nodes worked out, large numbers counting for more. About half a second, on any machine the
same.
"""
_local = threading.local()


class TooLarge(ArithmeticError):
    """Working it out would need more than the limits allow."""


class Undefined(ArithmeticError):
    """There is no value (division by zero, the factorial of a fraction)."""


def context(digits: int) -> Any:
    """This thread's mpmath context of that precision (mpmath's own is shared by all threads)."""
    contexts: dict[int, Any] = _local.__dict__.setdefault("contexts", {})
    if digits not in contexts:
        contexts[digits] = import_module("mpmath.ctx_mp").MPContext()
        contexts[digits].dps = digits
    return contexts[digits]


def fresh_budget() -> None:
    """Begin a judgement in this thread."""
    _local.budget = BUDGET


def charge(work: int) -> None:
    """Count work against this thread's budget; TooLarge when it is spent."""
    left = getattr(_local, "budget", BUDGET) - work
    _local.budget = left
    if left < 0:
        raise TooLarge("too much work")


class Evaluation:
    """Works out trees at one point and one precision; with `real`, what is not a real number has no value."""

    def __init__(self, names: Mapping[str, Fraction], digits: int, real: bool = False) -> None:
        self.names = names
        self.real = real
        self.mp = context(digits)

    def value(self, node: Node) -> Value:
        """The value of a tree; TooLarge or Undefined when there is none within the limits."""
        charge(1)
        kind = node[0]
        if kind == "num":
            return node[1]
        if kind == "name":
            return self.names[node[1]]
        if kind == "neg":
            return self.times(-1, self.value(node[1]))
        if kind == "add":
            total = self.value(node[1])
            for term in node[2:]:
                total = self.plus(total, self.value(term))
            return total
        if kind == "mul":
            product = self.value(node[1])
            for factor in node[2:]:
                product = self.times(product, self.value(factor))
            return product
        if kind == "div":
            return self.divide(self.value(node[1]), self.value(node[2]))
        if kind == "pow":
            if node[2] == ("name", "T") and node[1][0] == "matrix":
                return tuple(zip(*self.value(node[1]), strict=True))
            return self.power(self.value(node[1]), self.value(node[2]))
        if kind == "root":
            return self.power(self.value(node[2]), self.divide(1, self.value(node[1])))
        if kind == "call":
            return call(self, node[1], [self.value(argument) for argument in node[2:]])
        if kind == "matrix":
            return tuple(tuple(self.value(cell) for cell in row) for row in node[1:])
        if kind == "apply":
            return self.apply(node[1], [self.value(argument) for argument in node[2:]])
        if kind == "mod":
            left, right = self.value(node[1]), self.value(node[2])
            if not isinstance(left, (int, Fraction)) or not isinstance(right, (int, Fraction)) or right == 0:
                raise Undefined("mod")
            return left % right
        if kind == "base":
            return based(node[1], node[2])
        constants = {"pi": self.mp.pi, "e": self.mp.e, "i": self.mp.j, "inf": self.mp.inf}
        if kind not in constants:
            raise Undefined(f"{kind} has no single value")
        return +constants[kind]

    def number(self, value: Value) -> Any:
        """An exact number as an mpmath one."""
        if isinstance(value, Fraction):
            return self.mp.mpf(value.numerator) / value.denominator
        if isinstance(value, tuple):
            raise Undefined("a matrix where a number is wanted")
        return self.mp.mpf(value) if isinstance(value, int) else value

    def plus(self, left: Value, right: Value) -> Value:
        """Sum of numbers, or of matrices."""
        if isinstance(left, tuple) or isinstance(right, tuple):
            if not (isinstance(left, tuple) and isinstance(right, tuple)):
                raise Undefined("matrix plus number")
            return shaped(matrix.add, left, right, self.plus)
        if isinstance(left, (int, Fraction)) and isinstance(right, (int, Fraction)):
            return small(left + right)
        return self.finite(self.number(left) + self.number(right))

    def times(self, left: Value, right: Value) -> Value:
        """Product of numbers, of matrices, or of one and the other."""
        if isinstance(left, tuple) and isinstance(right, tuple):
            return shaped(matrix.multiply, left, right, self.plus, self.times)
        if isinstance(left, tuple):
            left, right = right, left
        if isinstance(right, tuple):
            return tuple(tuple(self.times(left, cell) for cell in row) for row in right)
        if isinstance(left, (int, Fraction)) and isinstance(right, (int, Fraction)):
            return small(left * right)
        return self.finite(self.number(left) * self.number(right))

    def divide(self, left: Value, right: Value) -> Value:
        """Quotient; a matrix may be divided by a number."""
        if isinstance(right, tuple):
            raise Undefined("division by a matrix")
        if right == 0:
            raise Undefined("division by zero")
        if isinstance(right, (int, Fraction)):
            return self.times(left, 1 / Fraction(right))
        return self.times(left, 1 / right)

    def power(self, base: Value, exponent: Value) -> Value:
        """Exact where it can be; odd roots of negative numbers are real, as schools have it."""
        if isinstance(base, tuple):
            raise Undefined("power of a matrix")
        if isinstance(base, (int, Fraction)) and isinstance(exponent, (int, Fraction)):
            exact = exact_power(Fraction(base), Fraction(exponent))
            if exact is not None:
                return exact
        power = self.number(exponent)
        number = self.number(base)
        if isinstance(exponent, Fraction) and exponent.denominator % 2 and self.mp.im(number) == 0 and self.mp.re(number) < 0:
            root = self.power(-base, exponent)
            return root if exponent.numerator % 2 == 0 else -root
        if number == 0:
            if self.mp.im(power) == 0 and self.mp.re(power) > 0:
                return Fraction(0)
            raise Undefined("power of zero")
        if abs(power * self.mp.log(number)) > MAX_EXPONENT:
            raise TooLarge("power")
        return self.finite(self.mp.power(number, power))

    def apply(self, name: str, arguments: list[Value]) -> Value:
        """An unknown function: equal arguments give equal values, and nothing else is known of it."""
        import zlib

        keys = [str(a) if isinstance(a, (int, Fraction)) else self.mp.nstr(self.number(a), 30) for a in arguments]
        return Fraction(zlib.crc32(f"{name}({','.join(keys)})".encode()), 10**9 + 7) + 1

    def finite(self, value: Any) -> Any:
        """Refuses what is no number."""
        if self.mp.isnan(value):
            raise Undefined("not a number")
        if self.real and self.mp.im(value) != 0:
            raise Undefined("not a real number")
        return value


def shaped(operation: Any, *arguments: Any) -> Value:
    """A matrix operation whose shapes may not fit."""
    try:
        return operation(*arguments)
    except ValueError as error:
        raise Undefined(str(error)) from error


def small(value: int | Fraction) -> int | Fraction:
    """The number, unless it has grown beyond the limit."""
    bits = value.bit_length() if isinstance(value, int) else value.numerator.bit_length() + value.denominator.bit_length()
    if bits > MAX_BITS:
        raise TooLarge("number")
    if bits > 1000:
        charge((bits >> 9) + (bits >> 12) ** 2)  # reducing a fraction takes the square of its length
    return value


def based(digits: str, base: int) -> int:
    """Digits in another base."""
    if not 2 <= base <= 36 or len(digits) > 500:
        raise Undefined("base")
    try:
        return int(digits, base)
    except ValueError as error:
        raise Undefined("digit beyond its base") from error


def exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """A rational power as a fraction; None when it is irrational or not real."""
    if exponent.denominator == 1:
        power = exponent.numerator
        if base == 0:
            if power <= 0:
                raise Undefined("power of zero")
            return Fraction(0)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(base) != 1 and bits * abs(power) > MAX_BITS:
            raise TooLarge("power")
        return Fraction(base) ** (power if abs(base) != 1 else power % 2)
    if base == 0 and exponent > 0:
        return Fraction(0)
    if base <= 0 or exponent.denominator > 64:
        return None
    top, bottom = (integer_root(number, exponent.denominator) for number in (base.numerator, base.denominator))
    return exact_power(Fraction(top, bottom), Fraction(exponent.numerator)) if top is not None and bottom is not None else None


def integer_root(number: int, index: int) -> int | None:
    """The exact root of a natural number; None when there is none."""
    if number.bit_length() > 4000:
        raise TooLarge("root")
    if index == 2:
        root = math.isqrt(number)
    else:
        root = 1 << -(-number.bit_length() // index)
        while True:  # Newton from above
            step = ((index - 1) * root + number // root ** (index - 1)) // index
            if step >= root:
                break
            root = step
    return root if root**index == number else None


def call(at: Evaluation, name: str, arguments: list[Value]) -> Value:
    """A named function of numbers (or of one matrix)."""
    from r1pipe.rewards.maths.functions import ARGUMENTS, FUNCTIONS

    function = FUNCTIONS.get(name)
    if function is None or len(arguments) not in ARGUMENTS.get(name, (1,)):
        raise Undefined(f"function {name} of {len(arguments)} arguments")
    return function(at, *arguments)
