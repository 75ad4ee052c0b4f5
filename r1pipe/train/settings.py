"""Settings of the trainers: what stands in a recipe. Light: no torch here.

Numbers in the docstrings name the section of the DeepSeek-R1 paper (arXiv 2501.12948v2) that gives them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from r1pipe.stage import StepConfig


class LoraSettings(StepConfig):
    """Low-rank adapters instead of full training; the adapter is merged into the model that the step hands on."""

    rank: PositiveInt = 32
    alpha: PositiveFloat = 64.0
    target_modules: str | tuple[str, ...] = "all-linear"


class OptimizerSettings(StepConfig):
    """The optimizer, AdamW; the paper names none."""

    weight_decay: float = Field(default=0.0, ge=0)
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    max_grad_norm: PositiveFloat = 1.0
    warmup_steps: int = Field(default=0, ge=0)


class SftSettings(StepConfig):
    """Supervised fine-tuning (B.4.2: two to three epochs, cosine 5e-5 to 5e-6, context 32,768, batch 128)."""

    epochs: PositiveInt = 2
    learning_rate: PositiveFloat = 5e-5
    final_learning_rate_share: float = Field(default=0.1, ge=0, le=1)
    """The cosine ends at this share of the learning rate."""
    batch: PositiveInt = 128
    """Rows per optimizer step."""
    max_tokens: PositiveInt = 32768
    """Longest row, prompt included; longer rows are left out and counted, never cut."""
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings | None = None


class GrpoSettings(StepConfig):
    """GRPO (2.1, 3.2.1: G 16, 32 questions a step, rollouts of 8,192 answers in 16 minibatches, lr 3e-6, KL 0.001, clip 10)."""

    steps: PositiveInt
    """Optimizer steps."""
    questions_per_step: PositiveInt = 32
    group: int = Field(default=16, ge=2)
    """Answers per question."""
    minibatches: PositiveInt = 16
    """Optimizer steps per rollout: a rollout asks questions_per_step × minibatches questions and is gone through once."""
    learning_rate: PositiveFloat = 3e-6
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    kl: float = Field(default=0.001, ge=0)
    """Weight of the KL term (k3 estimator, in the loss)."""
    clip: PositiveFloat = 10.0
    """Clip range of the ratio; 10 as in stage 2 of the paper is in effect no clipping."""
    clip_high: PositiveFloat | None = None
    """Upper clip range when it differs."""
    loss: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"] = "grpo"
    """"grpo" takes the mean over each answer's tokens, then over answers, as the paper does."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    temperature: PositiveFloat = 1.0
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_completion_tokens: PositiveInt = 32768
    refresh_reference: int = Field(default=400, ge=0)
    """Optimizer steps between copies of the policy into the reference; 0: never."""
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings | None = None

    @property
    def answers_per_step(self) -> int:
        """Answers in one optimizer step."""
        return self.questions_per_step * self.group

    @property
    def questions_per_rollout(self) -> int:
        """Questions asked in one rollout."""
        return self.questions_per_step * self.minibatches

    @property
    def rollouts(self) -> int:
        """Number of rollouts."""
        return self.steps // self.minibatches

    @model_validator(mode="after")
    def _sizes_divide(self) -> GrpoSettings:
        if self.steps % self.minibatches:
            down = self.steps // self.minibatches * self.minibatches
            raise ValueError(
                f"steps ({self.steps}) must be whole rollouts of {self.minibatches} minibatches: "
                f"{self.steps} = {self.steps // self.minibatches} × {self.minibatches} + {self.steps % self.minibatches}; "
                f"use {down or self.minibatches} or {down + self.minibatches}"
            )
        if self.refresh_reference % self.minibatches:
            down = self.refresh_reference // self.minibatches * self.minibatches
            raise ValueError(
                f"refresh_reference ({self.refresh_reference}) must fall on a rollout's end, every {self.minibatches} steps; "
                f"use {down or self.minibatches} or {down + self.minibatches}, or 0 for never"
            )
        if self.lora and self.refresh_reference:
            raise ValueError(
                f"refresh_reference ({self.refresh_reference}) needs a full reference model and lora has none: "
                "set refresh_reference = 0, or remove the lora section"
            )
        return self


class RewardModelSettings(StepConfig):
    """A reward model: the base with a scalar head (3.1: one epoch, batch 256, lr 6e-6, at most 8,192 tokens in training)."""

    epochs: PositiveInt = 1
    learning_rate: PositiveFloat = 6e-6
    batch: PositiveInt = 256
    max_tokens: PositiveInt = 8192
    held_out_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rows, by question, that measures accuracy and is not trained on."""
    min_accuracy_above: float = Field(default=0.5, ge=0, le=1)
    """The step fails unless the lower end of the 95% interval of the held-out accuracy lies above this."""
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings | None = None


DEFAULT_MICRO_BATCH = 64
"""Rows per forward pass and process when the launch says nothing."""


def micro_batches(answers_per_step: int, processes: int, micro_batch: int) -> tuple[int, int]:
    """(rows per forward pass and process, passes per optimizer step) for a batch; the largest micro batch that divides.

    Raises:
        ValueError: when the batch cannot be split over the processes, with the arithmetic.
    """
    if answers_per_step % processes:
        raise ValueError(
            f"a batch of {answers_per_step} cannot be split over {processes} processes: "
            f"{answers_per_step} = {answers_per_step // processes} × {processes} + {answers_per_step % processes}"
        )
    share = answers_per_step // processes
    size = max(size for size in range(1, min(micro_batch, share) + 1) if share % size == 0)
    return size, share // size
