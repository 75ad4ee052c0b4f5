"""What scoring by reward models costs: its share of a step of stage 4 on nano, and batched scoring beside a bare forward pass.

    python benchmarks/reward_scoring.py [--rollouts 6] [--rounds 5] [--answers 256]

Two reward models are trained as the recipe nano trains them, from a few rows. Then the embedded base is trained by GRPO with the
sizes of nano's stage 4 and preference rewards from the first step on; every rollout's scoring by reward models is timed, and set
against the rest of the rollout (the first one is left out). Last, the answers are scored again, by turns by the reward as it
stands (think-parser, template, tokens, batches, scale) and by a bare forward pass of the same model over the same tokens, in
batches of the same size, sorted by
length: the ratio is of the medians. One process, one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import save

MOST_SHARE, MOST_RATIO = 0.10, 1.1
"""Goals: scoring adds at most a tenth to a step; batched scoring takes at most 1.1 times a bare forward pass."""
SIZES: dict[str, Any] = {"questions_per_step": 16, "group": 8, "minibatches": 2, "max_completion_tokens": 128}


@dataclass
class Timed:
    """A reward, and how long each call took."""

    inner: Any
    seconds: list[float] = field(default_factory=list)

    def score(self, attempts: Any) -> Any:
        """Score, and note the time."""
        begun = time.perf_counter()
        scores = self.inner.score(attempts)
        self.seconds.append(time.perf_counter() - begun)
        return scores


def make_reward_models(base: Path, folder: Path, rows: int) -> dict[str, Path]:
    """Train helpfulness and safety as stage 4 does, one epoch on few rows."""
    from r1pipe.data.sources import open_source
    from r1pipe.data.tables import LABEL_COLUMNS, PAIR_COLUMNS, write_table
    from r1pipe.pipeline import REWARD_MODELS
    from r1pipe.recipe import Launch
    from r1pipe.stage import StepContext
    from r1pipe.stages import mixed_rl
    from r1pipe.stages.schema import normalised
    from r1pipe.stages.sections import ChatSection

    for table, columns in (("pairs", PAIR_COLUMNS), ("labels", LABEL_COLUMNS)):
        found = (normalised(row, table, {}) for row in open_source("nano", table, rows, 1))  # type: ignore[arg-type]
        write_table(folder / table, ({name: row[name] for name in columns} for row in found), columns)
    settings = {
        "epochs": 1,
        "learning_rate": 5e-4,
        "batch": 32,
        "max_tokens": 256,
        "held_out_share": 0.2,
        "min_accuracy_above": 0.0,
    }
    config = mixed_rl.RewardModelsConfig(helpfulness=settings, safety=settings)
    inputs = {"base": base, "pairs": folder / "pairs", "labels": folder / "labels"}
    launch = Launch(threads=1, checkpoint_every=10_000)
    context = StepContext(REWARD_MODELS, config, {"chat": ChatSection()}, launch, inputs, dict.fromkeys(inputs, "d"), folder, 1)
    mixed_rl.train_reward_models(context)
    return {kind: folder / kind for kind in ("helpfulness", "safety")}


def train(base: Path, models: dict[str, Path], folder: Path, rollouts: int) -> dict[str, Any]:
    """Train with preference rewards; scoring's seconds, and the whole rollout's, one of each a rollout."""
    from r1pipe.data.schedule import prompt_order
    from r1pipe.data.sources import open_source
    from r1pipe.data.tables import problem_of
    from r1pipe.recipe import Launch
    from r1pipe.rewards import Mix, RewardSpec
    from r1pipe.rewards.mix import Part
    from r1pipe.stage import Step, StepContext
    from r1pipe.stages.schema import normalised
    from r1pipe.train.grpo import train_grpo
    from r1pipe.train.scorer import PreferenceReward
    from r1pipe.train.settings import GrpoSettings

    settings = GrpoSettings(
        steps=rollouts * SIZES["minibatches"], learning_rate=1e-4, refresh_reference=0, temperature=0.7, **SIZES
    )
    problems = [
        problem_of(normalised(row, table, {}))
        for table, count in (("problems", 400), ("general", 200))
        for row in open_source("nano", table, count, 1)  # type: ignore[arg-type]
    ]
    general = [place for place, problem in enumerate(problems) if problem.kind != "verifiable"]
    order = prompt_order(
        verifiable=[place for place in range(len(problems)) if place not in set(general)], general=general, rollouts=rollouts,
        questions=settings.questions_per_rollout, general_from=0, general_share=0.3, seed=1,
    )  # fmt: skip
    judges = {kind: Timed(PreferenceReward(str(path), kind)) for kind, path in models.items()}  # type: ignore[arg-type]
    starts: list[float] = []

    class Clock:
        """Notes when a rollout is scored: it applies to nothing."""

        def score(self, attempts: Any) -> list[None]:
            starts.append(time.perf_counter())
            return [None] * len(attempts)

    rules = Mix.build([RewardSpec(name=name) for name in ("accuracy", "format", "language")])
    mix = Mix((Part("clock", Clock(), 1.0), *rules.parts, *(Part(kind, judge, 1.0) for kind, judge in judges.items())))
    step = Step("bench", "bench", lambda _: {}, GrpoSettings, writes={"model": "model"})
    launch = Launch(threads=1, micro_batch=64, checkpoint_every=settings.steps)
    context = StepContext(step, settings, {}, launch, {}, {}, folder, 1)
    train_grpo(context, settings, policy=base, problems=problems, order=order, mix=mix, system="", what="bench")
    # the contract before training scores nothing with preference rewards; the first rollout also loads the models
    scoring = [sum(each) for each in zip(*(judge.seconds for judge in judges.values()), strict=True)][-rollouts:]
    whole = [after - before for before, after in pairwise(starts[-rollouts:])]
    return {"scoring": scoring[1:-1], "whole": whole[1:]}


def answers_of(folder: Path, count: int) -> list[Any]:
    """General answers of the run's own rollouts, repeated until there are enough."""
    from r1pipe.data.tables import attempt_of, read_table

    found = [attempt_of(row) for row in read_table(folder / "rollouts") if row["kind"] == "helpfulness"]
    return (found * (count // max(1, len(found)) + 1))[:count]


def bare(model: Any, pad: int, rows: list[list[int]], batch: int = 64) -> list[float]:
    """A forward pass over token rows sorted by length, and nothing else."""
    import torch

    found: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(rows), batch):
            members = rows[start : start + batch]
            width = max(map(len, members))
            ids = torch.tensor([row + [pad] * (width - len(row)) for row in members])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in members])
            found += model(input_ids=ids, attention_mask=mask).logits[:, 0].tolist()
    return found


