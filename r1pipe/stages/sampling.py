"""Sampling and scoring: problems in, scored attempts out, one part at a time.

`sample` is a whole step, the same for the cold-start builder (from R1-Zero) and for stage 3 (from Dev2); the evaluation uses
its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import ATTEMPT_COLUMNS, attempt_row, content_id, part_path, read_part, read_problems, write_part
from r1pipe.engines.base import Engine, Sampling
from r1pipe.errors import ArtifactError, Stopped
from r1pipe.metrics import MetricsWriter, write_progress
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stage import StepContext
from r1pipe.stages.sections import SamplingSection
from r1pipe.stall import finished, still_moving


class SampleConfig(SamplingSection):
    """`[rejection-sft.sample]`, `[zero.sample]`."""

    problems: int = Field(default=0, ge=0)
    """Problems to sample for; 0 takes all."""
    problems_per_shard: PositiveInt = 256
    """A killed run owes only its unfinished shards."""


def sample_attempts(engine: Engine, problems: Sequence[Problem], sampling: Sampling) -> list[tuple[Attempt, int]]:
    """(attempt, sample number) for every completion, problem by problem."""
    questions = [problem.question for problem in problems]
    return [
        (Attempt(problem, one.text, engine.prefix, one.finish, one.tokens), index)
        for problem, several in zip(problems, engine.generate(questions, sampling), strict=True)
        for index, one in enumerate(several)
    ]


def write_scored(mix: Mix, attempts: Sequence[tuple[Attempt, int]], folder: Path, number: int) -> list[dict[str, Any]]:
    """Score attempts, write them as one part of the table, and return its rows."""
    scored = mix.score([attempt for attempt, _ in attempts])
    rows = [
        attempt_row(attempt, index, row.parts, row.total, row.verdict)
        for (attempt, index), row in zip(attempts, scored, strict=True)
    ]
    write_part(folder, number, rows, ATTEMPT_COLUMNS)
    return rows


def whole_part(folder: Path, number: int, rows: int) -> list[dict[str, Any]] | None:
    """A part's rows when it is on disk with all of them; None when it is missing or torn, and so owed again."""
    if not part_path(folder, number).is_file():
        return None
    try:
        found = read_part(part_path(folder, number))
    except ArtifactError:
        return None
    return found if len(found) == rows else None


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
    what = context.step.name
    print(f"{what}: {len(problems)} problems × {config.samples} samples in {len(shards)} shards, {len(owed)} owed", flush=True)
    engine = None
    with ThreadPoolExecutor(max_workers=1) as scoring:
        written: Future[None] | None = None
        for number in owed:
            still_moving(context.launch.stall_minutes)
            if context.stop_requested():
                break
            engine = engine or open_engine(
                config.engine, context.inputs["policy"], system=context.shared["chat"].system,
                batch=context.launch.generation_batch, dtype=context.launch.dtype,
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
        raise Stopped(f"{what} stopped after {len(tally.done)} of {len(shards)} shards", "r1pipe resume")
    generated = len(problems) * config.samples
    if tally.verdicts.total() != generated:
        raise ArtifactError(
            f"{what}: {tally.verdicts.total()} attempts are on disk and {generated} are owed",
            f"r1pipe run {what} --redo",
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
