"""Equality of two expressions, of two values, and of two equations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths.evaluate import Evaluation, TooLarge, Undefined
from r1pipe.rewards.maths.tokens import Node
from r1pipe.rewards.maths.tree import has, names_in, places_for

DIGITS, MORE_DIGITS = 60, 150


def same(gold: Node, answer: Node) -> bool | None:
    """Whether two expressions are equal wherever both have real values; None when that cannot be told.

    An answer without a value (1/0) is not equal to anything; a gold answer without one cannot be judged.
    """
    if gold == answer:
        return True
    names = sorted(names_in(gold) | names_in(answer))
    if not names:
        return _same_number(gold, answer)
    if len(names) > 12:
        return None
    places = places_for(names, gold, answer)
    complex_meant = has(gold, "i") or has(answer, "i")
    if not complex_meant:
        compared, differs, _ = _at_points(gold, answer, places, real=True)
        if differs or compared >= 2:
            return not differs
    compared, differs, failed = _at_points(gold, answer, places, real=False)
    if differs and complex_meant:
        return False
    if failed and not compared:
        return False  # the gold answer has values, the answer has none
    return True if compared >= (2 if complex_meant else 3) and not differs else None


def _at_points(gold: Node, answer: Node, places: list[dict[str, Fraction]], real: bool) -> tuple[int, bool, int]:
    """(points where both have a value, whether they differ at one, points where only the gold answer has a value)."""
    compared = failed = 0
    for place in places:
        at = Evaluation(place, DIGITS, real)
        try:
            one = at.value(gold)
        except (TooLarge, Undefined):
            continue
        try:
            equal = _same_at(at, one, at.value(answer), gold, answer)
        except (TooLarge, Undefined):
            failed += 1
            continue
        compared += 1
        if not equal:
            return compared, True, failed
    return compared, False, failed


def _same_number(gold: Node, answer: Node) -> bool:
    """Without names: a gold answer that cannot be worked out raises, an answer without a value is wrong."""
    at = Evaluation({}, DIGITS)
    one = at.value(gold)
    try:
        two = at.value(answer)
    except Undefined:
        return False
    return _same_at(at, one, two, gold, answer)


def _same_at(at: Evaluation, one: Any, two: Any, gold: Node, answer: Node) -> bool:
    """Whether two values at one point are equal; looks again with more digits where that decides."""
    if isinstance(one, tuple) or isinstance(two, tuple):
        return _same_matrix(one, two)
    if isinstance(one, (int, Fraction)) and isinstance(two, (int, Fraction)):
        return one == two
    mp = at.mp
    one, two = at.number(one), at.number(two)
    if mp.isinf(one) or mp.isinf(two):
        return bool(one == two)
    rough = abs(one - two)
    if rough > (abs(one) + abs(two)) * mp.mpf(10) ** -30 and rough > mp.mpf(10) ** -25:
        return False
    again = Evaluation(at.names, MORE_DIGITS, at.real)
    fine = abs(again.number(again.value(gold)) - again.number(again.value(answer)))
    # what is equal differs by rounding only, and rounding shrinks with the precision
    tiny = max(rough * again.mp.mpf(10) ** -40, (abs(one) + abs(two)) * again.mp.mpf(10) ** -130)
    return bool(fine == 0 or fine < tiny)


def _same_matrix(one: Any, two: Any) -> bool:
    if not (isinstance(one, tuple) and isinstance(two, tuple)) or len(one) != len(two):
        return False
    return all(
        len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right, strict=True))
        for left, right in zip(one, two, strict=True)
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
    for point in places_for(names, one, two):
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
