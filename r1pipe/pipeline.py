"""The figure of the paper as one page: which step reads what, and which checkpoint it makes.

r1:       Base ── cold-start ──> Dev1 ── reasoning-rl ──> Dev2 ── sample, select ──┐
          Base ─────────────────────────────────────── rejection-sft/train <──────┘──> Dev3 ── mixed-rl ──> R1
r1-zero:  Base ── zero ──> Zero
r1-full:  Base ── zero ──> Zero ── sample, build ──> the traces of cold-start, then as r1

With `[mixed-rl.rounds] count = 2` the last arrow of r1 and r1-full is walked twice; see `with_rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from r1pipe.errors import ArtifactError, RecipeError
from r1pipe.graph import Pipeline
from r1pipe.rewards.preference import KINDS
from r1pipe.stage import ArtifactKind, Base, Output, Step, StepConfig
from r1pipe.stages import cold_start, evaluate, iterating, mixed_rl, prepare, reasoning_rl, rejection_sft, sampling, traces, zero
from r1pipe.stages.own import own_code, own_files
from r1pipe.stages.sections import ChatSection, RewardsSection

PREPARE = Step(
    "prepare", "0-prepare", prepare.run, prepare.Config,
    writes={
        "problems": "table", "traces": "table", "general": "table", "general_traces": "table",
        "pairs": "table", "labels": "table", "evaluation": "table", "general_evaluation": "table",
    },
)  # fmt: skip
COLD_START = Step(
    "cold-start", "1-cold-start", cold_start.run, cold_start.Config,
    reads={"base": Base(), "traces": Output("prepare", "traces")},
    writes={"model": "model"}, shares=("chat",), launcher="accelerate", makes="Dev1",
)  # fmt: skip
REASONING_RL = Step(
    "reasoning-rl", "2-reasoning-rl", reasoning_rl.run, reasoning_rl.Config,
    reads={"policy": Output("cold-start", "model"), "problems": Output("prepare", "problems")},
    writes={"model": "model"}, shares=("chat", "rewards"), launcher="accelerate", makes="Dev2",
)  # fmt: skip
SAMPLE = Step(
    "rejection-sft/sample", "3-rejection-sft/sample", sampling.sample, sampling.SampleConfig,
    reads={"policy": Output("reasoning-rl", "model"), "problems": Output("prepare", "problems")},
    writes={"attempts": "table"}, shares=("chat", "rewards"), revision=2,
)  # fmt: skip
SELECT = Step(
    "rejection-sft/select", "3-rejection-sft/select", rejection_sft.select, rejection_sft.SelectConfig,
    reads={
        "attempts": Output("rejection-sft/sample", "attempts"), "general_traces": Output("prepare", "general_traces"),
        "evaluation": Output("prepare", "evaluation"), "general_evaluation": Output("prepare", "general_evaluation"),
    },
    writes={"selection": "table", "ledger": "table", "report": "json"}, revision=2,
)  # fmt: skip
RETRAIN = Step(
    "rejection-sft/train", "3-rejection-sft/train", rejection_sft.train, rejection_sft.TrainConfig,
    reads={"base": Base(), "selection": Output("rejection-sft/select", "selection")},
    writes={"model": "model"}, shares=("chat",), launcher="accelerate", makes="Dev3",
)  # fmt: skip
REWARD_MODELS = Step(
    "mixed-rl/reward-models", "4-mixed-rl/reward-models", mixed_rl.train_reward_models, mixed_rl.RewardModelsConfig,
    reads={"base": Base(), "pairs": Output("prepare", "pairs"), "labels": Output("prepare", "labels")},
    writes={"helpfulness": "model", "safety": "model"}, shares=("chat",), launcher="accelerate",
)  # fmt: skip
MIXED_RL = Step(
    "mixed-rl/train", "4-mixed-rl/train", mixed_rl.run, mixed_rl.Config,
    reads={
        "policy": Output("rejection-sft/train", "model"), "problems": Output("prepare", "problems"),
        "general": Output("prepare", "general"),
        "helpfulness": Output("mixed-rl/reward-models", "helpfulness"), "safety": Output("mixed-rl/reward-models", "safety"),
        "evaluation": Output("prepare", "evaluation"), "general_evaluation": Output("prepare", "general_evaluation"),
    },
    writes={"model": "model"}, shares=("chat", "rewards"), launcher="accelerate", makes="R1",
    looked_at=("evaluation", "general_evaluation"),
)  # fmt: skip
EVALUATE = Step(
    "evaluate", "5-evaluate", evaluate.run, evaluate.Config,
    reads={
        "base": Base(), "dev1": Output("cold-start", "model"), "dev2": Output("reasoning-rl", "model"),
        "dev3": Output("rejection-sft/train", "model"), "r1": Output("mixed-rl/train", "model"),
        "helpfulness": Output("mixed-rl/reward-models", "helpfulness"), "safety": Output("mixed-rl/reward-models", "safety"),
        "evaluation": Output("prepare", "evaluation"), "general_evaluation": Output("prepare", "general_evaluation"),
    },
    writes={"results": "json", "attempts": "table"}, shares=("chat", "rewards"), revision=2,
)  # fmt: skip

ZERO = Step(
    "zero/train", "0-zero/train", zero.train, zero.Config,
    reads={"base": Base(), "problems": Output("prepare", "problems")},
    writes={"model": "model"}, shares=("chat",), launcher="accelerate", makes="Zero",
)  # fmt: skip
SAMPLE_ZERO = Step(
    "zero/sample", "0-zero/sample", sampling.sample, sampling.SampleConfig,
    reads={"policy": Output("zero/train", "model"), "problems": Output("prepare", "problems")},
    writes={"attempts": "table"}, shares=("chat", "rewards"), revision=2,
)  # fmt: skip
BUILD = Step(
    "zero/build", "0-zero/build", traces.build, traces.Config,
    reads={"attempts": Output("zero/sample", "attempts")},
    writes={"traces": "table", "ledger": "table", "report": "json"}, shares=("rewards",),
)  # fmt: skip
PREPARE_ZERO = replace(PREPARE, config=prepare.ZeroConfig, writes={"problems": "table", "evaluation": "table"})
EVALUATE_ZERO = replace(
    EVALUATE,
    folder="1-evaluate",
    reads={"base": Base(), "zero": Output("zero/train", "model"), "evaluation": Output("prepare", "evaluation")},
)

PREPARE_FULL = replace(
    PREPARE, config=prepare.FullConfig, writes={name: kind for name, kind in PREPARE.writes.items() if name != "traces"}
)
COLD_START_FULL = replace(COLD_START, reads={"base": Base(), "traces": Output("zero/build", "traces")})
EVALUATE_FULL = replace(EVALUATE, reads={**EVALUATE.reads, "zero": Output("zero/train", "model")})


def locate_base(model: str) -> Path:
    """The folder of `[base] model`: "nano" is the model inside this package, anything else a folder of the user's.

    Raises:
        ArtifactError: there is no such folder.
    """
    if model == "nano":
        return Path(str(files("r1pipe"))) / "models" / "nano"
    if not model:
        raise ArtifactError("the recipe leaves its base model open", "name a folder: --set base.model=FOLDER")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise ArtifactError(
            f"base model {model!r} is neither 'nano' nor a folder here",
            f"download it first, e.g. `hf download {model} --local-dir models/{folder.name}`, and name that folder",
        )
    return folder


_STEPS: dict[str, tuple[Step, ...]] = {
    "r1": (PREPARE, COLD_START, REASONING_RL, SAMPLE, SELECT, RETRAIN, REWARD_MODELS, MIXED_RL, EVALUATE),
    "r1-zero": (PREPARE_ZERO, ZERO, EVALUATE_ZERO),
    "r1-full": (
        PREPARE_FULL, ZERO, SAMPLE_ZERO, BUILD, COLD_START_FULL, REASONING_RL, SAMPLE, SELECT, RETRAIN, REWARD_MODELS, MIXED_RL,
        EVALUATE_FULL,
    ),
}  # fmt: skip
PIPELINES = {name: tuple(replace(step, files=own_files, code=own_code) for step in steps) for name, steps in _STEPS.items()}
"""What `pipeline = ` in a recipe may say. Any step may read files and run code of the user's that its settings name."""


