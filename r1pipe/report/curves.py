"""Curves of a run: which numbers of the training are drawn together, and what is read from the attempts that it kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r1pipe.console import value
from r1pipe.data.reflection import reflection_words
from r1pipe.data.tables import attempt_of, read_part
from r1pipe.intervals import mean
from r1pipe.opening import Opened
from r1pipe.stage import Step
from r1pipe.views.numbers import Series, label
from r1pipe.views.plots import squeeze
from r1pipe.views.step import metrics_of
from r1pipe.views.tables import is_table, parts_of

MOST_POINTS = 600
"""Longer curves are drawn as the means of neighbouring steps."""
MOST_ROLLOUTS = 120
"""So many of the kept rollouts, evenly spread, are read for words and lengths."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        points: (step, number); None where the number is missing.
        other: whether it belongs to the run that is compared with.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    other: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over the same axis.

    Attributes:
        about: one sentence on what it shows.
        unit: of the vertical axis; axis: of the horizontal one.
        share: whether the vertical axis runs from 0 to 1.
        doubling: whether the horizontal axis doubles from mark to mark.
        bands: line name -> (low, high) at each of its points.
    """

    title: str
    about: str
    lines: tuple[Line, ...]
    unit: str = ""
    axis: str = "step"
    share: bool = False
    doubling: bool = False
    bands: Mapping[str, Sequence[tuple[float, float]]] | None = None

    def in_words(self) -> str:
        """What the lines do, for whoever does not see them."""
        others = {line.name: line for line in self.lines if line.other}
        return "; ".join(words for line in self.lines if not line.other and (words := _in_words(line, others.get(line.name))))

    def data(self) -> dict[str, Any]:
        """The chart for the page's script: one axis for all lines, gaps as null."""
        steps = sorted({step for line in self.lines for step, _ in line.points})
        rows = []
        for line in self.lines:
            found = dict(line.points)
            entry: dict[str, Any] = {
                "name": line.name,
                "values": [_rounded(found.get(step)) for step in steps],
                "other": line.other,
            }
            if self.bands and line.name in self.bands and not line.other:
                at = {step: pair for (step, _), pair in zip(line.points, self.bands[line.name], strict=True)}
                entry["low"] = [_rounded(at[step][0]) if step in at else None for step in steps]
                entry["high"] = [_rounded(at[step][1]) if step in at else None for step in steps]
            rows.append(entry)
        return {
            "title": self.title, "x": steps, "lines": rows, "share": self.share, "unit": self.unit, "axis": self.axis,
            "doubling": self.doubling,
        }  # fmt: skip


GROUPS: tuple[tuple[str, str, tuple[str, ...], bool], ...] = (
    ("Length", "Mean tokens of an answer.", ("tokens_mean",), False),
    ("Length of the thinking", "Mean characters, where there is thinking.", ("thinking_characters",), False),
    ("Reflection words", "The paper's ten words and their Chinese counterparts, per answer.", ("reflection",), False),
    ("Mixed languages", "Share of the answers whose thinking is not all in the question's language.", ("mixed_share",), True),
    ("Groups without a signal", "Share of questions whose answers all got the same reward: they teach nothing.",
     ("flat_share", "flat_right", "flat_wrong"), True),
    ("KL to the reference", "Mean over tokens; it falls back whenever the reference is replaced by the policy.", ("kl",), False),
    ("Entropy", "Mean entropy of the policy's next token, in nats.", ("entropy",), False),
    ("Cut off", "Share of answers that reached the length limit.", ("truncated_share",), True),
    ("Loss", "Of each optimizer step.", ("loss",), False),
    ("Gradient norm", "Before clipping.", ("gradient_norm",), False),
    ("Accuracy of the reward model", "Share of training pairs in the right order.", ("pair_accuracy",), True),
    ("Token accuracy", "Share of training tokens that the model would have written.", ("token_accuracy",), True),
    ("Right answers", "Share by shard.", ("right",), True),
)  # fmt: skip
"""Title, sentence, keys of the metrics, whether it is a share. The rewards come before these."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step's charts.

    Attributes:
        name: of the metrics file; empty for the step's own.
        series: what they were drawn from.
    """

    step: Step
    name: str
    series: Mapping[str, Series]
    charts: Sequence[Chart]


def training_charts(opened: Opened, other: Opened | None = None) -> list[Drawn]:
    """The charts of every step that wrote numbers over steps, in order; the evaluation's are the page's own."""
    found = []
    for step in opened.pipeline.steps:
        theirs = metrics_of(other, same) if other is not None and (same := _same_step(other, step)) else {}
        for name, series in metrics_of(opened, step).items():
            charts = charts_of(series, theirs.get(name, {}))
            if charts and step.writes.get("results") != "json":
                found.append(Drawn(step, name, series, charts))
    return found


def _same_step(other: Opened, step: Step) -> Step | None:
    return next((one for one in other.pipeline.steps if one.name == step.name), None)


