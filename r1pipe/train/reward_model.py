"""Reward models: the recipe's base with a scalar head.

Helpfulness learns from pairs (Bradley-Terry, TRL's reward trainer) and reads the question and the final summary only; safety
learns from labelled responses (pointwise, binary cross-entropy) and reads the whole response (3.1 of the paper). Rows of some
questions are held out; accuracy on them, with its interval, decides whether the model is good enough to be used, and mean and
spread of their scores become the scale on which RL sees them. Instead of training, a finished sequence classifier can be taken
(`r1pipe.train.adopted`): it is measured and refused by the same numbers.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
from trl import RewardConfig, RewardTrainer

from r1pipe.data.tables import content_id
from r1pipe.engines.text import load_tokenizer, pick_dtype
from r1pipe.errors import TrainingError
from r1pipe.manifest import write_atomic
from r1pipe.stage import StepContext
from r1pipe.train.adopted import take
from r1pipe.train.contract import try_judged
from r1pipe.train.grpo import common_arguments, lora_config
from r1pipe.train.measuring import label_numbers, pair_numbers
from r1pipe.train.run import enough_rows, is_main, make_watch, processes, run_training
from r1pipe.train.scorer import score_ids
from r1pipe.train.settings import DEFAULT_MICRO_BATCH, RewardModelSettings, micro_batches
from r1pipe.train.short import is_rehearsal, rehearsed

LENGTH_WARNING = 0.7
"""A correlation of score and length beyond this is said aloud: such a model rewards length."""
CHANCE = 0.5
"""Accuracy of a guess between two."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One row of preference data as token ids.

    Attributes:
        question: rows of the same question are held out together.
        better, worse: the preferred answer and, for pairs, the other one, each with its prompt.
        label: for labels: 1 safe, 0 unsafe.
        prompt_tokens: tokens of the prompt in both.
        group: a label for reports, e.g. the language.
    """

    question: str
    better: list[int]
    worse: list[int] | None = None
    label: float = 1.0
    prompt_tokens: int = 0
    group: str = ""


def split_by_question(rows: Sequence[Judged], share: float, seed: int) -> tuple[list[Judged], list[Judged]]:
    """(training rows, held-out rows): a question is on one side only; decided by a hash, so that it does not depend on order."""
    held = [int(content_id(str(seed), row.question), 16) % 10_000 < share * 10_000 for row in rows]
    return [row for row, out in zip(rows, held, strict=True) if not out], [
        row for row, out in zip(rows, held, strict=True) if out
    ]


def train_reward_model(
    context: StepContext, settings: RewardModelSettings, *, base: Path, rows: Sequence[Judged], output: str, what: str
) -> dict[str, Any]:
    """Train one reward model from pairs (rows with `worse`) or labels and write it to the step's output `output`.

    Returns:
        Summary: rows, and what `measure` found on the held-out ones.

    Raises:
        TrainingError: when no rows are left, or the held-out accuracy is not above the recipe's threshold with 95% certainty.
    """
    finished = measured_path(context, output)
    if finished.is_file():  # an earlier attempt of the step got this far
        measured: dict[str, Any] = json.loads(finished.read_text())
        return measured
    pairs = rows[0].worse is not None if rows else True
    given = len(rows)
    rows = [row for row in rows if row.better != row.worse]
    fitting = [row for row in rows if max(len(row.better), len(row.worse or [])) <= settings.max_tokens]
    training, held_out = split_by_question(fitting, settings.held_out_share, context.seed)
    training = list(rehearsed(training))
    if not training or not held_out:
        raise TrainingError(
            f"{what}: {len(rows)} rows leave {len(training)} for training and {len(held_out)} held out "
            f"(at most {settings.max_tokens} tokens each)",
            "give more rows, or raise max_tokens or held_out_share",
        )
    if not pairs:
        _both_labels(training, f"{what}: the {len(training)} rows to train on")
        _both_labels(held_out, f"{what}: the {len(held_out)} held-out rows")
    tokenizer = load_tokenizer(base)
    trained, steps = fit(context, settings, base=base, tokenizer=tokenizer, training=training, output=output, what=what)
    summary = {
        "rows": len(training), "rows_identical": given - len(rows), "rows_too_long": len(rows) - len(fitting),
        "steps": steps, **measure(trained, tokenizer.pad_token_id, held_out, pairs),
    }  # fmt: skip
    judge_numbers(summary, settings, what)
    hand_on(context, trained, tokenizer, output, summary)
    return summary


def _both_labels(rows: Sequence[Judged], whose: str) -> None:
    """Refuse labels that are all the same: whoever always says so would be right.

    Raises:
        TrainingError: they are.
    """
    safe = sum(row.label > 0.5 for row in rows)
    if safe in (0, len(rows)) and not is_rehearsal():
        raise TrainingError(
            f"{whose} are all labelled {'safe' if safe else 'unsafe'}: nothing can be learned or measured",
            "give labels of both kinds, safe and unsafe, or raise held_out_share",
        )


def fit(
    context: StepContext, settings: RewardModelSettings, *, base: Path, tokenizer: Any, training: Sequence[Judged], output: str,
    what: str,
) -> tuple[Any, int]:  # fmt: skip
    """(`base` trained on the rows, with adapters merged; optimizer steps). Resumable; a base without a head gets a fresh one."""
    pairs = training[0].worse is not None
    enough_rows(len(training), what)
    try_judged(tokenizer, [row.better for row in training] + [row.worse for row in training if row.worse], what)
    batch = min(settings.batch, len(training))
    batch -= batch % processes()
    steps = math.ceil(len(training) / batch) * settings.epochs
    micro, accumulation = micro_batches(batch, processes(), context.launch.micro_batch or DEFAULT_MICRO_BATCH)
    belongs_to = {**settings.model_dump(mode="json"), "rows": len(training), **context.input_digests}
    watch = make_watch(context, what, steps, 1, belongs_to, name=output)
    dtype = pick_dtype(context.launch.dtype)
    arguments = {
        "output_dir": str(watch.folder),
        "max_steps": steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "lr_scheduler_type": "cosine",
        **common_arguments(context, settings, dtype),
    }
    set_seed(context.seed)
    model = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1, dtype=dtype)
    model.config.pad_token_id = tokenizer.pad_token_id
    peft_config = lora_config(settings.lora, "SEQ_CLS")
    trainer = (
        _pair_trainer(model, arguments, training, tokenizer, peft_config, settings.centre)
        if pairs
        else _label_trainer(model, arguments, training, tokenizer, peft_config)
    )
    run_training(trainer, watch)
    trained = trainer.accelerator.unwrap_model(trainer.model)
    return (trained.merge_and_unload() if settings.lora is not None else trained), steps


def hand_on(context: StepContext, trained: Any, tokenizer: Any, output: str, summary: Mapping[str, Any]) -> None:
    """Write a reward model with its scale, then its numbers, and forget its checkpoints."""
    if not is_main():
        return
    folder = context.output(output)
    trained.config.r1pipe_scale = {"mean": summary["score_mean"], "spread": summary["score_spread"]}
    trained.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    write_atomic(measured_path(context, output), json.dumps(summary, indent=1).encode())
    shutil.rmtree(context.folder / "checkpoints" / output)


def measured_path(context: StepContext, output: str) -> Path:
    """The numbers of a reward model that is finished while its step is not."""
    return context.folder / f"{output}-measured.json"


def _pair_trainer(
    model: Any, arguments: dict[str, Any], rows: Sequence[Judged], tokenizer: Any, peft_config: Any, centre: float
) -> Any:
    data = Dataset.from_dict({"chosen_ids": [row.better for row in rows], "rejected_ids": [row.worse for row in rows]})
    return RewardTrainer(
        model=model,
        args=RewardConfig(max_length=None, center_rewards_coefficient=centre or None, **arguments),
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=peft_config,
    )


def _label_trainer(model: Any, arguments: dict[str, Any], rows: Sequence[Judged], tokenizer: Any, peft_config: Any) -> Any:
    """Pointwise: the library's own binary cross-entropy for one output, chosen by `problem_type`."""
    model.config.problem_type = "multi_label_classification"
    if peft_config is not None:
        from peft import get_peft_model

        model = get_peft_model(model, peft_config)
    data = Dataset.from_dict({"input_ids": [row.better for row in rows], "labels": [[row.label] for row in rows]})
    return Trainer(
        model=model,
        args=TrainingArguments(remove_unused_columns=False, **arguments),
        train_dataset=data,
        data_collator=DataCollatorWithPadding(tokenizer),
    )


