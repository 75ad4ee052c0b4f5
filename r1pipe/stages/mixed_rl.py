"""Stage 4, mixed RL: rule rewards throughout, general prompts and preference rewards late; Dev3 becomes R1.

Paper: 3.1 and 3.2.2 of v2: temperature 0.7; of 1,700 steps only the last 400 see general prompts and preference rewards,
because longer training on them was hacked; helpfulness reads the summary only, safety the whole response. Departs from it in
that the switch is moved to the start of the nearest rollout, and says so: neither 1,700 nor 1,300 is a multiple of 16, so the
run has 1,696 steps and switches at 1,296, and its last 400 steps are the paper's.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt, model_validator

from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import read_problems, read_table
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.rewards.mix import Part
from r1pipe.stage import StepConfig, StepContext
from r1pipe.train.settings import GrpoSettings, RewardModelSettings, rollout_start


class RewardModelsConfig(StepConfig):
    """`[mixed-rl.reward-models]`."""

    helpfulness: RewardModelSettings = RewardModelSettings()
    safety: RewardModelSettings = RewardModelSettings()


class Config(GrpoSettings):
    """`[mixed-rl.train]`."""

    steps: PositiveInt = 1696
    temperature: float = Field(default=0.7, gt=0)
    preference_from_step: int = Field(default=1300, ge=0)
    """First step with general prompts and preference rewards; put at the start of the nearest rollout."""
    general_share: float = Field(default=0.3, ge=0, le=1)
    """Share of a rollout's questions that are general from then on; the paper does not say."""
    preference_weight: float = Field(default=1.0, gt=0)

    @property
    def switch_step(self) -> int:
        """The step at which the preference rewards join: `preference_from_step` at the start of the nearest rollout."""
        return rollout_start(self.preference_from_step, self.minibatches)

    @model_validator(mode="after")
    def _switch_is_inside(self) -> Config:
        if self.preference_from_step > self.steps:
            raise ValueError(
                f"preference_from_step ({self.preference_from_step}) lies after the last step ({self.steps}): "
                "preference rewards would never join"
            )
        if self.method in ("rft", "online-rft", "grpo-process") and self.general_share:
            raise ValueError(
                f'method = "{self.method}" learns from answers or steps that a rule finds right, and general prompts '
                f"(general_share = {self.general_share:g}) have none: use grpo, reinforce-loo or ppo"
            )
        return self


def train_reward_models(context: StepContext) -> dict[str, Any]:
    """Helpfulness from pairs of summaries, safety from labelled responses; one after the other, each resumable."""
    from r1pipe.engines.text import judged_ids, load_tokenizer
    from r1pipe.train.reward_model import Judged, train_reward_model

    config: RewardModelsConfig = context.config
    base, system = context.inputs["base"], context.shared["chat"].system
    tokenizer = load_tokenizer(base)

    def ids(question: str, text: str) -> list[int]:
        return judged_ids(tokenizer, question, system, text)

    pairs = [
        Judged(row["question"], ids(row["question"], row["chosen"]), ids(row["question"], row["rejected"]))
        for row in read_table(context.inputs["pairs"])
    ]
    labels = [
        Judged(row["question"], ids(row["question"], row["response"]), label=float(row["safe"]))
        for row in read_table(context.inputs["labels"])
    ]
    return {
        "helpfulness": train_reward_model(
            context, config.helpfulness, base=base, rows=pairs, output="helpfulness", what="helpfulness reward model"
        ),
        "safety": train_reward_model(context, config.safety, base=base, rows=labels, output="safety", what="safety reward model"),
    }


def run(context: StepContext) -> dict[str, Any]:
    """Train the policy on problems, then on problems and general prompts."""
    from r1pipe.train.grpo import train_grpo
    from r1pipe.train.prompts import fitting_problems
    from r1pipe.train.scorer import PreferenceReward

    config: Config = context.config
    system = context.shared["chat"].system
    if config.switch_step != config.preference_from_step:
        print(
            f"mixed-rl: preference rewards join at step {config.switch_step}, the start of a rollout "
            f"(the recipe says {config.preference_from_step})",
            flush=True,
        )
    (problems, long_problems), (general, long_general) = (
        fitting_problems(context.inputs["policy"], read_problems(context.inputs[name]), system, config.longest_answer, "mixed-rl")
        for name in ("problems", "general")
    )
    order = prompt_order(
        verifiable=list(range(len(problems))),
        general=list(range(len(problems), len(problems) + len(general))),
        rollouts=config.rollouts,
        questions=config.questions_per_rollout,
        general_from=config.switch_step // config.minibatches,
        general_share=config.general_share,
        seed=context.seed,
    )
    rules = Mix.build(context.shared["rewards"].rules)
    preference = tuple(
        Part(kind, PreferenceReward(str(context.inputs[kind]), kind, system), config.preference_weight, config.switch_step)
        for kind in ("helpfulness", "safety")
    )
    summary = train_grpo(
        context,
        config,
        policy=context.inputs["policy"],
        problems=[*problems, *general],
        order=order,
        mix=Mix((*rules.parts, *preference)),
        system=system,
        what="mixed-rl",
    )
    return {
        **summary,
        "preference_from_step": config.switch_step,
        "prompts_too_long": [*long_problems, *long_general],
        "verdict_version": VERDICT_VERSION,
    }
