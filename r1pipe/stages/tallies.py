"""From the scored attempts of a checkpoint to what the estimators count: one tally per problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from r1pipe.data.chat import split_response
from r1pipe.data.tables import attempt_of
from r1pipe.estimators import Tally, curve
from r1pipe.intervals import mean, share_interval
from r1pipe.rewards.votes import vote

JUDGED = ("right", "wrong")
"""Verdicts that count."""

UNVOTED = ("code",)
"""Checkers whose answers have no normal form: every wrong answer is one of its own."""


def tallies(rows: Iterable[Mapping[str, Any]]) -> dict[str, Tally]:
    """Problem id -> its tally, over the judged attempts of one checkpoint; problems without one are left out."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    votes: dict[str, Counter[str]] = {}
    for number, row in enumerate(rows):
        if row["verdict"] not in JUDGED:
            continue
        name = row["id"]
        if row["verdict"] == "right":
            right[name] += 1
            continue
        wrong[name] += 1
        said = str(number) if row["checker"] in UNVOTED else vote(split_response(attempt_of(dict(row)).text).summary)
        if said:
            votes.setdefault(name, Counter())[said] += 1
    names = dict.fromkeys((*right, *wrong))
    return {name: Tally(right[name], wrong[name], tuple(votes.get(name, Counter()).values())) for name in sorted(names)}


def at_k(found: Sequence[Tally]) -> dict[str, list[dict[str, float]]]:
    """pass@k and maj@k with their intervals over problems, for the powers of two up to the samples there are.

    Returns:
        {"pass": [{"k", "mean", "low", "high"}], "majority": the same}.
    """
    result: dict[str, list[dict[str, float]]] = {}
    for kind in ("pass", "majority"):
        lines = []
        for k, values in curve(found, kind).items():
            low, high = share_interval(values)
            lines.append({"k": k, "mean": mean(values) or 0.0, "low": low, "high": high})
        result[kind] = lines
    return result


def shares_by(
    rows: Sequence[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], str]
) -> dict[str, tuple[float, float, float, int]]:
    """Group -> (mean pass@1, low, high, problems), over the judged attempts; groups in alphabetical order, the empty one left
    out."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if name := key(row):
            groups.setdefault(name, []).append(row)
    result = {}
    for name, members in sorted(groups.items()):
        shares = [tally.pass_at_1 for tally in tallies(members).values()]
        if shares:
            result[name] = (mean(shares) or 0.0, *share_interval(shares), len(shares))
    return result
