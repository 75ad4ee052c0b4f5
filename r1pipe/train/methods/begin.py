"""What a method other than GRPO loads before it starts, and what it says of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from r1pipe.engines.text import load_model
from r1pipe.errors import RecipeError
from r1pipe.guards import Guards
from r1pipe.train.methods.choice import LEARNS_FROM_FLAT, METHODS
from r1pipe.train.methods.steps import StepScorer, check_plans
from r1pipe.train.methods.trainer import Frame, MethodTrainer
from r1pipe.train.methods.value import ValueModel
from r1pipe.train.rollouts import RolloutScorer
from r1pipe.train.run import is_main
from r1pipe.train.settings import GrpoSettings
from r1pipe.train.watch import Together, Watch


def begin_method(
    trainer: MethodTrainer,
    settings: GrpoSettings,
    policy: Path,
    scorer: RolloutScorer,
    system: str,
    dtype: torch.dtype,
    watch: Watch,
) -> None:
    """Give the trainer what the method needs beside the policy, and make that part of every checkpoint.

    Raises:
        RecipeError: the method keeps a model of its own whole and the launch spreads models over processes; or nobody could judge
            the steps of these problems.
    """
    facts = METHODS[settings.method]
    if (facts.sampler or facts.value_model) and (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled):
        raise RecipeError(
            f'{watch.what}: method = "{settings.method}" keeps a second model whole on each process, and the launch spreads '
            "models over several",
            'train without FSDP and DeepSpeed, or with method = "grpo"',
        )
    frame = trainer.frame = Frame(settings, scorer, what=watch.what)
    device = trainer.accelerator.device
    says = f"method {settings.method}: answers from {facts.answers}; coefficient: {facts.coefficient}"
    if facts.sampler and settings.lora is None:
        frame.sampler = load_model(policy, dtype).to(device).eval()
        says += f"; a frozen copy of the input model is kept ({_count(frame.sampler)} parameters)"
    if settings.ppo is not None:
        rate = settings.ppo.value_learning_rate or settings.learning_rate
        frame.value = ValueModel(policy, dtype, device, rate, settings.optimizer)
        says += f"; a value model of {_count(frame.value.backbone)} parameters is trained beside the policy"
        watch.extra = frame.value if watch.extra is None else Together((watch.extra, frame.value))
    if settings.process is not None:
        check_plans(scorer.problems, settings.process, watch.what)
        frame.steps = StepScorer(settings.process, scorer.tokenizer, scorer.mix, system)
    if settings.method in LEARNS_FROM_FLAT:
        watch.guards = Guards(watch.guards.settings.model_copy(update={"flat_rollouts": 0}))
    if is_main():
        print(f"{watch.what}: {says}", flush=True)


def _count(model: Any) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()):,}"
