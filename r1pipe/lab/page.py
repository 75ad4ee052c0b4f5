"""The page of a claim: what the paper says, what was measured, and the verdict; as Markdown and as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe import console
from r1pipe.lab.claims import Claim
from r1pipe.lab.listing import arm_words, interval, signed
from r1pipe.report.markup import Child, Markup, definitions, h, join, json_block, table
from r1pipe.report.page import Section, render

PAGE_MARKDOWN, PAGE_HTML = "page.md", "page.html"

INTERVAL = (
    "Differences are paired by problem within each seed; the interval is Student's over the seeds, which differ in training, "
    "problems and samples. A part is reproduced when its whole interval lies beyond the bound, not reproduced when the whole "
    "interval lies on the other side, and inconclusive otherwise; the claim is reproduced when all of its parts are."
)
MINIATURE = "A rehearsal: the model and its problems are very small. The verdict is about this miniature, not about the paper."


def facts(claim: Claim, results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How it was done, in pairs of name and words."""
    measure, cost, machine = claim.measure, results["cost"], results["machine"]
    asked = (
        f"{measure.problems} held-out problems × {measure.samples} samples, temperature {measure.temperature:g}, "
        f"top-p {measure.top_p:g}, at most {measure.max_tokens} tokens"
        + (f"; {measure.general} general questions, scored by the run's reward models" if measure.general else "")
        if measure is not None
        else "the runs' own evaluation"
    )
    spent = f"{console.duration(cost['step_seconds'])} in the steps of the runs"
    if cost["processor_seconds"]:
        spent += f"; {console.duration(cost['processor_seconds'])} of processor time for this claim"
    versions = ", ".join(f"{name} {found}" for name, found in machine.get("versions", {}).items() if found)
    command = " ".join(["r1pipe lab run", claim.name, *(f"--from {name}" for name in results["given"]),
                        *(f"--set '{item}'" for item in results["settings"])])  # fmt: skip
    alone = "one seed says nothing of another training run, so nothing is decided" if len(results["seeds"]) == 1 else ""
    return [
        ("source", claim.source),
        ("departs from it", claim.departs),
        ("command", command),
        ("seeds", ", ".join(map(str, results["seeds"])) + (f"; {alone}" if alone else "")),
        ("runs given", ", ".join(results["given"])),
        ("recipe of the runs", ", ".join(dict.fromkeys(results["recipes"].values()))),
        ("asked", asked),
        ("bounds written down", f"{results['fixed']}, before the first run" if not results["given"] else results["fixed"]),
        ("finished", results["finished"]),
        ("cost", spent),
        ("machine", f"{machine.get('platform', '')}; {machine.get('device', '')}".strip("; ")),
        ("versions", versions),
    ]


def _check_cells(check: Mapping[str, Any]) -> list[str]:
    by_seed = ", ".join(f"{seed}: {signed(found)}" for seed, found in check["by_seed"].items())
    rule, verdict = check["rule"] or "only reported", check["verdict"] or ""
    return [f"{check['says']} ({check['quantity']})", signed(check["mean"]), interval(check), rule, verdict, by_seed]


CHECK_HEAD = ["what was measured", "difference", "95% interval", "must be", "verdict", "by seed"]


def _mean_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Each checkpoint's own numbers: a column for each quantity, seeds beside each other."""
    quantities = list(dict.fromkeys(name for one in results["checkpoints"] for name in one["means"]))
    rows = [
        [f"{one['checkpoint']} ({one['arm']})",
         *(" / ".join(_fixed(found) for found in one["means"].get(name, {}).values()) for name in quantities)]
        for one in results["checkpoints"]
    ]  # fmt: skip
    return ["checkpoint", *quantities], rows


def _fixed(number: float | None) -> str:
    return "–" if number is None else f"{number:.3f}" if abs(number) < 10 else f"{number:.1f}"


def markdown_page(claim: Claim, results: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    head, rows = _mean_rows(results)
    lines = [f"# {claim.title}", "", f"**Verdict: {results['verdict']}.** {MINIATURE}", ""]
    lines += [*_markdown_table(CHECK_HEAD, [_check_cells(check) for check in results["checks"]]), "", INTERVAL, ""]
    lines += [f"## The checkpoints, seeds {' / '.join(map(str, results['seeds']))}", "", *_markdown_table(head, rows), ""]
    lines += ["## How", "", *(f"- {name}: {words}" for name, words in facts(claim, results) if words), ""]
    if results["arms"]:
        lines += ["## Runs", "", *(f"- {arm_words(name, settings)}" for name, settings in results["arms"].items()), ""]
    return "\n".join(lines)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *escaped)]


def html_page(claim: Claim, results: Mapping[str, Any]) -> str:
    """The page as one HTML file, made of the report's parts; lists instead of wide tables, so that it fits a phone."""
    verdict = h("p", h("strong", f"Verdict: {results['verdict']}. "), MINIATURE, class_="lead")
    checks = [_html_check(check) for check in results["checks"]]
    head, rows = _mean_rows(results)
    cells: list[list[Child]] = [list(row) for row in rows]
    arms = [h("li", arm_words(name, settings)) for name, settings in results["arms"].items()]
    sections = [
        Section("verdict", "Verdict", join(verdict, checks, h("p", INTERVAL, class_="note"))),
        Section("checkpoints", "Checkpoints",
                table(head, cells, f"Means, seeds {' / '.join(map(str, results['seeds']))}")),
        Section("how", "How", definitions(facts(claim, results), "wide-values")),
        Section("runs", "Runs", h("ul", arms) if arms else Markup("")),
    ]  # fmt: skip
    empty = {"checkpoints": [], "problems": [], "left_out": 0}
    data = json_block({"charts": [], "samples": empty, "live": False}, "data")
    return render(claim.title, f"{claim.source} · {results['finished']}", [one for one in sections if one.body], data, False)


def _html_check(check: Mapping[str, Any]) -> Markup:
    """One part of the claim: the sentence, then its numbers."""
    _, *numbers = _check_cells(check)
    pairs: list[tuple[Child, Child]] = [("quantity", check["quantity"]), *zip(CHECK_HEAD[1:], numbers, strict=True)]
    return h("div", h("h3", check["says"]), definitions(pairs), class_="card part")
