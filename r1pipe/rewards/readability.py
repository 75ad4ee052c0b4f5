"""How readable a thinking is: long paragraphs, code blocks, and loops, each as one number (the paper drops such traces in
B.3.3)."""

from __future__ import annotations

import re

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+|[^\w\s]")
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)


def longest_paragraph(text: str) -> int:
    """Characters of the longest paragraph; paragraphs are parted by blank lines."""
    return max((len(part.strip()) for part in re.split(r"\n\s*\n", text)), default=0)


def code_blocks(text: str) -> int:
    """Number of fenced code blocks, an unclosed one included."""
    return (len(_FENCE.findall(text)) + 1) // 2


def repetition_share(text: str, run: int = 6) -> float:
    """Share of runs of `run` words that stood in the text before; 0 for texts shorter than two runs. Chinese counts by
    characters."""
    words = _WORD.findall(text.lower())
    if len(words) < 2 * run:
        return 0.0
    runs = [tuple(words[start : start + run]) for start in range(len(words) - run + 1)]
    return 1 - len(set(runs)) / len(runs)
