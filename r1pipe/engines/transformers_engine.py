"""The embedded default engine: a transformers model, and a batch that rows leave and join (`r1pipe.engines.decoding`).

Runs wherever torch runs. On a two-core CPU it is as fast as anything else for small models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from r1pipe.engines.base import Completion, Sampling
from r1pipe.engines.codec import Codec, open_codec
from r1pipe.engines.decoding import Decoder, Row, numbers_of
from r1pipe.engines.text import load_model, pick_dtype

BATCH = 256
"""Sequences generated at once when the launch says nothing."""


class TransformersEngine:
    """A model and its tokenizer, loaded; `batch` sequences are generated at a time."""

    def __init__(self, model: Any, codec: Codec, batch: int) -> None:
        self.model = model
        self.codec = codec
        self.batch = batch
        self.prefix = codec.prefix

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """See `Engine.generate`. All questions are finished before the first is given out: they go by length, not by order."""
        jobs, results = self.codec.jobs(questions, sampling)
        rows = [Row(job.prompt, job.most, numbers_of(job.seed)) for job in jobs]
        decoder = Decoder(
            self.model,
            self.batch,
            self.codec.tokenizer.pad_token_id,
            frozenset(self.codec.ends),
            sampling.temperature,
            sampling.top_p,
            sampling.log_probs,
            lambda row: self.codec.stopped(row.ids, sampling.stop),
        )
        decoder.run(sorted(rows, key=lambda row: len(row.prompt)))
        for job, row in zip(jobs, rows, strict=True):
            made = self.codec.completion(row.ids, row.log_probs, row.stopped, sampling.stop)
            results.setdefault(job.question, []).append(made)
        yield from (results[place] for place in range(len(questions)))

    def close(self) -> None:
        """Drop the weights."""
        del self.model
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def open_engine(model: Path | str, *, system: str, batch: int | None, dtype: str) -> TransformersEngine:
    """Load a model folder."""
    folder = Path(model)
    codec = open_codec(folder, system)
    logging.disable_progress_bar()  # its bar of loaded weights would run through whatever is shown
    loaded = load_model(folder, pick_dtype(dtype)).eval()
    if torch.cuda.is_available():
        loaded = loaded.to("cuda")
    positions = getattr(loaded.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return TransformersEngine(loaded, replace(codec, positions=positions), batch or BATCH)
