"""What an answer can be, once it is read: a quantity, words, a relation, or a group of these."""

from __future__ import annotations

from dataclasses import dataclass

from r1pipe.rewards.maths.tokens import Node
from r1pipe.rewards.maths.units import Unit


@dataclass(frozen=True, slots=True)
class Quantity:
    """An expression with what stands behind it.

    Attributes:
        node: the tree.
        unit: its unit; None without one.
        percent: whether a percent sign follows.
        places: decimal places of a plain decimal number such as 3.14; None for anything else.
        digits: significant digits of a plain decimal number.
        loose: how doubtful the unit is: 0 not at all; 1 a letter after a space (5 m); 2 a letter right after the number (5m),
            which may as well be a variable.
    """

    node: Node
    unit: Unit | None = None
    percent: bool = False
    places: int | None = None
    digits: int = 0
    loose: int = 0


@dataclass(frozen=True, slots=True)
class Words:
    """An answer that is no maths."""

    text: str


@dataclass(frozen=True, slots=True)
class Relation:
    """Sides with signs between: x = 5, 0 < x ≤ 3, x ∈ S. `labels` are the sides as text, for names such as f(x) or ∠ABC."""

    signs: tuple[str, ...]
    sides: tuple[Reading, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Several answers.

    Attributes:
        kind: "list" (1, 2), "set" {1, 2}, "tuple" (1, 2, 3), "union" of sets, "difference" of sets, "builder" {x | …},
            "ratio" 1 : 2. items: its members; of a builder the name and its conditions. brackets: opening and closing bracket
            of a tuple: two members may be an interval. joiner: how a list was joined: ",", "and" or "or".
    """

    kind: str
    items: tuple[Reading, ...]
    brackets: str = ""
    joiner: str = ","


Reading = Quantity | Words | Relation | Group
