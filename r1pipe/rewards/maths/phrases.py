"""Answers in words that mean the same: "no solution" and ∅, "does not exist" and "undefined"."""

from __future__ import annotations

from r1pipe.rewards.maths.clean import plain

_MEANINGS = {
    "no solution": (
        "no solution", "no solutions", "no real solution", "no real solutions", "there is no solution", "there are no solutions",
        "no solution exists", "no solutions exist", "none", "无解", "空集", "empty set", "∅",
    ),
    "infinitely many solutions": (
        "infinite number of solutions", "infinitely many solutions", "infinite solutions", "infinitely many", "无穷多解",
        "∞ solutions",
    ),
    "undefined": ("does not exist", "dne", "undefined", "not defined", "不存在"),
    "all real numbers": ("all real numbers", "all reals", "ℝ", "(-∞,∞)", "(-∞,+∞)", "(-∞, ∞)", "(-∞, +∞)"),
    "true": ("true", "正确", "对"),
    "false": ("false", "错误", "错"),
}  # fmt: skip
_SAME = {phrase: meaning for meaning, phrases in _MEANINGS.items() for phrase in phrases}


def meaning(text: str) -> str:
    """What a cleaned text means: one phrase for all that say the same, else its plain words; empty when it says nothing."""
    words = plain(text)
    return _SAME.get(words, words)
