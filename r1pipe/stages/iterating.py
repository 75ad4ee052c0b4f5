"""Iterative RL, later rounds of stage 4: fresh answers of the policy are labelled, the reward models go on training on them with
a share of the old data, and the policy goes on training from where it is, which is its new reference.

Paper: Algorithm 1 of DeepSeekMath (2402.03300, 4.1.4): after each iteration the reward model is trained on with "10% of
historical data", here 10% of the rows that it was trained on before, and the reference is set to the policy. Departs from it in
that nothing is trained after the last round, which would serve nobody. Round 1 is stage 4 as it always was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from r1pipe.data.nano.rule import knows
from r1pipe.data.rows import Kind, Problem
from r1pipe.data.tables import content_id, read_problems, read_table
from r1pipe.errors import RecipeError
from r1pipe.rewards import Mix
from r1pipe.rewards.base import Reward
from r1pipe.rewards.labels import NAME, GeneralRule, Labels
from r1pipe.rewards.mix import Part, RewardSpec, load_reward
from r1pipe.rewards.preference import KINDS, PreferenceKind
from r1pipe.stage import StepConfig, StepContext
from r1pipe.stages.fresh import fresh_labels, fresh_pairs
from r1pipe.stages.mixed_rl import Config, RewardModelsConfig, judged_rows, train_mixed
from r1pipe.stages.sampling import sample_problems
from r1pipe.stages.sections import SamplingSection

Labeller = Literal["rule", "none"] | RewardSpec


class RoundsConfig(StepConfig):
    """`[mixed-rl.rounds]`: how often stage 4 is repeated, and what happens between two rounds."""

    count: PositiveInt = 1
    """Rounds of RL. From the second on, reward-models-N and train-N take the settings of reward-models and train, but for what
    sections of their own say ([mixed-rl.train-2])."""
    replay: float = Field(default=0.1, ge=0, le=1)
    """Share of the rows of earlier rounds that the reward models are trained on again (DeepSeekMath: 10%)."""
    optimizer_state: Literal["reset", "keep"] = "reset"
    """Whether the policy's optimizer (of PPO also the value model and its own) starts anew in each round or goes on."""
    prompts: int = Field(default=0, ge=0)
    """General prompts that the policy answers afresh; 0 takes all."""
    problems: int = Field(default=0, ge=0)
    """Problems that it answers afresh, too; the answer checker labels them, and right and wrong answers make pairs."""
    samples: int = Field(default=8, ge=2)
    """Answers to each."""
    engine: str = "transformers"
    temperature: PositiveFloat | None = None
    """Of these answers; by default that of mixed-rl.train."""
    max_tokens: PositiveInt | None = None
    """By default the length limit of mixed-rl.train."""
    problems_per_shard: PositiveInt = 256
    """A killed run owes only its unfinished shards."""
    helpfulness_labels: Labeller = "rule"
    """Who labels answers to helpfulness prompts: "rule" for the built-in ones, a reward by name or import path ({ name = "judge",
    options = {...} }), or "none": nobody, and the reward model stays as it is."""
    safety_labels: Labeller = "rule"
    """The same for safety prompts."""
    margin: float = Field(default=0.4, ge=0)
    """Two answers make a pair when their labels differ by more than this, and a response is safe or unsafe when its label is
    further from 0; in standard deviations of the judge. Labels of rules are 1 and -1."""


class FreshConfig(SamplingSection):
    """`[mixed-rl.fresh-N]`: fresh answers and their labels; from `[mixed-rl.rounds]`."""

    samples: int = Field(default=8, ge=2)
    prompts: int = Field(default=0, ge=0)
    problems: int = Field(default=0, ge=0)
    problems_per_shard: PositiveInt = 256
    helpfulness_labels: Labeller = "rule"
    safety_labels: Labeller = "rule"

    @property
    def adaptive(self) -> None:
        """Every prompt is asked the same number of times."""
        return


