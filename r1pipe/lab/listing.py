"""`r1pipe lab list`: the claims, and what came out of those that were tested in a folder. Light: no tables, no models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1pipe import console
from r1pipe.errors import R1PipeError
from r1pipe.lab.claims import ARMS, CLAIMS, Claim

if TYPE_CHECKING:
    from rich.console import RenderableType

RESULTS = "results.json"
"""What came out of a claim, in its folder."""

STYLES = {"reproduced": "green", "not reproduced": "red", "inconclusive": "yellow"}


class NoClaim(R1PipeError):
    """What the user named is no claim."""

    exit_code = 2


def find_claim(name: str) -> Claim:
    """The claim of that name.

    Raises:
        NoClaim: there is none, with those that there are.
    """
    if name not in CLAIMS:
        near = get_close_matches(name, CLAIMS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise NoClaim(f"there is no claim {name!r}", f"{hint}r1pipe lab list   names them: {', '.join(CLAIMS)}")
    return CLAIMS[name]


def read_results(lab: Path, name: str) -> Mapping[str, Any] | None:
    """What came out of a claim in that folder; None while nothing did."""
    try:
        found = json.loads((lab / name / RESULTS).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def claims_json(lab: Path) -> list[dict[str, Any]]:
    """Every claim for programs: its checks with their bounds, its arms, and the verdict when there is one."""
    return [
        {
            "claim": claim.name, "title": claim.title, "source": claim.source, "minutes": claim.minutes,
            "seeds": list(claim.seeds), "arms": list(claim.arms), "departs": claim.departs,
            "checks": [
                {"says": check.says, "quantity": check.quantity, "rule": check.rule.words() if check.rule else None}
                for check in claim.checks
            ],
            "verdict": (read_results(lab, claim.name) or {}).get("verdict"),
        }
        for claim in CLAIMS.values()
    ]  # fmt: skip


def claims_view(lab: Path) -> RenderableType:
    """The same for people."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    for claim in CLAIMS.values():
        verdict = str((read_results(lab, claim.name) or {}).get("verdict") or "")
        what = Text.assemble(claim.title, ("  " + claim.source, "dim"))
        table.add_row(claim.name, what, f"{claim.minutes} min", Text(verdict or "not tested", STYLES.get(verdict, "dim")))
    words = "Minutes are for two idle cores, estimated; runs that claims share are made once."
    return Group(
        console.heading("claims of the papers, in miniature"), table, Text(), Text(words, style="dim"),
        Text("r1pipe lab run NAME   makes the runs and writes a page with the numbers and the verdict", style="dim"),
    )  # fmt: skip


def result_view(results: Mapping[str, Any], folder: Path) -> RenderableType:
    """What came out of a claim, for people."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    claim = CLAIMS[str(results["claim"])]
    verdict = str(results["verdict"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("what was measured")
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("95% interval", justify="right", no_wrap=True, style="dim")
    table.add_column("must be", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for check in results["checks"]:
        found = str(check["verdict"] or "")
        table.add_row(
            f"{check['says']} ({check['quantity']})", signed(check["mean"]), interval(check), check["rule"] or "",
            Text(found or "reported", STYLES.get(found, "dim")),
        )  # fmt: skip
    return Group(
        console.heading(claim.title, claim.source), Text(verdict, f"bold {STYLES[verdict]}"), table,
        console.plain(f"the page is {folder / 'page.html'}, also as page.md and results.json", "dim"),
    )  # fmt: skip


def signed(number: float | None) -> str:
    """A difference, with its sign and places that fit its size."""
    if number is None:
        return "–"
    return f"{number:+.3f}" if abs(number) < 10 else f"{number:+.1f}"


def interval(check: Mapping[str, Any]) -> str:
    """A check's interval in words."""
    if check["low"] is None or check["high"] is None:
        return "unknown"
    return f"{signed(check['low'])} to {signed(check['high'])}"


def arm_words(name: str, settings: Sequence[str]) -> str:
    """An arm in words: recipe, what it shares, and what is set."""
    arm = ARMS[name]
    begin = f"forked from {arm.fork_of} before {arm.before}" if arm.fork_of else f"recipe {arm.recipe}"
    return f"{name}: {begin}; " + ", ".join(settings)