ROUNDS: dict[str, type[StepConfig]] = {"mixed-rl.rounds": iterating.RoundsConfig}


def _judges(models: Step) -> dict[str, Output]:
    """The reward models of a step, as inputs of another."""
    return {kind: Output(models.name, kind) for kind in KINDS}


def with_rounds(steps: tuple[Step, ...], sections: Mapping[str, StepConfig]) -> tuple[Step, ...]:
    """The steps with as many rounds of stage 4 as `[mixed-rl.rounds]` says.

    Dev3 ── train ──> R1-round-1 ── fresh-2 ──> reward-models-2 ── train-2 ──> R1
    """
    rounds = sections["mixed-rl.rounds"]
    if not isinstance(rounds, iterating.RoundsConfig) or rounds.count == 1:
        return steps
    places = {step.name: step for step in steps}
    models, train = places[REWARD_MODELS.name], places[MIXED_RL.name]
    optimizer: dict[str, ArtifactKind] = {"optimizer": "folder"} if rounds.optimizer_state == "keep" else {}
    grown = [replace(train, writes={**train.writes, **optimizer}, makes=f"{train.makes}-round-1")]
    fresh: dict[str, Output] = {}
    for number in range(2, rounds.count + 1):
        policy, last = grown[-1].name, number == rounds.count
        judges = _judges(models)
        sampled = Step(
            f"mixed-rl/fresh-{number}", f"4-mixed-rl/fresh-{number}", iterating.sample_fresh, iterating.FreshConfig,
            reads={
                "policy": Output(policy, "model"), "general": Output("prepare", "general"),
                "problems": Output("prepare", "problems"),
            },
            writes={"attempts": "table"}, shares=("chat", "rewards"), inherits=iterating.fresh_settings,
            files=own_files, code=own_code,
        )  # fmt: skip
        fresh[f"fresh-{number}"] = Output(sampled.name, "attempts")
        models = replace(
            models, name=f"{REWARD_MODELS.name}-{number}", folder=f"{REWARD_MODELS.folder}-{number}",
            run=iterating.train_on_reward_models, config=iterating.LaterRewardModelsConfig,
            reads={"pairs": Output("prepare", "pairs"), "labels": Output("prepare", "labels"), **fresh, **judges},
            inherits=iterating.later_reward_models, repeats=REWARD_MODELS.name,
        )  # fmt: skip
        kept = {"optimizer": Output(policy, "optimizer")} if optimizer else {}
        trained = replace(
            train, name=f"{MIXED_RL.name}-{number}", folder=f"{MIXED_RL.folder}-{number}", run=iterating.run_round,
            config=iterating.LaterConfig,
            reads={
                **train.reads, "policy": Output(policy, "model"), **_judges(models), **kept,
            },
            writes={**train.writes, **({} if last else optimizer)},
            makes=train.makes if last else f"{train.makes}-round-{number}",
            inherits=iterating.later_training, repeats=MIXED_RL.name,
        )  # fmt: skip
        grown += [sampled, models, trained]
    rounds_made = {step.makes.lower(): Output(step.name, "model") for step in grown if step.makes}
    judges = _judges(models)
    result: list[Step] = []
    for step in steps:
        if step.name == MIXED_RL.name:
            result += grown
        elif step.name == EVALUATE.name:
            result.append(replace(step, reads={**step.reads, **rounds_made, **judges}))
        else:
            result.append(step)
    return tuple(result)


def load(name: str) -> Pipeline:
    """The pipeline of that name; RecipeError when there is none."""
    if name not in PIPELINES:
        raise RecipeError(f"unknown pipeline {name!r}; known: {', '.join(PIPELINES)}", 'set pipeline = "r1" in the recipe')
    steps = PIPELINES[name]
    iterates = any(step.name == MIXED_RL.name for step in steps)
    return Pipeline(
        name, steps, shared={"chat": ChatSection, "rewards": RewardsSection}, locate_base=locate_base,
        sections=ROUNDS if iterates else {}, grow=with_rounds if iterates else None,
    )  # fmt: skip
