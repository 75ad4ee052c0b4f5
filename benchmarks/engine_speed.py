"""The embedded engine against a plain loop over `generate`: batches of the same size, in the order of arrival, padded.

Same model, prompts, sampling and limit, in turns within one process. Prints tokens per second of each and their ratio (the goal
is 1.5), and how many greedy answers agree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from common import save
from transformers import GenerationConfig

from r1pipe.data.sources import open_source
from r1pipe.engines.base import Sampling, open_engine
from r1pipe.engines.text import prompt_ids
from r1pipe.pipeline import locate_base


def plain_loop(model: Any, tokenizer: Any, questions: list[str], batch: int, temperature: float, limit: int) -> list[list[int]]:
    """Completions (end token included) by `generate`, batch by batch."""
    found: list[list[int]] = []
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {"do_sample": False}
    config = GenerationConfig(max_new_tokens=limit, eos_token_id=end, pad_token_id=pad, disable_compile=True, **how)
    for start in range(0, len(questions), batch):
        prompts = [prompt_ids(tokenizer, question, "") for question in questions[start : start + batch]]
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            rows = model.generate(input_ids=ids, attention_mask=mask, generation_config=config)[:, width:].tolist()
        found += [row[: row.index(end) + 1] if end in row else row for row in rows]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--questions", type=int, default=1024)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--threads", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    questions = [row["question"] for row in open_source("nano", "problems", chosen.questions, 5)]
    folder: Path = locate_base(chosen.model)
    results = []
    for batch in chosen.batches:
        engine: Any = open_engine("transformers", folder, system="", batch=batch, dtype="float32")
        model, tokenizer = engine.model, engine.codec.tokenizer
        greedy = [one[0].ids for one in engine.generate(questions[:256], Sampling(1, 0.0, max_tokens=chosen.limit))]
        plain = plain_loop(model, tokenizer, questions[:256], batch, 0.0, chosen.limit)
        agree = sum(list(one) == other for one, other in zip(greedy, plain, strict=True)) / len(plain)
        ours, theirs, lengths = [], [], []
        for round_number in range(chosen.rounds):
            begun = time.perf_counter()
            made = [
                several[0] for several in engine.generate(questions, Sampling(1, 1.0, max_tokens=chosen.limit, seed=round_number))
            ]
            ours.append(sum(one.tokens for one in made) / (time.perf_counter() - begun))
            lengths += [one.tokens for one in made]
            torch.manual_seed(round_number)
            begun = time.perf_counter()
            rows = plain_loop(model, tokenizer, questions, batch, 1.0, chosen.limit)
            theirs.append(sum(map(len, rows)) / (time.perf_counter() - begun))
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        cuts = statistics.quantiles(lengths, n=20)
        result = {
            "batch": batch,
            "threads": torch.get_num_threads(),
            "tokens_per_second": {"engine": round(statistics.median(ours)), "generate": round(statistics.median(theirs))},
            "ratio": round(statistics.median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "greedy_agreement": agree,
            "lengths": {
                "mean": round(statistics.mean(lengths), 1),
                "p5": cuts[0],
                "median": cuts[9],
                "p95": cuts[18],
                "max": max(lengths),
            },
        }
        results.append(result)
        print(result, flush=True)
    save("engine_speed", {"model": chosen.model, "questions": chosen.questions, "limit": chosen.limit, "results": results})


if __name__ == "__main__":
    main()
