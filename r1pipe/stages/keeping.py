"""Which attempts are kept as traces, and why the others are not: the rules that the cold-start builder and stage 3 share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.data.chat import split_response
from r1pipe.data.tables import attempt_of, scores_of
from r1pipe.stage import StepConfig

ERROR, MIXED = "error while sampling", "mixed language"
"""Reasons that others look for."""


class KeepSection(StepConfig):
    """What is kept; the paper drops thinking with mixed languages, long paragraphs or code blocks and gives no thresholds."""

    keep_per_problem: PositiveInt = 1
    """Right answers kept per problem, shortest-first among different ones."""
    min_language: float = Field(default=1.0, ge=0, le=1)
    """Least share of the thinking in the target language."""
    max_paragraph_words: PositiveInt = 600
    max_repetition: float = Field(default=0.3, ge=0, le=1)
    """Largest share of the thinking that repeats an earlier run of words."""
    allow_code_blocks: bool = False


def why_dropped(row: dict[str, Any], config: KeepSection) -> str:
    """The first reason to drop an attempt; empty to keep it."""
    # imported here: its word lists would slow down every command that only looks at the pipeline
    from r1pipe.rewards.readability import code_blocks, longest_paragraph, loop_pieces, repetition_share

    if row["error"] or row["finish"] == "error":
        return ERROR
    if row["verdict"] != "right":
        return row["verdict"] if row["verdict"] != "none" else "no checker"
    if row["finish"] != "stop":
        return "cut off"
    parts = split_response(attempt_of(row).text)
    thinking = parts.thinking or ""
    language = scores_of(row).get("language")
    tests: list[tuple[str, Callable[[], bool]]] = [
        (f"format: {parts.faults[0] if parts.faults else ''}", lambda: bool(parts.faults)),
        (MIXED, lambda: language is not None and language.value is not None and language.value < config.min_language),
        ("long paragraph", lambda: longest_paragraph(thinking) > config.max_paragraph_words),
        ("code block in the thinking", lambda: not config.allow_code_blocks and code_blocks(thinking) > 0),
        ("ends in a loop", lambda: loop_pieces(thinking) > 0),
        ("repetition", lambda: repetition_share(thinking) > config.max_repetition),
    ]
    return next((reason for reason, test in tests if test()), "")


def pick_best(rows: Sequence[dict[str, Any]], keep: int) -> list[tuple[dict[str, Any], str]]:
    """Every usable attempt at one problem with the reason to drop it, shortest first; the reason is empty for the first `keep`
    whose thinking differs."""
    picked: list[tuple[dict[str, Any], str]] = []
    texts: set[str] = set()
    for row in sorted(rows, key=lambda row: (row["tokens"], row["sample"])):
        thinking = str(split_response(attempt_of(row).text).thinking)
        if thinking in texts:
            picked.append((row, "same thinking as another of the problem"))
        elif len(texts) >= keep:
            picked.append((row, f"more than {keep} of the problem"))
        else:
            texts.add(thinking)
            picked.append((row, ""))
    return picked
