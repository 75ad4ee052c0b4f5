"""The cold-start builder: attempts of R1-Zero in, readable first-person traces out, with a ledger of what became of every
attempt.

Paper: v2 B.3.2: thousands of prompts, several trajectories of R1-Zero each at temperature 1, kept when the answer is right and
the thinking readable (no repetition, no mixed languages), rewritten into a natural first person, mixed thinking translated into
the language of the question, and a summary written where R1-Zero gave the bare answer. Departs from it in that no people take
part: nothing is rewritten by hand first, no hand-made pairs are shown to the model that rewrites, and its outputs are checked
by rules instead (`r1pipe.stages.rewriting`). Without an engine for rewriting, thinking stays as R1-Zero wrote it, and mixed
thinking is dropped.

Rewriting goes shard by shard, each written once: a killed builder owes its unfinished shard and nothing else.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from r1pipe.data.tables import (
    COUNT,
    PROBLEM_COLUMNS,
    TEXT,
    TRACE_COLUMNS,
    attempt_of,
    read_table,
    write_part,
    write_table,
)
from r1pipe.engines.base import Sampling, open_engine
from r1pipe.errors import ArtifactError, DataError, Stopped
from r1pipe.manifest import write_atomic
from r1pipe.metrics import MetricsWriter, write_progress
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stage import StepConfig, StepContext
from r1pipe.stages.keeping import ERROR, MIXED, KeepSection, pick_best, why_dropped
from r1pipe.stages.rewriting import Rewriter, draft_row
from r1pipe.stages.sampling import shard_seed, whole_part
from r1pipe.stall import finished, still_moving

LEDGER_COLUMNS = {
    "id": TEXT, "sample": COUNT, "outcome": TEXT, "reason": TEXT, "thinking_from": TEXT, "summary_from": TEXT, "notes": TEXT,
}  # fmt: skip
DRAFT_COLUMNS = {
    "id": TEXT, "sample": COUNT, "thinking": TEXT, "summary": TEXT, "dropped": TEXT, "thinking_from": TEXT, "summary_from": TEXT,
    "notes": TEXT,
}  # fmt: skip
OUTCOMES = ("kept", "dropped", "unjudged", "error")
Key = tuple[str, int]
"""Problem id and sample number: one attempt."""


class RewriteSection(StepConfig):
    """What rewrites the thinking; nothing is rewritten without an engine."""

    engine: str = ""
    """"openai" for a server (the launch's environment says where), "transformers" for a folder, or an import path; empty for
    none."""
    model: str = ""
    """The name that the server serves, or the model's folder."""
    temperature: float = Field(default=0.6, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    max_tokens: PositiveInt = 32768
    rows_per_shard: PositiveInt = 64
    """A killed run owes only its unfinished shard."""
    least_share: PositiveFloat = 0.3
    """Rewritten thinking with less than this share of the original's words and signs has lost steps, and is not taken."""

    @model_validator(mode="after")
    def _engine_has_a_model(self) -> RewriteSection:
        if self.engine and not self.model:
            raise ValueError(f'the engine "{self.engine}" needs a model: the name that the server serves, or a folder')
        return self


class Config(KeepSection):
    """`[zero.build]`."""

    min_language: float = Field(default=1.0, ge=0, le=1)
    """Least share of the thinking in the question's language; thinking below it is translated, or dropped without an engine."""
    most: int = Field(default=0, ge=0)
    """Traces at most, drawn at random; 0 keeps all. The paper speaks of thousands."""
    rewrite: RewriteSection = RewriteSection()


def build(context: StepContext) -> dict[str, Any]:
    """Select, rewrite, check, write; returns the report."""
    config: Config = context.config
    ledger, candidates = choose(context.inputs["attempts"], config, context.seed)
    if not candidates:
        raise DataError(
            f"build: nothing is left of {len(ledger)} attempts: {dict(Counter(entry['reason'] for entry in ledger.values()))}",
            "train R1-Zero longer, or loosen [zero.build]",
        )
    note = rewriting_note(config.rewrite)
    print(f"build: {len(candidates)} of {len(ledger)} attempts are candidates; rewriting: {note}", flush=True)
    drafts = write_drafts(context, candidates)
    kept = []
    for row, draft in zip(candidates, drafts, strict=True):
        parts = {name: draft[name] for name in ("thinking_from", "summary_from", "notes")}
        ledger[row["id"], row["sample"]] = entry(row, draft["dropped"], **parts)
        if not draft["dropped"]:
            origin = f"R1-Zero, thinking {draft['thinking_from']}, summary {draft['summary_from']}"
            trace = {name: row[name] for name in PROBLEM_COLUMNS}
            kept.append({**trace, "thinking": draft["thinking"], "summary": draft["summary"], "origin": origin})
    report = account(ledger, kept, note)
    if not kept:
        raise DataError(f"build: nothing is left of {len(ledger)} attempts: {report['reasons']}", "loosen [zero.build]")
    random.Random(f"order {context.seed}").shuffle(kept)
    write_table(context.output("traces"), kept, TRACE_COLUMNS)
    write_table(context.output("ledger"), (ledger[key] for key in sorted(ledger)), LEDGER_COLUMNS)
    write_atomic(context.output("report"), json.dumps(report, indent=1, ensure_ascii=False).encode())
    write_atomic(context.output("traces") / "README.md", card(report).encode())
    print(f"build: kept {report['kept']} of {report['attempts']} attempts", flush=True)
    return {**report, "verdict_version": VERDICT_VERSION}


def rewriting_note(rewrite: RewriteSection) -> str:
    """What was done about rewriting, for the report."""
    if not rewrite.engine:
        return "skipped, no engine is set in [zero.build] rewrite: thinking stays as sampled, mixed languages are dropped"
    return f"by {rewrite.model} ({rewrite.engine})"


def entry(
    row: Mapping[str, Any], reason: str, thinking_from: str = "", summary_from: str = "", notes: str = ""
) -> dict[str, Any]:
    """The ledger's line for an attempt; without a reason it is kept."""
    first = reason.split("; ")[0]
    outcome = {"": "kept", "unjudged": "unjudged", ERROR: "error"}.get(first, "dropped")
    return {
        "id": row["id"], "sample": row["sample"], "outcome": outcome, "reason": reason,
        "thinking_from": thinking_from, "summary_from": summary_from, "notes": notes,
    }  # fmt: skip


def choose(attempts: Path, config: Config, seed: int) -> tuple[dict[Key, dict[str, Any]], list[dict[str, Any]]]:
    """Every attempt's line in the ledger (a candidate's is still open: kept), and the candidates in the order of their keys.

    Readable attempts come before mixed ones of the same problem, and mixed ones only when something can translate them.

    Raises:
        ArtifactError: an attempt is in the table twice.
    """
    ledger: dict[Key, dict[str, Any]] = {}
    usable: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: {"": [], MIXED: []})
    for row in read_table(attempts):
        key = (row["id"], row["sample"])
        if key in ledger:
            raise ArtifactError(f"build: sample {key[1]} of problem {key[0]} is in the attempts twice", "redo zero/sample")
        reason = why_dropped(row, config)
        ledger[key] = entry(row, reason)
        if reason == "" or (reason == MIXED and config.rewrite.engine):
            usable[row["id"]][reason].append(row)
    candidates = []
    for groups in usable.values():
        free = config.keep_per_problem
        for reason in ("", MIXED):
            for row, surplus in pick_best(groups[reason], free):
                ledger[row["id"], row["sample"]] = entry(row, surplus)
                candidates += [] if surplus else [row]
            free = max(0, free - len(groups[reason]))
    candidates.sort(key=lambda row: (row["id"], row["sample"]))
    if config.most and len(candidates) > config.most:
        drawn = set(random.Random(f"most {seed}").sample(range(len(candidates)), config.most))
        for index, row in enumerate(candidates):
            if index not in drawn:
                ledger[row["id"], row["sample"]] = entry(row, f"more than {config.most} in all")
        candidates = [row for index, row in enumerate(candidates) if index in drawn]
    return ledger, candidates


def write_drafts(context: StepContext, candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The drafts of all candidates, shard by shard; what is on disk is not asked for again."""
    config: Config = context.config
    rewrite = config.rewrite
    size = rewrite.rows_per_shard
    shards = [candidates[start : start + size] for start in range(0, len(candidates), size)]
    folder = context.folder / "drafts"
    metrics = MetricsWriter(context.folder / "metrics.jsonl")
    metrics.truncate_after(-1)
    rewriter: Rewriter | None = None
    drafts: list[dict[str, Any]] = []
    for number, shard in enumerate(shards):
        still_moving(context.launch.stall_minutes)
        rows = whole_part(folder, number, len(shard))
        if rows is None or [(row["id"], row["sample"]) for row in rows] != [(row["id"], row["sample"]) for row in shard]:
            if context.stop_requested():
                raise Stopped(f"build stopped after {number} of {len(shards)} shards", "r1pipe resume")
            rewriter = rewriter or open_rewriter(context)
            made = rewriter.drafts([attempt_of(row) for row in shard], shard_seed(context.seed, number))
            rows = [draft_row(draft, row["sample"]) for draft, row in zip(made, shard, strict=True)]
            write_part(folder, number, rows, DRAFT_COLUMNS)
        drafts += rows
        kept = sum(not row["dropped"] for row in rows)
        metrics.write({"kind": "shard", "step": number, "answers": len(rows), "kept": kept / len(rows)})
        progress = {"done": number + 1, "total": len(shards), "unit": "shard", "note": "build"}
        write_progress(context.folder / "progress.json", progress)
    finished()
    if rewriter is not None and rewriter.engine is not None:
        rewriter.engine.close()
    return drafts


def open_rewriter(context: StepContext) -> Rewriter:
    """The rules and, when one is set, the engine."""
    config: Config = context.config
    rewrite = config.rewrite
    engine = None
    if rewrite.engine:
        engine = open_engine(
            rewrite.engine, rewrite.model, system="", batch=context.launch.generation_batch, dtype=context.launch.dtype
        )
    sampling = Sampling(1, rewrite.temperature, rewrite.top_p, rewrite.max_tokens)
    return Rewriter(Mix.build(context.shared["rewards"].rules), config, engine, sampling, rewrite.least_share)


def account(ledger: Mapping[Key, Mapping[str, Any]], kept: list[dict[str, Any]], note: str) -> dict[str, Any]:
    """The report, checked: every attempt is in exactly one outcome, and what is kept is what was written.

    Raises:
        ArtifactError: the numbers do not add up.
    """
    outcomes = Counter(line["outcome"] for line in ledger.values())
    if sum(outcomes[name] for name in OUTCOMES) != len(ledger) or outcomes["kept"] != len(kept):
        raise ArtifactError(
            f"build: {dict(outcomes)} of {len(ledger)} attempts and {len(kept)} traces do not add up",
            "r1pipe run zero/build --redo",
        )
    chosen = [line for line in ledger.values() if line["outcome"] == "kept"]
    notes = Counter(text.split(" (")[0] for line in ledger.values() for text in line["notes"].split("; ") if text)
    lengths = [len(row["thinking"]) for row in kept]
    return {
        "attempts": len(ledger),
        **{name: outcomes[name] for name in OUTCOMES},
        "reasons": dict(Counter(line["reason"].split("; ")[0] for line in ledger.values() if line["reason"]).most_common()),
        "rewriting": note,
        "thinking": dict(Counter(line["thinking_from"] for line in chosen).most_common()),
        "summaries": dict(Counter(line["summary_from"] for line in chosen).most_common()),
        "not_taken": dict(notes.most_common()),
        "problems": len({key[0] for key in ledger}),
        "problems_kept": len({row["id"] for row in kept}),
        "languages": dict(Counter(row["language"] for row in kept).most_common()),
        "domains": dict(Counter(row["domain"] for row in kept).most_common()),
        "thinking_characters": sum(lengths) / len(lengths) if lengths else 0.0,
    }


def card(report: Mapping[str, Any]) -> str:
    """The data card of the traces."""

    def lines(key: str) -> list[str]:
        return [f"- {name}: {count}" for name, count in report[key].items()]

    return "\n".join([
        "# Cold-start traces from R1-Zero", "",
        f"{report['kept']} traces from {report['attempts']} attempts at {report['problems']} problems: "
        f"{report['dropped']} dropped, {report['unjudged']} unjudged, {report['error']} errors.", "",
        f"Rewriting: {report['rewriting']}.", "",
        "## Why attempts were dropped", "", *lines("reasons"), "",
        "## Thinking", "", *lines("thinking"), "",
        "## Summaries", "", *lines("summaries"), "",
        "## Tried and not taken", "", *(lines("not_taken") or ["nothing"]), "",
        "## Languages and domains", "", *lines("languages"), *lines("domains"), "",
    ])  # fmt: skip
