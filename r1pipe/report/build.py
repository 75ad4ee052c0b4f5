"""From a run to the page: what goes into which section, and the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1pipe import console, states
from r1pipe.manifest import write_atomic
from r1pipe.opening import Opened
from r1pipe.report import choices, curves, details, hacking, judges, overview, rounds
from r1pipe.report.evaluation import EVALS, Evaluation, further_evaluations, read_evaluation
from r1pipe.report.figures import Figures
from r1pipe.report.markup import Child, Markup, h, join, json_block
from r1pipe.report.page import Section, render
from r1pipe.report.samples import samples_data

if TYPE_CHECKING:
    from rich.console import RenderableType

FILE = "report.html"
"""Where the report of a run lies by default, in the run's folder."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report lies and how large it is, in bytes."""

    path: Path
    size: int


def report_json(written: Written) -> dict[str, Any]:
    """What `r1pipe report` says, for programs."""
    return {"path": os.fspath(written.path), "bytes": written.size}


def report_view(written: Written) -> RenderableType:
    """The same for people."""
    from rich.text import Text

    return Text(f"wrote {console.escaped(os.fspath(written.path))}, {console.size(written.size)}: open it in a browser")


def write_report(opened: Opened, other: Opened | None = None, path: Path | None = None) -> Written:
    """Write the report of a run.

    Args:
        other: a run to compare with.
        path: by default `report.html` in the run's folder.
    """
    target = path or opened.run.root / FILE
    text = build(opened, other).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    before = opened.run.root.stat()
    write_atomic(target, text)
    if target.parent.samefile(opened.run.root):  # by its folder's time a run counts as worked on last, and this was no work
        os.utime(opened.run.root, ns=(before.st_atime_ns, before.st_mtime_ns))
    return Written(target, len(text))


def build(opened: Opened, other: Opened | None = None, live: bool = False) -> str:
    """The page's text.

    Args:
        live: whether a local server shows it, so that it asks that server for news.
    """
    plans = states.plan(opened.run, opened.pipeline, opened.recipe)
    figures = Figures()
    other_name = f"run {other.run.name}" if other else ""
    if other is not None and other.run.name == opened.run.name:
        other_name = os.fspath(other.run.root)
    mine, theirs = read_evaluation(opened), read_evaluation(other) if other else None
    samples = samples_data(mine.checkpoints) if mine else {"checkpoints": [], "problems": [], "left_out": 0}
    sections = [
        Section("result", "Result", join(overview.headline(opened, plans, mine), _checkpoints(mine, theirs, other_name))),
        Section("chain", "Chain", overview.chain(opened, plans)),
        Section("training", "Training", _training(opened, other, plans, other_name, figures)),
        Section("samples-at-k", "Many samples", _many_samples(opened, mine, figures)),
        Section("writing", "Writing", _writing(opened, other, mine, figures)),
        Section("ledger", "Selection", details.ledger(opened)),
        Section("rounds", "Rounds of stage 4", rounds.rounds(plans, mine)),
        Section("judges", "Reward models", judges.judges(plans)),
        Section("hacking", "Hacking watch", hacking.hacking(opened, mine, figures)),
        Section("samples", "Samples", _samples(samples)),
        Section("settings", "Settings", choices.settings(opened, other, other_name)),
        Section("cost", "Cost", details.cost(opened, plans, mine)),
    ]
    data = json_block({"charts": figures.data, "samples": samples, "live": live}, "data")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    recipe = f"recipe {opened.recipe.name}" if opened.recipe.name else ""
    against = f"against {other_name}" if other else ""
    facts = " · ".join(word for word in (recipe, f"base {opened.recipe.base.model}", against, f"written {made}") if word)
    return render(f"run {opened.run.name}", facts, [one for one in sections if one.body], data, live)


def _checkpoints(mine: Evaluation | None, theirs: Evaluation | None, other_name: str) -> Markup:
    if mine is None:
        return join(h("p", "The checkpoints are not evaluated yet.", class_="note"), overview.papers_numbers())
    return join(overview.checkpoints(mine, theirs, other_name), overview.papers_numbers())


def _training(
    opened: Opened, other: Opened | None, plans: Sequence[states.StepPlan], other_name: str, figures: Figures
) -> Markup:
    summaries = {place.step.name: place.manifest.summary if place.manifest else None for place in plans}
    parts: list[Child] = []
    for drawn in curves.training_charts(opened, other):
        summary = None if drawn.name else summaries[drawn.step.name]
        title = details.step_title(drawn.step, drawn.name, summary, drawn.series)
        parts.append(h("section", title, figures.add(drawn.charts)))
    if parts and other is not None:
        parts.insert(0, h("p", f"Dashed lines are those of {other_name}.", class_="note"))
    return join(*parts)


def _many_samples(opened: Opened, mine: Evaluation | None, figures: Figures) -> Markup:
    """Pass@k and Maj@k: of the run's own evaluation, and of those that `r1pipe eval` left in the run's folder."""
    parts: list[Child] = []
    if mine is not None and (charts := curves.at_k_charts({one.name: one.curves for one in mine.checkpoints})):
        parts.append(figures.add(charts))
    further = further_evaluations(opened.run.root)
    for name, found in further:
        asked = found.get("sampling") or {}
        parts.append(
            h("h3", f"{found.get('benchmark', name)}, {asked.get('samples')} samples at temperature {asked.get('temperature')}")
        )
        parts.append(figures.add(curves.at_k_charts({key: row["at_k"] for key, row in found["checkpoints"].items()})))
    if parts:
        words = (
            "Means over problems with their 95% intervals. Pass@k is the unbiased estimate; a majority counts normalised "
            "answers, and a tie is a fair draw."
        )
        return join(h("p", words, class_="note"), parts)
    if mine is None:
        return Markup("")
    return h(
        "p",
        f"Each problem was answered {mine.sampling.get('samples')} times, too few for curves of Pass@k and Maj@k: "
        f"set evaluate.samples to 8 or more, or evaluate some checkpoints alone: r1pipe eval base r1 --run {opened.run.name} "
        f"--on FILE --samples 64 --out {opened.run.root / EVALS / 'NAME'}",
        class_="note",
    )


def _writing(opened: Opened, other: Opened | None, mine: Evaluation | None, figures: Figures) -> Markup:
    parts: list[Child] = [details.writing(mine) if mine else None]
    for step, charts in curves.writing_charts(opened, other):
        parts += [h("h3", f"Over the rollouts of {step.name}"), figures.add(charts)]
    return join(*parts)


def _samples(samples: dict[str, object]) -> Markup:
    """The frame that the page's script fills."""
    if not samples["problems"]:
        return Markup("")
    notes = []
    if samples["left_out"]:
        notes.append(f"{samples['left_out']:,} more problems are left out so that the page stays small")
    if samples.get("samples_left_out"):
        notes.append("the first four samples of each checkpoint are shown")
    return join(
        h("p", "; ".join(notes) + ".", class_="note") if notes else None,
        h("div", h("p", "The samples are shown by a script, which is switched off here."), id="explorer"),
    )
