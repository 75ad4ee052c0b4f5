"""Sampling and scoring: problems in, scored attempts out, one part at a time.

`sample` is a whole step, the same for the cold-start builder (from R1-Zero) and for stage 3 (from Dev2); the evaluation uses
its parts. The paper samples a fixed number of answers; `adaptive` asks in rounds (`r1pipe.stages.rounds`).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import ATTEMPT_COLUMNS, content_id, part_path, read_part, read_problems, write_part
from r1pipe.engines.base import Engine, Sampling
from r1pipe.errors import ArtifactError, EngineError, Stopped
from r1pipe.metrics import MetricsWriter, write_progress
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stage import StepContext
from r1pipe.stages.rounds import BY_PROBLEM_COLUMNS, RATE_LABELS, AdaptiveSection, Shard, rate_label
from r1pipe.stages.scoring import Made, scored_rows, scorer
from r1pipe.stages.sections import SamplingSection
from r1pipe.stall import finished, still_moving

BY_PROBLEM = "by_problem"
"""Table of a sampling step beside its attempts: what became of each problem. Its part of a shard is written before the shard."""
AT_ONCE = 2
"""Shards on their way at a time: while the answers of one are scored, those of the other are generated."""


class SampleConfig(SamplingSection):
    """`[rejection-sft.sample]`, `[zero.sample]`."""

    problems: int = Field(default=0, ge=0)
    """Problems to sample for; 0 takes all."""
    problems_per_shard: PositiveInt = 256
    """A killed run owes only its unfinished shards."""
    adaptive: AdaptiveSection | None = None
    """Ask in rounds and stop early, `samples` being the most; without it every problem is asked `samples` times."""


def sample_attempts(engine: Engine, problems: Sequence[Problem], sampling: Sampling, first: int = 0) -> list[Made]:
    """Every completion, problem by problem, numbered from `first`.

    Raises:
        EngineError: the engine gave another number of completions than was asked for.
    """
    questions = [problem.question for problem in problems]
    answers = list(engine.generate(questions, sampling))
    if len(answers) != len(problems) or any(len(several) != sampling.samples for several in answers):
        raise EngineError(
            f"the engine gave {sum(map(len, answers))} completions for {len(answers)} questions, "
            f"where {sampling.samples} for each of {len(problems)} were asked for",
            "this is a defect of the engine",
        )
    return [
        Made(Attempt(problem, one.text, engine.prefix, one.finish, one.tokens), first + index, _error(one.finish, one.note))
        for problem, several in zip(problems, answers, strict=True)
        for index, one in enumerate(several)
    ]


def _error(finish: str, note: str) -> str:
    return (note or "the engine gave no reason") if finish == "error" else ""


def write_scored(mix: Mix, attempts: Sequence[Made], folder: Path, number: int) -> list[dict[str, Any]]:
    """Score attempts, write them as one part of the table, and return its rows."""
    rows = scored_rows(mix, attempts)
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

    Answers are scored and written while the next ones are generated, unless the engine needs this machine's processor itself.
    """
    config: SampleConfig = context.config
    problems = read_problems(context.inputs["problems"])[: config.problems or None]
    return sample_problems(context, problems, Mix.build(context.shared["rewards"].rules))


