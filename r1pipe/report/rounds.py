"""Rounds of stage 4: what each one gained, and how well the reward models judged the policy's fresh answers before and after they
were trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe.data.tables import scores_of
from r1pipe.estimators import Comparison, compare
from r1pipe.intervals import mean
from r1pipe.report.evaluation import Checkpoint, Evaluation
from r1pipe.report.markup import Child, Markup, h, join, table
from r1pipe.rewards.preference import KINDS
from r1pipe.stages.evaluate import ROUND
from r1pipe.stages.iterating import LaterRewardModelsConfig, round_of
from r1pipe.states import StepPlan


def preferences(attempts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Prompt id -> mean score of the reward model for its kind, in standard deviations."""
    found: dict[str, list[float]] = {}
    for row in attempts:
        scores = scores_of(dict(row))
        given = [score.value for kind in KINDS if (score := scores.get(kind)) is not None and score.value is not None]
        found.setdefault(row["id"], []).extend(given)
    return {name: middle for name, values in found.items() if (middle := mean(values)) is not None}


def gains(evaluation: Evaluation) -> list[tuple[int, Checkpoint, Comparison | None, Comparison | None]]:
    """(round, its checkpoint, gain of pass@1 and of preference over the checkpoint before it), paired by problem and prompt, in
    order; empty where stage 4 has one round."""
    checkpoints = evaluation.checkpoints
    first = next((place for place, one in enumerate(checkpoints) if one.key.startswith(ROUND)), None)
    if not first:
        return []
    return [
        (number, after, compare(before.rates, after.rates), compare(preferences(before.attempts), preferences(after.attempts)))
        for number, (before, after) in enumerate(zip(checkpoints[first - 1 :], checkpoints[first:], strict=False), 1)
    ]


def rounds(plans: Sequence[StepPlan], evaluation: Evaluation | None) -> Markup:
    """The section; empty where stage 4 has one round."""
    models = [place for place in plans if place.manifest is not None and issubclass(place.step.config, LaterRewardModelsConfig)]
    parts: list[Child] = []
    if evaluation is not None and (found := gains(evaluation)):
        rows: list[list[Child]] = [[f"{number}: {one.name}", _gain(right), _gain(liked)] for number, one, right, liked in found]
        note = "Against the checkpoint before it, on the same problems and prompts. The last reward models judge preference."
        parts.append(table(["round", "pass@1", "preference"], rows, "What each round gained", note=note))
    lines: list[list[Child]] = []
    for place in models:
        assert place.manifest is not None
        for kind in KINDS:
            lines.append([f"{round_of(place.step.name)}: {kind}", *_model(place.manifest.summary.get(kind) or {})])
    if lines:
        head: list[Child] = [
            "for round",
            "fresh rows",
            "replayed",
            "fresh, before",
            "fresh, after",
            "old, before",
            "old, after",
        ]
        note = "Accuracy on rows that were never trained on, with 95% intervals: fresh answers of the policy, and rows of old."
        parts.append(table(head, lines, "Reward models on the policy’s fresh answers", note=note))
    return join(*parts)


def _gain(found: Comparison | None) -> str:
    if found is None:
        return "–"
    return f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})".replace("-", "−")


def _model(summary: Mapping[str, Any]) -> list[Child]:
    """The cells of a reward model."""
    accuracies = [_accuracy(summary.get(name)) for name in ("fresh_before", "fresh_after", "old_before", "old_after")]
    if why := summary.get("taken_over"):
        return [summary.get("fresh", "–"), "–", accuracies[0], h("span", f"taken over as it is: {why}", class_="small"), "–", "–"]
    return [summary.get("fresh", "–"), f"{summary.get('replayed', 0)} of {summary.get('old', 0)}", *accuracies]


def _accuracy(found: Any) -> str:
    if not isinstance(found, Mapping) or found.get("accuracy") is None:
        return "–"
    low, high = found["accuracy_interval"]
    return f"{found['accuracy']:.3f} ({low:.2f}–{high:.2f}, {found['held_out']} rows)"
