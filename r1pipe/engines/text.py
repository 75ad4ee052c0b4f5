"""Text to tokens, one way for every trainer and engine.

The prompt of a question is what the model's own chat template renders with a generation prompt; a training row is that prompt's
tokens, then the response's tokens, then the end-of-turn token. SFT labels, RL prompts and sampling prompts therefore agree token
for token, and a template cannot quietly drop the thinking from a training row (templates of reasoning models often do).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from r1pipe.artifact import GIVE_TEMPLATE
from r1pipe.data.chat import CLOSE, OPEN, messages
from r1pipe.errors import ArtifactError, TrainingError

PROBE = f"{OPEN}\nprobe\n{CLOSE}\n\nprobe"


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One row of SFT: token ids, and labels that are -100 on the prompt. Both have the same length."""

    input_ids: list[int]
    labels: list[int]


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder, checked: it has a chat template, an end token, a pad token, and keeps the thinking tags.

    Raises:
        ArtifactError: naming what is missing and how to add it.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if not tokenizer.chat_template:
        raise ArtifactError(f"the model in {folder} has no chat template", GIVE_TEMPLATE)
    if tokenizer.eos_token_id is None:
        raise ArtifactError(f"the tokenizer in {folder} has no end token", "set eos_token in tokenizer_config.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    first, second = (rendered_on(tokenizer, day) for day in ("1 January 2001", "2 February 2002"))
    if first != second:
        raise ArtifactError(
            f"the chat template in {folder} prints today's date: the same data would give other tokens tomorrow",
            "write a fixed date into chat_template.jinja in the place of strftime_now(...)",
        )
    decoded = tokenizer.decode(tokenizer(PROBE, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    if decoded != PROBE:
        raise ArtifactError(
            f"the tokenizer in {folder} loses thinking tags: {PROBE!r} comes back as {decoded!r}",
            "register <think> and </think> as ordinary tokens, not as special ones",
        )
    return tokenizer


def rendered_on(tokenizer: Any, day: str) -> str:
    """What the template makes of a probe on a given day: its clock is a function that a macro of the same name hides."""
    clock = f"{{% macro strftime_now(format) %}}{day}{{% endmacro %}}"
    text: str = tokenizer.apply_chat_template(
        messages("probe"), chat_template=clock + tokenizer.get_chat_template(), add_generation_prompt=True, tokenize=False
    )
    return text


def load_model(folder: Path, dtype: torch.dtype) -> Any:
    """The causal language model of a folder, in `dtype`, on the default device of the trainer."""
    return AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype)


def pick_dtype(wanted: str) -> torch.dtype:
    """The arithmetic to train in: "float32", "bfloat16", or "auto".

    auto is bfloat16 on a GPU that has it, and float32 elsewhere: on a CPU without bf16 units a bf16 matrix product is some
    hundred times slower than a float32 one.
    """
    if wanted == "auto":
        return torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[wanted]


def prompt_ids(tokenizer: Any, question: str, system: str) -> list[int]:
    """Token ids of the prompt for a question, generation prompt included."""
    encoded = tokenizer.apply_chat_template(
        messages(question, system), add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoded["input_ids"])


def prompt_prefix(tokenizer: Any, system: str) -> str:
    """What the template opens for the model: "<think>\\n" when the generation prompt ends with an open tag, else empty."""
    text: str = tokenizer.apply_chat_template(messages("probe", system), add_generation_prompt=True, tokenize=False)
    last = text.rfind(OPEN)
    return text[last:] if last >= 0 and CLOSE not in text[last:] and not text[last + len(OPEN) :].strip() else ""


def turn_end(tokenizer: Any) -> int:
    """The token that ends the assistant's turn, and that generation must stop at.

    Raises:
        ArtifactError: when the chat template closes a turn with another token than the tokenizer's end token, naming both; the
            model would then never stop.
    """
    rendered = tokenizer.apply_chat_template(
        [*messages("probe"), {"role": "assistant", "content": "probe"}], tokenize=True, return_dict=True
    )["input_ids"]
    ids = list(rendered)
    while ids and not tokenizer.decode(ids[-1:], skip_special_tokens=False).strip():
        ids.pop()  # templates often end with a newline after the closing token
    if not ids or ids[-1] != tokenizer.eos_token_id:
        found = tokenizer.decode(ids[-1:], skip_special_tokens=False) if ids else ""
        raise ArtifactError(
            f"the chat template ends a turn with {found!r} and the tokenizer ends at {tokenizer.eos_token!r}",
            "make the template's closing token the tokenizer's eos_token",
        )
    return int(tokenizer.eos_token_id)


def configured_ends(folder: Path) -> tuple[str, tuple[int, ...]]:
    """(file, end tokens) of a model's own settings, as the libraries read them: generation_config.json, else config.json; empty
    when neither says."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        found = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
        if found is not None:
            return name, tuple(found) if isinstance(found, list) else (int(found),)
    return "", ()


def end_tokens(tokenizer: Any, folder: Path) -> tuple[int, ...]:
    """Every token that ends a completion, in RL training and in every engine alike: the tokenizer's own, then those of the
    model's settings."""
    return tuple(dict.fromkeys((int(tokenizer.eos_token_id), *configured_ends(folder)[1])))


def judged_ids(tokenizer: Any, question: str, system: str, text: str) -> list[int]:
    """Token ids of a question with a response (or only its summary), as a reward model reads it, in training and in RL alike.

    Model-written text may spell out a special token; it is read as plain text, so that no answer can close its own turn.
    """
    return [
        *prompt_ids(tokenizer, question, system),
        *tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"],
        tokenizer.eos_token_id,
    ]


def training_row(tokenizer: Any, question: str, system: str, response: str) -> TrainingRow:
    """Prompt, response and end token as one row; raises TrainingError when the response does not survive tokenisation."""
    prompt = prompt_ids(tokenizer, question, system)
    opened = prompt_prefix(tokenizer, system)
    body = response[len(opened) :] if opened and response.startswith(opened) else response
    completion = list(tokenizer(body, add_special_tokens=False)["input_ids"])
    back = tokenizer.decode(completion, skip_special_tokens=True)
    if back != body:
        raise TrainingError(f"a training response changes when it is tokenised: {body[:120]!r} becomes {back[:120]!r}")
    completion.append(tokenizer.eos_token_id)
    return TrainingRow([*prompt, *completion], [*([-100] * len(prompt)), *completion])


def fitting_rows(rows: Sequence[TrainingRow], limit: int) -> tuple[list[TrainingRow], int]:
    """Rows of at most `limit` tokens, and how many were left out: a row is never cut, a cut trace loses its answer."""
    kept = [row for row in rows if len(row.input_ids) <= limit]
    return kept, len(rows) - len(kept)
