"""Recipe sections that several steps share."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, PositiveInt, field_validator

from r1pipe.rewards import RewardSpec
from r1pipe.rewards.mix import check_names, rules_of
from r1pipe.stage import StepConfig

BUILT_IN = "built-in"
"""Names r1pipe's own chat template for base models; see `r1pipe.data.chat.TEMPLATES`."""


class ChatSection(StepConfig):
    """`[chat]`: how a question is put, the same in every stage."""

    system: str = ""
    """System text; empty for none (the paper's advice for R1)."""
    template: str = ""
    """The base model's chat template: empty for its own, "built-in" for one of r1pipe's for bases that have none, or a file."""

    @property
    def template_file(self) -> Path | None:
        """The template's file, when it is one."""
        return Path(self.template).expanduser() if self.template not in ("", BUILT_IN) else None


class RewardsSection(StepConfig):
    """`[rewards]`: what a right and readable answer is: trains stages 2 and 4, filters stage 3, scores every evaluation."""

    accuracy: RewardSpec = RewardSpec(name="accuracy")
    format: RewardSpec = RewardSpec(name="format")
    language: RewardSpec = RewardSpec(name="language")
    more: dict[str, RewardSpec] = {}
    """Further rewards, `[rewards.more.NAME]`: NAME is what they are called in tables and curves. They train and are evaluated,
    and decide nothing of what is kept in stage 3."""

    @property
    def rules(self) -> tuple[RewardSpec, ...]:
        """The rule rewards, in order (2.2 and Eq. 8 of the paper: accuracy + format + language consistency, weight 1 each)."""
        return rules_of(self.accuracy, (self.format, self.language), self.more)

    @field_validator("more")
    @classmethod
    def _names_are_free(cls, more: dict[str, RewardSpec]) -> dict[str, RewardSpec]:
        return dict(check_names(more))


class SamplingSection(StepConfig):
    """How a step samples."""

    engine: str = "transformers"
    samples: PositiveInt = 4
    """Completions per problem; the paper says "several"."""
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: PositiveInt = 32768
