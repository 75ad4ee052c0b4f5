"""The sampling step against the bare engine: the same problems, shards and seeds, scoring and writing included.

Both get an engine that is loaded already; in turns within one process. Prints tokens per second of each and their ratio (the goal
is 0.97). `--engine vllm` needs vLLM.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import save

from r1pipe.data.tables import PROBLEM_COLUMNS, write_table
from r1pipe.engines import base
from r1pipe.engines.base import Sampling, open_engine
from r1pipe.pipeline import SAMPLE, locate_base
from r1pipe.recipe import Launch
from r1pipe.stage import StepContext
from r1pipe.stages.sampling import SampleConfig, sample, shard_seed
from r1pipe.stages.schema import normalised
from r1pipe.stages.sections import ChatSection, RewardsSection

SEED = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--model", default="nano")
    parser.add_argument("--problems", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--shard", type=int, default=256)
    parser.add_argument("--limit", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    config = SampleConfig(engine=chosen.engine, samples=chosen.samples, max_tokens=chosen.limit, problems_per_shard=chosen.shard)
    with tempfile.TemporaryDirectory() as folder:
        problems = read_problems(Path(folder) / "problems", chosen.problems)
        engine: Any = open_engine(chosen.engine, locate_base(chosen.model), system="", batch=None, dtype="float32")
        keep = Kept(engine)
        base.open_engine = lambda *arguments, **settings: keep  # type: ignore[assignment]  # the step takes the loaded one
        step_rates, bare_rates = [], []
        bare(engine, problems[: chosen.shard], config)  # warm
        for number in range(chosen.rounds):
            tokens, seconds = bare(engine, problems, config)
            bare_rates.append(tokens / seconds)
            begun = time.perf_counter()
            summary = sample(context(Path(folder) / f"round-{number}", Path(folder) / "problems", config))
            step_rates.append(summary["tokens"] / (time.perf_counter() - begun))
            assert summary["tokens"] == tokens, (summary["tokens"], tokens)
            print(
                f"bare {bare_rates[-1]:.0f} tokens/s, step {step_rates[-1]:.0f}: {step_rates[-1] / bare_rates[-1]:.3f}",
                flush=True,
            )
        engine.close()
    ratios = [one / other for one, other in zip(step_rates, bare_rates, strict=True)]
    result = {
        **vars(chosen),
        "tokens": tokens,
        "tokens_per_second": {"step": round(statistics.median(step_rates)), "bare": round(statistics.median(bare_rates))},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
    print(result)
    save(f"sampling_speed_{chosen.engine}", result)


class Kept:
    """An engine that stays open when the step closes it."""

    def __init__(self, engine: Any) -> None:
        self.generate = engine.generate
        self.prefix = engine.prefix

    def close(self) -> None:
        """Stays open."""


def read_problems(folder: Path, count: int) -> list[Any]:
    """Problems of the embedded source, also as a table."""
    from r1pipe.data.sources import open_source
    from r1pipe.data.tables import read_problems as read

    rows = [normalised(row, "problems", {}) for row in open_source("nano", "problems", count, 5)]
    alone = {row["id"]: row for row in rows}.values()  # the step refuses a problem that is there twice
    write_table(folder, [{name: row[name] for name in PROBLEM_COLUMNS} for row in alone], PROBLEM_COLUMNS)
    return read(folder)


def context(folder: Path, problems: Path, config: SampleConfig) -> StepContext:
    """What the step may look at."""
    folder.mkdir(parents=True)
    shared = {"chat": ChatSection(), "rewards": RewardsSection()}
    inputs = {"policy": locate_base("nano"), "problems": problems}
    return StepContext(SAMPLE, config, shared, Launch(stall_minutes=0), inputs, {}, folder, SEED)


def bare(engine: Any, problems: list[Any], config: SampleConfig) -> tuple[int, float]:
    """(tokens, seconds) of the engine alone, shard by shard, with the step's seeds."""
    tokens, begun = 0, time.perf_counter()
    for number, start in enumerate(range(0, len(problems), config.problems_per_shard)):
        questions = [problem.question for problem in problems[start : start + config.problems_per_shard]]
        sampling = Sampling(config.samples, config.temperature, config.top_p, config.max_tokens, shard_seed(SEED, number))
        tokens += sum(one.tokens for several in engine.generate(questions, sampling) for one in several)
    return tokens, time.perf_counter() - begun


if __name__ == "__main__":
    main()
