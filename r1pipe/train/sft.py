"""Supervised fine-tuning by TRL's trainer, on rows that were tokenised and checked by us.

Rows are given to the trainer as token ids and labels, so nothing is truncated, packed or re-rendered on the way: each row's
labels decode to the whole response and end with the end-of-turn token (checked for every row before anything is trained).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from r1pipe.engines.text import fitting_rows, load_model, load_tokenizer, pick_dtype, prompt_ids, training_row, turn_end
from r1pipe.errors import TrainingError
from r1pipe.stage import StepContext
from r1pipe.train.contract import try_examples
from r1pipe.train.grpo import common_arguments, lora_config
from r1pipe.train.prompts import percentile_90, write_lengths
from r1pipe.train.run import enough_rows, is_main, make_watch, processes, run_training, save_final
from r1pipe.train.settings import DEFAULT_MICRO_BATCH, SftSettings, micro_batches
from r1pipe.train.short import rehearsed


def train_sft(
    context: StepContext, settings: SftSettings, *, model: Path, examples: Sequence[tuple[str, str]], system: str, what: str
) -> dict[str, Any]:
    """Fine-tune `model` on (question, response) examples and write the result to the step's output `model`.

    Returns:
        Summary for the manifest: rows, rows left out for length, steps, tokens, the first prompt as rendered.

    Raises:
        TrainingError: when no row fits, or a response does not survive tokenisation.
    """
    examples = rehearsed(examples)
    tokenizer = load_tokenizer(model)
    turn_end(tokenizer)
    try_examples(tokenizer, model, examples, system, what)
    rows, left_out = fitting_rows(
        [training_row(tokenizer, question, system, response) for question, response in examples], settings.max_tokens
    )
    if not rows:
        raise TrainingError(
            f"{what}: none of {len(examples)} rows fits into max_tokens = {settings.max_tokens}", "raise max_tokens in the recipe"
        )
    enough_rows(len(rows), what)
    if left_out:
        print(
            f"{what}: {left_out} of {len(examples)} rows are longer than {settings.max_tokens} tokens and are left out",
            flush=True,
        )
    batch = min(settings.batch, len(rows))
    batch -= batch % processes()
    steps_per_epoch = math.ceil(len(rows) / batch)
    steps = steps_per_epoch * settings.epochs
    micro, accumulation = micro_batches(batch, processes(), context.launch.micro_batch or DEFAULT_MICRO_BATCH)
    dtype = pick_dtype(context.launch.dtype)
    belongs_to = {**settings.model_dump(mode="json"), "rows": len(rows), **context.input_digests}
    watch = make_watch(context, what, steps, 1, belongs_to)
    arguments = SFTConfig(
        output_dir=str(watch.folder),
        max_steps=steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulation,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": settings.final_learning_rate_share},
        **common_arguments(context, settings, dtype),
    )
    data = Dataset.from_dict({"input_ids": [row.input_ids for row in rows], "labels": [row.labels for row in rows]})
    trainer = SFTTrainer(
        model=load_model(model, dtype),
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=lora_config(settings.lora, "CAUSAL_LM"),
    )
    done = run_training(trainer, watch)
    save_final(trainer, tokenizer, context.output("model"), merge=settings.lora is not None)
    answers = sorted(sum(label != -100 for label in row.labels) for row in rows)
    if is_main():
        write_lengths(context.output("model"), answers)
    return {
        "steps": steps,
        "steps_in_last_attempt": done,
        "rows": len(rows),
        "rows_too_long": left_out,
        "prompt": tokenizer.decode(prompt_ids(tokenizer, examples[0][0], system)),
        "answer_tokens_p90": percentile_90(answers),
        "batch": batch,
        "tokens": sum(len(row.input_ids) for row in rows) * settings.epochs,
        "dtype": str(dtype).removeprefix("torch."),
    }
