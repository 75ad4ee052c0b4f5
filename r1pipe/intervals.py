"""Intervals: every share and mean that r1pipe reports carries one."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from statistics import fmean

Z95 = 1.959963984540054
"""Quantile 0.975 of the standard normal distribution."""


def mean(values: Sequence[float]) -> float | None:
    """The mean; None for no values, which is not the same as 0."""
    return fmean(values) if values else None


def wilson(successes: float, trials: float, z: float = Z95) -> tuple[float, float]:
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


def share_interval(shares: Sequence[float]) -> tuple[float, float]:
    """95% interval of the mean of one share per problem; (nan, nan) for none.

    Shares that are all 0 or 1 (one sample a problem) are a binomial count, and have the exact interval with mid-p. Otherwise
    Wilson's interval for as many trials as the shares are worth: p(1 - p) over the variance of their mean, never fewer than
    there are problems, so that several samples of a problem narrow it only as far as they agree less than one would expect;
    with Student's quantile, since the variance is estimated. Holds near 0 and 1 and for few problems, where a bootstrap is too
    narrow.
    """
    if not shares:
        return math.nan, math.nan
    count, centre = len(shares), fmean(shares)
    if all(share in (0.0, 1.0) for share in shares):
        return mid_p(round(math.fsum(shares)), count)
    spread = math.fsum((share - centre) ** 2 for share in shares) / count
    trials = max(float(count), centre * (1 - centre) * count / spread) if spread > 0 else float(count)
    return wilson(centre * trials, trials, student_quantile(0.975, count - 1) if count > 1 else Z95)


@cache
def mid_p(successes: int, trials: int) -> tuple[float, float]:
    """95% mid-p interval of a binomial share (Lancaster 1961): the shares at which half the chance of what was seen, and all of
    that of what is more extreme, is 2.5% on either side. (0, 1) for no trials.

    Exact intervals (Clopper and Pearson's) hold the truth too often, Wilson's too often or too seldom by turns; this one stays
    nearest to 95%.
    """
    if trials <= 0:
        return 0.0, 1.0
    return _mid_p_low(successes, trials), 1.0 - _mid_p_low(trials - successes, trials)


def _mid_p_low(successes: int, trials: int) -> float:
    """The lower end: by bisection, since the tail only rises with the share."""
    if successes == 0:
        return 0.0
    low, high = 0.0, successes / trials
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        at_least = _incomplete_beta(middle, successes, trials - successes + 1)
        above = _incomplete_beta(middle, successes + 1, trials - successes) if successes < trials else 0.0
        low, high = (middle, high) if (at_least + above) / 2 < 0.025 else (low, middle)


def student_tail(value: float, freedom: int) -> float:
    """The chance that Student's t with so many degrees of freedom is above `value` >= 0."""
    return 0.5 * _incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5)


@cache
def student_quantile(share: float, freedom: int) -> float:
    """Quantile of Student's t, for a share of at least one half; by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > 1 - share:
        high *= 2
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_tail(middle, freedom) > 1 - share else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    upper, lower, result = 1.0, 0.0, 1.0
    for number in range(1000):
        half = number // 2
        if number == 0:
            term = 1.0
        elif number % 2 == 0:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        lower = 1.0 + term * lower
        lower = 1.0 / (lower if abs(lower) > tiny else tiny)
        upper = 1.0 + term / upper
        upper = upper if abs(upper) > tiny else tiny
        change = upper * lower
        result *= change
        if abs(change - 1.0) < 1e-16:
            break
    return front * (result - 1.0)