def judge_numbers(summary: Mapping[str, Any], settings: RewardModelSettings, what: str) -> None:
    """Say what is odd about a reward model, and refuse one that is too bad to be used.

    Raises:
        TrainingError: its held-out accuracy is not above the recipe's threshold with 95% certainty.
    """
    if abs(summary["length_correlation"]) > LENGTH_WARNING:
        print(f"{what}: its scores follow length (correlation {summary['length_correlation']:.2f})", flush=True)
    low, least, whose = summary["accuracy_interval"][0], settings.min_accuracy_above, ""
    if least == CHANCE and summary.get("always", 0.0) > least:
        least, whose = summary["always"], ", which always saying the same would reach"
    if low <= least and not is_rehearsal():
        turned = ": chosen and rejected may be swapped" if summary["accuracy"] < CHANCE else ""
        output = f" (it reads output {settings.logit} of the model; logit names another)" if turned and settings.model else ""
        raise TrainingError(
            f"{what}: held-out accuracy {summary['accuracy']:.3f} (95% from {low:.3f}) is not above {least:.3g}"
            f"{whose}{turned}{output}",
            "give more or better rows, train longer, or lower min_accuracy_above in the recipe",
        )


def measure(model: Any, pad: int, rows: Sequence[Judged], pairs: bool, label: int = 0) -> dict[str, Any]:
    """A reward model's numbers on held-out rows; see `r1pipe.train.measuring`.

    Args:
        label: which output is the score, where a model has several; see `score_ids`.
    """
    better = _finite(score_ids(model, pad, [row.better for row in rows], label=label))
    groups = [row.group for row in rows]
    tokens = [len(row.better) - row.prompt_tokens for row in rows]
    if not pairs:
        return label_numbers(better, [row.label > 0.5 for row in rows], tokens, groups)
    worse = _finite(score_ids(model, pad, [row.worse or [] for row in rows], label=label))
    return pair_numbers(better, worse, tokens, [len(row.worse or []) - row.prompt_tokens for row in rows], groups)


