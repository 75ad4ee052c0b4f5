"""The arithmetic of a recipe: how many rollouts, answers and tokens each step comes to, before anything starts."""

from __future__ import annotations

import os
from typing import Any

from r1pipe.console import setting, value
from r1pipe.errors import R1PipeError
from r1pipe.recipe import Launch
from r1pipe.rewards.preference import KINDS
from r1pipe.stage import Step
from r1pipe.stages.evaluate import Config as EvaluateConfig
from r1pipe.stages.evaluate import checkpoints_of
from r1pipe.stages.iterating import FreshConfig, LaterConfig, LaterRewardModelsConfig, round_of
from r1pipe.stages.mixed_rl import Config as MixedConfig
from r1pipe.stages.mixed_rl import RewardModelsConfig
from r1pipe.stages.prepare import ZeroConfig as PrepareConfig
from r1pipe.stages.sampling import SampleConfig
from r1pipe.stages.schema import SourceSpec
from r1pipe.stages.sections import SamplingSection
from r1pipe.stages.selection.settings import SelectConfig
from r1pipe.stages.traces import Config as TracesConfig
from r1pipe.stages.traces import rewriting_note
from r1pipe.stages.zero import Config as ZeroConfig
from r1pipe.train.settings import DEFAULT_MICRO_BATCH, GrpoSettings, LoraSettings, RewardModelSettings, SftSettings, micro_batches


