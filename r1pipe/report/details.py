"""The lower part of the page: how the checkpoints write, what stage 3 kept, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe import console
from r1pipe.metrics import read_metrics
from r1pipe.opening import Opened
from r1pipe.report.evaluation import Evaluation
from r1pipe.report.markup import Child, Markup, definitions, h, join, table
from r1pipe.report.overview import bar, number
from r1pipe.stage import Step
from r1pipe.states import StepPlan
from r1pipe.views.made import made
from r1pipe.views.numbers import Series
from r1pipe.views.step import read_json


def writing(evaluation: Evaluation) -> Markup:
    """How each checkpoint writes."""
    known = [(one, one.behaviour) for one in evaluation.checkpoints if one.behaviour is not None]
    if not known:
        return Markup("")
    lines: list[tuple[str, list[Child]]] = [
        ("reflection words per response", [number(b.reflections, 2) for _, b in known]),
        ("reflection words per 1,000 tokens", [number(b.per_thousand, 2) for _, b in known]),
        ("tokens of a right answer", [number(b.tokens_right, 1) for _, b in known]),
        ("tokens of a wrong answer", [number(b.tokens_wrong, 1) for _, b in known]),
        ("thinking, share of the text", [number(b.thinking_share) for _, b in known]),
        ("well formed", [number(b.well_formed) for _, b in known]),
        ("thinking in one language, the question’s", [number(b.one_language) for _, b in known]),
        ("repetition in the thinking", [number(b.repetition) for _, b in known]),
        ("cut off at the length limit", [number(b.cut_off) for _, b in known]),
    ]
    names = [one.name for one, _ in known]
    words = list(dict.fromkeys(word for _, b in known for word in b.words))
    faults = list(dict.fromkeys(fault for _, b in known for fault in b.faults))
    parts: list[Child] = [table(["", *names], [[title, *cells] for title, cells in lines], "How each checkpoint writes")]
    if words:
        rows: list[list[Child]] = [[word, *(number(b.words.get(word, 0.0)) for _, b in known)] for word in words]
        note = "The paper’s ten words, and their Chinese counterparts under the same English word, counted in the thinking."
        parts.append(
            h("details", h("summary", "Word by word"), table(["per response", *names], rows, "Reflection words", note=note))
        )
    if faults:
        rows = [[fault, *(b.faults.get(fault, 0) for _, b in known)] for fault in faults]
        parts.append(
            h("details", h("summary", "What breaks the format"), table(["answers", *names], rows, "Faults of the format"))
        )
    return join(*parts)


def ledger(opened: Opened) -> Markup:
    """What became of each attempt, in every step that selects."""
    parts: list[Child] = []
    for step in opened.pipeline.steps:
        if step.writes.get("report") != "json" or not opened.run.manifest_path(step).exists():
            continue
        report = read_json(opened.run.output_path(step, "report"))
        if not isinstance(report, dict) or not isinstance(reasons := report.get("reasons"), dict):
            continue
        if "kept" not in reasons and isinstance(report.get("kept"), int):
            reasons = {"kept": report["kept"], **reasons}
        total = sum(reasons.values()) or 1
        rows: list[list[Child]] = [
            [reason, bar(count / total), count, f"{count / total:.1%}"] for reason, count in reasons.items()
        ]
        parts.append(table(["attempts", "", "number", "share"], rows, f"What became of each attempt in {step.name}"))
        facts: list[tuple[Child, Child]] = [
            ("rows for training", report.get("rows")), ("of them general", report.get("general")),
            ("problems tried", report.get("problems")), ("solved at least once", report.get("problems_solved")),
            ("domains", _counts(report.get("domains"))), ("languages", _counts(report.get("languages"))),
            ("problems by pass rate", _counts(report.get("pass_rate_histogram"))),
        ]  # fmt: skip
        parts.append(definitions(facts))
    return join(*parts)


def _counts(found: Any) -> str:
    return ", ".join(f"{key} {count:,}" for key, count in found.items()) if isinstance(found, Mapping) else ""


def cost(opened: Opened, plans: Sequence[StepPlan], evaluation: Evaluation | None) -> Markup:
    """Time, tokens and memory of every step, and where it was made."""
    rows: list[list[Child]] = []
    seconds, tokens = 0.0, 0
    for place in plans:
        manifest = place.manifest
        if manifest is None:
            continue
        written = _tokens(opened, place, evaluation)
        seconds += manifest.wall_seconds
        tokens += written or 0
        memory = console.size(manifest.peak_memory_bytes) if manifest.peak_memory_bytes else ""
        device = manifest.device + (f", {console.size(manifest.peak_device_bytes)}" if manifest.peak_device_bytes else "")
        pace = f"{written / manifest.wall_seconds:,.0f}" if written and manifest.wall_seconds else ""
        rows.append(
            [
                place.step.name,
                console.duration(manifest.wall_seconds),
                manifest.attempts,
                f"{written:,}" if written else "",
                pace,
                memory,
                device,
                manifest.host,
            ]
        )
    if not rows:
        return Markup("")
    rows.append([h("strong", "all"), h("strong", console.duration(seconds)), "", h("strong", f"{tokens:,}"), "", "", "", ""])
    head = ["step", "time", "attempts", "tokens written", "a second", "memory", "device", "host"]
    note = "Time is that of the attempt that finished. Tokens are those that the model wrote; energy was not measured."
    manifests = [place.manifest for place in plans if place.manifest]
    versions = manifests[-1].versions
    facts: list[tuple[Child, Child]] = [
        ("platform", manifests[-1].platform), ("commit", manifests[-1].commit[:12]),
        ("versions", ", ".join(f"{name} {found}" for name, found in versions.items() if found)),
    ]  # fmt: skip
    return join(table(head, rows, "Time and tokens", note=note), definitions(facts, "wide-values"))


def _tokens(opened: Opened, place: StepPlan, evaluation: Evaluation | None) -> int | None:
    """Tokens that a step's model wrote, as far as the run knows."""
    assert place.manifest is not None
    lines = read_metrics(opened.run.metrics_path(place.step))
    written = sum(line.get("tokens_total") or 0 for line in lines if line.get("kind") == "rollout")
    if written:
        return int(written)
    if place.step.writes.get("results") == "json" and evaluation is not None:
        return sum(row["tokens"] for one in evaluation.checkpoints for row in one.attempts) or None
    said = place.manifest.summary.get("tokens")
    return int(said) if isinstance(said, int | float) and "verdicts" in place.manifest.summary else None


def step_title(step: Step, name: str, summary: Mapping[str, Any] | None, series: Mapping[str, Series]) -> Markup:
    """The heading of a step's charts, and what came of it."""
    words = f"{step.name} {name}".strip()
    result = made(summary, series).replace("  ", " · ") if summary else ""
    makes = h("span", f" → {step.makes}", class_="makes") if step.makes else None
    return join(h("h3", words, makes), h("p", result, class_="note") if result else None)
