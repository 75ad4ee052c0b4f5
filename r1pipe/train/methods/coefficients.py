"""From what a rollout was worth to what each token's gradient is multiplied with, by method; in double precision.

Sources: rft and online-rft: DeepSeekMath (arXiv 2402.03300), A.1.2 and A.1.3. Process supervision: the same, 4.1.3.
Leave-one-out: Kool et al. 2019; Ahmadian et al. 2024 (2402.14740, 2.3). GAE: Schulman et al. 2016 (1506.02438, Eq. 16). KL as a
reward of each token: Ouyang et al. 2022 (2203.02155, Eq. 2), and DeepSeek-R1 v2, A.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch

from r1pipe.train.advantages import deviation

Step = tuple[int, float]
"""(number of tokens of the answer up to the step's end, score)."""


def right_or_not(verdicts: Sequence[str]) -> list[float]:
    """1 for every answer that a rule found right, 0 for every other, also one that could not be judged."""
    return [float(verdict == "right") for verdict in verdicts]


def leave_one_out(totals: Sequence[float | None], group: int) -> list[float]:
    """Each reward less the mean of the others of its group, which equals (reward - group's mean) × G / (G - 1).

    Args:
        totals: reward of each answer, groups in a row; None for an answer that could not be judged, which then counts in no mean.
        group: answers per question.

    Returns:
        One number an answer; 0.0 where there is no reward, or no other one to compare with.
    """
    result = []
    for start in range(0, len(totals), group):
        judged = [total for total in totals[start : start + group] if total is not None]
        flat = len(set(judged)) <= 1
        for total in totals[start : start + group]:
            alone = total is None or flat
            result.append(0.0 if alone or total is None else total - (sum(judged) - total) / (len(judged) - 1))
    return result


def z_scored_steps(answers: Sequence[Sequence[Step]], group: int) -> list[list[Step]]:
    """Step scores less the mean of all steps of the group's answers, over their sample deviation; 0.0 where all are equal.

    Args:
        answers: the steps of each answer, groups in a row; none for an answer that could not be judged.
        group: answers per question.
    """
    result = []
    for start in range(0, len(answers), group):
        members = answers[start : start + group]
        pooled = [score for steps in members for _, score in steps]
        mean, spread = (fmean(pooled), deviation(pooled)) if len(set(pooled)) > 1 else (0.0, 0.0)
        result += [[(end, (score - mean) / spread if spread else 0.0) for end, score in steps] for steps in members]
    return result


def sum_of_later_steps(steps: Sequence[Step], tokens: int) -> torch.Tensor:
    """For each of an answer's tokens the sum over the steps that end at or after it; shape (tokens,).

    A step that ends with the n-th token counts for tokens 1 to n. Tokens after the last step get 0.
    """
    found = torch.zeros(tokens, dtype=torch.float64)
    for end, score in steps:
        found[:end] += score
    return found


def token_rewards(totals: torch.Tensor, kl: torch.Tensor, mask: torch.Tensor, weight: float) -> torch.Tensor:
    """The reward of each token: less `weight` times its log-ratio to the reference, and at the last token the answer's reward.

    Args:
        totals: (answers,) rewards.
        kl: (answers, tokens) log π - log π_ref of the tokens sampled.
        mask: (answers, tokens) which tokens are the answer's; from the first on, without gaps.

    Returns:
        (answers, tokens), 0 beyond an answer's end.
    """
    rewards = -weight * kl * mask
    lengths = mask.sum(dim=1)
    written = lengths > 0
    rewards[written, lengths[written].long() - 1] += totals[written]
    return rewards


def generalised_advantages(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """GAE: A_t = δ_t + γ λ A_{t+1}, with δ_t = r_t + γ V_{t+1} - V_t and nothing after an answer's last token.

    Args:
        rewards, values, mask: (answers, tokens); values are those of the text before each token.

    Returns:
        (answers, tokens), 0 beyond an answer's end.
    """
    values = values * mask
    advantages = torch.zeros_like(values)
    later_value, later_advantage = torch.zeros_like(values[:, 0]), torch.zeros_like(values[:, 0])
    for place in reversed(range(values.shape[1])):
        delta = rewards[:, place] + gamma * later_value - values[:, place]
        later_advantage = (delta + gamma * lam * later_advantage) * mask[:, place]
        later_value = values[:, place]
        advantages[:, place] = later_advantage
    return advantages
