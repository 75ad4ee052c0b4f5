"""Stage 4, mixed RL: rule rewards throughout, general prompts and preference rewards late; Dev3 becomes R1.

Paper: 3.1 and 3.2.2 of v2: temperature 0.7; of 1,700 steps only the last 400 see general prompts and preference rewards,
because longer training on them was hacked; helpfulness reads the summary only, safety the whole response. Departs from it in
that the switch is moved to the start of the nearest rollout, and says so: neither 1,700 nor 1,300 is a multiple of 16, so the
run has 1,696 steps and switches at 1,296, and its last 400 steps are the paper's. From the switch on the policy is held against
problems that it never trains on (`r1pipe.train.hacking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import read_problems, read_table
from r1pipe.metrics import read_metrics
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION, Accuracy
from r1pipe.rewards.base import Reward
from r1pipe.rewards.mix import Part, RewardSpec, load_reward
from r1pipe.rewards.preference import KINDS, PreferenceKind
from r1pipe.stage import StepConfig, StepContext
from r1pipe.stages.base_model import base_of
from r1pipe.train.hacking import told
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
    """What a preference score, in standard deviations, is multiplied with."""
    safety_weight: PositiveFloat | None = None
    """The same for safety, where it differs."""
    helpfulness: RewardSpec | None = None
    """Who judges helpfulness instead of the step's own reward model: a reward by name or import path ("judge",
    "score-server")."""
    safety: RewardSpec | None = None
    """The same for safety."""

    @property
    def switch_step(self) -> int:
        """The step at which the preference rewards join: `preference_from_step` at the start of the nearest rollout."""
        return rollout_start(self.preference_from_step, self.minibatches)

    def weight(self, kind: PreferenceKind) -> float:
        """The weight of a preference reward."""
        return self.safety_weight if kind == "safety" and self.safety_weight is not None else self.preference_weight

    @model_validator(mode="after")
    def _switch_is_inside(self) -> Config:
        if self.switch_step >= self.steps:
            raise ValueError(
                f"preference_from_step ({self.preference_from_step}) falls on no rollout before the last step ({self.steps}): "
                "preference rewards would never join"
            )
        if self.method in ("rft", "online-rft", "grpo-process") and self.general_share:
            raise ValueError(
                f'method = "{self.method}" learns from answers or steps that a rule finds right, and general prompts '
                f"(general_share = {self.general_share:g}) have none: use grpo, reinforce-loo or ppo"
            )
        for kind in KINDS:
            spec: RewardSpec | None = getattr(self, kind)
            if spec is not None and (spec.weight != 1.0 or spec.from_step):
                raise ValueError(f"{kind}: its weight is preference_weight (safety_weight), its step preference_from_step")
        return self

    @model_validator(mode="after")
    def _general_prompts_are_asked(self) -> Config:
        questions = self.questions_per_rollout
        if self.general_share and not round(questions * self.general_share):
            raise ValueError(
                f"general_share ({self.general_share}) of a rollout's {questions} questions is "
                f"{questions * self.general_share:.3g}, and would ask no general prompt: use 0, or more questions or share"
            )
        return self


def train_reward_models(context: StepContext) -> dict[str, Any]:
    """Helpfulness from pairs of summaries, safety from labelled responses; one after the other, each resumable."""
    config: RewardModelsConfig = context.config
    return {
        "helpfulness": reward_model(context, config.helpfulness, "helpfulness", context.inputs["pairs"]),
        "safety": reward_model(context, config.safety, "safety", context.inputs["labels"]),
    }


def reward_model(context: StepContext, settings: RewardModelSettings, kind: PreferenceKind, table: Path) -> dict[str, Any]:
    """Train one reward model, or take the one that the recipe names; returns what was measured."""
    from r1pipe.engines.text import load_tokenizer
    from r1pipe.train.adopted import find_model, load_classifier, marked_own
    from r1pipe.train.reward_model import adopt_reward_model, train_reward_model

    base, what = base_of(context), f"{kind} reward model"
    folder = find_model(settings.model) if settings.model else base
    model, tokenizer = load_classifier(folder, settings.logit) if settings.model else (None, load_tokenizer(base))
    rows = _judged(context, kind, marked_own(model.config) if model is not None else None, tokenizer, list(read_table(table)))
    if model is not None:
        return adopt_reward_model(
            context, settings, rows=rows, folder=folder, model=model, tokenizer=tokenizer, output=kind, what=what
        )
    return train_reward_model(context, settings, base=base, rows=rows, output=kind, what=what)


def judged_rows(context: StepContext, kind: PreferenceKind, folder: Path, given: Sequence[dict[str, Any]]) -> list[Any]:
    """Pairs or labels as a reward model that r1pipe trained reads them: `r1pipe.train.reward_model.Judged`."""
    from r1pipe.engines.text import load_tokenizer

    return _judged(context, kind, None, load_tokenizer(folder), given)


def _judged(
    context: StepContext, kind: PreferenceKind, config: Any, tokenizer: Any, given: Sequence[dict[str, Any]]
) -> list[Any]:
    from r1pipe.train.adopted import readings
    from r1pipe.train.reward_model import Judged

    pairs, system = kind == "helpfulness", context.shared["chat"].system
    better = readings(config, tokenizer, system, [(row["question"], row["chosen" if pairs else "response"]) for row in given])
    worse = readings(config, tokenizer, system, [(row["question"], row["rejected"]) for row in given]) if pairs else None
    return [
        Judged(
            row["question"],
            one.ids,
            worse[place].ids if worse else None,
            1.0 if pairs else float(row["safe"]),
            one.tokens - len(one.answer),
            row["language"],
        )
        for place, (row, one) in enumerate(zip(given, better, strict=True))
    ]


def preference_parts(config: Config, inputs: Any, system: str) -> tuple[Part, ...]:
    """The preference rewards with their places in the mix: the run's own reward models, or whom the recipe names."""
    from r1pipe.train.scorer import PreferenceReward

    parts = []
    for kind in KINDS:
        spec: RewardSpec | None = getattr(config, kind)
        reward: Reward = PreferenceReward(str(inputs[kind]), kind, system)
        if spec is not None:
            reward = load_reward(spec.name, {**spec.options, "kind": kind, "system": system})
        parts.append(Part(kind, reward, config.weight(kind), config.switch_step))
    return tuple(parts)