def sample_problems(context: StepContext, problems: Sequence[Problem], mix: Mix) -> dict[str, Any]:
    """The same for these problems and this mix, from the step's input `policy` into its output `attempts`; the step's settings
    say how."""
    from r1pipe.engines.base import on_processor, open_engine

    config: SampleConfig = context.config
    if twice := next((name for name, count in Counter(problem.id for problem in problems).items() if count > 1), ""):
        raise ArtifactError(
            f"{context.step.name}: problem {twice} is in the table of problems twice", "r1pipe run prepare --redo"
        )
    shards = shards_of(problems, config, context.seed)
    work = Work(
        context, ShardTally(MetricsWriter(context.folder / "metrics.jsonl"), context.folder / "progress.json", len(shards))
    )
    work.tally.metrics.truncate_after(-1)
    owed = deque(shard for shard in shards if not work.take_up(shard))
    what = context.step.name
    asked = f"{'at most ' if config.adaptive else ''}{config.samples} samples"
    print(f"{what}: {len(problems)} problems × {asked} in {len(shards)} shards, {len(owed)} owed", flush=True)
    if owed:
        asked_of = [problem for shard in owed for problem in shard.problems]
        alone = on_processor(config.engine)
        with scorer(mix, asked_of, config.samples, alone) as score:
            engine = open_engine(
                config.engine, context.inputs["policy"], system=context.shared["chat"].system,
                batch=context.launch.generation_batch, dtype=context.launch.dtype,
            )  # fmt: skip
            try:
                work.run(owed, engine, score, alone)
            finally:
                engine.close()
    finished()
    if len(work.tally.done) < len(shards):
        raise Stopped(f"{what} stopped after {len(work.tally.done)} of {len(shards)} shards", "r1pipe resume")
    return {
        "problems": len(problems), **work.tally.summary(what, None if config.adaptive else len(problems) * config.samples),
        "shards": len(shards), "seconds": {name: round(value, 2) for name, value in work.seconds.items()},
        "verdict_version": VERDICT_VERSION,
    }  # fmt: skip


def shards_of(problems: Sequence[Problem], config: SampleConfig, seed: int) -> list[Shard]:
    """The shards of a step, each with its seed and its share of the budget, by problems."""
    size = config.problems_per_shard
    share = config.adaptive.budget_tokens / len(problems) if config.adaptive else 0.0
    return [
        Shard(
            number, some := problems[start : start + size], shard_seed(seed, number), config.samples, config.max_tokens,
            config.adaptive, share * len(some),
        )
        for number, start in enumerate(range(0, len(problems), size))
    ]  # fmt: skip


@dataclass
class Work:
    """The shards of a step being made.

    Attributes:
        seconds: spent on generating, on scoring and writing (by the other thread), and waiting for the latter.
    """

    context: StepContext
    tally: ShardTally
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("generating", "scoring", "waiting"), 0.0))

    def run(
        self, owed: deque[Shard], engine: Engine, score: Callable[[Sequence[Made]], list[dict[str, Any]]], alone: bool
    ) -> None:
        """Make all shards that are owed, or until somebody asks to stop; those on their way are then owed again.

        Args:
            alone: generate nothing while answers are scored.
        """
        on_their_way: deque[tuple[Shard, Future[None]]] = deque()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scoring") as scoring:
            while owed or on_their_way:
                still_moving(self.context.launch.stall_minutes)
                if self.context.stop_requested():
                    break
                if owed and len(on_their_way) < AT_ONCE:
                    shard = owed.popleft()
                else:
                    shard, scored = on_their_way.popleft()
                    self._wait(scored)
                if (wanted := shard.next_round()) is None:
                    continue
                config: SampleConfig = self.context.config
                sampling = Sampling(wanted.samples, config.temperature, config.top_p, config.max_tokens, wanted.seed)
                begin = time.monotonic()
                made = sample_attempts(engine, wanted.problems, sampling, wanted.first)
                self.seconds["generating"] += time.monotonic() - begin
                on_their_way.append((shard, scoring.submit(self._score, shard, made, score)))
                if alone:
                    self._wait(on_their_way[-1][1])
            for _, scored in on_their_way:
                self._wait(scored)

    def _wait(self, scored: Future[None]) -> None:
        begin = time.monotonic()
        scored.result()  # a failure shows here
        self.seconds["waiting"] += time.monotonic() - begin

    def _score(self, shard: Shard, made: Sequence[Made], score: Callable[[Sequence[Made]], list[dict[str, Any]]]) -> None:
        """Score a round; when it was the shard's last, write the shard."""
        begin = time.monotonic()
        shard.add(score(made))
        if shard.next_round() is None:
            rows, statistics = shard.close()
            write_part(self.context.folder / BY_PROBLEM, shard.number, statistics, BY_PROBLEM_COLUMNS)
            write_part(self.context.output("attempts"), shard.number, rows, ATTEMPT_COLUMNS)
            self.tally.add(shard.number, statistics)
        self.seconds["scoring"] += time.monotonic() - begin

    def take_up(self, shard: Shard) -> bool:
        """Count a shard that is on the disk; False when it is missing, torn, or not what its problems owe."""
        statistics = whole_part(self.context.folder / BY_PROBLEM, shard.number, len(shard.problems))
        if statistics is None or [row["id"] for row in statistics] != [problem.id for problem in shard.problems]:
            return False
        if keys_of(self.context.output("attempts"), shard.number) != owed_keys(statistics):
            return False
        self.tally.add(shard.number, statistics)
        return True


