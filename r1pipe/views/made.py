"""What a finished step made, in one line: the few numbers that a person wants to see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from r1pipe.console import value
from r1pipe.views.numbers import Series, label

CHANGING = ("rewards.accuracy", "rewards.format", "rewards.language", "tokens_mean")
"""Numbers of an RL step that are shown as first → last; a step without them shows its loss."""


def made(summary: Mapping[str, Any], series: Mapping[str, Series] | None = None) -> str:
    """One line about a step's summary (and, when given, how its numbers went)."""
    return "  ".join(_parts(summary, series or {}))


def _parts(summary: Mapping[str, Any], series: Mapping[str, Series]) -> list[str]:
    if isinstance(tables := summary.get("tables"), Mapping):
        by_size = sorted(
            ((table["rows"], name) for name, table in tables.items() if isinstance(table, Mapping)), key=lambda row: -row[0]
        )
        counts = [f"{value(count)} {name.replace('_', ' ')}" for count, name in by_size]
        return [", ".join(counts[:4]) + (f" and {len(counts) - 4} more tables" if len(counts) > 4 else "")]
    if isinstance(table := summary.get("table"), Mapping):
        return ["pass@1 " + " → ".join(value(row.get("pass_at_1"), 2) for row in table.values() if isinstance(row, Mapping))]
    if "kept" in summary and "attempts" in summary:
        kept = f"kept {value(summary['kept'])} of {value(summary['attempts'])} attempts"
        return [f"{kept}, {value(summary['general'])} general rows" if "general" in summary else kept]
    if isinstance(verdicts := summary.get("verdicts"), Mapping):
        shares = ", ".join(f"{value(count)} {verdict}" for verdict, count in sorted(verdicts.items()))
        return [f"{value(summary.get('attempts'))} attempts: {shares}"]
    if rounds := [
        f"{name} on fresh answers {value(part['fresh_before']['accuracy'], 2)} → {value(part['fresh_after']['accuracy'], 2)}"
        for name, part in summary.items()
        if _has(part, "fresh_after")
    ]:
        return rounds
    known = [key for key in CHANGING if key in series and series[key].last is not None]
    if not known and "loss" in series and series["loss"].last is not None:
        known = ["loss"]
    if changing := [_change(key, series[key]) for key in known]:
        rows = [f"{value(summary['rows'])} rows"] if isinstance(summary.get("rows"), int) else []
        return [*rows, *changing]
    if inner := [f"{name} {value(part['accuracy'], 2)} held out" for name, part in summary.items() if _has(part, "accuracy")]:
        return inner
    scalars = [(key, number) for key, number in summary.items() if isinstance(number, int | float | str)]
    return [f"{key.replace('_', ' ')} {value(number)}" for key, number in scalars[:4]]


def _change(key: str, series: Series) -> str:
    first, last = value(series.first, 2), value(series.last, 2)
    return f"{label(key)} {first} → {last}" if first != last else f"{label(key)} {last}"


def _has(part: Any, key: str) -> bool:
    return isinstance(part, Mapping) and key in part
