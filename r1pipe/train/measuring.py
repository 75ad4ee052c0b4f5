"""How good a reward model is, from its scores of held-out rows: accuracy, calibration, and how far it goes by length.

Light: numbers in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from r1pipe.intervals import correlation, mean, wilson

ALIKE = 0.1
"""Two answers are of matched length when they differ by at most this share of the longer one (one token is always allowed)."""
BINS = 10


def pair_numbers(
    better: Sequence[float],
    worse: Sequence[float],
    better_tokens: Sequence[int],
    worse_tokens: Sequence[int],
    groups: Sequence[str],
) -> dict[str, Any]:
    """Of a model that learned from pairs, or is to be judged by them.

    Args:
        better, worse: scores (logits) of the preferred and of the other answer of each held-out pair.
        better_tokens, worse_tokens: lengths of the answers, prompts left out.
        groups: a label of each pair, e.g. its language.

    Returns:
        held_out: pairs; accuracy: share in which the better one scores higher, and its 95% Wilson interval; length_matched: the
        same for pairs of about equal length (see ALIKE); longer_better, longer_worse: the same where the better, or the worse,
        answer is the longer one; longer_wins_share: of all pairs, where the better one is longer; length_correlation: of score
        and length over all answers; calibration: see `calibration`; by_group; score_mean, score_spread: over all answers.
    """
    right = [high > low for high, low in zip(better, worse, strict=True)]
    lengths = list(zip(better_tokens, worse_tokens, strict=True))
    chances = [logistic(high - low) for high, low in zip(better, worse, strict=True)]
    sure = [max(chance, 1 - chance) for chance in chances]
    every = [*better, *worse]
    return {
        "held_out": len(right),
        **_accuracy(right),
        "length_matched": _part(right, [abs(a - b) <= max(1, ALIKE * max(a, b)) for a, b in lengths]),
        "longer_better": _part(right, [a > b for a, b in lengths]),
        "longer_worse": _part(right, [a < b for a, b in lengths]),
        "longer_wins_share": mean([float(a > b) for a, b in lengths]),
        "length_correlation": correlation(every, [float(count) for count in (*better_tokens, *worse_tokens)]),
        "calibration": calibration(sure, right, 0.5),
        "by_group": {name: _part(right, [one == name for one in groups]) for name in sorted(set(groups))},
        "score_mean": fmean(every),
        "score_spread": pstdev(every),
    }


def label_numbers(
    scores: Sequence[float], labels: Sequence[bool], tokens: Sequence[int], groups: Sequence[str]
) -> dict[str, Any]:
    """Of a model that learned from labels: as `pair_numbers`; a row is right when the sign of its score (logit) is its label's.

    Returns:
        Also always: the accuracy of always saying the more frequent label; length_correlation_within: of score and length among
        rows of the same label, which the labels cannot cause; and accuracy among the rows of each label.
    """
    right = [(score > 0) == label for score, label in zip(scores, labels, strict=True)]
    centres = {
        label: fmean([score for score, own in zip(scores, labels, strict=True) if own == label]) for label in sorted(set(labels))
    }
    middles = {
        label: fmean([count for count, own in zip(tokens, labels, strict=True) if own == label]) for label in sorted(set(labels))
    }
    return {
        "held_out": len(right),
        **_accuracy(right),
        "always": max(fmean(map(float, labels)), 1 - fmean(map(float, labels))),
        "safe": _part(right, list(labels)),
        "unsafe": _part(right, [not label for label in labels]),
        "longer_wins_share": None,
        "length_correlation": correlation(scores, [float(count) for count in tokens]),
        "length_correlation_within": correlation(
            [score - centres[label] for score, label in zip(scores, labels, strict=True)],
            [count - middles[label] for count, label in zip(tokens, labels, strict=True)],
        ),
        "calibration": calibration([logistic(score) for score in scores], labels, 0.0),
        "by_group": {name: _part(right, [one == name for one in groups]) for name in sorted(set(groups))},
        "score_mean": fmean(scores),
        "score_spread": pstdev(scores),
    }


def calibration(chances: Sequence[float], true: Sequence[bool], lowest: float) -> dict[str, Any]:
    """Do the chances that a model's scores stand for come true?

    Args:
        chances: what the model says; between `lowest` and 1.
        true: whether it came true.

    Returns:
        error: mean distance between the chance said and the share that came true, over BINS equal bins, weighted by their rows
        (expected calibration error); brier: mean squared distance; bins: [mean chance, share true, rows] of each that has rows.
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for chance, came in zip(chances, true, strict=True):
        place = min(BINS - 1, int((chance - lowest) / (1 - lowest) * BINS))
        bins.setdefault(place, []).append((chance, came))
    rows = [
        [fmean(chance for chance, _ in members), fmean(float(came) for _, came in members), len(members)]
        for _, members in sorted(bins.items())
    ]
    return {
        "error": sum(count * abs(said - share) for said, share, count in rows) / len(chances),
        "brier": fmean((chance - came) ** 2 for chance, came in zip(chances, true, strict=True)),
        "bins": rows,
    }


def logistic(score: float) -> float:
    """The chance that a logit stands for."""
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


def _accuracy(right: Sequence[bool]) -> dict[str, Any]:
    return {"accuracy": mean([float(one) for one in right]), "accuracy_interval": list(wilson(sum(right), len(right)))}


def _part(right: Sequence[bool], members: Sequence[bool]) -> dict[str, Any]:
    """Accuracy among some of the rows."""
    chosen = [one for one, member in zip(right, members, strict=True) if member]
    return {"rows": len(chosen), **_accuracy(chosen)}
