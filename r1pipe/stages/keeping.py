"""Which attempts are kept as traces, and why the others are not: the rules that the cold-start builder and stage 3 share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.data.chat import Response, split_response
from r1pipe.data.pieces import Pieces
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
    reason = why_unfit(row["error"], row["finish"], row["verdict"])
    if reason:
        return reason
    language = scores_of(row).get("language")
    return why_unreadable(split_response(row["prefix"] + row["completion"]), language.value if language else None, config)


def why_unfit(error: str, finish: str, verdict: str) -> str:
    """The first reason to drop an attempt that shows without reading it; empty to read it."""
    if error or finish == "error":
        return ERROR
    if verdict != "right":
        return verdict if verdict != "none" else "no checker"
    return "cut off" if finish != "stop" else ""


def why_unreadable(
    response: Response, language: float | None, config: KeepSection, pieces: Callable[[str], Pieces] | None = None
) -> str:
    """The first reason to drop a right answer for how its thinking reads; empty to keep it.

    Args:
        language: the score of the language reward, if it gave one.
        pieces: what takes the thinking apart, for a caller that needs the pieces too (`r1pipe.data.pieces.split_folded`).
    """
    # imported here: its word lists would slow down every command that only looks at the pipeline
    from r1pipe.data.pieces import split_folded
    from r1pipe.rewards.readability import code_blocks, has_long_paragraph, loop_of, repetition_of

    if response.faults:
        return f"format: {response.faults[0]}"
    if language is not None and language < config.min_language:
        return MIXED
    thinking = response.thinking or ""
    found = (pieces or split_folded)(thinking)
    if has_long_paragraph(thinking, config.max_paragraph_words, found):
        return "long paragraph"
    if not config.allow_code_blocks and code_blocks(thinking) > 0:
        return "code block in the thinking"
    if loop_of(found.hashes) > 0:
        return "ends in a loop"
    return "repetition" if repetition_of(found.hashes) > config.max_repetition else ""


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
