"""The report of `r1pipe doctor` and `r1pipe check`: one line for each thing that was looked at, then a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.machine import Fact, fact_json

STATES = {"ok": ("✓", "green"), "warning": ("!", "bold yellow"), "missing": ("✗", "bold red"), "absent": ("–", "dim")}


def report(facts: Sequence[Fact], json: bool, missing: str) -> int:
    """Print facts; returns the exit code: 1 when something that is needed is not right."""
    bad = any(fact.state == "missing" for fact in facts)
    data = {"ok": not bad, "facts": [fact_json(fact) for fact in facts]}
    console.show(json, lambda: data, lambda: facts_view(facts, missing))
    return int(bad)


def facts_view(facts: Sequence[Fact], missing: str = "missing") -> RenderableType:
    """All facts by group, and what it comes to.

    Args:
        missing: what is said of facts that stop a run.
    """
    parts: list[RenderableType] = []
    for group in dict.fromkeys(fact.group for fact in facts):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for fact in facts:
            if fact.group == group:
                table.add_row(Text(*STATES[fact.state]), console.plain(fact.name), _found(fact))
        parts += [Text(group, style="bold"), Padding(table, (0, 0, 1, 2))]
    return Group(*parts, verdict(facts, missing))


def _found(fact: Fact) -> Text:
    text = console.plain(fact.found, "" if fact.state != "absent" else "dim")
    if fact.wanted:
        text.append(f"   {fact.wanted}", style="dim")
    if fact.hint and fact.state == "absent":
        text.append("   ").append_text(console.plain(fact.hint, "dim"))
    elif fact.hint:
        text.append("\n→ ", style="cyan").append_text(console.plain(fact.hint))
    return text


def verdict(facts: Sequence[Fact], missing: str = "missing") -> Text:
    """The last line."""
    bad = [fact.name for fact in facts if fact.state == "missing"]
    warnings = [fact.name for fact in facts if fact.state == "warning"]
    noted = f"; {len(warnings)} worth a look: {', '.join(warnings)}" if warnings else ""
    if bad:
        return Text(f"{missing}: {', '.join(bad)}{noted}", style="bold red")
    return Text(f"ok{noted}", style="bold green" if not warnings else "bold yellow")
