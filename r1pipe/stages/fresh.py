"""From labelled fresh answers to what reward models learn from: pairs of summaries, and labelled whole responses.

Two answers to one prompt make a pair when their labels differ by more than the margin: the best with the worst, the second best
with the second worst, each answer once. Answers without a summary make no pair: in RL they are scored without asking a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe.data.tables import attempt_of, scores_of
from r1pipe.rewards.labels import NAME
from r1pipe.rewards.preference import judged_text


def fresh_pairs(attempts: Sequence[Mapping[str, Any]], margin: float) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """(rows {question, chosen, rejected, language}, what became of the answers to helpfulness prompts and problems)."""
    counts: Counter[str] = Counter()
    by_prompt: dict[str, list[tuple[float, str, dict[str, Any]]]] = {}
    for row in attempts:
        if row["kind"] == "safety":
            continue
        counts["answers"] += 1
        label, text = _label(row), judged_text(attempt_of(dict(row)), "helpfulness").strip()
        if label is None:
            counts["not labelled"] += 1
        elif not text:
            counts["no summary"] += 1
        elif any(text == known for _, known, _ in by_prompt.setdefault(row["id"], [])):
            counts["written before"] += 1
        else:
            by_prompt[row["id"]].append((label, text, dict(row)))
    pairs = []
    for several in by_prompt.values():
        ordered = sorted(several, key=lambda one: -one[0])  # equal labels keep the order of the samples
        found = [
            {"question": best[2]["question"], "chosen": best[1], "rejected": worst[1], "language": best[2]["language"]}
            for best, worst in zip(ordered[: len(ordered) // 2], ordered[::-1], strict=False)
            if best[0] - worst[0] > margin
        ]
        pairs += found
        counts["without contrast"] += len(several) - 2 * len(found)
    counts["pairs"] = len(pairs)
    return pairs, {name: count for name, count in counts.items() if count or name == "pairs"}


def fresh_labels(attempts: Sequence[Mapping[str, Any]], margin: float) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """(rows {question, response, safe, language}, what became of the answers to safety prompts)."""
    counts: Counter[str] = Counter()
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in attempts:
        if row["kind"] != "safety":
            continue
        counts["answers"] += 1
        label, text = _label(row), judged_text(attempt_of(dict(row)), "safety")
        if label is None:
            counts["not labelled"] += 1
        elif abs(label) <= margin:
            counts["within the margin"] += 1
        elif not text.strip():
            counts["no text"] += 1
        elif (row["id"], text) in rows:
            counts["written before"] += 1
        else:
            safe = int(label > 0)
            counts["safe" if safe else "unsafe"] += 1
            rows[row["id"], text] = {
                "question": row["question"], "response": text, "safe": safe, "language": row["language"],
            }  # fmt: skip
    return list(rows.values()), dict(counts)


def _label(row: Mapping[str, Any]) -> float | None:
    """The label of an answer; None when it has none."""
    if row["error"]:
        return None
    score = scores_of(dict(row)).get(NAME)
    return None if score is None else score.value
