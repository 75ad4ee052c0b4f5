"""GRPO as the paper has it, by TRL's trainer.

What TRL does not do by default is set by name: the paper's loss (mean over each answer's tokens), a KL term with its
reference, no bias correction, float32 on a CPU, no dropout. What TRL does not do at all is done around it: the reference
policy is part of every checkpoint, checkpoints fall on rollout boundaries, and the order of prompts is fixed beforehand
(`r1pipe.data.schedule`), so that a resumed run is the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from r1pipe.data.chat import messages
from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.schedule import Order
from r1pipe.engines.text import end_tokens, load_tokenizer, pick_dtype, prompt_ids, prompt_prefix, turn_end
from r1pipe.errors import TrainingError
from r1pipe.rewards import Mix
from r1pipe.rewards.length import OverlongPenalty
from r1pipe.rewards.mix import Part
from r1pipe.stage import StepContext
from r1pipe.trackers import PROJECT
from r1pipe.train.adjusting import objective_of, set_token_limit, silence_dropout
from r1pipe.train.advantages import advantages
from r1pipe.train.agreement import PROMPTS, agreed_ends, check_agreement
from r1pipe.train.carried import OPTIMIZER, Carried
from r1pipe.train.contract import try_prompts, without_effect
from r1pipe.train.held_out import HeldOut
from r1pipe.train.methods.begin import begin_method
from r1pipe.train.methods.trainer import MethodTrainer
from r1pipe.train.pool import PromptPool
from r1pipe.train.prompts import short_limit
from r1pipe.train.reference import SecondAdapter, WholeModel
from r1pipe.train.rollouts import RolloutScorer
from r1pipe.train.run import is_main, make_watch, processes, rank, run_training, save_final
from r1pipe.train.scoring_time import busiest_rollout, check_scoring_time
from r1pipe.train.settings import DEFAULT_MICRO_BATCH, GrpoSettings, LoraSettings
from r1pipe.train.watch import Watch


def lora_config(lora: LoraSettings | None, task: str) -> LoraConfig | None:
    """peft's config for our settings; no dropout, which would make the ratio differ from one at the first pass."""
    if lora is None:
        return None
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    return LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type=task)


