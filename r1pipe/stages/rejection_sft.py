"""Stage 3, rejection sampling and SFT: sample from Dev2, keep what is right and readable, add general data, and fine-tune the
**clean base** into Dev3.

Paper: 2.3.3 of v1, B.3.3 and B.4.2 of v2. Three steps, because their costs differ and each must be redone without the others.
Departs from it in that nothing is judged by a language model: what the rules cannot judge is dropped as unjudged, and counted.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt
from r1pipe.data.tables import (
    PROBLEM_COLUMNS,
    TRACE_COLUMNS,
    attempt_of,
    content_id,
    read_examples,
    read_problems,
    read_table,
    scores_of,
    write_table,
)
from r1pipe.errors import ArtifactError, DataError, Stopped
from r1pipe.manifest import write_atomic
from r1pipe.metrics import MetricsWriter, write_progress
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stage import StepConfig, StepContext
from r1pipe.stages.sampling import sample_attempts, whole_part, write_scored
from r1pipe.stages.sections import SamplingSection
from r1pipe.stall import finished, still_moving
from r1pipe.train.settings import SftSettings


class SampleConfig(SamplingSection):
    """`[rejection-sft.sample]`."""

    problems: int = Field(default=0, ge=0)
    """Problems to sample for; 0 takes all."""
    problems_per_shard: PositiveInt = 256
    """A killed run owes only its unfinished shards."""


class SelectConfig(StepConfig):
    """`[rejection-sft.select]`; the paper drops thinking with mixed languages, long paragraphs or code blocks and gives no
    thresholds."""

    keep_per_problem: PositiveInt = 1
    """Right answers kept per problem, shortest-first among different ones."""
    min_language: float = Field(default=1.0, ge=0, le=1)
    """Least share of the thinking in the target language."""
    max_paragraph_words: PositiveInt = 600
    max_repetition: float = Field(default=0.3, ge=0, le=1)
    """Largest share of the thinking that repeats an earlier run of words."""
    allow_code_blocks: bool = False
    general_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of general rows in the selection (paper: 200k of 800k); all are used when there are fewer."""


class TrainConfig(SftSettings):
    """`[rejection-sft.train]`."""


def sample(context: StepContext) -> dict[str, Any]:
    """Sample and score, shard by shard; a shard is one part of the table, with a seed of its own, and is written once.

    A shard is scored and written by a thread while the next one is generated.
    """
    from r1pipe.engines.base import Sampling, open_engine

    config: SampleConfig = context.config
    mix = Mix.build(context.shared["rewards"].rules)
    problems = read_problems(context.inputs["problems"])[: config.problems or None]
    shards = [problems[start : start + config.problems_per_shard] for start in range(0, len(problems), config.problems_per_shard)]
    folder = context.output("attempts")
    tally = ShardTally(MetricsWriter(context.folder / "metrics.jsonl"), context.folder / "progress.json", len(shards))
    tally.metrics.truncate_after(-1)
    owed = []
    for number, shard in enumerate(shards):
        rows = whole_part(folder, number, len(shard) * config.samples)
        if rows is None:
            owed.append(number)
        else:
            tally.add(number, rows)
    print(f"sample: {len(problems)} problems × {config.samples} samples in {len(shards)} shards, {len(owed)} owed", flush=True)
    engine = None
    with ThreadPoolExecutor(max_workers=1) as scoring:
        written: Future[None] | None = None
        for number in owed:
            still_moving(context.launch.stall_minutes)
            if context.stop_requested():
                break
            engine = engine or open_engine(
                config.engine, context.inputs["policy"], system=context.shared["chat"].system,
                batch=context.launch.generation_batch or 256, dtype=context.launch.dtype,
            )  # fmt: skip
            seed = shard_seed(context.seed, number)
            sampling = Sampling(config.samples, config.temperature, config.top_p, config.max_tokens, seed)
            attempts = sample_attempts(engine, shards[number], sampling)
            if written is not None:
                written.result()  # one shard waits at most: memory does not grow, and a failure shows at once
            written = scoring.submit(_score_shard, mix, attempts, folder, number, tally)
        if written is not None:
            written.result()
    finished()
    if engine is not None:
        engine.close()
    if len(tally.done) < len(shards):
        raise Stopped(f"sample stopped after {len(tally.done)} of {len(shards)} shards", "r1pipe resume")
    generated = len(problems) * config.samples
    if tally.verdicts.total() != generated:
        raise ArtifactError(
            f"sample: {tally.verdicts.total()} attempts are on disk and {generated} are owed",
            "r1pipe run rejection-sft/sample --redo",
        )
    return {
        "problems": len(problems), "attempts": generated, "verdicts": dict(tally.verdicts),
        "tokens": tally.tokens, "shards": len(shards), "verdict_version": VERDICT_VERSION,
    }  # fmt: skip


