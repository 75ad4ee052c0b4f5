"""The embedded default engine: transformers' `generate`, in batches sorted by prompt length.

Runs wherever torch runs. On a two-core CPU it is as fast as anything else for small models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.utils import logging

from r1pipe.engines.base import Completion, Sampling
from r1pipe.engines.text import load_model, load_tokenizer, pick_dtype, prompt_ids, prompt_prefix, turn_end

BATCH = 256
"""Sequences generated at once when the launch says nothing."""


class TransformersEngine:
    """A model and its tokenizer, loaded; `batch` sequences are generated at a time."""

    def __init__(self, model: Any, tokenizer: Any, system: str, batch: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.system = system
        self.batch = batch
        self.prefix = prompt_prefix(tokenizer, system)

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """See `Engine.generate`. All questions are finished before the first is given out: batches go by length, not by order."""
        prompts = [prompt_ids(self.tokenizer, question, self.system) for question in questions]
        jobs = sorted((len(ids), index, sample) for index, ids in enumerate(prompts) for sample in range(sampling.samples))
        results: list[list[Completion]] = [[] for _ in questions]
        torch.manual_seed(sampling.seed)
        for start in range(0, len(jobs), self.batch):
            members = jobs[start : start + self.batch]
            for (_, index, _), completion in zip(
                members, self._batch([prompts[index] for _, index, _ in members], sampling), strict=True
            ):
                results[index].append(completion)
        yield from results

    def _batch(self, prompts: list[list[int]], sampling: Sampling) -> list[Completion]:
        pad, eos = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        width = max(len(ids) for ids in prompts)
        ids = torch.full((len(prompts), width), pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for line, prompt in enumerate(prompts):
            ids[line, width - len(prompt) :] = torch.tensor(prompt)
            mask[line, width - len(prompt) :] = 1
        greedy = sampling.temperature == 0
        chosen = (
            {"do_sample": False}
            if greedy
            else {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        )
        config = GenerationConfig(
            max_new_tokens=sampling.max_tokens, eos_token_id=eos, pad_token_id=pad, disable_compile=True, **chosen
        )
        device = self.model.device
        with torch.inference_mode():
            output = self.model.generate(input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=config)
        completions = []
        for row in output[:, width:].tolist():
            ended = eos in row
            tokens = row[: row.index(eos) + 1] if ended else row
            completions.append(
                Completion(self.tokenizer.decode(tokens, skip_special_tokens=True), len(tokens), "stop" if ended else "length")
            )
        return completions

    def close(self) -> None:
        """Drop the weights."""
        del self.model
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def open_engine(model: Path | str, *, system: str, batch: int | None, dtype: str) -> TransformersEngine:
    """Load a model folder."""
    folder = Path(model)
    tokenizer = load_tokenizer(folder)
    turn_end(tokenizer)
    logging.disable_progress_bar()  # its bar of loaded weights would run through whatever is shown
    loaded = load_model(folder, pick_dtype(dtype)).eval()
    if torch.cuda.is_available():
        loaded = loaded.to("cuda")
    return TransformersEngine(loaded, tokenizer, system, batch or BATCH)
