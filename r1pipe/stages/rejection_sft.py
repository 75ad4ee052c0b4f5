"""Stage 3, rejection sampling and SFT: sample from Dev2, keep what is right and readable, add general data, and fine-tune the
**clean base** into Dev3.

Paper: 2.3.3 of v1, B.3.3 and B.4.2 of v2. Three steps (sampling is `r1pipe.stages.sampling`), because their costs differ and
each must be redone without the others. Departs from it in that nothing is judged by a language model: what the rules cannot
judge is dropped as unjudged, and counted.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

from pydantic import Field

from r1pipe.data.chat import split_response
from r1pipe.data.tables import PROBLEM_COLUMNS, TRACE_COLUMNS, attempt_of, read_examples, read_table, write_table
from r1pipe.errors import DataError
from r1pipe.manifest import write_atomic
from r1pipe.stage import StepContext
from r1pipe.stages.keeping import KeepSection, pick_best, why_dropped
from r1pipe.train.settings import SftSettings


class SelectConfig(KeepSection):
    """`[rejection-sft.select]`."""

    general_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of general rows in the selection (paper: 200k of 800k); all are used when there are fewer."""


class TrainConfig(SftSettings):
    """`[rejection-sft.train]`."""


def select(context: StepContext) -> dict[str, Any]:
    """Keep right, readable attempts, at most some per problem; add general rows; say for every attempt why it was kept or
    dropped."""
    config: SelectConfig = context.config
    reasons: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    right: Counter[str] = Counter()
    by_problem: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_table(context.inputs["attempts"]):
        tried[row["id"]] += 1
        right[row["id"]] += row["verdict"] == "right"
        reason = why_dropped(row, config)
        if reason:
            reasons[reason] += 1
            continue
        by_problem[row["id"]].append(row)
    kept: list[dict[str, Any]] = []
    for rows in by_problem.values():
        for row, reason in pick_best(rows, config.keep_per_problem):
            if reason:
                reasons[reason] += 1
            else:
                parts = split_response(attempt_of(row).text)
                trace = {name: row[name] for name in PROBLEM_COLUMNS}
                kept.append({**trace, "thinking": parts.thinking, "summary": parts.summary, "origin": "rejection sampling"})
    if not kept:
        raise DataError(
            f"select: nothing is left of {tried.total()} attempts: {dict(reasons)}",
            "loosen [rejection-sft.select], or train stage 2 longer",
        )
    reasons["kept"] = len(kept)
    general = [{**row, "origin": "general data"} for row in read_table(context.inputs["general_traces"])]
    wanted = round(len(kept) * config.general_share / (1 - config.general_share))
    random.Random(f"select {context.seed}").shuffle(general)
    selection = [*kept, *general[:wanted]]
    random.Random(f"order {context.seed}").shuffle(selection)
    write_table(context.output("selection"), selection, TRACE_COLUMNS)
    rates = [right[name] / count for name, count in tried.items()]
    domains = Counter(row["domain"] for row in selection)
    report = {
        "attempts": tried.total(),
        "reasons": dict(reasons.most_common()),
        "kept": len(kept),
        "general": min(wanted, len(general)),
        "rows": len(selection),
        "domains": dict(domains),
        "languages": dict(Counter(row["language"] for row in selection)),
        "problems": len(tried),
        "problems_solved": sum(rate > 0 for rate in rates),
        "pass_rate_histogram": dict(sorted(Counter(f"{min(9, int(rate * 10)) / 10:.1f}" for rate in rates).items())),
    }
    write_atomic(context.output("report"), json.dumps(report, indent=1, ensure_ascii=False).encode())
    write_atomic(context.folder / "selection" / "README.md", card(report).encode())
    print(f"select: kept {len(kept)} of {tried.total()} attempts, {len(selection)} rows with general data", flush=True)
    return report


def card(report: dict[str, Any]) -> str:
    """The data card of the selection."""
    lines = [f"- {name}: {count}" for name, count in report["reasons"].items()]
    return "\n".join([
        "# Selection of stage 3", "",
        f"{report['rows']} rows: {report['kept']} by rejection sampling, {report['general']} general.",
        f"Problems tried: {report['problems']}, solved at least once: {report['problems_solved']}.", "",
        "## What became of each attempt", "", *lines, "",
        "## Domains", "", *[f"- {name}: {count}" for name, count in report["domains"].items()], "",
    ])  # fmt: skip


def train(context: StepContext) -> dict[str, Any]:
    """Fine-tune the clean base on the selection."""
    from r1pipe.train.sft import train_sft

    examples = read_examples(context.inputs["selection"])
    return train_sft(
        context,
        context.config,
        model=context.inputs["base"],
        examples=examples,
        system=context.shared["chat"].system,
        what="rejection-sft",
    )
