"""R1-Zero: GRPO on the base itself, with rewards for accuracy and format and no example of reasoning shown; Base becomes Zero.

Paper: 2.1 to 2.3 of v2: lr 3e-6, KL 0.001, temperature 1, 32 questions × 16 answers a step, rollouts of 8,192 answers, the
reference replaced every 400 steps, 10,400 steps; accuracy and format rewards of equal weight; the language of the thinking is
left free. The prompt is plain text that names the tags and says nothing of how to reason (`r1pipe.data.chat.TEMPLATES`). Not
said in the paper: the clip range of this run (the value of stage 2 is the default here) and whether the format asks for
`<answer>` tags (here it does).

Departs from the paper in that the form is a setting: `template = "chat"` asks with the base's own chat template and rewards
thinking, then an answer, for bases that have never met `<answer>` tags and so could never be rewarded for them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import PositiveInt, field_validator

from r1pipe.data.chat import TEMPLATES
from r1pipe.rewards import RewardSpec
from r1pipe.rewards.mix import check_names, rules_of
from r1pipe.stage import StepContext
from r1pipe.stages.base_model import base_of
from r1pipe.stages.rules_rl import train_on_rules
from r1pipe.train.settings import GrpoSettings

FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "conversation": {"accuracy": {"answer": "tag"}, "format": {"style": "think-answer"}},
    "chat": {},
}
"""Template -> what it asks for, as options of the rewards: the answer is read where the prompt says that it should stand."""


class Config(GrpoSettings):
    """`[zero.train]`."""

    steps: PositiveInt = 10400
    template: Literal["conversation", "chat"] = "conversation"
    """How a question is put: "conversation" is the paper's plain text with think and answer tags, "chat" the base's own
    template."""
    accuracy: RewardSpec = RewardSpec(name="accuracy")
    format: RewardSpec = RewardSpec(name="format")
    """Style and the place of the answer follow the template unless their options say otherwise."""
    language: RewardSpec = RewardSpec(name="language", weight=0.0)
    """Weight 0 as in the paper: language consistency is measured at every rollout and not rewarded."""
    more: dict[str, RewardSpec] = {}
    """Further rewards, `[zero.train.more.NAME]`: NAME is what they are called in tables and curves."""

    @property
    def rules(self) -> tuple[RewardSpec, ...]:
        """The rewards, in order, with the options that the template asks for."""
        form = FORMS[self.template]
        accuracy, *others = (
            spec.model_copy(update={"options": {**form.get(spec.name, {}), **spec.options}})
            for spec in (self.accuracy, self.format, self.language)
        )
        return rules_of(accuracy, others, self.more)

    @field_validator("more")
    @classmethod
    def _names_are_free(cls, more: dict[str, RewardSpec]) -> dict[str, RewardSpec]:
        return dict(check_names(more))


def train(context: StepContext) -> dict[str, Any]:
    """Train the base on the problems."""
    config: Config = context.config
    return train_on_rules(
        context,
        policy=base_of(context),
        rules=config.rules,
        what="zero",
        chat_template=TEMPLATES.get(config.template, ""),
    )
