"""Sets of real numbers: intervals, unions, set-builders and inequalities in one form, so that x < 3 equals (-∞, 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths.equal import number, same_value
from r1pipe.rewards.maths.evaluate import context
from r1pipe.rewards.maths.readings import Group, Quantity, Reading, Relation

_FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "=": "=", "≠": "≠"}
_EVERYTHING = ("ℝ", "R")


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
        if isinstance(name, Relation):  # {x ∈ R | …}
            name = name.sides[0]
        if inner is None or not isinstance(name, Quantity) or name.node != ("name", inner.variable):
            return None
        return RealSet(inner.intervals)
    parts = [real_set(item) for item in reading.items]
    if any(part is None for part in parts):
        return None
    sets = [part for part in parts if part is not None]
    variables = {part.variable for part in sets} - {""}
    if len(variables) > 1 or (reading.kind == "list" and not variables):
        return None
    variable = variables.pop() if variables else ""
    if reading.kind == "difference":
        outside = merged([piece for part in sets[1:] for piece in part.intervals])
        return RealSet(intersection(sets[0].intervals, complement(outside)), variable)
    if reading.kind == "union" or (reading.kind == "list" and not _all_hold(reading)):
        return RealSet(merged([piece for part in sets for piece in part.intervals]), variable)
    if reading.kind == "list":
        common = sets[0].intervals
        for part in sets[1:]:
            common = intersection(common, part.intervals)
        return RealSet(common, variable)
    return None


def _all_hold(reading: Group) -> bool:
    """Whether a list of conditions means all of them: joined by "and", or by commas when all say what x is not."""
    if reading.joiner == "and":
        return True
    return reading.joiner == "," and all(isinstance(item, Relation) and item.signs == ("≠",) for item in reading.items)


def _of_relation(reading: Relation) -> RealSet | None:
    if reading.signs == ("∈",):
        inner = real_set(reading.sides[1])
        return None if inner is None else RealSet(inner.intervals, reading.labels[0])
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
