"""Multiple choice: the letter of the chosen option."""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1pipe.data.chat import answer_block
from r1pipe.rewards.base import Score
from r1pipe.rewards.extract import last_box


def judge(gold: str, summary: str, options: Sequence[str]) -> Score:
    """Right when the chosen letters equal the gold letters."""
    found = (last_box(summary) or answer_block(summary) or summary).strip()
    letters = re.findall(r"\b[A-Z]\b", found)
    chosen = letters[-1] if letters else found
    wanted = gold.strip().strip("()")
    return Score(float(chosen == wanted), f"chose {chosen[:40]}, wanted {wanted}")
