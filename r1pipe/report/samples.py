"""Samples for the page: the same problem across checkpoints, side by side, within a budget of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe.console import escaped
from r1pipe.data.chat import split_response
from r1pipe.data.tables import attempt_of, scores_of
from r1pipe.report.evaluation import Checkpoint

BUDGET = 2_500_000
"""Bytes that samples may take in the page."""
LONGEST = 8_000
"""Characters of one response; of a longer one the beginning and the end are shown."""
MOST_SAMPLES = 4
"""Samples of a problem that are shown for each checkpoint."""


def samples_data(checkpoints: Sequence[Checkpoint], budget: int = BUDGET) -> dict[str, Any]:
    """What the page's script shows.

    Returns:
        checkpoints: names. problems: in the order of the table, each with its texts and, for each checkpoint, its samples:
        text before the thinking, thinking, text after it, verdict, tokens, finish, scores. left_out: problems that did not fit;
        samples_left_out: whether a problem has more samples than are shown.
    """
    ordered = [one for one in checkpoints if one.attempts]
    by_problem: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in ordered:
        for row in one.attempts:
            by_problem.setdefault(row["id"], {}).setdefault(one.key, []).append(row)
    problems: list[dict[str, Any]] = []
    spent, more = 0, False
    for found in by_problem.values():
        more = more or any(len(rows) > MOST_SAMPLES for rows in found.values())
        entry = _problem(found, [one.key for one in ordered])
        size = len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if spent + size > budget:
            break
        spent += size
        problems.append(entry)
    return {
        "checkpoints": [one.name for one in ordered],
        "problems": problems,
        "left_out": len(by_problem) - len(problems),
        "samples_left_out": more,
    }


def _problem(found: Mapping[str, list[dict[str, Any]]], keys: Sequence[str]) -> dict[str, Any]:
    first = next(iter(found.values()))[0]
    return {
        "id": escaped(str(first["id"])),
        "question": _shown(first["question"]),
        "answer": _shown(first["answer"]),
        "domain": escaped(first["domain"]),
        "language": escaped(first["language"]),
        "level": escaped(str(first["level"] or "")),
        "kind": first["kind"],
        "samples": [[_sample(row) for row in found.get(key, [])[:MOST_SAMPLES]] for key in keys],
    }


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    """One attempt; only the page's script puts it on the page, as text."""
    text = attempt_of(row).text
    thinking = split_response(text).thinking or ""
    start = text.find(thinking) if thinking else 0
    pieces = (text[:start], thinking, text[start + len(thinking) :])
    scores = {escaped(name): [score.value, escaped(score.note)] for name, score in scores_of(row).items() if score is not None}
    return {
        "text": [_shown(piece) for piece in pieces],
        "verdict": row["verdict"],
        "tokens": row["tokens"],
        "finish": row["finish"],
        "scores": scores,
    }


def _shown(text: str) -> str:
    """A text that steers nothing, cut in its middle when it is very long."""
    if len(text) > LONGEST:
        left_out = len(text) - LONGEST
        text = f"{text[: LONGEST // 2]}\n… {left_out:,} characters left out …\n{text[-LONGEST // 2 :]}"
    return escaped(text)
