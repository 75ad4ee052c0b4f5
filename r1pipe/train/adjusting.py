"""What is set in, or read back from, a trainer of TRL's that its own options do not reach."""

from __future__ import annotations

from typing import Any

import torch

from r1pipe.train.settings import GrpoSettings


def silence_dropout(model: torch.nn.Module) -> None:
    """Set the dropout to 0 that TRL's option misses: attention layers keep theirs as a number, not as a module.

    With dropout the ratio of the first pass is not one, and what is corrected is noise.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float) and value > 0:
                setattr(module, name, 0.0)


def set_token_limit(trainer: Any, settings: GrpoSettings, step: int) -> None:
    """Give the trainer the length limit of the answers sampled after `step` steps, wherever it keeps it."""
    limit = settings.token_limit(step)
    if trainer.max_completion_length == limit:
        return
    print(f"answers may have {limit:,} tokens from step {step} on (before: {trainer.max_completion_length:,})", flush=True)
    trainer.max_completion_length = limit
    trainer.generation_config.max_new_tokens = limit
    trainer.generation_kwargs["max_new_tokens"] = limit


def objective_of(trainer: Any) -> dict[str, Any]:
    """What the trainer really trained with, read back from it: the record is of the run, not of the recipe."""
    return {
        "loss": trainer.loss_type,
        "ratio": trainer.importance_sampling_level,
        "kl": trainer.beta,
        "clip_low": trainer.epsilon_low,
        "clip_high": trainer.epsilon_high - (trainer.loss_type == "cispo"),  # see `GrpoSettings.upper_clip`
        "scale": trainer.scale_rewards,
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "answers_per_question": trainer.num_generations,
        "token_limit": trainer.max_completion_length,
        "mask_truncated": trainer.mask_truncated_completions,
        "bias_corrected_kl": trainer.args.use_bias_correction_kl,
        "dropout": not trainer.args.disable_dropout,
        "passes": trainer.num_iterations,
    }
