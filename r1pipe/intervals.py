"""Intervals: every share and mean that r1pipe reports carries one."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

Z95 = 1.959963984540054
"""Quantile 0.975 of the standard normal distribution."""


def mean(values: Sequence[float]) -> float | None:
    """The mean; None for no values, which is not the same as 0."""
    return fmean(values) if values else None


def wilson(successes: float, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of a share (Wilson 1927); (0, 1) for no trials."""
    if trials <= 0:
        return 0.0, 1.0
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap_mean(values: Sequence[float], seed: int = 0, draws: int = 2000) -> tuple[float, float]:
    """Percentile bootstrap interval (95%) of the mean of independent values, e.g. one pass rate per problem; (nan, nan) for
    none."""
    if not values:
        return math.nan, math.nan
    generator = random.Random(seed)
    count = len(values)
    means = sorted(sum(generator.choices(values, k=count)) / count for _ in range(draws))
    return means[int(0.025 * draws)], means[min(draws - 1, int(0.975 * draws))]


def correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's correlation; 0 when one side does not vary."""
    count = len(left)
    if count < 2:
        return 0.0
    mean_left, mean_right = sum(left) / count, sum(right) / count
    covariance = math.fsum((a - mean_left) * (b - mean_right) for a, b in zip(left, right, strict=True))
    spread = math.sqrt(math.fsum((a - mean_left) ** 2 for a in left) * math.fsum((b - mean_right) ** 2 for b in right))
    return covariance / spread if spread else 0.0
