"""A strict parser for the maths that final answers are made of, LaTeX or plain.

Strict means that every token must find its place: a parser that skips what it does not know calls unequal things equal. What it
refuses (integrals, sums, limits) goes to SymPy in a worker process, or stays text. Trees are tuples, `(kind, ...)`; depth and length
are limited, so that no answer can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from r1pipe.rewards.maths.clean import TEXT_CLOSE, TEXT_OPEN
from r1pipe.rewards.maths.tokens import FUNCTIONS, GREEK, ParseError, tokenise

Node = tuple[Any, ...]

MAX_DEPTH, MAX_DIGITS, MAX_POSTFIX = 50, 4000, 8
_CLOSERS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
_NO_FACTOR = frozenset("\\pmod \\dots \\end \\euro \\rfloor \\rceil \\bmod \\mod".split())


def product_of(factors: list[Node]) -> Node:
    """One factor, or their product."""
    return factors[0] if len(factors) == 1 else ("mul", *factors)


def quotient(above: list[Node], below: list[Node]) -> Node:
    """A product over a product: flat, so that a long chain is not a deep tree."""
    return ("div", product_of(above), product_of(below)) if below else product_of(above)


class Parser:
    """Recursive descent over tokens; `position` is where it stopped."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.depth = 0

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
        self.expect(close)
        return inner

    def atom(self) -> Node:
        """A number, a name, a bracket, a function or a matrix."""
        kind, value = self.take()
        if kind == "number":
            return self.number(value)
        if kind in ("symbol", "escaped") and value in _CLOSERS:
            return self.group(_CLOSERS[value])
        if value == "|":
            self.depth += 1
            inner = self.group("|")
            self.depth -= 1
            return ("call", "abs", inner)
        if value == "∞":
            return ("inf",)
        if kind == "letter" or (kind == "symbol" and value.isalpha()):
            return self.name(value)
        if kind == "text":
            return self.letters(value.strip(TEXT_OPEN + TEXT_CLOSE + " "))
        if kind == "command":
            return self.command(value[1:])
        raise ParseError(f"unexpected {value or 'end'}")

    def letters(self, word: str) -> Node:
        """Upright letters inside a formula are a product of names, or a function or constant."""
        if word in FUNCTIONS:
            return self.command(word)
        if not word.isalpha() or len(word) > 3 or not word.isascii():
            raise ParseError(f"words in a formula: {word}")
        factors: list[Node] = [("e",) if letter == "e" else ("i",) if letter == "i" else ("name", letter) for letter in word]
        return product_of(factors)

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

    def name(self, letter: str) -> Node:
        """A variable with its subscript; e, i and π are constants; f, g, h before a bracket are applied, not multiplied."""
        subscript = ""
        if self.peek()[1] == "_":
            self.take()
            subscript = self.raw_argument()
        if letter == "C" and subscript and self.peek()[1] == "^":  # combinations, as Chinese textbooks write them
            choose = self._combinations(subscript)
            if choose is not None:
                return choose
        if self.peek()[1] == "'":
            raise ParseError("derivative")
        if not subscript and letter in ("e", "i", "π"):
            return ("pi",) if letter == "π" else (letter,)
        symbol = f"{letter}_{subscript}" if subscript else letter
        if letter in "fghFG" and self.peek()[1] == "(":
            self.take()
            return ("apply", symbol, *self.arguments(")"))
        return ("name", symbol)

    def _combinations(self, subscript: str) -> Node | None:
        start = self.position
        self.take()
        top = self.argument(whole_number=True)
        if not re.fullmatch(r"\d+|[a-z]", subscript) or top[0] not in ("num", "name") or subscript in ("1", "2") or top == ("name", "T"):
            self.position = start
            return None
        below: Node = ("num", Fraction(int(subscript))) if subscript.isdigit() else ("name", subscript)
        return ("call", "binom", below, top)

    def raw_argument(self) -> str:
        """The text of a subscript."""
        if self.peek()[1] != "{":
            return self.take()[1].strip(TEXT_OPEN + TEXT_CLOSE + " \\")
        parts: list[str] = []
        level = 0
        while True:
            kind, value = self.take()
            level += {"{": 1, "}": -1}.get(value, 0)
            if kind == "end":
                raise ParseError("unclosed subscript")
            if level == 0:
                return "".join(parts)
            if value not in "{}":
                parts.append(value.strip(TEXT_OPEN + TEXT_CLOSE + " \\"))

    def arguments(self, close: str) -> list[Node]:
        """Arguments of a function up to the closing bracket."""
        found = [self.sum()]
        while self.peek()[1] == ",":
            self.take()
            found.append(self.sum())
        self.expect(close)
        return found

    def command(self, name: str) -> Node:
        """What a LaTeX command (or the plain name of a function) stands for."""
        if name in ("frac", "binom"):
            if self.peek()[1] == "(":  # frac(1, 2), as some write it without LaTeX
                self.take()
                pair = self.arguments(")")
            else:
                pair = [self.argument(), self.argument()]
            if len(pair) != 2:
                raise ParseError(name)
            return ("div", *pair) if name == "frac" else ("call", "binom", *pair)
        if name == "sqrt":
            index: Node = ("num", Fraction(2))
            if self.peek()[1] == "[":
                self.take()
                index = self.group("]")
            return ("root", index, self.argument(whole_number=True))
        if name.lower() in ("pi", "infinity", "infty", "inf"):
            return ("pi",) if name.lower() == "pi" else ("inf",)
        if name in ("lfloor", "lceil"):
            return ("call", "floor" if name == "lfloor" else "ceil", self.group("\\r" + name[1:]))
        if name in FUNCTIONS:
            return self.function(FUNCTIONS[name])
        if name in GREEK:
            return self.name(GREEK[name])
        if name in ("angle", "triangle", "overline", "widehat", "odot"):
            return ("name", name + self.raw_argument() + self._letters())
        if name in ("boxed", "mathrm", "text", "mathbf", "fbox", "displaystyle", "ensuremath"):
            return self.argument()
        if name == "begin":
            from r1pipe.rewards.maths.matrix import parse_matrix

            return parse_matrix(self)
        raise ParseError(f"unknown command {name}")

    def _letters(self) -> str:
        letters = ""
        while self.peek()[0] == "letter" and self.peek()[1].isupper():
            letters += self.take()[1]
        return letters

    def function(self, name: str) -> Node:
        """A function with its subscript (a base), exponent and argument."""
        exponent: Node | None = None
        base: Node | None = None
        for _ in range(2):
            if self.peek()[1] == "^":
                self.take()
                exponent = self.argument(whole_number=True)
            elif self.peek()[1] == "_" and name == "log":
                self.take()
                base = self.argument(whole_number=True)
        arguments = self.function_arguments()
        node: Node = ("call", name, *arguments) if base is None else ("call", "log", *arguments, base)
        if exponent == ("neg", ("num", Fraction(1))) and name in ("sin", "cos", "tan", "cot"):
            return ("call", "a" + name, *arguments)
        return node if exponent is None else ("pow", node, exponent)

    def function_arguments(self) -> list[Node]:
        """In brackets, or the factors that follow up to a sign or the next function: ln 2, sin 2x, cos(a + b)."""
        kind, value = self.peek()
        if value in ("(", "[", "{", "\\{"):
            self.take()
            return self.arguments(_CLOSERS[value])
        negative = value == "-"
        if negative:
            self.take()
        factors = [self.power()]
        while True:
            kind, value = self.peek()
            if not self.starts_factor(kind, value) or (kind == "command" and value[1:] in FUNCTIONS) or value in ("(", "["):
                result = product_of(factors)
                return [("neg", result) if negative else result]
            factors.append(self.power())


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
