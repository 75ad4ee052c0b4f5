"""Equality of two expressions, of two values, and of two equations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths.evaluate import Evaluation, TooLarge, Undefined, has_i, names_in, points, stepwise
from r1pipe.rewards.maths.expression import Node

DIGITS, MORE_DIGITS = 60, 150


def same(gold: Node, answer: Node) -> bool | None:
    """Whether two expressions are equal wherever both have real values; None when that cannot be told.

    An answer without a value (1/0) is not equal to anything; a gold answer without one cannot be judged.
    """
    if gold == answer:
        return True
    names = sorted(names_in(gold) | names_in(answer))
    if not names:
        return _same_at(gold, answer, {})[0]
    if len(names) > 12:
        return None
    complex_allowed = has_i(gold) or has_i(answer)
    real, unreal, differs_unreal = 0, 0, False
    for point in points(names, stepwise(gold) or stepwise(answer)):
        try:
            equal, is_real = _same_at(gold, answer, point)
        except (TooLarge, Undefined):
            continue
        if equal is None:
            continue
        if is_real or complex_allowed:
            if not equal:
                return False
            real += 1
        else:
            unreal += 1
            differs_unreal = differs_unreal or not equal
    if real >= 2:
        return True
    return True if unreal >= 3 and not differs_unreal else None


def _same_at(gold: Node, answer: Node, point: dict[str, Fraction]) -> tuple[bool | None, bool]:
    """(equal, both real) at one point."""
    first = Evaluation(point, DIGITS)
    one = first.value(gold)
    if not point:
        try:
            two = first.value(answer)
        except Undefined:
            return False, True
    else:
        two = first.value(answer)
    if isinstance(one, tuple) or isinstance(two, tuple):
        return _same_matrix(one, two), True
    if isinstance(one, (int, Fraction)) and isinstance(two, (int, Fraction)):
        return one == two, True
    mp = first.mp
    one, two = first.number(one), first.number(two)
    is_real = mp.im(one) == 0 and mp.im(two) == 0
    if mp.isinf(one) or mp.isinf(two):
        return one == two, is_real
    rough = abs(one - two)
    if rough > (abs(one) + abs(two)) * mp.mpf(10) ** -30 and rough > mp.mpf(10) ** -25:
        return False, is_real
    second = Evaluation(point, MORE_DIGITS)
    fine = abs(second.number(second.value(gold)) - second.number(second.value(answer)))
    # what is equal differs by rounding only, and rounding shrinks with the precision
    tiny = max(rough * second.mp.mpf(10) ** -40, (abs(one) + abs(two)) * second.mp.mpf(10) ** -130)
    return bool(fine == 0 or fine < tiny), is_real


def _same_matrix(one: Any, two: Any) -> bool:
    if not (isinstance(one, tuple) and isinstance(two, tuple)) or len(one) != len(two):
        return False
    return all(
        len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right, strict=True)) for left, right in zip(one, two, strict=True)
    )


def same_value(one: Any, two: Any) -> bool:
    """Whether two numbers agree, to 40 digits where they are not exact."""
    if isinstance(one, (int, Fraction)) and isinstance(two, (int, Fraction)):
        return one == two
    at = Evaluation({}, DIGITS)
    left, right = at.number(one), at.number(two)
    if at.mp.isinf(left) or at.mp.isinf(right):
        return bool(left == right)
    return bool(left == right or abs(left - right) <= (abs(left) + abs(right)) * at.mp.mpf(10) ** -40)


def same_equation(gold: tuple[Node, Node], answer: tuple[Node, Node], positive: bool = False) -> bool | None:
    """Whether two equations say the same: their differences of sides are equal up to a constant factor.

    With `positive` the factor must be positive: so are inequalities compared.
    """
    one: Node = ("add", gold[0], ("neg", gold[1]))
    two: Node = ("add", answer[0], ("neg", answer[1]))
    names = sorted(names_in(one) | names_in(two))
    if not names or names_in(one) != names_in(two):
        return None if not names else False
    ratios: list[Any] = []
    for point in points(names, stepwise(one) or stepwise(two)):
        at = Evaluation(point, DIGITS)
        try:
            first, second = at.value(one), at.value(two)
            if isinstance(first, tuple) or isinstance(second, tuple):
                return same(one, two)
            if first == 0 or second == 0:
                continue
            ratios.append(at.divide(first, second))
        except (TooLarge, Undefined):
            continue
    if len(ratios) < 3:
        return None
    if not all(same_value(ratio, ratios[0]) for ratio in ratios[1:]):
        return False
    at = Evaluation({}, DIGITS)
    first_ratio = at.number(ratios[0])
    return not positive or (at.mp.im(first_ratio) == 0 and at.mp.re(first_ratio) > 0)


def number(node: Node) -> Any:
    """The value of an expression without names; None when it has names or no value."""
    if names_in(node):
        return None
    try:
        return Evaluation({}, DIGITS).value(node)
    except (TooLarge, Undefined):
        return None
