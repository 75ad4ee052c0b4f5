"""Amounts in several units: 5 ft 3 in, 2 hours and 30 minutes, 3元5角, 36°52'."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from r1pipe.rewards.maths.clean import GAP, TEXT_CLOSE, TEXT_OPEN
from r1pipe.rewards.maths.readings import Quantity
from r1pipe.rewards.maths.units import Unit, parse_unit

MAX_CHARS = 80
_BLANK = rf"[ {GAP}{TEXT_OPEN}{TEXT_CLOSE}]*"
_PART = re.compile(
    rf"{_BLANK}(\d{{1,12}}(?:\.\d{{1,12}})?){_BLANK}-?([^\W\d_]{{1,12}}|[\ue002°'\"′″¢]|\^\{{?\\prime(?:\\prime)?\}}?)\.?{_BLANK}"
    rf"(?:,|and\b|和|又)?"
)
_AFTER_DEGREES = {"'": "arcminute", "′": "arcminute", '"': "arcsecond", "″": "arcsecond"}
_AFTER_FEET = {"'": "ft", "′": "ft", '"': "in", "″": "in"}
_AFTER_HOURS = {"m": "min"}


def compound(source: str) -> Quantity | None:
    """The sum of amounts in units of one kind, each smaller than the one before, in the last of them; None for anything else."""
    if len(source) > MAX_CHARS or not source[:1].strip(TEXT_OPEN + GAP) or not re.match(rf"{_BLANK}\d", source):
        return None
    parts: list[tuple[Fraction, Unit]] = []
    position, names = 0, list[str]()
    while position < len(source):
        match = _PART.match(source, position)
        if match is None or len(parts) > 3:
            return None
        name = match.group(2).replace("^{\\prime}", "'").replace("^\\prime", "'").replace("^{\\prime\\prime}", '"')
        if "°" in names:
            name = _AFTER_DEGREES.get(name, name)
        elif names and names[-1].lower() in ("h", "hr", "hrs", "hour", "hours"):
            name = _AFTER_HOURS.get(name, name)
        else:
            name = _AFTER_FEET.get(name, name)
        unit = parse_unit(name)
        if unit is None or len(unit.dimensions) != 1 or unit.words:
            return None
        names.append(name)
        parts.append((Fraction(match.group(1)), unit))
        position = match.end()
    last = parts[-1][1] if parts else Unit()
    for (_, larger), (_, smaller) in pairwise(parts):
        if larger.dimensions != smaller.dimensions or larger.factor <= smaller.factor:
            return None
    if len(parts) < 2:
        return None
    return Quantity(("num", sum((amount * unit.factor for amount, unit in parts), Fraction(0)) / last.factor), last)
