"""The parts of expressions that begin with a name: variables, LaTeX commands, functions and their arguments."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from r1pipe.rewards.maths.clean import TEXT_CLOSE, TEXT_OPEN
from r1pipe.rewards.maths.tokens import FUNCTIONS, GREEK, Node, ParseError

if TYPE_CHECKING:
    from r1pipe.rewards.maths.expression import Parser

CLOSERS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}


def product_of(factors: list[Node]) -> Node:
    """One factor, or their product."""
    return factors[0] if len(factors) == 1 else ("mul", *factors)


def letters(parser: Parser, word: str) -> Node:
    """Upright letters inside a formula are a product of names, or a function or constant."""
    if word in FUNCTIONS:
        return command(parser, word)
    if not word.isalpha() or len(word) > 3 or not word.isascii():
        raise ParseError(f"words in a formula: {word}")
    factors: list[Node] = [("e",) if letter == "e" else ("i",) if letter == "i" else ("name", letter) for letter in word]
    return product_of(factors)


def variable(parser: Parser, letter: str) -> Node:
    """A variable with its subscript; e, i and π are constants; f, g, h before a bracket are applied, not multiplied."""
    subscript = ""
    if parser.peek()[1] == "_":
        parser.take()
        subscript = raw_argument(parser)
    if letter == "C" and subscript and parser.peek()[1] == "^":  # combinations, as Chinese textbooks write them
        choose = _combinations(parser, subscript)
        if choose is not None:
            return choose
    if parser.peek()[1] == "'":
        raise ParseError("derivative")
    if not subscript and letter in ("e", "i", "π"):
        return ("pi",) if letter == "π" else (letter,)
    symbol = f"{letter}_{subscript}" if subscript else letter
    if letter in "fghFG" and parser.peek()[1] == "(":
        parser.take()
        return ("apply", symbol, *arguments(parser, ")"))
    return ("name", symbol)


def _combinations(parser: Parser, subscript: str) -> Node | None:
    start = parser.position
    parser.take()
    top = parser.argument(whole_number=True)
    if (
        not re.fullmatch(r"\d+|[a-z]", subscript)
        or top[0] not in ("num", "name")
        or subscript in ("1", "2")
        or top == ("name", "T")
    ):
        parser.position = start
        return None
    below: Node = ("num", Fraction(int(subscript))) if subscript.isdigit() else ("name", subscript)
    return ("call", "binom", below, top)


def raw_argument(parser: Parser) -> str:
    """The text of a subscript."""
    if parser.peek()[1] != "{":
        return parser.take()[1].strip(TEXT_OPEN + TEXT_CLOSE + " \\")
    parts: list[str] = []
    level = 0
    while True:
        kind, value = parser.take()
        level += {"{": 1, "}": -1}.get(value, 0)
        if kind == "end":
            raise ParseError("unclosed subscript")
        if level == 0:
            return "".join(parts)
        if value not in "{}":
            parts.append(value.strip(TEXT_OPEN + TEXT_CLOSE + " \\"))


def arguments(parser: Parser, close: str) -> list[Node]:
    """Arguments of a function up to the closing bracket."""
    found = [parser.sum()]
    while parser.peek()[1] == ",":
        parser.take()
        found.append(parser.sum())
    parser.expect(close)
    return found


def command(parser: Parser, name: str) -> Node:
    """What a LaTeX command (or the plain name of a function) stands for."""
    if name in ("frac", "binom"):
        if parser.peek()[1] == "(":  # frac(1, 2), as some write it without LaTeX
            parser.take()
            pair = arguments(parser, ")")
        else:
            pair = [parser.argument(), parser.argument()]
        if len(pair) != 2:
            raise ParseError(name)
        return ("div", *pair) if name == "frac" else ("call", "binom", *pair)
    if name == "sqrt":
        index: Node = ("num", Fraction(2))
        if parser.peek()[1] == "[":
            parser.take()
            index = parser.group("]")
        return ("root", index, parser.argument(whole_number=True))
    if name.lower() in ("pi", "infinity", "infty", "inf"):
        return ("pi",) if name.lower() == "pi" else ("inf",)
    if name in ("lfloor", "lceil"):
        return ("call", "floor" if name == "lfloor" else "ceil", parser.group("\\r" + name[1:]))
    if name in FUNCTIONS:
        return function(parser, FUNCTIONS[name])
    if name in GREEK:
        return variable(parser, GREEK[name])
    if name in ("angle", "triangle", "overline", "widehat", "odot"):
        return ("name", name + raw_argument(parser) + _capitals(parser))
    if name in ("boxed", "mathrm", "text", "mathbf", "fbox", "displaystyle", "ensuremath"):
        return parser.argument()
    if name == "begin":
        from r1pipe.rewards.maths.matrix import parse_matrix

        return parse_matrix(parser)
    raise ParseError(f"unknown command {name}")


def _capitals(parser: Parser) -> str:
    found = ""
    while (parser.peek()[0] == "letter" and parser.peek()[1].isupper()) or (found and parser.peek()[1] in ("_", "'")):
        value = parser.take()[1]
        found += f"_{raw_argument(parser)}" if value == "_" else value
    return found


def function(parser: Parser, name: str) -> Node:
    """A function with its subscript (a base), exponent and argument."""
    exponent: Node | None = None
    base: Node | None = None
    for _ in range(2):
        if parser.peek()[1] == "^":
            parser.take()
            exponent = parser.argument(whole_number=True)
        elif parser.peek()[1] == "_" and name == "log":
            parser.take()
            base = parser.argument(whole_number=True)
    parser.angles += name in ("sin", "cos", "tan", "cot", "sec", "csc")
    arguments = function_arguments(parser)
    parser.angles -= name in ("sin", "cos", "tan", "cot", "sec", "csc")
    node: Node = ("call", name, *arguments) if base is None else ("call", "log", *arguments, base)
    if exponent == ("neg", ("num", Fraction(1))) and name in ("sin", "cos", "tan", "cot"):
        return ("call", "a" + name, *arguments)
    return node if exponent is None else ("pow", node, exponent)


def function_arguments(parser: Parser) -> list[Node]:
    """In brackets, or the factors that follow up to a sign or the next function: ln 2, sin 2x, cos(a + b)."""
    kind, value = parser.peek()
    if value in ("(", "[", "{", "\\{"):
        parser.take()
        return arguments(parser, CLOSERS[value])
    negative = value == "-"
    if negative:
        parser.take()
    factors = [parser.power()]
    while True:
        kind, value = parser.peek()
        if not parser.starts_factor(kind, value) or (kind == "command" and value[1:] in FUNCTIONS) or value in ("(", "["):
            result = product_of(factors)
            return [("neg", result) if negative else result]
        factors.append(parser.power())
