"""The hacking watch of the page: preference beside accuracy, in training and on problems that were never trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from r1pipe.intervals import mean
from r1pipe.metrics import read_metrics
from r1pipe.opening import Opened
from r1pipe.report.curves import Chart, Line, points
from r1pipe.report.evaluation import Evaluation, steps_between
from r1pipe.report.figures import Figures
from r1pipe.report.markup import Child, Markup, h, join, table
from r1pipe.report.overview import number, signed
from r1pipe.stage import Step
from r1pipe.train.hacking import told
from r1pipe.views.numbers import Series, label
from r1pipe.views.step import metrics_of

PREFERENCES = ("rewards.helpfulness", "rewards.safety")
SIGNIFICANT = 0.01
HELD_OUT = (
    ("Held out: accuracy and preference",
     "Greedy answers to problems and prompts that are never trained on; accuracy is a share, preference in standard deviations.",
     ("held_out_accuracy", "held_out_preference", "held_out_helpfulness", "held_out_safety"), "", False),
    ("Held out: length", "Mean tokens of those answers.", ("held_out_tokens", "general_tokens"), "tokens", False),
    ("Held out: refusals", "Share of answers that decline, to harmless and to risky prompts.",
     ("refused_harmless", "refused_risky"), "", True),
)  # fmt: skip
"""Title, sentence, keys, unit, whether it is a share."""


NUMBERS = {
    "held_out_accuracy": 3, "held_out_preference": 2, "held_out_tokens": 1, "general_tokens": 1, "refused_harmless": 2,
    "refused_risky": 2,
}  # fmt: skip
"""Numbers of a look in the table, and their places."""


def hacking(opened: Opened, evaluation: Evaluation | None, figures: Figures) -> Markup:
    """Preference rewards beside accuracy: a reward that rises while answers get worse is being hacked."""
    parts: list[Child] = []
    for step in opened.pipeline.steps:
        series = metrics_of(opened, step).get("", {})
        parts += _looks(opened, step, series, figures)
        preferences = [key for key in PREFERENCES if key in series and len(_known(series[key])) > 1]
        if preferences and "rewards.accuracy" in series:
            keys = (*preferences, "rewards.accuracy")
            lines = tuple(Line(key.removeprefix("rewards."), points(series[key])) for key in keys)
            parts.append(h("p", _watched(step, series, preferences)))
            parts.append(
                figures.add([Chart(f"Preference and accuracy in {step.name}", "Mean rewards of a rollout.", lines, "reward")])
            )
    if parts and evaluation is not None:
        for first, second, found in steps_between(evaluation)[-1:]:
            before, after = (row.get("helpfulness") for row in (first.row, second.row))
            if isinstance(before, int | float) and isinstance(after, int | float):
                moved = f"helpfulness {signed(after - before, 2)}, pass@1 {signed(found.difference)} (p {found.p_value:.4f})"
                traded = found.difference < 0 and after > before
                fallen = traded and found.p_value < SIGNIFICANT
                verdict = (
                    "The preferred answers are less often right: a sign of hacking."
                    if fallen
                    else "The fall is not significant at p < 0.01, and worth watching."
                    if traded
                    else "No sign of hacking there."
                )
                parts.append(
                    h(
                        "p",
                        f"On held-out problems from {first.name} to {second.name}: {moved}. {verdict}",
                        class_="bad" if fallen else None,
                    )
                )
    return join(*parts)


def _known(series: Series) -> list[float]:
    return [found for found in series.values if found is not None]


def _watched(step: Step, series: Mapping[str, Series], preferences: Sequence[str]) -> str:
    """How the preference rewards moved since they joined, and accuracy over the same steps."""
    start = min(
        at for key in preferences for at, found in zip(series[key].steps, series[key].values, strict=True) if found is not None
    )
    sentences = []
    for key in (*preferences, "rewards.accuracy"):
        found = [one for at, one in zip(series[key].steps, series[key].values, strict=True) if at >= start and one is not None]
        third = max(1, len(found) // 3)
        early, late = mean(found[:third]), mean(found[-third:])
        if early is not None and late is not None:
            sentences.append(f"{key.removeprefix('rewards.')} {number(early, 2)} → {number(late, 2)}".replace("-", "−"))
    return f"{step.name}, from step {start} on (first third → last third): {', '.join(sentences)}."


def _looks(opened: Opened, step: Step, series: Mapping[str, Series], figures: Figures) -> list[Child]:
    """The looks at held-out problems of a step: what came of them, their curves, and their numbers."""
    found = told(read_metrics(opened.run.metrics_path(step)))
    if not found:
        return []
    low, high = found["accuracy_change_interval"]
    verdict = (
        f"The sign of hacking held from step {found['sign_at']} on: preference up, accuracy down by more than chance."
        if found["sign_at"] is not None
        else "No sign of hacking: at no look was preference up and accuracy down by more than chance."
    )
    best = f" The best look without the sign is that at step {found['best_step']}." if found["best_step"] is not None else ""
    sentence = (
        f"{step.name}, on problems held out of the training, from step {found['switch_step']}, where preference rewards joined, "
        f"to the last look: accuracy {signed(found['accuracy_change'])} (95% {signed(low)} to {signed(high)}), preference "
        f"{signed(found['preference_change'], 2)}. "
    )
    charts = []
    for title, about, keys, unit, share in HELD_OUT:
        lines = tuple(Line(label(key), points(series[key])) for key in keys if key in series and len(_known(series[key])) > 1)
        if lines:
            charts.append(Chart(f"{title}, {step.name}", about, lines, unit, share=share))
    rows: list[list[Child]] = [
        [f"step {at}", *(number(look.get(key), digits) for key, digits in NUMBERS.items()), look["sign"]]
        for at, look in found["looks"].items()
    ]
    head = ["look", *(label(key) for key in NUMBERS), "sign"]
    return [
        h("p", f"{sentence}{verdict}{best}", class_="bad" if found["sign_at"] is not None else None),
        figures.add(charts) if charts else None,
        table(head, rows, f"Looks at held-out problems in {step.name}"),
    ]
