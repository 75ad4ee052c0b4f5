"""Reward models: the recipe's base with a scalar head.

Helpfulness learns from pairs (Bradley-Terry, TRL's reward trainer) and reads the question and the final summary only; safety
learns from labelled responses (pointwise, binary cross-entropy) and reads the whole response (3.1 of the paper). Rows of some
questions are held out; accuracy on them, with its interval, decides whether the model is good enough to be used, and mean and
spread of their scores become the scale on which RL sees them.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
from trl import RewardConfig, RewardTrainer

from r1pipe.data.tables import content_id
from r1pipe.engines.text import load_tokenizer, pick_dtype
from r1pipe.errors import TrainingError
from r1pipe.intervals import correlation, wilson
from r1pipe.manifest import write_atomic
from r1pipe.stage import StepContext
from r1pipe.train.contract import try_judged
from r1pipe.train.grpo import common_arguments, lora_config
from r1pipe.train.run import is_main, make_watch, processes, run_training
from r1pipe.train.scorer import score_ids
from r1pipe.train.settings import DEFAULT_MICRO_BATCH, RewardModelSettings, micro_batches
from r1pipe.train.short import is_rehearsal, rehearsed

LENGTH_WARNING = 0.7
"""A correlation of score and length beyond this is said aloud: such a model rewards length."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One row of preference data as token ids: `better` and, for pairs, `worse`; for labels, `label` (1 safe, 0 unsafe)."""

    question: str
    better: list[int]
    worse: list[int] | None = None
    label: float = 1.0


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
        Summary: rows, held-out accuracy with interval, mean and spread of held-out scores, correlation of score and length.

    Raises:
        TrainingError: when no rows are left, or the held-out accuracy is not above the recipe's threshold with 95% certainty.
    """
    finished = context.folder / f"{output}-measured.json"
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
    tokenizer = load_tokenizer(base)
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
        _pair_trainer(model, arguments, training, tokenizer, peft_config)
        if pairs
        else _label_trainer(model, arguments, training, tokenizer, peft_config)
    )
    run_training(trainer, watch)
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if settings.lora is not None:
        trained = trained.merge_and_unload()
    summary = measure(trained, tokenizer, held_out, pairs)
    summary = {
        "rows": len(training), "rows_identical": given - len(rows), "rows_too_long": len(rows) - len(fitting),
        "steps": steps, **summary,
    }  # fmt: skip
    if abs(summary["length_correlation"]) > LENGTH_WARNING:
        print(f"{what}: its scores follow length (correlation {summary['length_correlation']:.2f})", flush=True)
    low = summary["accuracy_interval"][0]
    if low <= settings.min_accuracy_above and not is_rehearsal():
        swapped = ": chosen and rejected may be swapped" if summary["accuracy"] < 0.5 else ""
        raise TrainingError(
            f"{what}: held-out accuracy {summary['accuracy']:.3f} (95% from {low:.3f}) is not above "
            f"{settings.min_accuracy_above}{swapped}",
            "give more or better rows, train longer, or lower min_accuracy_above in the recipe",
        )
    if is_main():
        folder = context.output(output)
        trained.config.r1pipe_scale = {"mean": summary["score_mean"], "spread": summary["score_spread"]}
        trained.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
        write_atomic(finished, json.dumps(summary, indent=1).encode())
        shutil.rmtree(watch.folder)
    return summary


def _pair_trainer(model: Any, arguments: dict[str, Any], rows: Sequence[Judged], tokenizer: Any, peft_config: Any) -> Any:
    data = Dataset.from_dict({"chosen_ids": [row.better for row in rows], "rejected_ids": [row.worse for row in rows]})
    return RewardTrainer(
        model=model,
        args=RewardConfig(max_length=None, **arguments),
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


def measure(model: Any, tokenizer: Any, rows: Sequence[Judged], pairs: bool) -> dict[str, Any]:
    """Held-out accuracy (pairs: better scores above worse; labels: the sign is right), its 95% Wilson interval, scale, length
    bias."""
    scores = score_ids(model, tokenizer.pad_token_id, [row.better for row in rows])
    lengths = [float(len(row.better)) for row in rows]
    if pairs:
        worse = score_ids(model, tokenizer.pad_token_id, [row.worse or [] for row in rows])
        right = sum(high > low for high, low in zip(scores, worse, strict=True))
        longer = sum(len(row.better) > len(row.worse or []) for row in rows) / len(rows)
        every, lengths = [*scores, *worse], [*lengths, *(float(len(row.worse or [])) for row in rows)]
    else:
        right = sum((score > 0) == (row.label > 0.5) for score, row in zip(scores, rows, strict=True))
        longer, every = None, scores
    mean = math.fsum(every) / len(every)
    spread = math.sqrt(math.fsum((score - mean) ** 2 for score in every) / len(every))
    return {
        "held_out": len(rows),
        "accuracy": right / len(rows),
        "accuracy_interval": list(wilson(right, len(rows))),
        "score_mean": mean,
        "score_spread": spread,
        "length_correlation": correlation(every, lengths),
        "longer_wins_share": longer,
    }
