"""Recipe sections that several steps share."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from r1pipe.rewards import RewardSpec
from r1pipe.stage import StepConfig


class ChatSection(StepConfig):
    """`[chat]`: how a question is put, the same in every stage."""

    system: str = ""
    """System text; empty for none (the paper's advice for R1)."""


class RewardsSection(StepConfig):
    """`[rewards]`: what a right and readable answer is: trains stages 2 and 4, filters stage 3, scores every evaluation."""

    accuracy: RewardSpec = RewardSpec(name="accuracy")
    format: RewardSpec = RewardSpec(name="format")
    language: RewardSpec = RewardSpec(name="language")

    @property
    def rules(self) -> tuple[RewardSpec, ...]:
        """The rule rewards, in order (2.2 and Eq. 8 of the paper: accuracy + format + language consistency, weight 1 each)."""
        return (self.accuracy, self.format, self.language)


class SamplingSection(StepConfig):
    """How a step samples."""

    engine: str = "transformers"
    samples: PositiveInt = 4
    """Completions per problem; the paper says "several"."""
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: PositiveInt = 32768