def amounts(step: Step, config: Any, launch: Launch) -> list[str]:
    """What a step comes to, one sentence each; empty for steps of another kind.

    Raises:
        ValueError: the batch cannot be split over the processes; with the arithmetic.
    """
    if isinstance(config, LaterConfig):
        number = round_of(step.name)
        state = "with its optimizer's state" if config.optimizer_state == "keep" else "with a fresh optimizer"
        return [
            *_grpo(config, launch),
            f"round {number} goes on from the policy of round {number - 1}, its reference now, {state}",
        ]
    if isinstance(config, GrpoSettings):
        return _grpo(config, launch)
    if isinstance(config, SftSettings):
        return [
            f"{config.epochs} epochs in batches of {value(config.batch)} rows{_split(config.batch, launch)}",
            *_adapters(config.lora),
        ]
    if isinstance(config, RewardModelsConfig):
        models = {"helpfulness": config.helpfulness, "safety": config.safety}
        lines = [_reward_model(name, settings, launch) for name, settings in models.items()]
        return _continued(config, lines) if isinstance(config, LaterRewardModelsConfig) else lines
    if isinstance(config, PrepareConfig):
        tables = [(name, getattr(config, name)) for name in type(config).model_fields]
        sources = dict.fromkeys(spec.source for _, spec in tables)
        return [
            f"from {source}: {', '.join(_rows(name, spec) for name, spec in tables if spec.source == source)}"
            for source in sources
        ]
    if isinstance(config, EvaluateConfig):
        questions = config.problems + (config.general if "general_evaluation" in step.reads else 0)
        checkpoints = len(checkpoints_of(step.reads))
        answers = questions * config.samples * checkpoints
        arithmetic = f"{checkpoints} checkpoints × {value(questions)} questions × {config.samples} samples"
        return [f"{arithmetic} = {value(answers)} answers, {_tokens(answers, config.max_tokens)}"]
    if isinstance(config, FreshConfig):
        return _fresh(config)
    if isinstance(config, SampleConfig):
        most = f"{'at most ' if config.adaptive else ''}{config.samples} samples"
        if not config.problems:
            return [f"every problem × {most}, in shards of {value(config.problems_per_shard)} problems", *_adaptive(config)]
        answers, shards = config.problems * config.samples, -(-config.problems // config.problems_per_shard)
        arithmetic = f"{value(config.problems)} problems × {most} = {value(answers)} answers in {shards} shards"
        return [f"{arithmetic}, {_tokens(answers, config.max_tokens)}", *_adaptive(config)]
    if isinstance(config, TracesConfig):
        most = f"at most {value(config.most)} traces" if config.most else "every usable trace"
        return [f"{most}, {config.keep_per_problem} of a problem; rewriting: {rewriting_note(config.rewrite)}"]
    return []


def _fresh(config: FreshConfig) -> list[str]:
    """What is asked between two rounds, and who labels it."""
    prompts = f"{value(config.prompts)} general prompts" if config.prompts else "every general prompt"
    problems = f" and {value(config.problems)} problems" if config.problems else ""
    labels = {kind: getattr(config, f"{kind}_labels") for kind in KINDS}
    who = ", ".join(f"{kind} by {found if isinstance(found, str) else found.name}" for kind, found in labels.items())
    return [f"{prompts}{problems} × {config.samples} answers of the policy, labelled: {who}"]


def _continued(config: LaterRewardModelsConfig, lines: list[str]) -> list[str]:
    """Reward models of a later round: which go on, and on what."""
    kept = [f"{kind}: taken over as it is" for kind in KINDS if kind not in config.continued]
    trained = [line for line in lines if line.partition(":")[0] in config.continued]
    what = f"on from the round before, with fresh answers of its policy and {config.replay:.0%} of the old rows"
    return [*trained, *kept, *([what] if trained else [])]


def _adaptive(config: SampleConfig) -> list[str]:
    """When a problem is asked no more, where that is not after a fixed number of answers."""
    if (own := config.adaptive) is None:
        return []
    hopeless = f", none after {own.hopeless_after} without a right one" if own.hopeless_after else ""
    budget = f", {value(own.budget_tokens)} tokens in all" if own.budget_tokens else ""
    return [f"in rounds of {own.per_round}; a problem is asked no more after {own.enough} usable answers{hopeless}{budget}"]


def engines_of(config: Any) -> list[str]:
    """The engines that a step opens, by name."""
    if isinstance(config, SamplingSection):
        return [config.engine]
    named = config.rewrite if isinstance(config, TracesConfig) else config.judge if isinstance(config, SelectConfig) else None
    return [named.engine] if named is not None and named.engine else []


def engine_problems(config: Any, launch: Launch) -> list[str]:
    """Why a step could not start here because of its engine, and what to type; empty when it could."""
    from r1pipe.engines.needs import check_engine

    problems = []
    for engine in engines_of(config):
        try:
            check_engine(engine, {**os.environ, **launch.env})
        except R1PipeError as error:
            problems.append(f"{error.problem}: {error.hint}" if error.hint else error.problem)
    return problems


def _rows(name: str, spec: SourceSpec) -> str:
    return f"{value(spec.count) if spec.count else 'all'} {name.replace('_', ' ')}"


def _grpo(config: GrpoSettings, launch: Launch) -> list[str]:
    answers = config.questions_per_rollout * config.group
    total = answers * config.rollouts
    steps = f"{value(config.steps)} steps = {value(config.rollouts)} rollouts × {config.minibatches} minibatches"
    rollout = f"{value(config.questions_per_rollout)} questions × {config.group} answers = {value(answers)}"
    split = config.split(launch.processes, launch.micro_batch or DEFAULT_MICRO_BATCH)
    early = config.rollouts if config.raise_step is None else config.raise_step // config.minibatches
    tokens = answers * (early * config.max_completion_tokens + (config.rollouts - early) * config.longest_answer)
    lines = [
        f"{steps}{_passes(config.answers_per_step, split, launch)}",
        f"{rollout} answers a rollout, {value(total)} in all, at most {value(tokens)} tokens",
    ]
    if config.start_from:
        lines.append(f"starts from {config.start_from}, not from what the step before made")
    if config.raise_step is not None:
        limits = f"from {value(config.max_completion_tokens)} to {value(config.longest_answer)} tokens"
        lines.append(f"the length limit is raised {limits} at step {config.raise_step}")
    lines += _adapters(config.lora)
    if objective := _objective(config):
        lines.append(objective)
    if config.kl and config.refresh_reference and config.refresh_reference < config.steps:
        refreshes = (config.steps - 1) // config.refresh_reference
        often = "once" if refreshes == 1 else f"{refreshes} times"
        lines.append(f"the reference is replaced by the policy every {config.refresh_reference} steps, {often}")
    if isinstance(config, ZeroConfig):
        asked = "the paper's plain conversation" if config.template == "conversation" else "the base's own chat template"
        language = f"rewarded with weight {config.language.weight:g}" if config.language.weight else "measured and not rewarded"
        lines.append(f"questions are put in {asked}; language consistency is {language}")
    if isinstance(config, MixedConfig):
        share = f"{config.general_share:.0%} of the questions are general from then on"
        lines.append(f"preference rewards join at step {config.switch_step} of {config.steps}; {share}")
    return lines


def _adapters(lora: LoraSettings | None) -> list[str]:
    """What is trained, when it is not all weights."""
    return [f"adapters of rank {lora.rank} are trained, and merged into the model that is handed on"] if lora else []


def _objective(config: GrpoSettings) -> str:
    """The objective where it is another than the paper's; how often the reference is replaced is said apart."""
    own = {key: found for key, found in config.beside_the_preset.items() if key != "refresh_reference"}
    if config.preset == "paper" and not own:
        return ""
    but = f", but for {', '.join(f'{key}={setting(found)}' for key, found in own.items())}, which the recipe sets" if own else ""
    return f"the objective is that of preset {config.preset}{but}"


def _reward_model(name: str, settings: RewardModelSettings, launch: Launch) -> str:
    held_out = f"{settings.held_out_share:.0%} of the questions held out"
    return (
        f"{name}: {settings.epochs} epochs in batches of {value(settings.batch)} rows, {held_out}{_split(settings.batch, launch)}"
    )


def _split(batch: int, launch: Launch) -> str:
    """How a batch is gone through, when it is not in one go."""
    return _passes(batch, micro_batches(batch, launch.processes, launch.micro_batch or DEFAULT_MICRO_BATCH), launch)


def _passes(batch: int, split: tuple[int, int], launch: Launch) -> str:
    rows, passes = split
    if launch.processes == 1 and passes == 1:
        return ""
    processes = f"{launch.processes} processes × " if launch.processes > 1 else ""
    return f" (a batch of {value(batch)} = {processes}{passes} passes × {rows} rows)"


def _tokens(answers: int, most: int) -> str:
    return f"at most {value(answers * most)} tokens"
