"""From the totals of a rollout to advantages, where TRL's own scaling does not do.

TRL divides by the deviation of a group as it is. In a group of answers that are all right and differ by a stray word, that
deviation is a hundredth, and a hundredth of reward becomes an advantage as large as that of a right answer among wrong ones. With
a floor under the deviation it stays what it is. And TRL cannot leave out a group without signal, which then dilutes the mean of
the loss. So when a recipe asks for either, advantages are made here, in double precision, and TRL is told not to scale: the mean
that it still subtracts from a group is then zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from r1pipe.rewards.base import Score


def advantages(
    totals: Sequence[float | None],
    tokens: Sequence[int],
    *,
    group: int,
    scale: str,
    floor: float,
    leave_out_flat: bool,
    token_mean: bool,
) -> list[float | None]:
    """Advantages of a whole rollout.

    Args:
        totals: reward of each answer, groups in a row; None for an answer that could not be judged.
        tokens: tokens of each answer that the loss counts.
        group: answers per question.
        scale: what the distance from the group's mean is divided by: the deviation of the "group", of the "batch" (the whole
            rollout), or "none".
        floor: the least that it is divided by; in units of reward.
        leave_out_flat: give groups with signal the weight of those without, so that the loss's mean is over them alone.
        token_mean: whether the loss is a mean over tokens (else over answers): what that weight is counted in.

    Returns:
        One advantage an answer; exactly 0.0 in a group whose totals are equal; None where the total is None.
    """
    if len(totals) % group:
        whole, rest = divmod(len(totals), group)
        raise ValueError(f"{len(totals)} answers are no whole groups of {group}: {len(totals)} = {whole} × {group} + {rest}")
    members = [range(start, start + group) for start in range(0, len(totals), group)]
    judged = [[total for index in indices if (total := totals[index]) is not None] for indices in members]
    flat = [len(set(values)) <= 1 for values in judged]
    batch = deviation([value for values in judged for value in values]) if scale == "batch" else 0.0
    weight = 1.0
    if leave_out_flat and not all(flat):
        sizes = [sum(tokens[index] for index in indices) if token_mean else group for indices in members]
        signal = sum(size for size, is_flat in zip(sizes, flat, strict=True) if not is_flat)
        weight = sum(sizes) / signal if signal else 1.0
    result: list[float | None] = []
    for indices, values, is_flat in zip(members, judged, flat, strict=True):
        mean = fmean(values) if values else 0.0
        spread = 1.0 if scale == "none" else max(deviation(values) if scale == "group" else batch, floor)
        for index in indices:
            total = totals[index]
            result.append(None if total is None else 0.0 if is_flat else weight * (total - mean) / spread)
    return result


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (divided by n - 1, as TRL does); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def signal_shares(
    parts: Sequence[Mapping[str, Score | None]], totals: Sequence[float | None], weights: Mapping[str, float], group: int
) -> dict[str, float]:
    """Each reward's share in what tells the answers of a group apart, by name; empty when nothing does.

    A weighted reward's covariance with the total, summed over the groups, divided by the sum over all rewards: the shares add up
    to 1. A language reward with a large share in a run whose answers are right is noise made loud.

    Args:
        parts: reward name -> score, for each answer; groups in a row.
        totals: reward of each answer; None for an answer that could not be judged.
        weights: reward name -> its weight in the total.
        group: answers per question.
    """
    together = dict.fromkeys(parts[0], 0.0)
    for start in range(0, len(totals), group):
        judged = [(parts[index], total) for index in range(start, start + group) if (total := totals[index]) is not None]
        if len({total for _, total in judged}) <= 1:
            continue
        middle = fmean(total for _, total in judged)
        for name in together:
            values = [(score.value or 0.0) if (score := scores[name]) else 0.0 for scores, _ in judged]
            average = fmean(values)
            together[name] += weights[name] * sum(
                (value - average) * (total - middle) for value, (_, total) in zip(values, judged, strict=True)
            )
    whole = sum(together.values())
    return {name: value / whole for name, value in together.items()} if whole else {}