def owed_keys(statistics: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    """(problem, sample) of every row that a shard must have, by what is on record of its problems."""
    return [(row["id"], sample) for row in statistics for sample in range(row["tried"])]


def keys_of(folder: Path, number: int) -> list[tuple[str, int]] | None:
    """(problem, sample) of every row of a part; None when it is missing, torn or altered: all of it is read, with checksums."""
    if not part_path(folder, number).is_file():
        return None
    try:
        rows = read_part(part_path(folder, number))
    except ArtifactError:
        return None
    return [(row["id"], row["sample"]) for row in rows]


@dataclass
class ShardTally:
    """What the finished shards add up to, and the record of each."""

    metrics: MetricsWriter
    progress: Path
    shards: int
    done: set[int] = field(default_factory=set)
    verdicts: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    rates: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    tokens: int = 0
    solved: int = 0

    def add(self, number: int, statistics: Sequence[dict[str, Any]]) -> None:
        """Count a shard that is on disk."""
        self.done.add(number)
        here = Counter({name: sum(row[name] for row in statistics) for name in ("right", "wrong", "unjudged", "errors")})
        self.verdicts.update(here)
        self.ended.update(row["ended"] for row in statistics)
        self.rates.update(rate_label(row["pass_rate"]) for row in statistics)
        self.solved += sum(row["right"] > 0 for row in statistics)
        answers, tokens = (sum(row[name] for row in statistics) for name in ("tried", "tokens"))
        self.attempts, self.tokens = self.attempts + answers, self.tokens + tokens
        self.metrics.write(
            {
                "kind": "shard",
                "step": number,
                "answers": answers,
                "right": here["right"] / max(1, answers),
                "tokens_total": tokens,
            }
        )
        share = self.verdicts["right"] / max(1, self.attempts)
        write_progress(
            self.progress, {"done": len(self.done), "total": self.shards, "unit": "shard", "note": "sample", "right": share}
        )

    def summary(self, what: str, owed: int | None) -> dict[str, Any]:
        """The numbers of the step, when they add up.

        Args:
            owed: attempts, where their number was fixed beforehand.

        Raises:
            ArtifactError: right + wrong + unjudged + errors is not what was generated, or that is not what was owed.
        """
        if self.verdicts.total() != self.attempts or owed not in (None, self.attempts):
            raise ArtifactError(
                f"{what}: {' + '.join(f'{count} {name}' for name, count in self.verdicts.items())} = {self.verdicts.total()}, "
                f"{self.attempts} attempts are on disk and {self.attempts if owed is None else owed} are owed",
                f"r1pipe run {what} --redo",
            )
        rates = {label: self.rates[label] for label in RATE_LABELS if self.rates[label]}
        return {
            "owed": self.attempts if owed is None else owed, "attempts": self.attempts,
            "verdicts": {name: count for name, count in self.verdicts.items() if count}, "solved": self.solved,
            "tokens": self.tokens, "problems_ended": dict(self.ended.most_common()), "pass_rates": rates,
        }  # fmt: skip


def shard_seed(seed: int, number: int) -> int:
    """The seed of a shard, from the run's seed and the shard's number."""
    return int(content_id("shard", str(seed), str(number))[:8], 16)
