"""The top of the page: what came of the run, how its checkpoints came about, the table with intervals, the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from r1pipe import console
from r1pipe.estimators import Comparison
from r1pipe.metrics import read_metrics
from r1pipe.opening import Opened
from r1pipe.report import paper
from r1pipe.report.evaluation import Checkpoint, Evaluation, Share, between_runs, steps_between
from r1pipe.report.markup import Child, Markup, h, join, table
from r1pipe.states import StepPlan
from r1pipe.views import lineage
from r1pipe.views.made import made
from r1pipe.views.numbers import collect
from r1pipe.views.results import columns_of, number_of

WIDE, HIGH = 120, 16
"""Size of the small picture of an interval, in its own units."""

STATES = {"done": "✓", "partial": "◐", "todo": "○", "changed": "≠", "stale": "!"}

HELP = {
    "format": "share of answers in the right format",
    "language": "share of words of the thinking in the question's language",
    "tokens": "mean length of an answer",
    "helpfulness": "mean score of the helpfulness reward model, in standard deviations",
    "safety": "mean score of the safety reward model, in standard deviations",
    "reflection": "the paper's reflection words per answer",
    "truncated": "share of answers cut off at the length limit",
}


def number(found: float | None, digits: int = 3) -> str:
    """A number with always as many places; a dash for none."""
    return "–" if found is None else f"{found:.{digits}f}"


def signed(found: float, digits: int = 3) -> str:
    """A difference, with its sign."""
    return f"{found:+.{digits}f}".replace("-", "−")


def between(low: float, high: float, digits: int = 3) -> str:
    """An interval."""
    return f"{low:.{digits}f}–{high:.{digits}f}"


def share_text(share: Share | None) -> Child:
    """A share with its interval, small."""
    if share is None:
        return "–"
    return join(number(share[0]), " ", h("span", between(share[1], share[2], 2), class_="small"))


def whisker(share: Share | None) -> Markup:
    """A picture of a share and its interval between 0 and 1; for the eye only, the numbers stand beside it."""
    if share is None:
        return Markup("")
    x, low, high = (round(found * (WIDE - 8) + 4, 1) for found in share[:3])
    middle = HIGH / 2
    return h(
        "svg",
        h("line", x1=4, x2=WIDE - 4, y1=middle, y2=middle, class_="rail"),
        h("line", x1=low, x2=high, y1=middle, y2=middle, class_="range"),
        h("circle", cx=x, cy=middle, r=4, class_="dot"),
        viewBox=f"0 0 {WIDE} {HIGH}", class_="whisker", aria_hidden="true",
    )  # fmt: skip


def headline(opened: Opened, plans: Sequence[StepPlan], evaluation: Evaluation | None) -> Markup:
    """The first lines: what came of the run, in sentences."""
    done = sum(place.state == "done" for place in plans)
    seconds = sum(place.manifest.wall_seconds for place in plans if place.manifest)
    facts = [f"{done} of {len(plans)} steps done", f"{console.duration(seconds)} of work", f"seed {opened.recipe.seed}"]
    sentences: list[Child] = []
    known = [one for one in evaluation.checkpoints if one.pass_at_1] if evaluation else []
    if evaluation and known:
        first, last = known[0], known[-1]
        assert first.pass_at_1 is not None
        assert last.pass_at_1 is not None
        sentences.append(
            join(
                h("strong", f"{last.name} answers {last.pass_at_1[0]:.1%} right"),
                f" ({last.pass_at_1[1]:.1%} to {last.pass_at_1[2]:.1%}), {first.name} {first.pass_at_1[0]:.1%} "
                f"({first.pass_at_1[1]:.1%} to {first.pass_at_1[2]:.1%}): "
                f"pass@1 on {evaluation.problems or 'the'} held-out problems.",
            )
        )
    elif done < len(plans):
        sentences.append("The run is not finished: this page shows what is there so far.")
    return join(h("p", " · ".join(facts), class_="facts"), h("p", *sentences, class_="lead") if sentences else None)


def chain(opened: Opened, plans: Sequence[StepPlan]) -> Markup:
    """The lines of descent, then every step with its time and what came of it."""
    places = {place.step.name: place for place in plans}
    links = {link.name: link for link in lineage.links(opened.pipeline)}
    lines = []
    for names in lineage.chains(opened.pipeline):
        pieces: list[Child] = [h("li", h("span", names[0], class_="node base"))]
        for name in names[1:]:
            state = places[links[name].step.name].state
            pieces.append(
                h(
                    "li",
                    h("span", links[name].step.name, class_="edge"),
                    h("span", name, class_=f"node {state}", title=f"{links[name].step.name}: {state}"),
                )
            )
        lines.append(h("ol", pieces, class_="lineage", aria_label=f"descent of {names[-1]}"))
    learned = [
        h("p", f"{link.name} learns from what {' and '.join(link.learns_from)} wrote.", class_="note")
        for link in links.values()
        if link.learns_from
    ]
    digests = lineage.base_digests(plans)
    same = len(set(digests.values())) == 1
    base = (
        f"The same clean base, digest {next(iter(digests.values()))[:12]}, in {', '.join(digests)}."
        if same
        else "Different base models: " + ", ".join(f"{name} {digest[:12]}" for name, digest in digests.items())
    )
    return join(
        h("div", lines, learned, h("p", base, class_="note" if same else "note bad") if digests else None, class_="card"),
        _steps(opened, plans),
    )


def _steps(opened: Opened, plans: Sequence[StepPlan]) -> Markup:
    longest = max((place.manifest.wall_seconds for place in plans if place.manifest), default=1.0) or 1.0
    rows: list[list[Child]] = []
    for place in plans:
        manifest = place.manifest
        series = collect(read_metrics(opened.run.metrics_path(place.step))) if place.step.makes else None
        words = made(manifest.summary, series) if manifest else place.why
        rows.append(
            [
                join(
                    h("span", STATES.get(place.state, "?"), class_=f"state {place.state}", aria_hidden="true"),
                    " ",
                    place.step.name,
                ),
                place.step.makes or "",
                place.state,
                bar(manifest.wall_seconds / longest) if manifest else "",
                h("span", console.duration(manifest.wall_seconds), class_="whole") if manifest else "",
                h("code", manifest.build[:8]) if manifest else "",
                h("span", words.replace("  ", " · "), class_="long"),
            ]
        )
    head = ["step", "makes", "state", "", "time", "build", "what came of it"]
    return table(head, rows, "Every step", numbers_from=9)


def bar(share: float, wide: int = 100) -> Markup:
    """A bar; for the eye only."""
    return h(
        "svg", h("rect", x=0, y=2, width=max(1, round(share * wide)), height=8, rx=2),
        viewBox=f"0 0 {wide} 12", class_="bar", aria_hidden="true",
    )  # fmt: skip


def checkpoints(evaluation: Evaluation, other: Evaluation | None, other_name: str) -> Markup:
    """The table of the checkpoints, and what changed from one to the next."""
    parts: list[Child] = [_table(evaluation, "Checkpoints of this run", _sampling(evaluation))]
    parts.append(_changes(steps_between(evaluation), "What changed from one checkpoint to the next"))
    if other is not None:
        parts.append(_table(other, f"Checkpoints of {other_name}", _sampling(other)))
        pairs = between_runs(evaluation, other)
        parts.append(
            _changes(pairs, f"This run against {other_name}", f"{other_name} → this run")
            if pairs
            else h(
                "p",
                "The two runs answered different problems, so their checkpoints cannot be compared problem by problem.",
                class_="note",
            )
        )
    for title, groups in (
        ("Pass@1 by domain and language", {one.name: one.domains for one in evaluation.checkpoints}),
        ("Pass@1 by level", {one.name: one.levels for one in evaluation.checkpoints}),
    ):
        parts.append(_groups(title, groups))
    return join(*parts)


def _table(evaluation: Evaluation, caption: str, note: str) -> Markup:
    columns = columns_of([one.row for one in evaluation.checkpoints])
    keys = [(key, title, digits) for key, title, digits in (*columns, ("truncated", "cut off", 3)) if _any(evaluation, key)]
    head: list[Child] = [
        "",
        h("span", "pass@1, 95% interval"),
        "",
        *(h("abbr", title, title=HELP.get(key, f"mean of the reward {title}")) for key, title, _ in keys),
    ]
    rows: list[list[Child]] = [
        [
            one.name,
            share_text(one.pass_at_1),
            whisker(one.pass_at_1),
            *(number(number_of(one.row, key), digits) for key, _, digits in keys),
        ]
        for one in evaluation.checkpoints
    ]
    return table(head, rows, caption, note=note)


def _any(evaluation: Evaluation, key: str) -> bool:
    return any(number_of(one.row, key) is not None for one in evaluation.checkpoints)


def _sampling(evaluation: Evaluation) -> str:
    sampling = evaluation.sampling
    words = [
        f"{evaluation.problems} problems × {sampling.get('samples')} samples"
        if evaluation.problems
        else f"{sampling.get('samples')} samples"
    ]
    words.append(
        f"temperature {sampling.get('temperature')}, top-p {sampling.get('top_p')}, at most {sampling.get('max_tokens')} tokens"
    )
    words.append("intervals over problems (Wilson’s, for as many trials as the samples are worth; mid-p with one sample each)")
    if unjudged := sum(one.row.get("unjudged") or 0 for one in evaluation.checkpoints):
        words.append(f"{unjudged} answers could not be judged and count as neither right nor wrong")
    return "; ".join(words) + "."


def _changes(pairs: Sequence[tuple[Checkpoint, Checkpoint, Comparison]], caption: str, first_column: str = "") -> Markup:
    if not pairs:
        return Markup("")
    rows: list[list[Child]] = [
        [
            f"{first.name} → {second.name}",
            signed(found.difference),
            f"{signed(found.low)} to {signed(found.high)}",
            "< 0.0001" if found.p_value < 1e-4 else f"{found.p_value:.4f}",
            found.better,
            found.worse,
            found.problems,
        ]
        for first, second, found in pairs
    ]
    head = [
        first_column,
        "pass@1",
        "95% interval",
        h("abbr", "p", title="paired t-test over problems, two-sided"),
        "better on",
        "worse on",
        "problems",
    ]
    return table(head, rows, caption, note="Paired by problem; the paper calls p < 0.01 significant.")


def _groups(title: str, groups: Mapping[str, Mapping[str, Share]]) -> Markup:
    names = list(dict.fromkeys(name for found in groups.values() for name in found))
    if len(names) < 2:
        return Markup("")
    counts = {name: max(found[name][3] for found in groups.values() if name in found) for name in names}
    rows: list[list[Child]] = [
        [name, *(share_text(found.get(name)) for found in groups.values()), counts[name]] for name in sorted(names)
    ]
    return h("details", h("summary", title), table(["", *groups, "problems"], rows, title))


def papers_numbers() -> Markup:
    """The paper's own table, set apart."""
    rows: list[list[Child]] = [[name, *(f"{found:,}" for found in numbers)] for name, numbers in paper.TABLE.items()]
    return h(
        "aside",
        h("h3", "The paper’s own numbers"),
        h("p", h("strong", "Another model, other problems. "), "DeepSeek-V3-Base with 671 billion parameters. ", paper.SHAPE),
        table(["benchmark", *paper.CHECKPOINTS], rows, "The paper’s checkpoints (v2, Table 3)", note=paper.SAMPLING),
        class_="apart", aria_label="The paper's own numbers",
    )  # fmt: skip
