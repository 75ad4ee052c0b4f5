"""Tokens of cleaned maths text, and the names of functions and Greek letters."""

from __future__ import annotations

import re
from typing import Any

from r1pipe.rewards.maths.clean import GAP, TEXT_CLOSE, TEXT_OPEN, without_marks
from r1pipe.rewards.maths.units import known

Node = tuple[Any, ...]
"""A tree: its kind, then what belongs to it, e.g. ("add", ("num", Fraction(1)), ("name", "x"))."""

MAX_TOKENS = 1500

FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "asin": "asin", "acos": "acos", "atan": "atan", "arccot": "acot", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "ln": "ln", "log": "log", "lg": "lg", "exp": "exp",
    "sqrt": "sqrt",
    "abs": "abs", "floor": "floor", "ceil": "ceil", "gcd": "gcd", "lcm": "lcm", "max": "max", "min": "min", "det": "det",
    "cbrt": "cbrt",
    "Re": "re", "Im": "im", "arg": "arg", "binom": "binom", "factorial": "factorial", "frac": "div",
    "tg": "tan", "ctg": "cot",
    "cosec": "csc",
}  # fmt: skip
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "zeta": "ζ", "eta": "η", "iota": "ι", "kappa": "κ", "lambda": "λ",
    "mu": "μ", "nu": "ν", "xi": "ξ", "rho": "ρ", "sigma": "σ", "tau": "τ", "upsilon": "υ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ",
    "Omega": "Ω",
    "hbar": "ħ", "theta": "θ", "phi": "φ", "ell": "ℓ",
}  # fmt: skip
_TOKEN = re.compile(
    rf"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{{1,4}}(?![\d.a-zA-Z]))?)|(?P<text>{TEXT_OPEN}[^{TEXT_CLOSE}]*{TEXT_CLOSE})"
    rf"|(?P<foreign>[A-Za-z]*[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]+[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]*|[^\W\dA-Za-z_\u0370-\u03ffℓħℝℕℤℚℂ]+)"
    rf"|(?P<command>\\[A-Za-z]+)|(?P<escaped>\\.)|(?P<word>[A-Za-z]+)|(?P<space>[ {GAP}]+)|(?P<symbol>.)"
)


class ParseError(ValueError):
    """The text is not an expression that this parser knows."""


def tokenise(text: str) -> list[tuple[str, str]]:
    """(kind, text) pairs without spaces; words split into single letters unless they are a function, π or a unit."""
    tokens: list[tuple[str, str]] = []
    for match in _TOKEN.finditer(without_marks(text)):
        kind = match.lastgroup or "symbol"
        value = match.group(0)
        if kind == "space":
            continue
        if kind == "foreign":
            tokens.append(("word", value))
        elif kind == "word" and value == "min" and tokens and tokens[-1][0] == "number" and "(" not in text[match.end() :]:
            tokens.append(("word", value))  # 80 min
        elif kind == "word":
            tokens.extend(_split_word(value))
        else:
            tokens.append((kind, value))
        if len(tokens) > MAX_TOKENS:
            raise ParseError("too long")
    return tokens


def _split_word(word: str) -> list[tuple[str, str]]:
    """A run of letters: a function, a constant, a unit or word (left whole), or a product of letters."""
    if word in FUNCTIONS or word.lower() in ("pi", "infinity", "infty", "inf") or (word in GREEK and len(word) > 2):
        return [("command", "\\" + word)]
    if known(word) or len(word) > 3:
        for name in ("sqrt", "pi"):  # 3sqrt5, 2pir
            if word.endswith(name) and len(word) - len(name) < 3:
                return [("letter", letter) for letter in word[: -len(name)]] + [("command", "\\" + name)]
        return [("word", word)]
    return [("letter", letter) for letter in word]
