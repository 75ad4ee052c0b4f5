"""How a claim is decided: an interval over seeds, and a bound that was written down before anything ran.

A difference is paired by problem within each seed. Each seed has training, held-out problems and samples of its own, so the
seeds' mean differences are independent draws of what the claim is about, and Student's interval over them holds whatever makes
them differ: the training, the problems or the samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from r1pipe.intervals import student_quantile

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What the difference must be: its whole 95% interval above `more_than`, or below `less_than`.

    Exactly one of the two is given.
    """

    more_than: float | None = None
    less_than: float | None = None

    def __post_init__(self) -> None:
        if (self.more_than is None) == (self.less_than is None):
            raise ValueError("a rule has one bound: more_than or less_than")

    def words(self) -> str:
        """The rule, for people."""
        return f"more than {self.more_than:g}" if self.more_than is not None else f"less than {self.less_than:g}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with its 95% interval.

    Attributes:
        by_seed: seed -> its own mean.
        units: problems, all seeds together; 0 for a quantity that a seed has one number of.
        low, high: infinite where nothing is known of the spread (one seed with one number).
    """

    mean: float
    low: float
    high: float
    by_seed: Mapping[int, float]
    units: int


def estimate(values: Mapping[int, Sequence[float]]) -> Estimate:
    """The mean over seeds of each seed's mean, with its interval; with one seed, over the problems of this one training run.

    Args:
        values: seed -> differences, one for each problem, or one number for the seed.

    Raises:
        ValueError: no seeds, or a seed without values.
    """
    if not values or not all(values.values()):
        raise ValueError("every seed needs at least one value, and there must be a seed")
    means = {seed: fmean(found) for seed, found in values.items()}
    seeds, units = len(means), sum(len(found) for found in values.values())
    if seeds > 1:
        half = student_quantile(0.975, seeds - 1) * stdev(means.values()) / math.sqrt(seeds)
    elif units > 1:
        half = student_quantile(0.975, units - 1) * stdev(next(iter(values.values()))) / math.sqrt(units)
    else:
        half = math.inf
    centre = fmean(means.values())
    return Estimate(centre, centre - half, centre + half, means, 0 if units == seeds else units)


def decide(rule: Rule, found: Estimate) -> Verdict:
    """What the interval says of the rule; one seed alone decides nothing, because it says nothing of another training run."""
    if len(found.by_seed) < 2:
        return "inconclusive"
    if rule.more_than is not None:
        above, below = found.low > rule.more_than, found.high < rule.more_than
    else:
        assert rule.less_than is not None
        above, below = found.high < rule.less_than, found.low > rule.less_than
    return "reproduced" if above else "not reproduced" if below else "inconclusive"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """A claim of several parts: reproduced when all of them are, not reproduced when one of them is not."""
    if "not reproduced" in verdicts:
        return "not reproduced"
    return "reproduced" if verdicts and all(one == "reproduced" for one in verdicts) else "inconclusive"
