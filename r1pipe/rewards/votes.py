"""What an answer says, written one way: so that a majority of samples can be counted.

Only for counting votes; whether an answer is right is the checker's word. Two answers of the same value that are written in ways
unlike each other ("x = 2" and "2 = x") count as two.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from r1pipe.rewards.extract import final_answer

_WRAPPERS = re.compile(r"\\(?:left|right|displaystyle|[,;! ])|\\[()\[\]]|\$|[\s~]+")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|operatorname)\{([^{}]*)\}")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(r"-?\d{1,60}(?:\.\d{1,60})?|-?\d{1,60}/\d{1,60}|-?\.\d{1,60}")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(-?\d{1,60})\}\{(-?\d{1,60})\}")
MOST_CHARACTERS = 400
"""Longer answers are cut: they are no votes for one another."""


def vote(summary: str) -> str:
    """The final answer of a summary, normalised; empty when there is none.

    Width, case, spaces, dollar signs and other wrappers of formulas do not count, nor does a full stop at the end; numbers are
    written as fractions in lowest terms, so that 0.5, 1/2 and \\frac{1}{2} are one answer.
    """
    return normalised(final_answer(summary).text)


def normalised(answer: str) -> str:
    """See `vote`."""
    text = unicodedata.normalize("NFKC", answer[:MOST_CHARACTERS]).casefold()
    text = _WRAPPERS.sub("", _TEXT.sub(r"\1", text)).replace("−", "-").lstrip("。,;:'\"*`").rstrip(".。,;:'\"*`")
    text = _FRACTION.sub(r"\1\2/\3", text).replace("--", "")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if _NUMBER.fullmatch(text) and not text.endswith("/0"):
        try:
            return str(Fraction(text))
        except ZeroDivisionError:
            return text
    return text
