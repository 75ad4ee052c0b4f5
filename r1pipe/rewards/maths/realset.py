"""Sets of real numbers: intervals, unions, set-builders and inequalities in one form, so that x < 3 equals (-∞, 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths.equal import DIGITS, number, same_value
from r1pipe.rewards.maths.evaluate import Evaluation, TooLarge, Undefined, context
from r1pipe.rewards.maths.readings import Group, Quantity, Reading, Relation
from r1pipe.rewards.maths.tokens import Node
from r1pipe.rewards.maths.tree import names_in

_FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠"}
_ORDER = frozenset("<>≤≥≠")
_EVERYTHING = ("ℝ", "R")
_LOWEST: dict[str, int | None] = {"ℤ": None, "Z": None}
"""Sets of whole numbers. ℕ is left out, since not all let it begin with the same number."""
MAX_POINTS = 64


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`; a closed end belongs to it. A single number is an interval of length zero."""

    low: Any
    low_closed: bool
    high: Any
    high_closed: bool


@dataclass(frozen=True, slots=True)
class RealSet:
    """Disjoint intervals in order; `variable` is the name that an inequality was written with, empty for a bare set."""

    intervals: tuple[Interval, ...]
    variable: str = ""


def _key(value: Any) -> Any:
    mp = context(60)
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mp.mpf(value)


def _infinity() -> Any:
    return context(60).inf


def _end(reading: Reading) -> Any | None:
    """A real number or an infinity; None for anything else."""
    if not isinstance(reading, Quantity) or reading.percent:
        return None
    value = number(reading.node)
    if value is None or isinstance(value, tuple):
        return None
    if isinstance(value, (int, Fraction)):
        return value
    return None if context(60).im(value) != 0 else context(60).re(value)


def _plain(value: Any) -> Any:
    return _key(value) if isinstance(value, (int, Fraction)) else value


def _below(one: Any, two: Any) -> bool:
    return not same_value(one, two) and bool(_plain(one) < _plain(two))


def merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Sorted and joined where they touch; empty ones dropped."""
    kept = [
        piece
        for piece in intervals
        if _below(piece.low, piece.high) or (same_value(piece.low, piece.high) and piece.low_closed and piece.high_closed)
    ]
    kept.sort(key=lambda piece: (_plain(piece.low), not piece.low_closed))
    joined: list[Interval] = []
    for piece in kept:
        last = joined[-1] if joined else None
        touches = last is not None and (
            _below(piece.low, last.high) or (same_value(piece.low, last.high) and (piece.low_closed or last.high_closed))
        )
        if last is None or not touches:
            joined.append(piece)
            continue
        if _below(last.high, piece.high):
            high, closed = piece.high, piece.high_closed
        else:
            high, closed = last.high, last.high_closed or (same_value(last.high, piece.high) and piece.high_closed)
        joined[-1] = Interval(last.low, last.low_closed, high, closed)
    return tuple(joined)


def complement(intervals: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """All real numbers outside."""
    pieces: list[Interval] = []
    low, closed = -_infinity(), False
    for piece in intervals:
        pieces.append(Interval(low, closed, piece.low, not piece.low_closed))
        low, closed = piece.high, not piece.high_closed
    pieces.append(Interval(low, closed, _infinity(), False))
    return merged(pieces)


def intersection(one: tuple[Interval, ...], two: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """What both have."""
    return complement(merged([*complement(one), *complement(two)]))


def real_set(reading: Reading) -> RealSet | None:
    """The set of reals that a reading describes; None when it describes something else."""
    if isinstance(reading, Quantity):
        if reading.node[0] == "name" and reading.node[1] in _EVERYTHING:
            return RealSet((Interval(-_infinity(), False, _infinity(), False),))
        return None
    if isinstance(reading, Relation):
        return _of_relation(reading)
    if not isinstance(reading, Group):
        return None
    if reading.kind == "tuple" and len(reading.items) == 2:
        low, high = _end(reading.items[0]), _end(reading.items[1])
        if low is None or high is None or not _below(low, high):
            return None
        opens, closes = reading.brackets[0], reading.brackets[-1]
        return RealSet(merged([Interval(low, opens == "[", high, closes == "]")]))
    if reading.kind == "set":
        values = [_end(item) for item in reading.items]
        return None if any(value is None for value in values) else RealSet(merged([Interval(v, True, v, True) for v in values]))
    if reading.kind == "builder":
        inner = real_set(reading.items[1])
        name = reading.items[0]
        within = ""
        if isinstance(name, Relation):  # {x ∈ R | …}
            members = name.sides[1]
            within = members.node[1] if isinstance(members, Quantity) and members.node[0] == "name" else "?"
            name = name.sides[0]
        if inner is None or not isinstance(name, Quantity) or name.node != ("name", inner.variable):
            return None
        if within in ("", *_EVERYTHING):
            return RealSet(inner.intervals)
        points = _whole_numbers(inner.intervals, _LOWEST[within]) if within in _LOWEST else None
        return None if points is None else RealSet(points)
    parts = [real_set(item) for item in reading.items]
    if any(part is None for part in parts):
        return None
    sets = [part for part in parts if part is not None]
    variables = {part.variable for part in sets} - {""}
    if len(variables) > 1 or (reading.kind == "list" and not variables):
        return None
    variable = variables.pop() if variables else ""
    if reading.kind == "intersection":
        return RealSet(_common(sets), variable)
    if reading.kind == "difference":
        outside = merged([piece for part in sets[1:] for piece in part.intervals])
        return RealSet(intersection(sets[0].intervals, complement(outside)), variable)
    if reading.kind == "list" and reading.joiner != "or":
        common = _common(sets)
        if common or reading.joiner == "and":
            return RealSet(common, variable)
    if reading.kind in ("union", "list"):
        return RealSet(merged([piece for part in sets for piece in part.intervals]), variable)
    return None


def _common(sets: list[RealSet]) -> tuple[Interval, ...]:
    """What all of them have. A list with commas means all of its conditions (x > 1, x < 3), or any where all cannot hold."""
    common = sets[0].intervals
    for part in sets[1:]:
        common = intersection(common, part.intervals)
    return common


def _whole_numbers(intervals: tuple[Interval, ...], lowest: int | None) -> tuple[Interval, ...] | None:
    """The whole numbers in bounded intervals, at most MAX_POINTS; None for more."""
    points: list[Interval] = []
    for piece in intervals:
        low, high = _plain(piece.low), _plain(piece.high)
        if lowest is not None:
            low = max(low, lowest)
        if context(60).isinf(low) or context(60).isinf(high) or high - low > MAX_POINTS:
            return None
        for number_ in range(int(context(60).ceil(low)), int(context(60).floor(high)) + 1):
            if (number_ != piece.low or piece.low_closed) and (number_ != piece.high or piece.high_closed):
                points.append(Interval(number_, True, number_, True))
    return tuple(points) if len(points) <= MAX_POINTS else None


def _absolute(reading: Relation) -> RealSet | None:
    """|a x + b| below or above a number: between, or outside, its two ends."""
    if len(reading.sides) != 2:
        return None
    flip = not (isinstance(reading.sides[0], Quantity) and reading.sides[0].node[:2] == ("call", "abs"))
    side, other = reading.sides[::-1] if flip else reading.sides
    bound = _end(other)
    if not isinstance(side, Quantity) or side.unit or side.node[:2] != ("call", "abs") or bound is None:
        return None
    sign = _FLIPPED[reading.signs[0]] if flip else reading.signs[0]
    line = _line(side.node[2])
    if line is None or not isinstance(bound, (int, Fraction)) or bound < 0 or sign not in ("<", "≤", ">", "≥"):
        return None
    name, slope, offset = line
    low, high = sorted(((-bound - offset) / slope, (bound - offset) / slope))
    inside = merged([Interval(low, sign in ("≤", ">"), high, sign in ("≤", ">"))])
    return RealSet(inside if sign in ("<", "≤") else complement(inside), name)


def _line(node: Node) -> tuple[str, Fraction, Fraction] | None:
    """(x, a, b) of an expression a x + b with rational numbers; None for anything else."""
    names = names_in(node)
    if len(names) != 1:
        return None
    (name,) = names
    values = []
    for place in (Fraction(0), Fraction(1), Fraction(-3), Fraction(7, 5)):
        try:
            value = Evaluation({name: place}, DIGITS).value(node)
        except (TooLarge, Undefined):
            return None
        if not isinstance(value, (int, Fraction)):
            return None
        values.append((place, Fraction(value)))
    offset = values[0][1]
    slope = values[1][1] - offset
    straight = slope != 0 and all(value == slope * place + offset for place, value in values)
    return (name, slope, offset) if straight else None


def _solved(reading: Relation) -> Relation:
    """-3 < x - 2 < 3 as -1 < x < 5: the one side with a name is a x + b, the others are numbers."""
    lines = [(i, side.node) for i, side in enumerate(reading.sides) if isinstance(side, Quantity) and names_in(side.node)]
    if len(lines) != 1 or lines[0][1][0] == "name" or any(sign not in _ORDER for sign in reading.signs):
        return reading
    place, node = lines[0]
    line = _line(node)
    ends = [Fraction(0) if index == place else _end(side) for index, side in enumerate(reading.sides)]
    numbers = [Fraction(end) for end in ends if isinstance(end, (int, Fraction))]
    if line is None or len(numbers) < len(ends):
        return reading
    name, slope, offset = line
    sides = tuple(
        Quantity(("name", name)) if index == place else Quantity(("num", (end - offset) / slope))
        for index, end in enumerate(numbers)
    )
    signs = reading.signs if slope > 0 else tuple(_FLIPPED[sign] for sign in reading.signs)
    return Relation(signs, sides, reading.labels)


def _of_relation(reading: Relation) -> RealSet | None:
    if reading.signs == ("∈",):
        inner = real_set(reading.sides[1])
        return None if inner is None else RealSet(inner.intervals, reading.labels[0])
    absolute = _absolute(reading) if len(reading.signs) == 1 and reading.signs[0] in _ORDER else None
    if absolute is not None:
        return absolute
    reading = _solved(reading)
    sides = list(reading.sides)
    places = [
        index for index, side in enumerate(sides) if isinstance(side, Quantity) and side.node[0] == "name" and side.unit is None
    ]
    if len(places) != 1 or any(sign not in _FLIPPED for sign in reading.signs) or set(reading.signs) == {"="}:
        return None
    place = places[0]
    variable = sides[place]
    assert isinstance(variable, Quantity)
    allowed: tuple[Interval, ...] = (Interval(-_infinity(), False, _infinity(), False),)
    for index, sign in enumerate(reading.signs):
        if index not in (place - 1, place):
            return None
        bound = _end(sides[index] if index < place else sides[index + 1])
        if bound is None:
            return None
        sign = _FLIPPED[sign] if index < place else sign
        point = (Interval(bound, True, bound, True),)
        piece = {
            "<": (Interval(-_infinity(), False, bound, False),),
            "≤": (Interval(-_infinity(), False, bound, True),),
            ">": (Interval(bound, False, _infinity(), False),),
            "≥": (Interval(bound, True, _infinity(), False),),
            "=": point,
            "≠": complement(point),
        }[sign]
        allowed = intersection(allowed, piece)
    return RealSet(allowed, variable.node[1])


def same_set(one: RealSet, two: RealSet) -> bool:
    """Whether both have the same intervals; two named variables must have the same name."""
    if one.variable and two.variable and one.variable != two.variable:
        return False
    return len(one.intervals) == len(two.intervals) and all(
        same_value(a.low, b.low)
        and same_value(a.high, b.high)
        and a.low_closed == b.low_closed
        and a.high_closed == b.high_closed
        for a, b in zip(one.intervals, two.intervals, strict=True)
    )
