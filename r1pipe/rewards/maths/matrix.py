"""Matrices: reading `\\begin{pmatrix}…`, and the little arithmetic that answers need (scaling, sums, products, determinants)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from r1pipe.rewards.maths.clean import ROW
from r1pipe.rewards.maths.tokens import Node, ParseError

if TYPE_CHECKING:
    from r1pipe.rewards.maths.expression import Parser

ENVIRONMENTS = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix", "smallmatrix", "array"})
MAX_CELLS, MAX_DETERMINANT = 400, 6


def parse_matrix(parser: Parser) -> Node:
    """The rest of an environment whose `\\begin` was just taken: ("matrix", rows), or its determinant for `vmatrix`."""
    from r1pipe.rewards.maths.names import raw_argument

    name = raw_argument(parser)
    if name not in ENVIRONMENTS:
        raise ParseError(f"environment {name}")
    if name == "array":
        raw_argument(parser)  # the column layout
    rows: list[tuple[Node, ...]] = []
    row: list[Node] = []
    cells = 0
    while True:
        if parser.peek()[1] == "\\hline":
            parser.take()
            continue
        if parser.peek()[1] == "\\end" and not row:
            break
        row.append(parser.sum())
        cells += 1
        value = parser.take()[1]
        if cells > MAX_CELLS or value not in ("&", ROW, "\\end"):
            raise ParseError("matrix")
        if value != "&":
            rows.append(tuple(row))
            row = []
        if value == "\\end":
            parser.position -= 1
            break
    parser.take()
    if raw_argument(parser) != name or not rows or len({len(cells) for cells in rows}) != 1:
        raise ParseError("ragged matrix")
    node: Node = ("matrix", *rows)
    return ("call", "det", node) if name in ("vmatrix", "Vmatrix") else node


Rows = tuple[tuple[Any, ...], ...]


def add(first: Rows, second: Rows, plus: Callable[[Any, Any], Any]) -> Rows:
    """Entrywise sum; ValueError for different shapes."""
    if len(first) != len(second) or len(first[0]) != len(second[0]):
        raise ValueError("matrices of different shapes")
    return tuple(tuple(plus(a, b) for a, b in zip(one, two, strict=True)) for one, two in zip(first, second, strict=True))


def multiply(first: Rows, second: Rows, plus: Callable[[Any, Any], Any], times: Callable[[Any, Any], Any]) -> Rows:
    """Matrix product; ValueError when the shapes do not fit."""
    if len(first[0]) != len(second):
        raise ValueError("matrices that cannot be multiplied")
    product = []
    for row in first:
        line = []
        for column in zip(*second, strict=True):
            total = times(row[0], column[0])
            for a, b in zip(row[1:], column[1:], strict=True):
                total = plus(total, times(a, b))
            line.append(total)
        product.append(tuple(line))
    return tuple(product)


def determinant(rows: Rows, plus: Callable[[Any, Any], Any], times: Callable[[Any, Any], Any]) -> Any:
    """Determinant by expansion, for up to 6 × 6; ValueError otherwise."""
    size = len(rows)
    if size != len(rows[0]) or size > MAX_DETERMINANT:
        raise ValueError("no determinant")
    if size == 1:
        return rows[0][0]
    total: Any = None
    for index, factor in enumerate(rows[0]):
        minor = tuple(row[:index] + row[index + 1 :] for row in rows[1:])
        term = times(factor if index % 2 == 0 else times(-1, factor), determinant(minor, plus, times))
        total = term if total is None else plus(total, term)
    return total
