"""The last step: the paper's checkpoint table, on held-out problems, with the rewards that trained.

Pass@1 is the mean over samples of each problem, then over problems (D.1 of the paper: T 0.6, top-p 0.95; here the recipe
says), with an interval over problems (`intervals.share_interval`). An attempt that could not be judged counts apart and not
as wrong. Each checkpoint's attempts are one part of a table, so that an interrupted evaluation goes on at the next checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, PositiveInt

from r1pipe.data.reflection import reflection_count
from r1pipe.data.tables import (
    attempt_of,
    read_problems,
    scores_of,
)
from r1pipe.errors import Stopped
from r1pipe.intervals import mean, share_interval
from r1pipe.manifest import write_atomic
from r1pipe.metrics import MetricsWriter, write_progress
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.rewards.mix import ANSWER_REWARDS, Part
from r1pipe.stage import StepContext
from r1pipe.stages.base_model import base_of
from r1pipe.stages.sampling import sample_attempts, whole_part, write_scored
from r1pipe.stages.sections import SamplingSection
from r1pipe.stall import finished, still_moving

SUMMED_UP = ANSWER_REWARDS | {"format", "language", "helpfulness", "safety"}
"""Rewards that have columns of their own in the table."""
CHECKPOINTS = ("base", "zero", "dev1", "dev2", "dev3", "r1")
"""Inputs that are checkpoints, in the order of the table; a pipeline has some of them."""
ROUND = "r1-round-"
"""The checkpoints of all rounds of stage 4 but the last are called so, with the number of the round."""
JUDGES: tuple[Literal["helpfulness", "safety"], ...] = ("helpfulness", "safety")
"""Inputs that are reward models."""


class Config(SamplingSection):
    """`[evaluate]`."""

    temperature: float = Field(default=0.6, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    problems: PositiveInt = 200
    general: PositiveInt = 50


def run(context: StepContext) -> dict[str, Any]:
    """Sample, score and sum up every checkpoint; returns the table."""
    from r1pipe.engines.base import Sampling, open_engine
    from r1pipe.train.scorer import PreferenceReward

    config: Config = context.config
    system = context.shared["chat"].system
    checkpoints = checkpoints_of(context.inputs)
    questions = read_problems(context.inputs["evaluation"])[: config.problems]
    if "general_evaluation" in context.inputs:
        questions += read_problems(context.inputs["general_evaluation"])[: config.general]
    rules = Mix.build(context.shared["rewards"].rules)
    preference = tuple(
        Part(kind, PreferenceReward(str(context.inputs[kind]), kind, system), 1.0) for kind in JUDGES if kind in context.inputs
    )
    mix = Mix((*rules.parts, *preference))
    folder = context.output("attempts")
    metrics = MetricsWriter(context.folder / "metrics.jsonl")
    metrics.truncate_after(-1)
    results: dict[str, Any] = {}
    for number, name in enumerate(checkpoints):
        still_moving(context.launch.stall_minutes)
        rows = whole_part(folder, number, len(questions) * config.samples)
        if rows is None:
            if context.stop_requested():
                raise Stopped(f"evaluate stopped after {number} of {len(checkpoints)} checkpoints", "r1pipe resume")
            engine = open_engine(
                config.engine,
                base_of(context) if name == "base" else context.inputs[name],
                system=system,
                batch=context.launch.generation_batch,
                dtype=context.launch.dtype,
            )
            sampling = Sampling(config.samples, config.temperature, config.top_p, config.max_tokens, seed=context.seed)
            attempts = sample_attempts(engine, questions, sampling)
            engine.close()
            rows = write_scored(mix, attempts, folder, number)
        results[name] = summarise(rows)
        metrics.write(
            {
                "kind": "checkpoint",
                "step": number,
                "checkpoint": name,
                **{key: value for key, value in results[name].items() if key != "domains"},
            }
        )
        write_progress(
            context.folder / "progress.json",
            {"done": number + 1, "total": len(checkpoints), "unit": "checkpoint", "note": f"evaluate: {name}"},
        )
    finished()
    table = {
        "verdict_version": VERDICT_VERSION,
        "sampling": {
            "samples": config.samples,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "max_tokens": config.max_tokens,
        },
        "problems": config.problems,
        "checkpoints": results,
    }
    write_atomic(context.output("results"), json.dumps(table, indent=1, ensure_ascii=False).encode())
    return {
        "verdict_version": VERDICT_VERSION,
        "table": {name: {key: value for key, value in row.items() if key != "domains"} for name, row in results.items()},
    }


def checkpoints_of(inputs: Iterable[str]) -> list[str]:
    """The checkpoints among a step's inputs, in the order of the table."""
    names = set(inputs)
    rounds = sorted((name for name in names if name.startswith(ROUND)), key=lambda name: int(name.removeprefix(ROUND)))
    *before, last = CHECKPOINTS
    return [*(name for name in before if name in names), *rounds, *([last] if last in names else [])]


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One checkpoint's numbers.

    Returns:
        pass_at_1 and its interval, unjudged, format, language, tokens, preference (mean score of the reward models),
        reflection (words per response), truncated; domains: the same pass_at_1 by domain and language; rewards: the mean of every
        other reward of the recipe, where there are some.
    """
    rules = [row for row in rows if row["kind"] == "verifiable"]
    judged = [row for row in rules if row["verdict"] in ("right", "wrong")]
    shares = list(pass_rates(judged).values())
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in judged:
        groups.setdefault(f"{row['domain']} ({row['language']})", []).append(row)
    names = dict.fromkeys(name for row in rules for name in scores_of(row) if name not in SUMMED_UP)
    more = {name: part_mean(rules, name) for name in names}
    return {
        "pass_at_1": mean(shares),
        "pass_at_1_interval": list(share_interval(shares)) if shares else None,
        "unjudged": len(rules) - len(judged),
        "format": part_mean(rules, "format"),
        "language": part_mean(rules, "language"),
        "tokens": mean([row["tokens"] for row in rules]),
        "truncated": mean([float(row["finish"] == "length") for row in rules]),
        "helpfulness": part_mean(rows, "helpfulness"),
        "safety": part_mean(rows, "safety"),
        "reflection": mean([float(reflection_count(attempt_of(row))) for row in rules]),
        "domains": {name: mean(list(pass_rates(members).values())) for name, members in sorted(groups.items())},
        **({"rewards": more} if more else {}),
    }


def pass_rates(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Problem id -> share of its judged attempts that are right."""
    verdicts: dict[str, list[float]] = {}
    for row in rows:
        verdicts.setdefault(row["id"], []).append(float(row["verdict"] == "right"))
    return {name: fmean(values) for name, values in verdicts.items()}


def part_mean(rows: Sequence[dict[str, Any]], reward: str) -> float | None:
    """Mean of one reward over the rows where it applies and was judged."""
    values = [score.value for row in rows if (score := scores_of(row).get(reward)) is not None and score.value is not None]
    return mean(values)
