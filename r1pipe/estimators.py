"""Estimators of an evaluation: from what became of each problem's samples to pass@k, maj@k and the difference of two checkpoints.

Plain numbers in, plain numbers out. A problem is the unit: samples of one problem are not independent, so every interval is one
over problems. An answer that could not be judged is in no count.

- pass@1 is the mean share of right samples (D.1 of the paper); pass@k the chance that at least one of k samples is right, the
  unbiased estimate of Chen et al. (2021, equation 1).
- maj@k (cons@k of the paper) is the chance that the most frequent answer of k samples is right, the mean over all subsets of k
  samples, computed exactly. All right samples vote together, whatever they write; wrong ones vote by their normalised answer; a
  sample without an answer does not vote. A tie is broken by a fair draw among the answers that share the first place, and k
  samples without a single vote are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

from r1pipe.intervals import student_quantile, student_tail

POWERS = (1, 2, 4, 8, 16, 32, 64)
"""The k of the paper's curves; those up to the number of samples are reported."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one problem's judged samples.

    Attributes:
        right: samples judged right.
        wrong: samples judged wrong.
        wrong_votes: how many samples gave each wrong answer; at most `wrong` in all, the rest gave none.
    """

    right: int
    wrong: int
    wrong_votes: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Judged samples."""
        return self.right + self.wrong

    @property
    def pass_at_1(self) -> float:
        """The share of right samples."""
        return self.right / self.samples


def pass_at_k(right: int, samples: int, k: int) -> float:
    """The chance that at least one of k samples, drawn without replacement from `samples`, is right.

    Raises:
        ValueError: k is not between 1 and the number of samples: then there is no unbiased estimate.
    """
    _check(samples, k)
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def majority_at_k(tally: Tally, k: int) -> float:
    """The chance that the most frequent answer of k samples is right; see the module's text for votes and ties.

    Raises:
        ValueError: k is not between 1 and the number of samples.
    """
    _check(tally.samples, k)
    silent = tally.wrong - sum(tally.wrong_votes)
    if silent < 0:
        raise ValueError(f"{sum(tally.wrong_votes)} wrong votes of {tally.wrong} wrong samples")
    return _majority(tally.right, tuple(sorted(tally.wrong_votes)), silent, k)


@lru_cache(maxsize=65536)
def _majority(right: int, votes: tuple[int, ...], silent: int, k: int) -> float:
    """Counts the subsets of k samples in which the right answer comes first, those with a tie by their share of the draw."""
    if not right:
        return 0.0
    if not votes or k == right + sum(votes) + silent:
        return _all_samples(right, votes) if votes else pass_at_k(right, right + silent, k)
    total = math.comb(right + sum(votes) + silent, k)
    shares = []
    for chosen in range(1, min(right, k) + 1):
        ways = math.comb(right, chosen)
        for ties, count in enumerate(_rest(votes, silent, chosen, k - chosen)):
            shares.append(ways * count / total / (ties + 1))
    return math.fsum(shares)


def _all_samples(right: int, votes: tuple[int, ...]) -> float:
    """The same when all samples are drawn."""
    if right < max(votes):
        return 0.0
    return 1.0 / (1 + votes.count(right))


def _rest(votes: tuple[int, ...], silent: int, most: int, draws: int) -> list[int]:
    """Ways to draw `draws` of the samples that are not right with no answer more often than `most`, by how many answers come to
    exactly `most`."""
    ties = draws // most
    table = [[0] * (draws + 1) for _ in range(ties + 1)]  # table[answers at `most`][samples drawn]
    for drawn in range(min(silent, draws) + 1):
        table[0][drawn] = math.comb(silent, drawn)
    for votes_of_one in votes:
        ways = [math.comb(votes_of_one, taken) for taken in range(min(votes_of_one, most, draws) + 1)]
        new = [[0] * (draws + 1) for _ in range(ties + 1)]
        for at_most, line in enumerate(table):
            for drawn, count in enumerate(line):
                if count:
                    for taken, chosen in enumerate(ways[: draws - drawn + 1]):
                        new[at_most + (taken == most)][drawn + taken] += count * chosen
        table = new
    return [line[draws] for line in table]


def curve(tallies: Sequence[Tally], kind: str) -> dict[int, list[float]]:
    """k -> each problem's pass@k or maj@k, for the powers of two up to the fewest samples that a problem has.

    Args:
        kind: "pass" or "majority".
    """
    fewest = min((tally.samples for tally in tallies), default=0)
    known = [k for k in POWERS if k <= fewest]
    if kind == "pass":
        return {k: [pass_at_k(tally.right, tally.samples, k) for tally in tallies] for k in known}
    return {k: [majority_at_k(tally, k) for tally in tallies] for k in known}


def _check(samples: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k is {k}, with {samples} samples")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two checkpoints on the same problems.

    Attributes:
        problems: how many both have judged answers for.
        difference: mean of (second - first).
        low, high: its 95% interval, by Student's t over the problems' differences.
        p_value: of the paired t-test, two-sided (the paper calls p < 0.01 significant); 1 when no problem differs.
        better, worse: problems on which the second one does better, or worse.
    """

    problems: int
    difference: float
    low: float
    high: float
    p_value: float
    better: int
    worse: int


def compare(first: Mapping[str, float], second: Mapping[str, float]) -> Comparison | None:
    """Paired comparison of two checkpoints by problem; None with fewer than two problems in common."""
    pairs = [(first[name], second[name]) for name in first if name in second]
    if len(pairs) < 2:
        return None
    differences = [after - before for before, after in pairs]
    centre = fmean(differences)
    error = stdev(differences) / math.sqrt(len(pairs))
    half = student_quantile(0.975, len(pairs) - 1) * error
    p_value = 2 * student_tail(abs(centre) / error, len(pairs) - 1) if error > 0 else float(centre == 0)
    better, worse = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    return Comparison(len(pairs), centre, centre - half, centre + half, p_value, better, worse)
