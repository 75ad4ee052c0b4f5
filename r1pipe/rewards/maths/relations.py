"""Equations, inequalities and assignments.

An answer may name what it found ("x = 5", "f(x) = x²", "m + n = 113"); the name is not part of the value. An equation that
*is* the answer (a line, a plane) must be the same equation: its right side alone is not it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths.equal import number, same_equation
from r1pipe.rewards.maths.readings import Group, Quantity, Reading, Relation
from r1pipe.rewards.maths.realset import real_set, same_set
from r1pipe.rewards.maths.tokens import Node
from r1pipe.rewards.maths.tree import has, names_in

Verdict = bool | None
Compare = Callable[[Reading, Reading, Any], Verdict]

_NAME = r"(?:\\?[A-Za-z∠△α-ωΑ-Ωϕ]|\\(?:angle|triangle|overline|widehat)|[\u4e00-\u9fff])[A-Za-z0-9_,∠△α-ωΑ-Ω'*\\^-]*"
_LABEL = re.compile(rf"(?:{_NAME}(?:\((?:[A-Za-z0-9_,|> -]|\\)*\)|\[[A-Za-z0-9_,| ]*\])?|\|{_NAME}\|)")
_FUNCTION = re.compile(r"([A-Za-z]\w*)\(([A-Za-z])\)")
_EQUAL_SIGNS = frozenset("=≈≡→⇒∼")
_FLIPPED = {">": "<", "≥": "≤"}


def is_equation(reading: Reading) -> bool:
    """Whether a relation only says what equals what."""
    return (
        isinstance(reading, Relation)
        and "=" in reading.signs + ("=",) * ("≡" in reading.signs)
        and set(reading.signs) <= _EQUAL_SIGNS
    )


def normalise(reading: Reading) -> Reading:
    """(x, y) = (1, 2), [x = 1, y = 2] and {x = 1, y = 2} as a list of assignments; x = 1 or x = 2 as x = 1, 2; 5 = x as x = 5."""
    if isinstance(reading, Relation) and reading.signs == ("∈",):
        members = reading.sides[1]
        if isinstance(members, Group) and members.kind == "set" and is_label(reading.labels[0]):
            return Relation(("=",), (reading.sides[0], replace(members, kind="list")), reading.labels)
    if isinstance(reading, Relation) and reading.signs == ("=",):
        left, right = reading.sides
        if (
            isinstance(left, Group)
            and isinstance(right, Group)
            and left.kind == right.kind == "tuple"
            and len(left.items) == len(right.items)
        ):
            names = [item.node[1] if isinstance(item, Quantity) and item.node[0] == "name" else "" for item in left.items]
            if all(names):
                pairs = zip(left.items, right.items, names, strict=True)
                return Group("list", tuple(Relation(("=",), (name, value), (label, "")) for name, value, label in pairs))
        if is_label(reading.labels[1]) and not is_label(reading.labels[0]):
            return Relation(("=",), (right, left), (reading.labels[1], reading.labels[0]))
    if isinstance(reading, Group) and reading.kind in ("list", "set", "tuple") and len(reading.items) > 1:
        items = [normalise(item) for item in reading.items]
        assigned = [item for item in items if isinstance(item, Relation) and item.signs == ("=",) and is_label(item.labels[0])]
        if len(assigned) == len(items):
            labels = {item.labels[0] for item in assigned}
            if len(labels) == 1:
                return Relation(
                    ("=",), (assigned[0].sides[0], Group("list", tuple(item.sides[1] for item in assigned))), (labels.pop(), "")
                )
            return Group("list", tuple(items))
        return replace(reading, items=tuple(items))
    return reading


def is_label(text: str) -> bool:
    """Whether a side of an equation only names something: x, x_1, f(x), ∠ABC, |AB|, P(A|B), S:T, AB/CD."""
    if text in ("e", "i", "π"):
        return False
    parts = re.split(r"[:/]", text.removeprefix("\\frac"))
    return all(bool(_LABEL.fullmatch(part)) for part in parts)


def relations(gold: Reading, answer: Reading, rules: Any, compare: Compare) -> Verdict:
    """Verdict where at least one side is a relation."""
    if is_equation(gold) and is_equation(answer):
        assert isinstance(gold, Relation)
        assert isinstance(answer, Relation)
        return _equations(gold, answer, rules, compare)
    if is_equation(gold):
        assert isinstance(gold, Relation)
        return _named(gold) and not isinstance(answer, Relation) and compare(value(gold), answer, rules)
    if is_equation(answer) and not isinstance(gold, Relation):
        assert isinstance(answer, Relation)
        return _answers(gold, answer, rules, compare)
    if is_equation(answer):
        return False
    first, second = real_set(gold), real_set(answer)
    if first is not None and second is not None:
        return same_set(first, second)
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _inequalities(gold, answer, rules, compare)
    one, other = (gold, answer) if isinstance(gold, Relation) else (answer, gold)
    return isinstance(one, Relation) and one.signs == ("∈",) and compare(one.sides[1], other, rules)


def value(equation: Relation) -> Reading:
    """What an equation ends in: its last side, or the exact one before an approximation."""
    for index, sign in enumerate(equation.signs):
        if sign == "≈" and index > 0:
            return equation.sides[index]
    return equation.sides[-1]


def _named(equation: Relation) -> bool:
    """Whether the left side is a name, or a sum worked out on the way (10^3 = 1000), so that the right side is the answer."""
    return is_label(equation.labels[0]) or _closed(equation.sides[0]) or _names_only(equation.sides[0])


def _names_only(side: Reading) -> bool:
    return (
        isinstance(side, Group)
        and side.kind in ("tuple", "ratio")
        and all(
            isinstance(item, Quantity) and item.node[0] in ("name", "mul", "apply") and bool(names_in(item.node))
            for item in side.items
        )
    )


def _closed(side: Reading) -> bool:
    return isinstance(side, Quantity) and not names_in(side.node)


def _answers(gold: Reading, answer: Relation, rules: Any, compare: Compare) -> Verdict:
    """A bare gold answer against an equation: what the equation ends in, unless it is "something with unknowns = 0"."""
    found = value(answer)
    if not _holds(answer):
        return False
    if not _named(answer) and isinstance(found, Quantity) and number(found.node) == 0:
        return False
    verdict = compare(gold, found, rules)
    if not verdict and "≈" in answer.signs:
        return _close(found, answer.sides[-1]) and compare(gold, answer.sides[-1], rules)
    return verdict


def _holds(equation: Relation) -> bool:
    """Whether its sides without names agree, at least roughly: 2 = 3 answers nothing, 3 · 4 = 12 does."""
    if set(equation.signs) != {"="}:
        return True
    plain = [side for side in equation.sides if isinstance(side, Quantity) and not side.unit and not side.percent]
    plain = [side for side in plain if not has(side.node, "apply")]
    numbers = (number(side.node) for side in plain)
    values = [Fraction(one) for one in numbers if isinstance(one, (int, Fraction))]
    return all(abs(one - values[-1]) * 20 <= max(abs(one), abs(values[-1])) for one in values[:-1])


def _close(exact: Reading, rounded: Reading) -> bool:
    """Whether an approximation belongs to the number before it."""
    if not isinstance(exact, Quantity) or not isinstance(rounded, Quantity):
        return False
    one, two = number(exact.node), number(rounded.node)
    if one is None or two is None or isinstance(one, tuple) or isinstance(two, tuple):
        return False
    try:
        return bool(abs(complex(one) - complex(two)) <= 0.01 * abs(complex(one)))
    except OverflowError:
        return False


def _equations(gold: Relation, answer: Relation, rules: Any, compare: Compare) -> Verdict:
    label, other = gold.labels[0], answer.labels[0]
    sides: list[tuple[Node, Node]] = []
    for equation in (gold, answer):
        left, right = equation.sides[0], equation.sides[-1]
        if (
            len(equation.sides) == 2
            and isinstance(left, Quantity)
            and isinstance(right, Quantity)
            and not left.unit
            and not right.unit
        ):
            sides.append((left.node, right.node))
    unknown = False
    if len(sides) == 2:
        verdict = same_equation(sides[0], sides[1])
        if verdict:
            return True
        unknown = verdict is None
    if not _named(gold):
        return None if unknown else False
    if label == other or _closed(answer.sides[0]) or _closed(gold.sides[0]):
        return compare(value(gold), value(answer), rules)
    one, two = _FUNCTION.fullmatch(label), _FUNCTION.fullmatch(other)
    if one and two and one.group(1) == two.group(1):  # f(x) = x², f(n) = n²
        return compare(value(gold), renamed(value(answer), two.group(2), one.group(2)), rules)
    function = one or two
    if function and "y" in (label, other) and function.group(1) in "fgh":  # y = 2x + 1, f(x) = 2x + 1
        return compare(value(gold), value(answer), rules)
    if is_label(other) and (len(label) > 1 or len(other) > 1) and _letters(label)[:1] == _letters(other)[:1]:
        return compare(value(gold), value(answer), rules)  # m_max and m
    return None if unknown else False


def _letters(label: str) -> str:
    return re.sub(r"[^A-Za-zα-ωΑ-Ω]", "", label)


def renamed(reading: Reading, old: str, new: str) -> Reading:
    """The reading with one variable called by another name."""

    def change(node: Node) -> Node:
        if node == ("name", old):
            return ("name", new)
        return tuple(change(part) if isinstance(part, tuple) else part for part in node)

    return replace(reading, node=change(reading.node)) if isinstance(reading, Quantity) else reading


def _inequalities(gold: Relation, answer: Relation, rules: Any, compare: Compare) -> Verdict:
    """Inequalities in several unknowns: 2x + y < 4 and y < 4 - 2x; b > a > c and c < a < b."""
    one, two = _ascending(gold), _ascending(answer)
    if one.signs != two.signs:
        return False
    verdicts = [compare(left, right, rules) for left, right in zip(one.sides, two.sides, strict=True)]
    if all(verdicts):
        return True
    quantities = [side for side in (*one.sides, *two.sides) if isinstance(side, Quantity) and side.unit is None]
    if len(quantities) == 4 and len(one.sides) == 2:
        return same_equation(
            (quantities[0].node, quantities[1].node), (quantities[2].node, quantities[3].node), positive=one.signs != ("≠",)
        )
    return None if None in verdicts else False


def _ascending(relation: Relation) -> Relation:
    """The relation written with < and ≤."""
    if not any(sign in _FLIPPED for sign in relation.signs):
        return relation
    signs = tuple(_FLIPPED.get(sign, sign) for sign in reversed(relation.signs))
    return Relation(signs, tuple(reversed(relation.sides)), tuple(reversed(relation.labels)))