class LaterRewardModelsConfig(RewardModelsConfig):
    """`[mixed-rl.reward-models-N]`: as `[mixed-rl.reward-models]`, for training that goes on."""

    replay: float = Field(default=0.1, ge=0, le=1)
    margin: float = Field(default=0.4, ge=0)
    continued: tuple[PreferenceKind, ...] = KINDS
    """Which of them go on training; the others are taken over as they are."""

    @model_validator(mode="after")
    def _own_models_only(self) -> LaterRewardModelsConfig:
        for kind in self.continued:
            if getattr(self, kind).model:
                raise ValueError(
                    f"{kind}.model is a finished model from elsewhere, which later rounds do not train on: set "
                    f'mixed-rl.rounds.{kind}_labels = "none" (and problems = 0) to keep it as it is, or leave the model out'
                )
        return self


class LaterConfig(Config):
    """`[mixed-rl.train-N]`: as `[mixed-rl.train]`."""

    optimizer_state: Literal["reset", "keep"] = "reset"

    @model_validator(mode="after")
    def _fits_rounds(self) -> LaterConfig:
        if not self.general_share:
            raise ValueError(
                "general_share = 0 asks no general prompts, and so no reward model: rounds would train them for nothing; "
                "set mixed-rl.rounds.count = 1"
            )
        if self.start_from:
            raise ValueError(f"start_from ({self.start_from}) is for the first round: a later one goes on from the one before it")
        if self.lora is not None and self.optimizer_state == "keep":
            raise ValueError(
                'optimizer_state = "keep" and lora do not go together: a round ends by merging its adapter, and the next one '
                "begins with a new adapter, which the old moments say nothing of"
            )
        return self


def round_of(step: str) -> int:
    """The number of a step's round: 2 for "mixed-rl/train-2", 1 for "mixed-rl/train"."""
    last = step.rpartition("-")[2]
    return int(last) if last.isdigit() else 1


def round_seed(seed: int, number: int) -> int:
    """The seed of a round: the run's own in the first, so that one round is what it always was."""
    return seed if number == 1 else int(content_id("round of RL", str(seed), str(number))[:8], 16)


def fresh_settings(before: Mapping[str, StepConfig]) -> dict[str, Any]:
    """What `[mixed-rl.fresh-N]` inherits."""
    train, rounds = before.get("mixed-rl.train"), before.get("mixed-rl.rounds")
    if not isinstance(train, Config) or not isinstance(rounds, RoundsConfig):
        return {}
    own = {name: found for name, found in rounds.model_dump().items() if name in FreshConfig.model_fields and found is not None}
    return {"temperature": train.temperature, "max_tokens": train.longest_answer, **own}


def later_reward_models(before: Mapping[str, StepConfig]) -> dict[str, Any]:
    """What `[mixed-rl.reward-models-N]` inherits."""
    models, rounds = before.get("mixed-rl.reward-models"), before.get("mixed-rl.rounds")
    if models is None or not isinstance(rounds, RoundsConfig):
        return {}
    named = {kind for kind in KINDS if getattr(rounds, f"{kind}_labels") != "none"}
    continued = [kind for kind in KINDS if kind in named or (kind == "helpfulness" and rounds.problems)]
    return {**models.model_dump(exclude_unset=True), "replay": rounds.replay, "margin": rounds.margin, "continued": continued}


def later_training(before: Mapping[str, StepConfig]) -> dict[str, Any]:
    """What `[mixed-rl.train-N]` inherits."""
    train, rounds = before.get("mixed-rl.train"), before.get("mixed-rl.rounds")
    if train is None or not isinstance(rounds, RoundsConfig):
        return {}
    own = train.model_dump(exclude_unset=True, exclude={"start_from"})  # a later round starts from the one before it
    return {**own, "optimizer_state": rounds.optimizer_state}


def sample_fresh(context: StepContext) -> dict[str, Any]:
    """Fresh answers of the policy of the round before, each with its label; resumable shard by shard."""
    config: FreshConfig = context.config
    number = round_of(context.step.name)
    seed = round_seed(context.seed, number)
    general = _some(read_problems(context.inputs["general"]), config.prompts, f"general {seed}")
    refuse_unlabelled(config, general, context.step.name)
    asked = [*general, *_some(read_problems(context.inputs["problems"]), config.problems, f"problems {seed}")[: config.problems]]
    system = context.shared["chat"].system
    by_kind: dict[Kind, Reward] = {"verifiable": load_reward(*_named(context.shared["rewards"].accuracy))}
    for kind in KINDS:
        labels: Labeller = getattr(config, f"{kind}_labels")
        if labels == "rule":
            by_kind[kind] = GeneralRule()
        elif isinstance(labels, RewardSpec):
            by_kind[kind] = load_reward(labels.name, {**labels.options, "kind": kind, "system": system})
    mix = Mix((Part(NAME, Labels(by_kind), 1.0),))
    summary = sample_problems(replace(context, seed=seed), asked, mix)
    kinds = Counter(problem.kind for problem in asked)
    print(f"{context.step.name}: answers to {dict(kinds)}; labels: {summary['verdicts']}", flush=True)
    return {"round": number, "asked": dict(kinds), **summary}


