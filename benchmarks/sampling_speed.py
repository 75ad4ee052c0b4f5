"""The sampling step against the bare engine: the same problems, shards and seeds, scoring and writing included.

Both get an engine that is loaded already, and the step what scoring needs (in a run both are loaded at once). Before or behind
each shard of the step, by turns, the bare engine makes the same shard, and that time is taken off the step's: so a machine whose
speed changes by the minute favours neither. Prints tokens per second of each and their ratio (the goal is 0.97). For engines
that compute on this machine's processor, where the step generates and scores in turns. `--engine vllm` needs vLLM.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
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
from r1pipe.stages import scoring
from r1pipe.stages.sampling import SampleConfig, sample
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
        write_problems(Path(folder) / "problems", chosen.problems)
        engine: Any = open_engine(chosen.engine, locate_base(chosen.model), system="", batch=None, dtype="float32")
        keep = Kept(engine)
        base.open_engine = keep.opened  # type: ignore[assignment]  # the step takes the loaded one
        scoring.get_ready = keep.get_ready
        rates: dict[str, list[float]] = {"step": [], "bare": []}
        for number in range(chosen.rounds):
            summary = sample(context(Path(folder) / f"round-{number}", Path(folder) / "problems", config, chosen.model))
            seconds = time.perf_counter() - keep.begun - keep.bare
            assert summary["tokens"] == keep.tokens, (summary["tokens"], keep.tokens)
            rates["step"].append(keep.tokens / seconds)
            rates["bare"].append(keep.tokens / keep.bare)
            print(f"  {seconds:.1f} s, {keep.bare:.1f} bare; {summary['seconds']}; scoring was ready after {keep.waited:.1f}")
            print(f"bare {rates['bare'][-1]:.0f} tokens/s, step {rates['step'][-1]:.0f}: {keep.bare / seconds:.3f}", flush=True)
        engine.close()
    ratios = [one / other for one, other in zip(rates["step"], rates["bare"], strict=True)]
    result = {
        **vars(chosen),
        "tokens": keep.tokens,
        "tokens_per_second": {name: round(statistics.median(some)) for name, some in rates.items()},
        "ratio": round(statistics.geometric_mean(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
    print(result)
    save(f"sampling_speed_{chosen.engine}", result)


class Kept:
    """An engine that stays open when the step closes it, and makes each shard once more for itself.

    Attributes:
        bare: seconds of that. waited: until scoring was ready. begun: when the step had both.
    """

    def __init__(self, engine: Any) -> None:
        self.engine, self.prefix = engine, engine.prefix
        self.ready = threading.Event()
        self.own = scoring.get_ready

    def get_ready(self, mix: Any, problems: Any) -> None:
        """As the step does it, and told here."""
        self.own(mix, problems)
        self.ready.set()

    def opened(self, *arguments: Any, **settings: Any) -> Any:
        """The engine, once scoring is ready; the step's clock starts here."""
        begun = time.perf_counter()
        self.ready.wait()
        self.ready.clear()
        self.begun = time.perf_counter()
        self.waited, self.bare, self.tokens, self.calls = self.begun - begun, 0.0, 0, 0
        return self

    def generate(self, questions: Any, sampling: Sampling) -> Any:
        """The step's completions, and the bare engine's before or behind them."""
        self.calls += 1
        if self.calls % 2:
            self._alone(questions, sampling)
        yield from self.engine.generate(questions, sampling)
        if not self.calls % 2:
            self._alone(questions, sampling)

    def _alone(self, questions: Any, sampling: Sampling) -> None:
        begun = time.perf_counter()
        self.tokens += sum(one.tokens for several in self.engine.generate(questions, sampling) for one in several)
        self.bare += time.perf_counter() - begun

    def close(self) -> None:
        """Stays open."""


def write_problems(folder: Path, count: int) -> None:
    """A table of problems of the embedded source."""
    from r1pipe.data.sources import open_source

    rows = [normalised(row, "problems", {}) for row in open_source("nano", "problems", count, 5)]
    alone = {row["id"]: row for row in rows}.values()  # the step refuses a problem that is there twice
    write_table(folder, [{name: row[name] for name in PROBLEM_COLUMNS} for row in alone], PROBLEM_COLUMNS)


def context(folder: Path, problems: Path, config: SampleConfig, model: str) -> StepContext:
    """What the step may look at."""
    folder.mkdir(parents=True)
    shared = {"chat": ChatSection(), "rewards": RewardsSection()}
    inputs = {"policy": locate_base(model), "problems": problems}
    return StepContext(SAMPLE, config, shared, Launch(stall_minutes=0), inputs, {}, folder, SEED)


if __name__ == "__main__":
    main()