def compare(folder: Path, attempts: list[Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of scoring and of a bare forward pass, by turns."""
    from r1pipe.rewards.preference import to_judge
    from r1pipe.train.adopted import readings
    from r1pipe.train.scorer import PreferenceReward, loaded

    reward = PreferenceReward(str(folder), "helpfulness")
    model, tokenizer = loaded(str(folder))
    _, texts = to_judge(attempts, "helpfulness")
    rows = readings(model.config, tokenizer, "", [(attempts[place].problem.question, text) for place, text in texts])
    ids = sorted((row.ids for row in rows), key=len)
    times: dict[str, list[float]] = {"scoring": [], "bare": []}
    for number in range(rounds + 1):
        for name in ("bare", "scoring") if number % 2 else ("scoring", "bare"):
            begun = time.perf_counter()
            if name == "scoring":
                reward.score(attempts)
            else:
                bare(model, tokenizer.pad_token_id, ids)
            if number:  # the first round warms up
                times[name].append(time.perf_counter() - begun)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=6, help="the first and the last are not counted")
    parser.add_argument("--rounds", type=int, default=5, help="of scoring beside a bare forward pass")
    parser.add_argument("--answers", type=int, default=256)
    parser.add_argument("--rows", type=int, default=200, help="pairs, and labels, that the reward models learn from")
    chosen = parser.parse_args()
    if chosen.rollouts < 4:
        parser.error("--rollouts must be at least 4")
    import torch

    from r1pipe.pipeline import locate_base

    torch.set_num_threads(1)
    base = locate_base("nano")
    with tempfile.TemporaryDirectory() as scratch:
        models = make_reward_models(base, Path(scratch) / "models", chosen.rows)
        trained = train(base, models, Path(scratch) / "run", chosen.rollouts)
        times = compare(models["helpfulness"], answers_of(Path(scratch) / "run", chosen.answers), chosen.rounds)
    shares = [scoring / (whole - scoring) for scoring, whole in zip(trained["scoring"], trained["whole"], strict=True)]
    share, ratio = statistics.median(shares), statistics.median(times["scoring"]) / statistics.median(times["bare"])
    print(f"scoring adds {share:.1%} to a step ({'within' if share <= MOST_SHARE else 'above'} {MOST_SHARE:.0%})")
    verdict = "within" if ratio <= MOST_RATIO else "above"
    print(f"batched scoring takes {ratio:.3f} times a bare forward pass ({verdict} {MOST_RATIO})")
    save("reward_scoring", {"rollouts": trained, "added": share, "batched": times, "ratio": ratio})


if __name__ == "__main__":
    main()
