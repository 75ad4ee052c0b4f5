"""What the method of an RL stage keeps in memory and costs, in words, before it starts."""

from __future__ import annotations

from pathlib import Path

from r1pipe.console import size, value
from r1pipe.errors import ArtifactError
from r1pipe.train.methods.choice import METHODS
from r1pipe.train.methods.costs import costs_of, costs_without_method
from r1pipe.train.settings import GrpoSettings
from r1pipe.weights import count_parameters


def cost_lines(settings: GrpoSettings, base: Path | None) -> list[str]:
    """One sentence on memory and arithmetic, and one on the method when it is not GRPO.

    Args:
        base: the base model's folder, whose size the policy has; None when it is not there.
    """
    costs, plain = costs_of(settings), costs_without_method(settings)
    trained = " and ".join(costs.trained)
    kept = f", {' and '.join(costs.frozen)} kept" if costs.frozen else ""
    held = f"{trained} trained{' (the policy by adapters)' if costs.adapters else ''}{kept}"
    parameters = _parameters(base)
    amount = f" = {size(costs.bytes_for(parameters))} for {value(parameters)} parameters in float32" if parameters else ""
    lines = [f"method {settings.method}: {held}{amount}; an answer costs its sampling and {costs.passes} forward passes"]
    if settings.method != "grpo":
        times = costs.bytes_for(1000) / plain.bytes_for(1000)
        lines.append(f"{METHODS[settings.method].coefficient}; GRPO would take {plain.passes} passes")
        if costs.trained != plain.trained:
            lines.append(f"the value model is as large as the policy and trained beside it: {times:.1f} times the memory of GRPO")
    return lines


def _parameters(base: Path | None) -> int:
    try:
        return count_parameters(base) if base is not None else 0
    except (ArtifactError, OSError):
        return 0
