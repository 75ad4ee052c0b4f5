"""The numbers of metrics.jsonl, for people: which there are, what to call them, in which order they matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from r1pipe.console import value

LABELS = {
    "total_mean": "total",
    "pass_at_1": "pass@1",
    "right": "right",
    "held_out_accuracy": "held-out accuracy",
    "held_out_preference": "held-out preference",
    "held_out_helpfulness": "held-out helpfulness",
    "held_out_safety": "held-out safety",
    "held_out_tokens": "held-out tokens",
    "general_tokens": "tokens, general prompts",
    "refused_harmless": "refused, harmless",
    "refused_risky": "refused, risky",
    "tokens_mean": "tokens",
    "flat_share": "no signal",
    "flat_right": "all right",
    "flat_wrong": "all wrong",
    "truncated_share": "cut off",
    "unjudged": "unjudged",
    "cut": "read in part",
    "thinking_characters": "thinking characters",
    "reflection": "reflection words",
    "mixed_share": "mixed languages",
    "kl": "KL",
    "loss": "loss",
    "entropy": "entropy",
    "token_accuracy": "token accuracy",
    "pair_accuracy": "pair accuracy",
    "margin": "margin",
    "gradient_norm": "gradient norm",
    "learning_rate": "learning rate",
    "clipped_share": "clipped",
    "step_seconds": "seconds a step",
}
"""Key in metrics.jsonl -> what a person calls it; in order of importance after the reward parts."""

HEADLINES = (
    "total_mean",
    "tokens_mean",
    "flat_share",
    "flat_right",
    "flat_wrong",
    "kl",
    "loss",
    "pair_accuracy",
    "token_accuracy",
    "right",
    "pass_at_1",
    "unjudged",
)
"""What a running step shows beside its reward parts."""

COUNTS = ("unjudged", "cut")

HIDDEN = ("step", "answers", "tokens_total", "checkpoint", "look_seconds")

PROGRESS_KEYS = {"tokens": "tokens_mean", "flat_groups": "flat_share", "truncated": "truncated_share"}
"""Key in progress.json -> the same number's key in metrics.jsonl."""


@dataclass(slots=True)
class Series:
    """One number over the steps."""

    steps: list[int] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)

    @property
    def last(self) -> float | None:
        """The newest value that is there."""
        return next((number for number in reversed(self.values) if number is not None), None)

    @property
    def first(self) -> float | None:
        """The oldest value that is there."""
        return next((number for number in self.values if number is not None), None)

    def add(self, step: int, number: float | None) -> None:
        """Add a value; a step that comes again (a resume wrote it anew) replaces what it and later steps said."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()
        self.steps.append(step)
        self.values.append(number)


def label(key: str) -> str:
    """What a person calls a number."""
    if key.startswith("signal."):
        return f"signal by {key.removeprefix('signal.').replace('_', ' ')}"
    return LABELS.get(key, key.removeprefix("rewards.").replace("_", " "))


def amount(key: str, number: float | None) -> str:
    """A number as it is shown: counts without places, lengths with one."""
    whole = number is not None and key in COUNTS and number == int(number)
    return value(int(number)) if whole and number is not None else value(number)


def numbers_of(line: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The numbers of one line; reward parts as "rewards.NAME", their shares of the signal as "signal.NAME". Numbers by domain are
    left to the files."""
    for key, found in line.items():
        if key == "rewards" and isinstance(found, Mapping):
            yield from ((f"rewards.{name}", _number(part)) for name, part in found.items())
        elif key == "signal" and isinstance(found, Mapping):
            yield from ((f"signal.{name}", _number(part)) for name, part in found.items())
        elif key not in HIDDEN and not isinstance(found, bool) and (found is None or isinstance(found, int | float)):
            yield key, _number(found)


def collect(lines: Iterable[Mapping[str, Any]]) -> dict[str, Series]:
    """Every number of a metrics file over its steps, the important ones first."""
    found: dict[str, Series] = {}
    for line in lines:
        add_line(found, line)
    return dict(sorted(found.items(), key=lambda item: order(item[0])))


def add_line(series: dict[str, Series], line: Mapping[str, Any]) -> None:
    """Add one line's numbers."""
    step = line.get("step")
    for key, number in numbers_of(line):
        series.setdefault(key, Series()).add(step if isinstance(step, int) else 0, number)


def order(key: str) -> tuple[int, int]:
    """Reward parts first, then as in `LABELS`, then the rest."""
    if key.startswith("rewards."):
        return (0, 0)
    return (1, list(LABELS).index(key)) if key in LABELS else (2, 0)


def from_progress(progress: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The numbers of a progress file, under the keys of metrics.jsonl."""
    for key, number in numbers_of(progress):
        if key not in ("done", "total", "seconds_left"):
            yield PROGRESS_KEYS.get(key, key), number


def is_headline(key: str) -> bool:
    """Whether a running step shows the number."""
    return key.startswith("rewards.") or key in HEADLINES


def _number(found: Any) -> float | None:
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
