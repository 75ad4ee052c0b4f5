"""The checkpoint table: the paper's, in miniature, from what the evaluation step wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe.console import escaped, value
from r1pipe.graph import Pipeline
from r1pipe.rundir import RunDir
from r1pipe.stages.evaluate import ROUND

NAMES = {"base": "Base", "zero": "Zero", "dev1": "Dev1", "dev2": "Dev2", "dev3": "Dev3", "r1": "R1"}

COLUMNS = (
    ("format", "format", 3),
    ("language", "language", 3),
    ("tokens", "tokens", 1),
    ("helpfulness", "helpful", 2),
    ("safety", "safe", 2),
    ("reflection", "reflects", 2),
)
"""Key of the results, title, digits."""
FURTHER = "rewards."
"""Begins the key of a reward that only this recipe has."""


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """The columns of a table of checkpoints: the fixed ones, then the recipe's further rewards; see `number_of`."""
    names = dict.fromkeys(name for row in rows for name in row.get("rewards") or {})
    return [*COLUMNS, *((f"{FURTHER}{name}", name, 3) for name in names)]


def number_of(row: Mapping[str, Any], key: str) -> float | None:
    """What a checkpoint has in a column."""
    found = (row.get("rewards") or {}).get(key.removeprefix(FURTHER)) if key.startswith(FURTHER) else row.get(key)
    return found if isinstance(found, int | float) else None


def checkpoint_name(key: str) -> str:
    """What people call a checkpoint, by its key in the results."""
    return "R" + key[1:] if key.startswith(ROUND) else NAMES.get(key, key)


def read_results(run: RunDir, pipeline: Pipeline) -> dict[str, Any] | None:
    """The evaluation's results, when a finished step of the run has written some."""
    for step in pipeline.steps:
        if step.writes.get("results") == "json" and run.manifest_path(step).exists():
            try:
                results = json.loads(run.output_path(step, "results").read_bytes())
            except (OSError, ValueError):
                return None
            if isinstance(results, dict) and isinstance(results.get("checkpoints"), dict):
                return results
    return None


def results_view(results: Mapping[str, Any], domains: bool = False) -> RenderableType:
    """The table, how it was sampled, and the same by domain when asked."""
    checkpoints: Mapping[str, Any] = results["checkpoints"]
    table = Table(box=_box(), pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("", no_wrap=True)
    table.add_column("pass@1", justify="right", no_wrap=True)
    table.add_column("95% interval", justify="right", style="dim", no_wrap=True)
    columns = columns_of(checkpoints.values())
    for _, title, _ in columns:
        table.add_column(escaped(title), justify="right", no_wrap=True)
    for name, row in checkpoints.items():
        low, high = (row.get("pass_at_1_interval") or [None, None])[:2]
        between = f"{value(low, 3)}–{value(high, 3)}" if low is not None else "–"
        cells = [_fixed(number_of(row, key), digits) for key, _, digits in columns]
        last = name == list(checkpoints)[-1]
        table.add_row(
            Text(escaped(checkpoint_name(name)), style="bold"),
            value(row.get("pass_at_1")),
            between,
            *cells,
            style="bold" if last else "",
        )
    parts: list[RenderableType] = [table, Padding(Text(_sampling(results), style="dim"), (0, 0, 0, 1))]
    if domains:
        parts += [Text(), _domains(checkpoints)]
    return Group(*parts)


def _fixed(number: float | None, digits: int) -> str:
    """A number with always as many places, so that a column can be compared."""
    return "–" if number is None else f"{number:.{digits}f}"


def _sampling(results: Mapping[str, Any]) -> str:
    sampling = results.get("sampling") or {}
    words = [f"{value(results.get('problems'))} held-out problems × {sampling.get('samples')} samples"]
    words.append(f"temperature {sampling.get('temperature')}, top-p {sampling.get('top_p')}")
    unjudged = sum(row.get("unjudged") or 0 for row in results["checkpoints"].values())
    if unjudged:
        words.append(f"{value(unjudged)} answers could not be judged and count as neither right nor wrong")
    return "; ".join(words)


def _domains(checkpoints: Mapping[str, Any]) -> RenderableType:
    """pass@1 by domain and language, a column for each checkpoint."""
    names = list(dict.fromkeys(domain for row in checkpoints.values() for domain in row.get("domains") or {}))
    table = Table(box=_box(), pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("pass@1 by domain")
    for name in checkpoints:
        table.add_column(escaped(checkpoint_name(name)), justify="right")
    for domain in names:
        table.add_row(Text(escaped(domain)), *(value((row.get("domains") or {}).get(domain)) for row in checkpoints.values()))
    return table


def _box() -> Any:
    from rich import box

    return box.SIMPLE_HEAD
