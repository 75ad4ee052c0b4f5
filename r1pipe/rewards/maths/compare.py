"""Whether a typed answer is the typed gold answer. The rules are written out in docs/verifier.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from r1pipe.rewards.maths.equal import number, same
from r1pipe.rewards.maths.evaluate import context
from r1pipe.rewards.maths.phrases import meaning
from r1pipe.rewards.maths.readings import Group, Quantity, Reading, Relation, Words
from r1pipe.rewards.maths.realset import real_set, same_set
from r1pipe.rewards.maths.relations import normalise, relations
from r1pipe.rewards.maths.tokens import Node
from r1pipe.rewards.maths.tree import has, has_sign, with_sign
from r1pipe.rewards.maths.units import ratio

Verdict = bool | None
MIN_ROUNDED_DIGITS = 6
"""A rounded decimal stands for an irrational number, or a long fraction, only with this many significant digits."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a checker lets pass.

    Attributes:
        percent: "lenient": 20% answers 0.2 and also 20, the question having said "percent"; "strict": only 0.2.
        tolerance: accepted absolute or relative difference of two numbers; 0 for none.
    """

    percent: str = "lenient"
    tolerance: float = 0.0


LENIENT = Rules()


def compare(gold: Reading, answer: Reading, rules: Rules) -> Verdict:
    """True or False; None when it cannot be told."""
    if isinstance(gold, Words) or isinstance(answer, Words):
        return _words(gold, answer)
    gold, answer = normalise(gold), normalise(answer)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return relations(gold, answer, rules, compare)
    gold, answer = _both_signs(gold), _both_signs(answer)
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return quantities(gold, answer, rules)
    return _groups(gold, answer, rules)


def _words(gold: Reading, answer: Reading) -> Verdict:
    if isinstance(gold, Words) and isinstance(answer, Words):
        one = meaning(gold.text)
        return bool(one) and one == meaning(answer.text)
    words, other = (gold, answer) if isinstance(gold, Words) else (answer, gold)
    assert isinstance(words, Words)
    said = meaning(words.text)
    if said == "no solution":
        return isinstance(other, Group) and other.kind == "set" and not other.items
    if said == "all real numbers":
        reals = real_set(other)
        return (
            reals is not None
            and len(reals.intervals) == 1
            and reals.intervals[0].low == -context(60).inf == -reals.intervals[0].high
        )
    return False


def _both_signs(reading: Reading) -> Reading:
    """±: both values, as a set."""
    if isinstance(reading, Quantity) and has_sign(reading.node):
        return Group("set", tuple(replace(reading, node=with_sign(reading.node, plus)) for plus in (True, False)))
    if (
        isinstance(reading, Group)
        and reading.kind in ("set", "list")
        and any(isinstance(i, Quantity) and has_sign(i.node) for i in reading.items)
    ):
        items: list[Reading] = []
        for item in reading.items:
            expanded = _both_signs(item)
            items.extend(expanded.items if isinstance(expanded, Group) and expanded is not item else (item,))
        return replace(reading, items=tuple(items))
    return reading


def quantities(gold: Quantity, answer: Quantity, rules: Rules) -> Verdict:
    """Numbers and expressions, with units and percent signs."""
    if gold.node[0] == "base" or answer.node[0] == "base":
        return _based(gold, answer)
    if (measured := _in_radians(gold, answer)) is not None:
        gold, answer = measured
    factor = ratio(answer.unit, gold.unit)
    bare = gold.unit is None or answer.unit is None
    if factor is None or (bare and (gold.loose or answer.loose > 1)):
        return False
    if gold.percent == answer.percent:
        return _equal(gold, answer, factor, rules)
    if rules.percent == "lenient" and (plain_reading := _equal(gold, answer, factor, rules)):
        return plain_reading
    return _equal(gold, answer, factor * (100 if gold.percent else Fraction(1, 100)), rules)


def _in_radians(gold: Quantity, answer: Quantity) -> tuple[Quantity, Quantity] | None:
    """Both as bare radians, when one is in degrees and the other in radians (or holds π and has no unit)."""
    degrees = [side.unit is not None and side.unit.dimensions == (("angle", 1),) for side in (gold, answer)]
    other = answer if degrees[0] else gold
    if sum(degrees) != 1 or other.percent:
        return None
    if not (other.unit.dimensions == (("radian", 1),) if other.unit else has(other.node, "pi")):
        return None
    turned = [
        replace(side, node=("mul", side.node, ("num", side.unit.factor / 180), ("pi",)), unit=None, places=None)
        if in_degrees and side.unit
        else replace(side, unit=None)
        for side, in_degrees in zip((gold, answer), degrees, strict=True)
    ]
    return turned[0], turned[1]


def _equal(gold: Quantity, answer: Quantity, factor: Fraction, rules: Rules) -> Verdict:
    node = answer.node if factor == 1 else ("mul", ("num", factor), answer.node)
    verdict = same(gold.node, node)
    if verdict is False and (rules.tolerance or gold.places is not None or answer.places is not None):
        return _nearly(gold, answer, node, factor, rules.tolerance)
    return verdict


def _nearly(gold: Quantity, answer: Quantity, node: Node, factor: Fraction, tolerance: float) -> bool:
    """A decimal that is the other number rounded, to enough digits; or within the tolerance that the problem states."""
    one, two = number(gold.node), number(node)
    if one is None or two is None or isinstance(one, tuple) or isinstance(two, tuple):
        return False
    mp = context(60)
    left, right = (mp.mpf(v.numerator) / v.denominator if isinstance(v, Fraction) else mp.mpc(v) for v in (one, two))
    difference, size = abs(left - right), max(abs(left), abs(right))
    if tolerance and difference <= max(tolerance, tolerance * size):
        return True
    rounded, exact = (gold, answer) if gold.places is not None else (answer, gold)
    if rounded.places is None or exact.places is not None or rounded.digits < MIN_ROUNDED_DIGITS or _integer(exact.node):
        return False
    last_place = mp.mpf(10) ** -rounded.places * (factor if rounded is answer else 1)
    cut_off = abs(right if rounded is gold else left) > abs(left if rounded is gold else right)  # digits dropped, not rounded
    return bool(difference < max(last_place * (1 if cut_off else mp.mpf("0.5000001")), size * mp.mpf(10) ** -14))


def _integer(node: Node) -> bool:
    value = number(node)
    return isinstance(value, (int, Fraction)) and value == int(value)


def _based(gold: Quantity, answer: Quantity) -> Verdict:
    """Digits in a base: the same number when both name one; the same digits when one side leaves it out."""
    if gold.node[0] == answer.node[0] == "base":
        return same(gold.node, answer.node)
    based, other = (gold.node, answer.node) if gold.node[0] == "base" else (answer.node, gold.node)
    return bool(other == ("num", Fraction(int(based[1]))) if based[1].isdigit() and len(based[1]) < 1000 else False)


def _groups(gold: Reading, answer: Reading, rules: Rules) -> Verdict:
    one = gold if isinstance(gold, Group) else Group("list", (gold,))
    two = answer if isinstance(answer, Group) else Group("list", (answer,))
    if _assigned(one) != _assigned(two):
        named = one if _assigned(one) else two
        roots = len({item.labels[0][:1] for item in named.items if isinstance(item, Relation)}) == 1  # x_1 and x_2
        one, two = _values(one), _values(two)
        if not roots and "tuple" not in (one.kind, two.kind):  # which is which must be said, or be the order
            return one.kind == two.kind == "list" and in_order(one.items, two.items, rules)
    if one.kind == two.kind == "tuple":
        if len(one.items) == 2 and _interval_ends(one) != _interval_ends(two):
            return False
        return in_order(one.items, two.items, rules)
    if "ratio" in (one.kind, two.kind):
        return _ratios(one, two, rules)
    if _is_matrix(one) or _is_matrix(two):
        return _vectors(one, two, rules)
    if (
        any(kind in (one.kind, two.kind) for kind in ("union", "difference", "intersection", "builder"))
        or _infinite(gold, answer)
        or _conditions(one)
        or _conditions(two)
    ):
        first, second = real_set(gold), real_set(answer)
        if first is not None and second is not None:
            return same_set(first, second)
        if one.kind != two.kind:
            return None
        return (in_order if one.kind == "difference" else in_any_order)(one.items, two.items, rules)
    if "tuple" in (one.kind, two.kind):
        tuples = one if one.kind == "tuple" else two
        other = two if tuples is one else one
        if other.kind == "set" and len(other.items) == 1:  # {(1, 2)}
            return compare(tuples, other.items[0], rules)
        return tuples.brackets == "()" and other.kind == "list" and len(one.items) > 1 and in_order(one.items, two.items, rules)
    return in_any_order(one.items, two.items, rules, repeats=not (one.kind == two.kind == "set"))


def _assigned(group: Group) -> bool:
    return len(group.items) > 1 and all(isinstance(item, Relation) and item.signs == ("=",) for item in group.items)


def _values(group: Group) -> Group:
    """A list of assignments without the names, in the order given, which is that of a tuple."""
    if not _assigned(group):
        return group
    return replace(group, items=tuple(item.sides[1] if isinstance(item, Relation) else item for item in group.items))


def _interval_ends(group: Group) -> tuple[bool, bool]:
    return group.brackets[0] == "[", group.brackets[-1] == "]"


def _infinite(gold: Reading, answer: Reading) -> bool:
    return any(isinstance(side, Quantity) and side.node in (("name", "ℝ"), ("name", "R")) for side in (gold, answer))


def _conditions(group: Group) -> bool:
    """Whether a list says what x is not, is above or is below."""
    return group.kind == "list" and all(isinstance(item, Relation) and set(item.signs) <= set("<>≤≥≠") for item in group.items)


def _is_matrix(group: Group) -> bool:
    return (
        group.kind == "list"
        and len(group.items) == 1
        and isinstance(group.items[0], Quantity)
        and group.items[0].node[0] == "matrix"
    )


def _vectors(one: Group, two: Group, rules: Rules) -> Verdict:
    """A column or row and a tuple with the same entries."""
    column, other = (one, two) if _is_matrix(one) else (two, one)
    matrix = column.items[0]
    assert isinstance(matrix, Quantity)
    rows = matrix.node[1:]
    cells = rows[0] if len(rows) == 1 else tuple(row[0] for row in rows) if all(len(row) == 1 for row in rows) else None
    if cells is None or other.kind not in ("tuple", "list") or "[" in other.brackets:
        return False
    return in_order([Quantity(cell) for cell in cells], other.items, rules)


def _ratios(one: Group, two: Group, rules: Rules) -> Verdict:
    """a : b equals c : d when the terms are in proportion; a ratio of two equals its quotient."""
    terms = [group.items if group.kind == "ratio" else (*group.items, Quantity(("num", Fraction(1)))) for group in (one, two)]
    if len(terms[0]) != len(terms[1]):
        return False
    first, second = ([item.node for item in side if isinstance(item, Quantity)] for side in terms)
    if len(first) != len(terms[0]) or len(second) != len(terms[1]):
        return False
    crossed = (same(("mul", first[0], second[index]), ("mul", first[index], second[0])) for index in range(1, len(first)))
    return all_of(crossed)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """False as soon as one is False; None when one is None; else True."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True


def in_order(one: Sequence[Reading], two: Sequence[Reading], rules: Rules) -> Verdict:
    """The same members in the same order."""
    return len(one) == len(two) and all_of(compare(a, b, rules) for a, b in zip(one, two, strict=True))


def in_any_order(one: Sequence[Reading], two: Sequence[Reading], rules: Rules, repeats: bool = True) -> Verdict:
    """The same members in any order; with `repeats` as often as well."""
    if repeats and len(one) != len(two):
        return False
    unknown = False

    def found(member: Reading, pool: list[Reading], take: bool) -> bool:
        nonlocal unknown
        for index, other in enumerate(pool):
            verdict = compare(member, other, rules)
            if verdict:
                if take:
                    del pool[index]
                return True
            unknown = unknown or verdict is None
        return False

    rest = list(two)
    complete = all(found(member, rest, repeats) for member in one)
    if complete and not repeats:
        complete = all(found(member, list(one), False) for member in two)
    return True if complete else None if unknown else False