def _finite(scores: list[float]) -> list[float]:
    """The scores, when all of them are numbers.

    Raises:
        TrainingError: some are not.
    """
    if odd := sum(not math.isfinite(score) for score in scores):
        raise TrainingError(
            f"the reward model gives {odd} of {len(scores)} held-out rows a score that is not finite: its weights are damaged, "
            "or it cannot compute in this dtype",
            "fetch the model again, or set launch.dtype to float32",
        )
    return scores


def adopt_reward_model(
    context: StepContext, settings: RewardModelSettings, *, rows: Sequence[Judged], folder: Path, model: Any, tokenizer: Any,
    output: str, what: str,
) -> dict[str, Any]:  # fmt: skip
    """Measure a reward model from elsewhere on the rows, refuse it if it is too bad, and write it to the step's output.

    Args:
        rows: as the model reads them; all of them are held out, since none is trained on.

    Raises:
        TrainingError: no row is left, or the accuracy is not above the recipe's threshold with 95% certainty.
    """
    differing = [row for row in rows if row.better != row.worse]
    fitting = [row for row in differing if max(len(row.better), len(row.worse or [])) <= settings.max_tokens]
    if not fitting:
        raise TrainingError(f"{what}: none of {len(rows)} rows can be judged", "give more rows, or raise max_tokens")
    if fitting[0].worse is None:
        _both_labels(fitting, f"{what}: the {len(fitting)} rows to judge by")
    numbers = measure(model, tokenizer.pad_token_id, fitting, fitting[0].worse is not None, settings.logit)
    summary = {
        "model": settings.model, "rows": 0, "rows_identical": len(rows) - len(differing),
        "rows_too_long": len(differing) - len(fitting), "steps": 0, **numbers,
    }  # fmt: skip
    judge_numbers(summary, settings, what)
    if is_main():
        take(
            folder, context.output(output), settings.logit, summary["score_mean"], summary["score_spread"], tokenizer.pad_token_id
        )
    return summary
