"""The reward models of the page: how often each is right about rows that it was not trained on, and how far length decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe import states
from r1pipe.report.markup import Child, Markup, h, join, table
from r1pipe.report.overview import number

KINDS = ("helpfulness", "safety")


def judges(plans: Sequence[states.StepPlan]) -> Markup:
    """A line for each reward model that a finished step has trained or adopted; empty when there is none."""
    lines: list[list[Child]] = []
    first = next((place.step.name for place in plans if place.step.name.endswith("/reward-models")), "")
    for place in plans:
        summary = place.manifest.summary if place.manifest else {}
        for kind in KINDS:
            found = summary.get(kind)
            if isinstance(found, Mapping) and "accuracy_interval" in found and "calibration" in found:
                lines.append([kind if place.step.name == first else f"{kind}, {place.step.name}", *_line(found)])
    if not lines:
        return join()
    return table(
        (
            "reward model",
            "trained on",
            "held out",
            "right",
            "of matched length",
            "by language",
            "length correlation",
            "calibration error",
        ),
        lines,
        "Reward models on rows that they were not trained on",
        note="Right: share of held-out pairs in which the better answer scores higher, or of labels whose sign the score has, "
        "with its 95% interval. Calibration error: mean distance between the chance that a score stands for and the share that "
        "came true.",
    )


def _line(found: Mapping[str, Any]) -> list[Child]:
    matched = found.get("length_matched") or {}
    groups = {name: part for name, part in (found.get("by_group") or {}).items() if part.get("rows")}
    return [
        f"{found.get('rows', 0):,}" if found.get("rows") else "–",
        f"{found.get('held_out', 0):,}",
        _accuracy(found),
        _accuracy(matched) if matched.get("rows") else "–",
        ", ".join(f"{name} {number(part['accuracy'])}" for name, part in groups.items()) or "–",
        number(found.get("length_correlation"), 2).replace("-", "−"),
        number(found["calibration"]["error"]),
    ]


def _accuracy(found: Mapping[str, Any]) -> Child:
    low, high = found["accuracy_interval"]
    return join(number(found["accuracy"]), " ", h("span", f"{number(low)}–{number(high)}", class_="small"))