def refuse_unlabelled(config: FreshConfig, general: Sequence[Problem], what: str) -> None:
    """Refuse to begin when nobody could label the answers to a kind of prompts.

    Raises:
        RecipeError: naming the kind, its source and the settings.
    """
    for kind in KINDS:
        unknown = [problem for problem in general if problem.kind == kind and not knows(problem)]
        if unknown and getattr(config, f"{kind}_labels") == "rule":
            raise RecipeError(
                f"{what}: no rule can label answers to {len(unknown)} {kind} prompts from {unknown[0].source or 'their source'}",
                unlabelled_hint(kind),
            )


def unlabelled_hint(kind: str) -> str:
    """What to set where no rule labels answers."""
    return (
        f'set mixed-rl.rounds.{kind}_labels to a judge ({{ name = "judge", options = {{ model = "NAME" }} }}), or to "none" to '
        f"keep the {kind} model as it is"
    )


def _named(spec: RewardSpec) -> tuple[str, Mapping[str, Any]]:
    return spec.name, spec.options


def _some(problems: Sequence[Problem], count: int, seed: str) -> list[Problem]:
    """So many of the problems, in their order; 0 takes all."""
    if not 0 < count < len(problems):
        return list(problems)
    places = sorted(random.Random(seed).sample(range(len(problems)), count))
    return [problems[place] for place in places]


def train_on_reward_models(context: StepContext) -> dict[str, Any]:
    """The reward models of the round before, trained on; one after the other, each resumable."""
    config: LaterRewardModelsConfig = context.config
    number = round_of(context.step.name)
    summary: dict[str, Any] = {"round": number}
    for kind in KINDS:
        summary[kind] = _go_on(context, config, kind, number)
    return summary


def _go_on(context: StepContext, config: LaterRewardModelsConfig, kind: PreferenceKind, number: int) -> dict[str, Any]:
    from r1pipe.train.reward_rounds import continue_reward_model, take_over

    former, what = context.inputs[kind], f"{kind} reward model, round {number}"
    if kind not in config.continued:
        return take_over(context, former, kind, "nobody labels answers for it", what)
    given = list(read_table(context.inputs["pairs" if kind == "helpfulness" else "labels"]))
    tables: list[list[dict[str, Any]]] = []
    counts: dict[str, int] = {}
    for name in sorted((name for name in context.inputs if name.startswith("fresh-")), key=round_of):
        made = fresh_pairs if kind == "helpfulness" else fresh_labels
        rows, counts = made(list(read_table(context.inputs[name])), config.margin)
        tables.append(rows)
    *earlier, fresh = tables
    old = judged_rows(context, kind, former, [*given, *(row for rows in earlier for row in rows)])
    return continue_reward_model(
        context, getattr(config, kind), former=former, fresh=judged_rows(context, kind, former, fresh), old=old,
        replay=config.replay, seed=round_seed(context.seed, number), output=kind, what=what, counts=counts,
    )  # fmt: skip


def run_round(context: StepContext) -> dict[str, Any]:
    """A later round of RL: from the policy of the round before, which is the reference, with the reward models of this round."""
    config: LaterConfig = context.config
    number = round_of(context.step.name)
    kept = config.optimizer_state == "keep"
    if kept and "optimizer" not in context.inputs:
        raise RecipeError(
            f'{context.step.name}: optimizer_state = "keep", and the round before has not written its optimizer',
            'set it for all rounds: mixed-rl.rounds.optimizer_state = "keep"',
        )
    summary = train_mixed(
        replace(context, seed=round_seed(context.seed, number)), f"mixed-rl round {number}",
        optimizer=context.inputs["optimizer"] if kept else None,
    )  # fmt: skip
    return {"round": number, "optimizer_state": config.optimizer_state, **summary}
