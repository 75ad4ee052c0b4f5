"""Reflection words: how often thinking turns back on itself ("wait", "check"), counted the same way in training and evaluation.

The paper counts ten English words, chosen by three experts, over the course of R1-Zero's training (v2 C.2), and says neither
how words are split nor whether counts are per response. Here: whole words, case ignored, in the thinking of one response. The
Chinese list is ours: one counterpart for each.
"""

from __future__ import annotations

from collections import Counter

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt

REFLECTION_WORDS = ("wait", "mistake", "however", "but", "retry", "error", "verify", "wrong", "evaluate", "check")
"""The paper's list (C.2)."""
REFLECTION_WORDS_ZH = ("等等", "错误", "然而", "但是", "重试", "出错", "验证", "不对", "评估", "检查")
"""Their Chinese counterparts, in the same order; ours."""


def reflection_words(attempt: Attempt) -> Counter[str]:
    """How often each reflection word stands in the thinking (in the whole response when there is none).

    Words of the problem's language are counted; Chinese ones under their English counterpart.
    """
    parts = split_response(attempt.text)
    text = (parts.thinking if parts.thinking is not None else parts.summary).lower()
    if attempt.problem.language == "zh":
        found = Counter({word: text.count(other) for word, other in zip(REFLECTION_WORDS, REFLECTION_WORDS_ZH, strict=True)})
        return +found
    words = (word.strip(".,:;!?()\"'") for word in text.split())
    return Counter(word for word in words if word in REFLECTION_WORDS)


def reflection_count(attempt: Attempt) -> int:
    """How many reflection words the thinking holds."""
    return reflection_words(attempt).total()
