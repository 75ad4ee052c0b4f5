"""What stands in an expression tree, and the points at which two trees are compared."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from r1pipe.rewards.maths.tokens import Node

_STEPWISE = frozenset({"factorial", "binom", "gcd", "lcm"})
_ROUNDING = frozenset({"floor", "ceil"})
_WHOLE = frozenset("ijklmnpqKMN")
"""Letters that name whole numbers by custom."""
_SMALL = [
    Fraction(n, d) for n, d in ((7, 5), (13, 11), (23, 17), (19, 7), (31, 13), (11, 8), (41, 29), (5, 3), (29, 12), (17, 9))
]
_LARGE = [
    Fraction(n, d)
    for n, d in ((97, 7), (233, 11), (151, 13), (89, 5), (311, 17), (73, 3), (127, 8), (199, 9), (163, 6), (139, 10))
]
_UNIT = [1 / number for number in _SMALL]
_PLACES = (
    (_SMALL, 0, (1, 1)), (_LARGE, 3, (1, 1)), (_UNIT, 5, (1, 1)), (_LARGE, 7, (1, 1)), (_SMALL, 2, (-1, -1)),
    (_LARGE, 4, (-1, 1)),
    (_SMALL, 6, (1, -1)), (_UNIT, 8, (-1, -1)),
)  # fmt: skip
"""Where formulas are compared: numbers between 0 and 1, around 2 and above 10, and every pattern of signs."""


def names_in(node: Node) -> set[str]:
    """Free names of a tree."""
    if node[0] == "name":
        return {node[1]}
    return {name for part in children(node) for name in names_in(part)}


def children(node: Node) -> Iterator[Node]:
    """The subtrees directly below."""
    for part in node[1:]:
        if isinstance(part, tuple) and part:
            yield from part if isinstance(part[0], tuple) else (part,)


def stepwise(node: Node) -> bool:
    """Whether a tree makes sense for whole numbers only: n!, (-1)^n."""
    if (node[0] == "call" and node[1] in _STEPWISE) or node[0] == "mod":
        return bool(names_in(node))
    if node[0] == "pow" and node[1][0] in ("neg", "add") and not names_in(node[1]) and names_in(node[2]):
        return True
    return any(stepwise(part) for part in children(node))


def has(node: Node, kind: str) -> bool:
    """Whether a node of a kind stands in a tree: "i" the imaginary unit, "pi", "apply" an unknown function."""
    return node[0] == kind or any(has(part, kind) for part in children(node))


def has_sign(node: Node) -> bool:
    """Whether ± or ∓ stands in a tree."""
    return has(node, "±") or has(node, "∓")


def with_sign(node: Node, plus: bool) -> Node:
    """The tree with every ± read as + (or -), every ∓ the other way."""
    if node[0] in "±∓":
        inner = with_sign(node[1], plus)
        return inner if (node[0] == "±") == plus else ("neg", inner)
    return (
        node[0],
        *(with_sign(part, plus) if isinstance(part, tuple) and part and isinstance(part[0], str) else part for part in node[1:]),
    )


def _rounds(node: Node) -> bool:
    """Whether something with names is rounded in a tree: ⌊x⌋."""
    if node[0] == "call" and node[1] in _ROUNDING and names_in(node):
        return True
    return any(_rounds(part) for part in children(node))


def places_for(names: list[str], *nodes: Node) -> list[dict[str, Fraction]]:
    """Where to compare trees: at rationals, at whole numbers where they make sense for these only, at both for ⌊x⌋."""
    if any(stepwise(node) for node in nodes) or (all(name[0] in _WHOLE for name in names) and any(map(_rounds, nodes))):
        return list(points(names, whole=True))
    return [*points(names, whole=False), *(points(names, whole=True) if any(map(_rounds, nodes)) else ())]


def points(names: list[str], whole: bool) -> Iterator[dict[str, Fraction]]:
    """Where to compare: rationals of several sizes and signs; natural numbers for stepwise expressions."""
    if not names:
        yield {}
        return
    if whole:
        for shift in range(9):
            order = names if shift % 3 else names[::-1]
            yield {name: Fraction((3 * index + shift * (5 + index)) % 17 + 1) for index, name in enumerate(order)}
        return
    for pool, step, signs in _PLACES:
        yield {
            name: (pool[(index + step) % len(pool)] + index // len(pool)) * signs[index % 2] for index, name in enumerate(names)
        }
