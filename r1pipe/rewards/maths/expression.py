"""A strict parser for the maths that final answers are made of, LaTeX or plain.

Strict means that every token must find its place: a parser that skips what it does not know calls unequal things equal. What it
refuses (integrals, sums, limits) goes to SymPy in a worker process, or stays text. Trees are tuples, `(kind, ...)`; depth and
length are limited, so that no answer can exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from r1pipe.rewards.maths import names
from r1pipe.rewards.maths.clean import TEXT_CLOSE, TEXT_OPEN
from r1pipe.rewards.maths.names import CLOSERS, product_of
from r1pipe.rewards.maths.tokens import Node, ParseError, tokenise

MAX_DEPTH, MAX_DIGITS, MAX_POSTFIX = 50, 4000, 8
_NO_FACTOR = frozenset(["\\pmod", "\\dots", "\\end", "\\euro", "\\rfloor", "\\rceil", "\\choose", "\\over", "\\bmod", "\\mod"])


def quotient(above: list[Node], below: list[Node]) -> Node:
    """A product over a product: flat, so that a long chain is not a deep tree."""
    return ("div", product_of(above), product_of(below)) if below else product_of(above)


class Parser:
    """Recursive descent over tokens; `position` is where it stopped."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.depth = 0
        self.bars = 0
        self.angles = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """The token `ahead`, or an end mark."""
        index = self.position + ahead
        return self.tokens[index] if index < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        """The current token, stepping over it."""
        token = self.peek()
        self.position += 1
        return token

    def expect(self, value: str) -> None:
        """Step over that token, or refuse."""
        if self.take()[1] != value:
            raise ParseError(f"expected {value}")

    def sum(self) -> Node:
        """terms joined by + - ± ∓"""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseError("nested too deeply")
        terms = [self.product()]
        while self.peek()[1] in ("+", "-", "±", "∓") and self.peek()[0] == "symbol":
            sign = self.take()[1]
            term = self.product()
            terms.append(term if sign == "+" else ("neg", term) if sign == "-" else (sign, term))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def product(self) -> Node:
        """Factors joined by signs of multiplication and division, or by nothing."""
        above, below = [self.signed()], list[Node]()
        while True:
            kind, value = self.peek()
            if value in ("*", "×", "·"):
                self.take()
                above.append(self.signed())
            elif value in ("/", "÷"):
                self.take()
                below.append(self.signed())
            elif value in ("\\bmod", "\\mod"):
                self.take()
                above, below = [("mod", quotient(above, below), self.signed())], []
            elif self.starts_factor(kind, value):
                above.append(self.power())
            else:
                return quotient(above, below)

    def starts_factor(self, kind: str, value: str) -> bool:
        """Whether a token can follow a factor without a sign between; two bare numbers cannot."""
        if kind == "number":
            return self.tokens[self.position - 1][0] != "number"
        if kind == "letter":
            return True
        if kind == "command":
            return value not in _NO_FACTOR
        if kind == "text":
            return self.depth > 1 and len(value.strip(TEXT_OPEN + TEXT_CLOSE + " ")) < 4
        if value == "|":
            return self.bars == 0  # |x||y|; inside bars, the next one closes
        return value in ("(", "[", "{", "\\{", "∞", "π", "φ", "ε", "θ") or (kind == "symbol" and value.isalpha())

    def signed(self) -> Node:
        """A factor with signs before it."""
        kind, value = self.peek()
        if kind == "symbol" and value in "+-±∓":
            self.take()
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ParseError("nested too deeply")
            inner = self.signed()
            self.depth -= 1
            return inner if value == "+" else ("neg", inner) if value == "-" else (value, inner)
        return self.power()

    def power(self) -> Node:
        """An atom with its factorials and exponents."""
        base = self.atom()
        for _ in range(MAX_POSTFIX):
            value = self.peek()[1]
            if value == "!":
                self.take()
                base = ("call", "factorial", base)
            elif value == "^":
                tower = [base]
                while self.peek()[1] == "^" and len(tower) < MAX_POSTFIX:  # a^b^c is a^(b^c)
                    self.take()
                    tower.append(self.argument(whole_number=True))
                base = tower.pop()
                while tower:
                    base = ("pow", tower.pop(), base)
            elif value == "'":
                raise ParseError("derivative")
            elif value == "°" and self.angles:  # sin 30°
                self.take()
                base = ("mul", base, ("div", ("pi",), ("num", Fraction(180))))
            else:
                return base
        raise ParseError("too many exponents")

    def argument(self, whole_number: bool = False) -> Node:
        """What a command or ^ applies to: a group, or one token (of a number its first digit, as LaTeX reads it)."""
        kind, value = self.peek()
        if kind == "symbol" and value in "+-":
            self.take()
            inner = self.argument(whole_number)
            return inner if value == "+" else ("neg", inner)
        if kind == "number" and not whole_number and len(value) > 1 and value.isdigit():
            self.tokens[self.position] = ("number", value[1:])
            return ("num", Fraction(int(value[0])))
        return self.atom()

    def group(self, close: str) -> Node:
        """An expression up to its closing bracket."""
        inner = self.sum()
        if self.peek()[1] in ("\\choose", "\\over"):
            kind = self.take()[1]
            below = self.sum()
            inner = ("div", inner, below) if kind == "\\over" else ("call", "binom", inner, below)
        self.expect(close)
        return inner

    def atom(self) -> Node:
        """A number, a name, a bracket, a function or a matrix."""
        kind, value = self.take()
        if kind == "number":
            return self.number(value)
        if kind in ("symbol", "escaped") and value in CLOSERS:
            return self.group(CLOSERS[value])
        if value == "|":
            self.depth += 1
            self.bars += 1
            inner = self.group("|")
            self.bars -= 1
            self.depth -= 1
            return ("call", "abs", inner)
        if value == "∞":
            return ("inf",)
        if kind == "letter" or (kind == "symbol" and value.isalpha()):
            return names.variable(self, value)
        if kind == "text":
            return names.letters(self, value.strip(TEXT_OPEN + TEXT_CLOSE + " "))
        if kind == "command":
            return names.command(self, value[1:])
        raise ParseError(f"unexpected {value or 'end'}")

    def number(self, value: str) -> Node:
        """A number, a mixed number (3\\frac12, 3 1/2), or digits with a base (52_8)."""
        if len(value) > MAX_DIGITS:
            raise ParseError("too many digits")
        node: Node = ("num", Fraction(value.rstrip(".") if value != "." else "0"))
        if self.peek()[1] == "_":
            self.take()
            base = self.argument(whole_number=True)
            if base[0] != "num" or not value.isdigit():
                raise ParseError("a base must be a number")
            return ("base", value, int(base[1]))
        if value.isdigit():
            if self.peek()[1] == "\\frac" and self._plain_fraction(1):
                self.take()
                return ("add", node, ("div", self.argument(), self.argument()))
            one, slash, two = self.peek(), self.peek(1), self.peek(2)
            if one[0] == "number" and slash[1] == "/" and two[0] == "number" and one[1].isdigit() and two[1].isdigit():
                self.position += 3
                return ("add", node, ("div", ("num", Fraction(int(one[1]))), ("num", Fraction(int(two[1])))))
        return node

    def _plain_fraction(self, ahead: int) -> bool:
        """Whether what follows \\frac is digits over digits: then an integer before it makes a mixed number."""
        values = [self.peek(ahead + index)[1] for index in range(6)]
        if values[0] == "{":
            braced = values[1].isdigit() and values[2] == "}"
            return braced and ((values[3] == "{" and values[4].isdigit() and values[5] == "}") or values[3].isdigit())
        return values[0].isdigit() and (len(values[0]) == 2 or values[1].isdigit() or (values[1] == "{" and values[2].isdigit()))


def parse_prefix(text: str) -> tuple[Node, str]:
    """The longest expression at the beginning of a cleaned text, and the text after it; ParseError when there is none."""
    tokens = tokenise(text)
    parser = Parser(tokens)
    node = parser.sum()
    rest = "".join(_rejoin(kind, value) for kind, value in parser.tokens[parser.position :])
    return node, rest.strip()


def _rejoin(kind: str, value: str) -> str:
    return f" {value} " if kind in ("word", "text", "command") else value


def parse(text: str) -> Node:
    """The tree of a whole cleaned text; ParseError when anything is left over."""
    node, rest = parse_prefix(text)
    if rest:
        raise ParseError(f"left over: {rest[:20]}")
    return node