def charts_of(series: Mapping[str, Series], theirs: Mapping[str, Series] | None = None) -> list[Chart]:
    """The charts of one metrics file; numbers that never change are left out, except rewards."""
    theirs = theirs or {}
    rewards = [key for key in series if key.startswith("rewards.")]
    totals = ["total_mean"] if rewards else []
    charts: list[Chart] = []
    for title, about, names in (
        ("Rewards by part", "Mean over the answers of a rollout that each one applies to.", rewards),
        (
            "Signal by part",
            "Each reward's share of the variance of the advantages: one that is near 1 rules the others.",
            [key for key in series if key.startswith("signal.")],
        ),
        ("Total reward", "The weighted sum, which is what is trained on.", totals),
    ):
        if lines := _lines(names, series, theirs):
            charts.append(Chart(title, about, lines, "reward"))
    for title, about, keys, share in GROUPS:
        lines = _lines([key for key in keys if key in series and _moves(series[key])], series, theirs)
        if lines:
            charts.append(Chart(title, about, lines, "tokens" if keys[0] == "tokens_mean" else "", share=share))
    return charts


def _lines(keys: Iterable[str], series: Mapping[str, Series], theirs: Mapping[str, Series]) -> tuple[Line, ...]:
    lines = []
    for key in keys:
        if key in series and len(series[key].steps) > 1:
            lines.append(Line(label(key), points(series[key])))
            if key in theirs and len(theirs[key].steps) > 1:
                lines.append(Line(label(key), points(theirs[key]), other=True))
    return tuple(lines)


def points(series: Series) -> list[tuple[float, float | None]]:
    """The points of a series, at most `MOST_POINTS` of them."""
    if len(series.steps) <= MOST_POINTS:
        return [(float(step), _finite(number)) for step, number in zip(series.steps, series.values, strict=True)]
    steps, numbers = squeeze([float(step) for step in series.steps], MOST_POINTS), squeeze(series.values, MOST_POINTS)
    return [(float(step), number) for step, number in zip(steps, numbers, strict=True) if step is not None]


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _moves(series: Series) -> bool:
    return len({number for number in series.values if number is not None}) > 1


def _rounded(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.5g}")


def _in_words(line: Line, other: Line | None) -> str:
    """Where a line begins and ends, how far it goes in between, and where that of the other run ends."""
    known = [number for _, number in line.points if number is not None]
    if not known:
        return ""
    words = f"{line.name} from {value(known[0])} to {value(known[-1])}"
    low, high = min(known), max(known)
    if not {low, high} <= {known[0], known[-1]}:
        words += f", between {value(low)} and {value(high)}"
    theirs = [number for _, number in other.points if number is not None] if other is not None else []
    return f"{words} (other run to {value(theirs[-1])})" if theirs else words


def at_k_charts(checkpoints: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> list[Chart]:
    """Pass@k and maj@k of all checkpoints over k; none with fewer than four samples a problem.

    Args:
        checkpoints: name -> {"pass": [{"k", "mean", "low", "high"}], "majority": the same}.
    """
    charts = []
    for kind, title, about in (
        ("pass", "Pass@k", "The chance that at least one of k answers is right."),
        ("majority", "Maj@k", "The chance that the most frequent of k answers is right."),
    ):
        lines, bands = [], {}
        for name, curves in checkpoints.items():
            found = curves.get(kind) or []
            if len(found) > 2:
                lines.append(Line(name, [(float(at["k"]), at["mean"]) for at in found]))
                bands[name] = [(at["low"], at["high"]) for at in found]
        if lines:
            charts.append(Chart(title, about, tuple(lines), axis="k", share=True, doubling=True, bands=bands))
    return charts


def writing_charts(opened: Opened, other: Opened | None = None) -> list[tuple[Step, list[Chart]]]:
    """Reflection words and lengths over the training, from the attempts of the rollouts that were kept."""
    found = []
    for step in opened.pipeline.steps:
        mine = _writing(opened, step)
        same = _same_step(other, step) if other is not None else None
        theirs = _writing(other, same) if other is not None and same is not None else []
        charts = []
        for number, chart in enumerate(mine):
            added = [replace(line, other=True) for line in theirs[number].lines] if number < len(theirs) else []
            charts.append(replace(chart, lines=(*chart.lines, *added)))
        if charts:
            found.append((step, charts))
    return found


def _writing(opened: Opened, step: Step) -> list[Chart]:
    folder = opened.run.step_dir(step) / "rollouts"
    if not is_table(folder):
        return []
    paths = parts_of(folder)
    if len(paths) < 3:
        return []
    every = -(-len(paths) // MOST_ROLLOUTS)
    words, density, right, wrong = [], [], [], []
    for path in paths[::every]:
        rows = read_part(path)
        at = float(_part_number(path))
        counts = [reflection_words(attempt_of(row)).total() for row in rows]
        tokens = sum(row["tokens"] for row in rows)
        words.append((at, mean([float(count) for count in counts])))
        density.append((at, 1000 * sum(counts) / tokens if tokens else None))
        right.append((at, mean([float(row["tokens"]) for row in rows if row["verdict"] == "right"])))
        wrong.append((at, mean([float(row["tokens"]) for row in rows if row["verdict"] == "wrong"])))
    kept = "From the attempts that the run kept of each rollout."
    charts = [
        Chart("Reflection words", kept, (Line("per response", words), Line("per 1,000 tokens", density)), axis="rollout"),
        Chart("Length of right and wrong answers", kept, (Line("right", right), Line("wrong", wrong)), "tokens", axis="rollout"),
    ]
    return [chart for chart in charts if any(len({number for _, number in line.points}) > 1 for line in chart.lines)]


def _part_number(path: Path) -> int:
    return int(path.stem.removeprefix("part-"))