def run(context: StepContext) -> dict[str, Any]:
    """Train the policy on problems, then on problems and general prompts."""
    return train_mixed(context, "mixed-rl")


def train_mixed(context: StepContext, what: str, optimizer: Path | None = None) -> dict[str, Any]:
    """The same under another name, and perhaps with the optimizer of an earlier round (a folder)."""
    from r1pipe.train.grpo import train_grpo
    from r1pipe.train.held_out import held_out
    from r1pipe.train.prompts import fitting_problems

    config: Config = context.config
    system, policy = context.shared["chat"].system, config.starts_from(context.inputs["policy"])
    if config.switch_step != config.preference_from_step:
        print(
            f"{what}: preference rewards join at step {config.switch_step}, the start of a rollout "
            f"(the recipe says {config.preference_from_step})",
            flush=True,
        )
    (problems, long_problems), (general, long_general) = (
        fitting_problems(policy, read_problems(context.inputs[name]), system, config.longest_answer, what)
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
    preference = preference_parts(config, context.inputs, system)
    accuracy = next((part for part in rules.parts if part.name == "accuracy"), Part("accuracy", Accuracy(), 1.0))
    summary = train_grpo(
        context,
        config,
        policy=policy,
        problems=[*problems, *general],
        order=order,
        mix=Mix((*rules.parts, *preference)),
        system=system,
        what=what,
        optimizer=optimizer,
        held_out=held_out(
            context.inputs, Mix((accuracy, *preference)), system, context.launch.hacking, config, config.switch_step,
            context.launch.generation_batch,
        ),
    )  # fmt: skip
    return {
        **summary,
        "preference_from_step": config.switch_step,
        "hacking_watch": told(read_metrics(context.folder / "metrics.jsonl")),
        "prompts_too_long": [*long_problems, *long_general],
        "verdict_version": VERDICT_VERSION,
    }
