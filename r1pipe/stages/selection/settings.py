"""What the selection of stage 3 keeps: the settings of `[rejection-sft.select]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from r1pipe.stage import StepConfig
from r1pipe.stages.keeping import KeepSection

GENERAL_PART = "general"
"""The name of the general rows in a mix."""
DOMAIN_OF_CHECKER = {"maths": "maths", "code": "code", "choice": "stem", "logic": "logic"}
"""What part of the mix a row is in whose own domain the mix does not name."""


class JudgeSection(StepConfig):
    """A model that judges answers which no rule can (B.3.3: question, reference and answer in, a verdict as JSON out)."""

    engine: str = ""
    """"openai" for a server (the launch's environment says where), "transformers" for a folder, or an import path; empty for
    none."""
    model: str = ""
    """The name that the server serves, or the model's folder."""
    temperature: float = Field(default=0.0, ge=0)
    max_tokens: PositiveInt = 4096
    rows_per_shard: PositiveInt = 256
    """A killed run owes only its unfinished shard."""

    @model_validator(mode="after")
    def _engine_has_a_model(self) -> JudgeSection:
        if self.engine and not self.model:
            raise ValueError(f'the engine "{self.engine}" needs a model: the name that the server serves, or a folder')
        return self


class SelectConfig(KeepSection):
    """`[rejection-sft.select]`."""

    general_share: float = Field(default=0.25, ge=0, lt=1)
    """Share of general rows in the selection (paper: 200k of 800k); all are used when there are fewer. A mix that names
    "general" says their number instead."""
    general_thinking: Literal["given", "none"] = "given"
    """Whether general rows keep their thinking; without it they have an empty block. The paper has V3 think first for some
    tasks and not for simple queries."""
    overlap_words: int = Field(default=10, ge=0)
    """Words in a row that a row may not share with an evaluation item (D.1); 0 does not look."""
    near_duplicate: float = Field(default=0.8, ge=0, le=1)
    """Similarity (share of five-word runs in common) from which two rows are copies of each other; 0 does not look."""
    mix: dict[str, PositiveInt] = {}
    """Rows wanted of each domain; empty takes what there is. A row counts for its domain, or, if the mix does not name that, for
    its checker's ("maths", "code", "stem" for choice, "logic"); rows of neither are left out. Table 5: maths 395,285, code
    211,129, stem 10,124, logic 10,395, general 177,812."""
    mix_scale: PositiveFloat = 1.0
    """All numbers of the mix are multiplied by this."""
    licences: dict[str, str] = {}
    """Source -> its licence, for the data card."""
    judge: JudgeSection = JudgeSection()

    def wanted(self) -> dict[str, int]:
        """Domain -> rows wanted, scaled; empty without a mix."""
        return {name: max(1, round(count * self.mix_scale)) for name, count in self.mix.items()}
