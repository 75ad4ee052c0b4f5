"""The figure of the paper as one page: which step reads what, and which checkpoint it makes.

r1:       Base ── cold-start ──> Dev1 ── reasoning-rl ──> Dev2 ── sample, select ──┐
          Base ─────────────────────────────────────── rejection-sft/train <──────┘──> Dev3 ── mixed-rl ──> R1
r1-zero:  Base ── zero ──> Zero
r1-full:  Base ── zero ──> Zero ── sample, build ──> the traces of cold-start, then as r1
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from r1pipe.errors import ArtifactError, RecipeError
from r1pipe.graph import Pipeline
from r1pipe.stage import Base, Output, Step
from r1pipe.stages import cold_start, evaluate, mixed_rl, prepare, reasoning_rl, rejection_sft, sampling, traces, zero
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


def load(name: str) -> Pipeline:
    """The pipeline of that name; RecipeError when there is none."""
    if name not in PIPELINES:
        raise RecipeError(f"unknown pipeline {name!r}; known: {', '.join(PIPELINES)}", 'set pipeline = "r1" in the recipe')
    return Pipeline(name, PIPELINES[name], shared={"chat": ChatSection, "rewards": RewardsSection}, locate_base=locate_base)
