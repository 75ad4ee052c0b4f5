"""Settings of the trainers: what stands in a recipe. Light: no torch here.

Numbers in the docstrings name the section of the DeepSeek-R1 paper (arXiv 2501.12948v2) that gives them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from r1pipe.stage import StepConfig
from r1pipe.train.methods.choice import Method, PpoSettings, ProcessSettings, fitted, refuse_unfit
from r1pipe.train.presets import PRESETS, Preset


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
    start_from: str = ""
    """A model's folder to start from, with its reference, in place of what the step before made: e.g. the checkpoint that a guard
    kept."""
    questions_per_step: PositiveInt = 32
    group: int = Field(default=16, ge=2)
    """Answers per question."""
    minibatches: PositiveInt = 16
    """Optimizer steps per rollout: a rollout asks questions_per_step × minibatches questions and is gone through once."""
    learning_rate: PositiveFloat = 3e-6
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    method: Method = "grpo"
    """Where answers come from and what each token's gradient is multiplied with; see `r1pipe.train.methods.choice`."""
    preset: Preset = "paper"
    """Fills in what of the objective the recipe leaves out; see `r1pipe.train.presets`."""
    kl: float = Field(default=0.001, ge=0)
    """Weight of the KL term (k3 estimator, in the loss)."""
    clip: PositiveFloat = 10.0
    """Clip range of the ratio; 10 as in stage 2 of the paper is in effect no clipping."""
    clip_high: PositiveFloat | None = None
    """Upper clip range when it differs; with every loss a distance from 1."""
    loss: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"] = "grpo"
    """"grpo" takes the mean over each answer's tokens, then over answers, as the paper does."""
    ratio: Literal["token", "sequence"] = "token"
    """A ratio for each token, or one for each answer, the geometric mean of its tokens' ratios (GSPO)."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    """Rewards less their group's mean are divided by the deviation of the group, of the rollout, or not at all."""
    advantage_floor: float = Field(default=0.0, ge=0)
    """The least deviation, in units of reward: smaller ones are noise and would make it loud. 0: none, as in the paper."""
    flat_groups: Literal["keep", "leave-out"] = "keep"
    """Groups of equal rewards have no advantage; "leave-out" also takes them out of the mean of the loss."""
    truncated: Literal["score", "mask"] = "score"
    """Answers cut off at the limit: trained on as they are scored, or out of the loss (their rewards still count in the mean)."""
    overlong_share: float = Field(default=0.0, ge=0, lt=1)
    """Over this last share of the length limit the reward falls by up to 1 (DAPO Eq. 13: 0.2); 0: no penalty."""
    temperature: PositiveFloat = 1.0
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Must be 1: the ratio is of the whole distribution, and answers have to be sampled from it."""
    max_completion_tokens: PositiveInt = 32768
    """The length limit of an answer."""
    raised_completion_tokens: PositiveInt | None = None
    """The length limit from `raise_from_step` on (R1-Zero: 65,536 from step 8,200, 2.1)."""
    raise_from_step: PositiveInt | None = None
    """Put at the start of the nearest rollout."""
    refresh_reference: int = Field(default=400, ge=0)
    """Optimizer steps between copies of the policy into the reference; 0: never."""
    drop_always_right: bool = False
    """Ask a prompt no more once all answers to it were right; from the rollout after next."""
    process: ProcessSettings | None = None
    """Of method "grpo-process"."""
    ppo: PpoSettings | None = None
    """Of method "ppo"."""
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings | None = None

    def starts_from(self, policy: Path) -> Path:
        """The folder of the model that is trained: `policy`, unless the recipe names another."""
        return Path(self.start_from).expanduser() if self.start_from else policy

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

    @property
    def raise_step(self) -> int | None:
        """The step at which the length limit is raised: `raise_from_step` at the start of the nearest rollout."""
        return None if self.raise_from_step is None else rollout_start(self.raise_from_step, self.minibatches)

    @property
    def beside_the_preset(self) -> dict[str, Any]:
        """What of the objective is not as the preset has it, because the recipe says so."""
        return {key: getattr(self, key) for key, named in PRESETS[self.preset].items() if getattr(self, key) != named}

    def token_limit(self, step: int) -> int:
        """The length limit of the answers that are sampled after `step` optimizer steps."""
        raised = self.raise_step is not None and step >= self.raise_step
        return self.raised_completion_tokens or self.max_completion_tokens if raised else self.max_completion_tokens

    @property
    def longest_answer(self) -> int:
        """The highest length limit of the run, in tokens."""
        return self.raised_completion_tokens or self.max_completion_tokens

    @property
    def upper_clip(self) -> float | None:
        """The upper clip range as the trainer takes it: a distance from 1, but for cispo the largest ratio itself."""
        if self.loss != "cispo":
            return self.clip_high
        return 1.0 + (self.clip if self.clip_high is None else self.clip_high)

    def split(self, processes: int, micro_batch: int) -> tuple[int, int]:
        """(answers per forward pass and process, passes per optimizer step); groups stay whole on each process.

        Raises:
            ValueError: when answers or questions cannot be shared out, with the arithmetic.
        """
        passes = micro_batches(self.answers_per_step, processes, micro_batch)
        if self.questions_per_rollout % processes:
            raise ValueError(
                f"a rollout of {self.questions_per_rollout} questions cannot be split over {processes} processes, each with "
                f"whole groups: {divided(self.questions_per_rollout, processes)}"
            )
        return passes

    @model_validator(mode="before")
    @classmethod
    def _preset_fills_in(cls, data: Any) -> Any:
        return fitted(data, PRESETS) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _sizes_divide(self) -> GrpoSettings:
        if self.steps % self.minibatches:
            raise ValueError(
                f"steps ({self.steps}) must be whole rollouts of {self.minibatches} minibatches: "
                f"{divided(self.steps, self.minibatches)}; {nearest(self.steps, self.minibatches)}"
            )
        if self.refresh_reference % self.minibatches:
            raise ValueError(
                f"refresh_reference ({self.refresh_reference}) must fall on a rollout's end, every {self.minibatches} steps: "
                f"{divided(self.refresh_reference, self.minibatches)}; "
                f"{nearest(self.refresh_reference, self.minibatches)}, or 0 for never"
            )
        return self

    @model_validator(mode="after")
    def _method_fits(self) -> GrpoSettings:
        refuse_unfit(self)
        return self

    @model_validator(mode="after")
    def _choices_agree(self) -> GrpoSettings:
        if self.top_p != 1:
            raise ValueError(
                f"top_p ({self.top_p}) would sample answers from another distribution than the one whose ratio is trained; "
                "RL needs 1.0"
            )
        if self.clip_high is not None and self.clip_high < self.clip:
            filled_in = PRESETS[self.preset]
            if filled_in["clip_high"] == self.clip_high:
                raise ValueError(
                    f"clip ({self.clip}, set in the section) is wider than clip_high ({self.clip_high}, from preset "
                    f'"{self.preset}"), which is the upper range: set clip_high = {self.clip} or more beside it, or leave clip '
                    f"out for the preset's {filled_in['clip']}"
                )
            raise ValueError(
                f"clip_high ({self.clip_high}) is below clip ({self.clip}): it is the upper range, and the wider one; raise it, "
                "or leave it out for the same range on both sides"
            )
        if self.ratio == "sequence" and self.loss != "grpo":
            raise ValueError(
                f'ratio = "sequence" is one ratio an answer and loss = "{self.loss}" sums over tokens: use loss = "grpo"'
            )
        if self.advantage_floor and self.advantage_scale == "none":
            raise ValueError(
                f'advantage_floor ({self.advantage_floor}) is a least deviation and advantage_scale = "none" divides by none: '
                "set the floor to 0, or the scale to group or batch"
            )
        if (self.raised_completion_tokens is None) != (self.raise_from_step is None):
            raise ValueError("raised_completion_tokens and raise_from_step go together: give both or neither")
        if self.raised_completion_tokens is not None and self.raised_completion_tokens <= self.max_completion_tokens:
            raise ValueError(
                f"raised_completion_tokens ({self.raised_completion_tokens}) is not above "
                f"max_completion_tokens ({self.max_completion_tokens})"
            )
        if self.raise_step is not None and self.raise_step >= self.steps:
            raise ValueError(f"raise_from_step ({self.raise_from_step}) falls on no rollout before the last step ({self.steps})")
        if self.overlong_share and self.raised_completion_tokens is not None:
            raise ValueError(
                f"overlong_share ({self.overlong_share}) needs one length limit and raised_completion_tokens makes two: "
                "set overlong_share = 0, or leave the limit where it is"
            )
        targets = (self.lora.target_modules,) if self.lora and isinstance(self.lora.target_modules, str) else ()
        if any("lm_head" in target for target in targets or (self.lora.target_modules if self.lora else ())):
            raise ValueError("lora.target_modules names lm_head, whose adapter GRPO would not train: leave it out")
        return self


class RewardModelSettings(StepConfig):
    """A reward model: the base with a scalar head (3.1: one epoch, batch 256, lr 6e-6, at most 8,192 tokens in training)."""

    model: str = ""
    """A finished reward model to take instead of training one: a folder with a sequence classifier, or its name where it is in
    the Hugging Face cache. It is measured on the held-out rows, and reads through its own chat template."""
    logit: int = Field(default=0, ge=0)
    """Of such a model with several outputs, the one whose log-odds are the score."""
    epochs: PositiveInt = 1
    learning_rate: PositiveFloat = 6e-6
    batch: PositiveInt = 256
    max_tokens: PositiveInt = 8192
    held_out_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rows, by question, that measures accuracy and is not trained on."""
    min_accuracy_above: float = Field(default=0.5, ge=0, le=1)
    """The step fails unless the lower end of the 95% interval of the held-out accuracy lies above this."""
    centre: float = Field(default=0.0, ge=0)
    """For pairs: weight of a term that pulls the sum of a pair's scores to zero (TRL suggests 0.01); 0: none, as in the paper."""
    optimizer: OptimizerSettings = OptimizerSettings()
    lora: LoraSettings | None = None