@dataclass
class ShardTally:
    """What the finished shards add up to, and the record of each."""

    metrics: MetricsWriter
    progress: Path
    shards: int
    done: set[int] = field(default_factory=set)
    verdicts: Counter[str] = field(default_factory=Counter)
    tokens: int = 0

    def add(self, number: int, rows: list[dict[str, Any]]) -> None:
        """Count a shard that is on disk."""
        self.done.add(number)
        self.verdicts.update(row["verdict"] for row in rows)
        self.tokens += sum(row["tokens"] for row in rows)
        right = sum(row["verdict"] == "right" for row in rows) / len(rows)
        self.metrics.write({"kind": "shard", "step": number, "answers": len(rows), "right": right})
        share = self.verdicts["right"] / self.verdicts.total()
        write_progress(
            self.progress, {"done": len(self.done), "total": self.shards, "unit": "shard", "note": "sample", "right": share}
        )


def _score_shard(mix: Mix, attempts: list[tuple[Attempt, int]], folder: Path, number: int, tally: ShardTally) -> None:
    """Score a shard's attempts and write its part."""
    tally.add(number, write_scored(mix, attempts, folder, number))


def shard_seed(seed: int, number: int) -> int:
    """The seed of a shard, from the run's seed and the shard's number."""
    return int(content_id("shard", str(seed), str(number))[:8], 16)


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
        texts: set[str] = set()
        for row in sorted(rows, key=lambda row: (row["tokens"], row["sample"])):
            parts = split_response(attempt_of(row).text)
            if parts.thinking in texts:
                reasons["same thinking as another of the problem"] += 1
            elif len(texts) >= config.keep_per_problem:
                reasons[f"more than {config.keep_per_problem} of the problem"] += 1
            else:
                texts.add(str(parts.thinking))
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


def why_dropped(row: dict[str, Any], config: SelectConfig) -> str:
    """The first reason to drop an attempt; empty to keep it."""
    # imported here: its word lists would slow down every command that only looks at the pipeline
    from r1pipe.rewards.readability import code_blocks, longest_paragraph, loop_pieces, repetition_share

    if row["error"]:
        return "error while sampling"
    if row["verdict"] != "right":
        return row["verdict"] if row["verdict"] != "none" else "no checker"
    if row["finish"] != "stop":
        return "cut off"
    parts = split_response(attempt_of(row).text)
    thinking = parts.thinking or ""
    language = scores_of(row).get("language")
    tests: list[tuple[str, Callable[[], bool]]] = [
        (f"format: {parts.faults[0] if parts.faults else ''}", lambda: bool(parts.faults)),
        ("mixed language", lambda: language is not None and language.value is not None and language.value < config.min_language),
        ("long paragraph", lambda: longest_paragraph(thinking) > config.max_paragraph_words),
        ("code block in the thinking", lambda: not config.allow_code_blocks and code_blocks(thinking) > 0),
        ("ends in a loop", lambda: loop_pieces(thinking) > 0),
        ("repetition", lambda: repetition_share(thinking) > config.max_repetition),
    ]
    return next((reason for reason, test in tests if test()), "")


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
