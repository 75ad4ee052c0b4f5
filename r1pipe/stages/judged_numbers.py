"""What is said of judged pairs as a set: how far the judge goes by place, and whether length gives the preferred answer away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from r1pipe.intervals import mean, share_interval


def position_bias(votes: Sequence[Sequence[Sequence[float]]]) -> dict[str, Any]:
    """How much a judge goes by the place in which an answer stands.

    Returns:
        first_wins: share of the votes with a winner that go to the answer that stands first, with its 95% interval over
        candidates (a
        judge without a liking: 0.5); grades: mean of (grade of what stands first - grade of what stands second); orders_agree:
        share of the candidates whose two orders, each by its mean, have the same winner.
    """
    shares, gaps, agree = [], [], []
    for found in votes:
        standing = [(vote[0] - vote[1]) * (1 if vote[2] else -1) for vote in found]
        decided = [float(gap > 0) for gap in standing if gap]
        gaps += standing
        if decided:
            shares.append(fmean(decided))
        orders = [[vote[0] - vote[1] for vote in found if vote[2] == order] for order in (1, 0)]
        if all(orders):
            agree.append(float(fmean(orders[0]) * fmean(orders[1]) > 0))
    return {
        "first_wins": mean(shares), "first_wins_interval": list(share_interval(shares)) if shares else None,
        "grades": mean(gaps), "orders_agree": mean(agree),
    }  # fmt: skip


def balanced(rows: Sequence[dict[str, Any]], tolerance: float) -> list[dict[str, Any]]:
    """The rows without those that make chosen answers longer (or shorter) over the set: the most uneven go first.

    Stops when the two sums of characters differ by at most `tolerance` of the smaller one.
    """
    gaps = {place: len(row["chosen"]) - len(row["rejected"]) for place, row in enumerate(rows)}
    chosen, rejected = (sum(len(row[name]) for row in rows) for name in ("chosen", "rejected"))
    sign = 1 if chosen > rejected else -1
    left_out = set()
    for place in sorted(gaps, key=lambda place: -sign * gaps[place]):
        if (
            abs(chosen - rejected) <= tolerance * min(chosen, rejected)
            or sign * gaps[place] <= 0
            or sign * (chosen - rejected) <= 0
        ):
            break
        left_out.add(place)
        chosen, rejected = chosen - len(rows[place]["chosen"]), rejected - len(rows[place]["rejected"])
    return [row for place, row in enumerate(rows) if place not in left_out]


def lengths(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean characters of chosen and rejected answers, and the share of pairs whose chosen answer is the longer one."""
    return {
        "chosen": mean([float(len(row["chosen"])) for row in rows]),
        "rejected": mean([float(len(row["rejected"])) for row in rows]),
        "longer_chosen": mean([float(len(row["chosen"]) > len(row["rejected"])) for row in rows]),
    }
