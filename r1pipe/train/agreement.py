"""Do the engine that samples and the trainer that learns give the same token the same probability?

GRPO's ratio is one at the first pass only if they do. They part ways quietly: a `top_k` or a repetition penalty that the model's
own generation settings bring along, a template that pads on the other side, a cache that forgets, arithmetic of another kind. So
when training starts, and again when it resumes, one small batch is sampled and its tokens' log-probabilities, as the engine had
them, are compared with the trainer's, by position: an error that grows with length shows. The random state is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from trl.models import unwrap_model_for_generation

from r1pipe.errors import TrainingError

PROMPTS, TOKENS = 4, 64
"""The batch: so many prompts, and at most so many tokens of each completion."""
LIMITS = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.02}
"""Largest mean difference in nats a token. Measured: 1e-7 in float32; bfloat16 keeps eight bits, and differs by some 0.01."""
EDGES = (8, 16, 32, 64)
"""Ends of the stretches of positions by which differences are told."""


def check_agreement(trainer: Any, prompts: Sequence[Sequence[int]], temperature: float, top_p: float) -> dict[str, Any]:
    """Sample a small batch and compare its tokens' log-probabilities.

    Args:
        prompts: token ids of prompts; the first PROMPTS of them are used.

    Returns:
        tokens; mean, largest: absolute differences in nats; by_position: the mean by the last position of each stretch. Empty
        when the model is spread over processes, where one small batch is not small.

    Raises:
        TrainingError: the mean difference is above the limit of the arithmetic that is used.
    """
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return {}
    ids, mask, completion, engine = _sampled(trainer, prompts[:PROMPTS], temperature, top_p)
    with torch.no_grad():
        learner, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, engine.shape[1])
    gaps = (learner.float() - engine).abs()
    found: dict[str, Any] = {
        "tokens": int(completion.sum()),
        "mean": float(gaps[completion].mean()),
        "largest": float(gaps[completion].max()),
        "by_position": {},
    }
    start = 0
    for edge in EDGES:
        part = gaps[:, start:edge][completion[:, start:edge]]
        if part.numel():
            found["by_position"][str(edge)] = float(part.mean())
        start = edge
    limit = LIMITS[trainer.model.dtype]
    if not found["mean"] <= limit or not math.isfinite(found["largest"]):
        stretches = ", ".join(f"up to token {edge}: {mean:.3g}" for edge, mean in found["by_position"].items())
        raise TrainingError(
            f"sampling and training do not agree: over {found['tokens']} tokens their log-probabilities differ by "
            f"{found['mean']:.3g} on average and {found['largest']:.3g} at most ({stretches}); accepted is {limit:g} on average, "
            f"in {str(trainer.model.dtype).removeprefix('torch.')}",
            "look for top_k, penalties or a cache setting in the model's generation_config.json; try launch.dtype = 'float32'",
        )
    return found


def agreed_ends(trainer: Any, ours: Sequence[int]) -> frozenset[int]:
    """The tokens that end an answer, when the trainer stops at those that every engine stops at.

    Raises:
        TrainingError: it stops at others.
    """
    theirs = frozenset(trainer.eos_token_ids)
    if theirs != frozenset(ours):
        raise TrainingError(
            f"the trainer ends answers at tokens {sorted(theirs)} and sampling at {sorted(ours)}",
            "look at eos_token_id in generation_config.json and config.json of the policy",
        )
    return theirs


def _sampled(trainer: Any, prompts: Sequence[Sequence[int]], temperature: float, top_p: float) -> tuple[Any, Any, Any, Any]:
    """(ids, mask, which completion tokens count, log-probabilities as sampling had them) of a small batch."""
    tokenizer, device = trainer.processing_class, trainer.accelerator.device
    width = max(map(len, prompts))
    padded = torch.tensor([[tokenizer.pad_token_id] * (width - len(ids)) + list(ids) for ids in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=device)
    most = min(TOKENS, trainer.args.max_completion_length)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with (
        torch.random.fork_rng(devices=devices),
        unwrap_model_for_generation(
            trainer.model_wrapped, trainer.accelerator, generation_kwargs=trainer.generation_kwargs
        ) as model,
        torch.no_grad(),
    ):
        out = model.generate(
            input_ids=padded, attention_mask=mask, generation_config=trainer.generation_config, max_new_tokens=most,
            return_dict_in_generate=True, output_scores=True, output_logits=True,
        )  # fmt: skip
    tokens = out.sequences[:, width:]
    # with a nucleus the engine's scores are those of the kept tokens only, and differ from the trainer's by intention
    steps = out.scores if top_p == 1.0 else tuple(logits / temperature for logits in out.logits)
    engine = torch.stack([torch.log_softmax(step.float(), dim=-1) for step in steps], dim=1)
    engine = engine.gather(2, tokens.unsqueeze(-1)).squeeze(-1)
    ended = torch.isin(tokens, torch.tensor(trainer.eos_token_ids, device=device)).int().cumsum(dim=1)
    counts = (ended - torch.isin(tokens, torch.tensor(trainer.eos_token_ids, device=device)).int()) == 0  # up to the first end
    return out.sequences, torch.cat([mask, counts.int()], dim=1), counts, engine