def divided(size: int, by: int) -> str:
    """A division with its remainder, in words: "1700 = 106 × 16 + 4"."""
    return f"{size} = {size // by} × {by} + {size % by}"


def nearest(size: int, by: int) -> str:
    """The multiples around a size, in words: "use 1696 or 1712"."""
    down = size // by * by
    return f"use {down} or {down + by}" if down else f"use {by}"


def rollout_start(step: int, minibatches: int) -> int:
    """The start of the rollout nearest to a step (of two equally near, the later)."""
    return (step + minibatches // 2) // minibatches * minibatches


DEFAULT_MICRO_BATCH = 64
"""Rows per forward pass and process when the launch says nothing."""


def micro_batches(answers_per_step: int, processes: int, micro_batch: int) -> tuple[int, int]:
    """(rows per forward pass and process, passes per optimizer step) for a batch; the largest micro batch that divides.

    Raises:
        ValueError: when the batch cannot be split over the processes, with the arithmetic.
    """
    if answers_per_step % processes:
        raise ValueError(
            f"a batch of {answers_per_step} cannot be split over {processes} processes: {divided(answers_per_step, processes)}"
        )
    share = answers_per_step // processes
    size = max(size for size in range(1, min(micro_batch, share) + 1) if share % size == 0)
    return size, share // size
