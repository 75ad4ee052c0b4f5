"""Whether a prompt and its answer fit into the model, and whether the length limit fits what the model has learnt to write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoConfig

from r1pipe.data.rows import Problem
from r1pipe.engines.text import load_tokenizer, prompt_ids
from r1pipe.errors import TrainingError
from r1pipe.train.run import is_main

LENGTHS = "answer_lengths.json"
"""In a model's folder: how long the answers are that it was fine-tuned on."""
SHOWN = 10


def fitting_problems(
    policy: Path, problems: Sequence[Problem], system: str, answer_tokens: int, what: str, chat_template: str = ""
) -> tuple[list[Problem], list[str]]:
    """The problems whose prompt leaves room for an answer of `answer_tokens` within the model's positions, and the ids of the
    others. No trainer looks at this: a model that runs past its positions writes rubbish and is trained on it.

    Args:
        chat_template: renders prompts instead of the policy's own; empty for its own.

    Raises:
        TrainingError: when no problem fits.
    """
    positions = getattr(AutoConfig.from_pretrained(str(policy)).get_text_config(), "max_position_embeddings", None)
    if not positions:
        return list(problems), []
    tokenizer = load_tokenizer(policy)
    tokenizer.chat_template = chat_template or tokenizer.chat_template
    lengths = [len(prompt_ids(tokenizer, problem.question, system)) for problem in problems]
    room = positions - answer_tokens
    kept = [problem for problem, length in zip(problems, lengths, strict=True) if length <= room]
    left_out = [(problem.id, length) for problem, length in zip(problems, lengths, strict=True) if length > room]
    if not kept:
        raise TrainingError(
            f"{what}: the model has {positions} positions, an answer may have {answer_tokens} tokens, and the shortest of "
            f"{len(problems)} prompts has {min(lengths, default=0)}: {min(lengths, default=0)} + {answer_tokens} > {positions}",
            "lower max_completion_tokens in the recipe",
        )
    if left_out and is_main():
        named = ", ".join(f"{name} ({length} tokens)" for name, length in left_out[:SHOWN])
        more = f" and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
        print(
            f"{what}: {len(left_out)} of {len(problems)} prompts leave no room for an answer of {answer_tokens} tokens within "
            f"the model's {positions} positions and are left out: {named}{more}",
            flush=True,
        )
    return kept, [name for name, _ in left_out]


def percentile_90(lengths: Sequence[int]) -> int:
    """The least length that nine tenths of the rows do not exceed."""
    return sorted(lengths)[-(-9 * len(lengths) // 10) - 1]


def write_lengths(model: Path, answers: Sequence[int]) -> None:
    """Leave the lengths (tokens) of the answers that a model was fine-tuned on beside it."""
    record = {"rows": len(answers), "tokens_p90": percentile_90(answers), "tokens_longest": max(answers)}
    (model / LENGTHS).write_text(json.dumps(record, sort_keys=True) + "\n", encoding="utf-8")


def short_limit(model: Path, limit: int) -> str:
    """A notice when a length limit (tokens) would cut off more than a tenth of answers like those the model was fine-tuned on;
    else empty."""
    path = model / LENGTHS
    if not path.is_file():
        return ""
    usual = int(json.loads(path.read_text(encoding="utf-8"))["tokens_p90"])
    if usual <= limit:
        return ""
    return (
        f"a tenth of the answers that the model was fine-tuned on have {usual} tokens or more and the limit is {limit}: "
        "they would be cut off before they end; raise max_completion_tokens"
    )