def common_arguments(context: StepContext, settings: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Trainer arguments that are the same for every kind of training."""
    on_cpu = not torch.cuda.is_available()
    if torch.cuda.device_count() > 1 and processes() == 1:
        raise TrainingError(
            f"{torch.cuda.device_count()} GPUs are visible and one process would train on them",
            f"set launch.processes = {torch.cuda.device_count()}, or make one visible with CUDA_VISIBLE_DEVICES=0",
        )
    return {
        "seed": context.seed,
        "data_seed": context.seed,
        "use_cpu": on_cpu,
        "bf16": dtype is torch.bfloat16,
        "fp16": False,
        "ddp_backend": "gloo" if on_cpu and processes() > 1 else None,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.optimizer.weight_decay,
        "adam_beta1": settings.optimizer.adam_beta1,
        "adam_beta2": settings.optimizer.adam_beta2,
        "max_grad_norm": settings.optimizer.max_grad_norm,
        "warmup_steps": settings.optimizer.warmup_steps,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "logging_first_step": True,
        "save_strategy": "no",  # the callback asks for checkpoints, at boundaries only
        "report_to": list(context.launch.report_to) or "none",
        "run_name": f"{context.step.name}-{context.seed}",
        "project": PROJECT,
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "gradient_checkpointing": context.launch.gradient_checkpointing,
        "ddp_timeout": round(60 * context.launch.collective_minutes),
    }


def reference_of(trainer: GRPOTrainer, settings: GrpoSettings) -> WholeModel | SecondAdapter | None:
    """The reference policy of a trainer; None when there is none, or it is the input model for good (adapters switched off)."""
    if trainer.ref_model is not None:
        return WholeModel(trainer.accelerator.unwrap_model(trainer.ref_model))
    if settings.lora and settings.kl and settings.refresh_reference:
        return SecondAdapter(trainer.accelerator.unwrap_model(trainer.model))
    return None


def _agree(trainer: GRPOTrainer, watch: Watch, pool: PromptPool, settings: GrpoSettings, system: str) -> None:
    """Compare sampling and training on the first prompts of the rollout that comes next, and write down how far they agree."""
    rows = pool.order_now().rollouts[watch.first_step // settings.minibatches][:PROMPTS]
    prompts = [prompt_ids(trainer.processing_class, pool.problems[row].question, system) for row in rows]
    found = check_agreement(trainer, prompts, settings.temperature, settings.top_p)
    if found and is_main():
        watch.metrics.write({"kind": "agreement", "step": watch.first_step, "log_probs": found})


def prompts_in_order(pool: PromptPool, system: str) -> Dataset:
    """The prompts as the trainer takes them, one after the other; looked up when they are fetched where the order may change."""

    def rows(places: dict[str, list[int]]) -> dict[str, list[Any]]:
        found = [pool.row_at(place) for place in places["place"]]
        return {"prompt": [messages(pool.problems[row].question, system) for row in found], "row": found}

    places = {"place": list(range(sum(map(len, pool.order.rollouts))))}
    return Dataset.from_dict(places).with_transform(rows) if pool.drop else Dataset.from_dict(rows(places))


def train_grpo(
    context: StepContext,
    settings: GrpoSettings,
    *,
    policy: Path,
    problems: Sequence[Problem],
    order: Order,
    mix: Mix,
    system: str,
    what: str,
    chat_template: str = "",
    held_out: HeldOut | None = None,
    optimizer: Path | None = None,
) -> dict[str, Any]:
    """Train `policy` on `problems` in `order` and write the model to the step's output `model`.

    Args:
        chat_template: renders prompts instead of the policy's own, and goes into the model that is written; empty for its own.
        held_out: problems that the policy is looked at with on the way; None for no looks.
        optimizer: what an earlier round left of its optimizer; None begins with a fresh one. It is left for the next round when
            the step promises an output `optimizer`.

    Returns:
        Summary for the manifest: steps, answers, tokens (prompt and completion), epochs, the objective as the trainer had it, the
        first prompt as rendered, and notices.

    Raises:
        Stopped, TrainingError: see `run_training`.
    """
    tokenizer = load_tokenizer(policy)
    tokenizer.chat_template = chat_template or tokenizer.chat_template
    turn_end(tokenizer)
    tokenizer.padding_side = "left"
    dtype = pick_dtype(context.launch.dtype)
    micro, accumulation = settings.split(processes(), context.launch.micro_batch or DEFAULT_MICRO_BATCH)
    chosen = settings.model_dump(mode="json", exclude={"method"} if settings.method == "grpo" else None)
    belongs_to = {**chosen, "problems": len(problems), **context.made_from}
    watch = make_watch(context, what, settings.steps, settings.minibatches, belongs_to)
    if is_main():
        odd_ones = without_effect(settings, mix, context.launch.guards, accumulation)
        for odd in [*odd_ones, *try_prompts(tokenizer, policy, problems, mix, system, settings.longest_answer, what)]:
            watch.notice(0, odd)
        check_scoring_time(what, busiest_rollout(problems, order, settings.group), processes(), context.launch.collective_minutes)
    notices = [notice for notice in (short_limit(policy, settings.longest_answer),) if notice]
    for notice in notices:
        print(f"{what}: {notice}", flush=True)
    pool = watch.extra = PromptPool(problems, order, settings.drop_always_right)
    data = prompts_in_order(pool, system)
    arguments = GRPOConfig(
        output_dir=str(watch.folder),
        max_steps=settings.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation * settings.minibatches,
        num_generations=settings.group,
        num_iterations=1,
        shuffle_dataset=False,  # the order is ours
        max_completion_length=settings.max_completion_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=0,
        beta=settings.kl,
        epsilon=settings.clip,
        epsilon_high=settings.upper_clip,
        loss_type=settings.loss,
        scale_rewards="none" if own_advantages(settings) else settings.advantage_scale,
        importance_sampling_level=settings.ratio,
        mask_truncated_completions=settings.truncated == "mask",
        use_bias_correction_kl=False,
        disable_dropout=True,
        sync_ref_model=bool(settings.refresh_reference and settings.kl and settings.lora is None),
        ref_model_sync_steps=settings.refresh_reference or 1,
        ref_model_mixup_alpha=1.0,
        lr_scheduler_type=settings.schedule,
        model_init_kwargs={"dtype": str(dtype).removeprefix("torch.")},
        **common_arguments(context, settings, dtype),
    )
    scorer = RolloutScorer(
        problems=problems,
        mix=with_overlong_penalty(mix, settings),
        tokenizer=tokenizer,
        prefix=prompt_prefix(tokenizer, system),
        group=settings.group,
        minibatches=settings.minibatches,
        folder=context.folder / "rollouts",
        keep=context.launch.keep_attempts,
        metrics=watch.metrics,
        live=watch.live,
        main_process=is_main(),
        shape=partial(shape_rollout, settings) if own_advantages(settings) else None,
        pool=pool,
        observe=watch.observe,
    )
    trainer = (GRPOTrainer if settings.method == "grpo" else MethodTrainer)(
        model=str(policy),
        reward_funcs=[scorer],
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=lora_config(settings.lora, "CAUSAL_LM"),
    )
    silence_dropout(trainer.model)
    if isinstance(trainer, MethodTrainer):
        begin_method(trainer, settings, policy, scorer, system, dtype, watch)
    scorer.ends = agreed_ends(trainer, end_tokens(tokenizer, policy))
    watch.before_step = partial(set_token_limit, trainer, settings)
    watch.reference = reference_of(trainer, settings)
    watch.refresh = settings.refresh_reference if watch.reference is not None else 0
    watch.evidence = scorer.evidence
    carried = Carried(trainer, what)
    if optimizer is not None or OPTIMIZER in context.step.writes:
        carried.refuse_spread()

    def at_start() -> None:
        if optimizer is not None and not watch.first_step:
            carried.take_up(optimizer)
        _agree(trainer, watch, pool, settings, system)

    watch.at_start = at_start
    if held_out is not None:
        held_out.watching(trainer, watch, settings)
    done = run_training(trainer, watch)
    if OPTIMIZER in context.step.writes and is_main():
        carried.leave(context.output(OPTIMIZER))
    save_final(trainer, tokenizer, context.output("model"), merge=settings.lora is not None)
    return {
        "steps": settings.steps,
        "steps_in_last_attempt": done,
        "answers": settings.steps * settings.answers_per_step,
        "tokens": int(trainer.state.num_input_tokens_seen),
        "epochs": pool.order_now().epochs,
        "prompts": pool.report(context.folder) if is_main() else {},
        "dtype": str(dtype).removeprefix("torch."),
        "objective": {
            "method": settings.method,
            **objective_of(trainer),
            "advantages_by": "trl" if settings.method == "grpo" and not own_advantages(settings) else "r1pipe",
        },
        "prompt": tokenizer.decode(prompt_ids(tokenizer, problems[order.rollouts[0][0]].question, system)),
        "notices": notices,
    }


def own_advantages(settings: GrpoSettings) -> bool:
    """Whether the recipe asks for advantages that TRL does not make of totals; see `r1pipe.train.advantages`."""
    return settings.advantage_floor > 0 or settings.flat_groups == "leave-out"


def shape_rollout(settings: GrpoSettings, totals: list[float | None], attempts: list[Attempt]) -> list[float | None]:
    """Advantages of this process's answers, made over the answers of all processes."""
    masked = settings.truncated == "mask"
    tokens = [0 if masked and attempt.finish == "length" else attempt.tokens for attempt in attempts]
    rows = list(zip(totals, tokens, strict=True))
    everyone = gather_object(rows) if processes() > 1 else rows
    made = advantages(
        [total for total, _ in everyone],
        [count for _, count in everyone],
        group=settings.group,
        scale=settings.advantage_scale,
        floor=settings.advantage_floor,
        leave_out_flat=settings.flat_groups == "leave-out",
        token_mean=settings.loss in ("dapo", "bnpo", "cispo"),
    )
    return made[rank() * len(rows) : (rank() + 1) * len(rows)]


def with_overlong_penalty(mix: Mix, settings: GrpoSettings) -> Mix:
    """The mix, with the penalty before the length limit when the recipe has one."""
    if not settings.overlong_share:
        return mix
    limit = settings.max_completion_tokens
    penalty = OverlongPenalty(limit_tokens=limit, buffer_tokens=max(1, round(limit * settings.overlong_share)))
    return Mix((*mix.parts, Part("overlong", penalty, 1.0)))
