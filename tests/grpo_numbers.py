"""GRPO once more, in NumPy and double precision, from the papers' formulas: the model's forward pass, advantages, ratios, clips,
KL and loss. Shares no code with r1pipe or TRL; what TRL trained on is recorded by a trainer that only looks.

DeepSeekMath (arXiv 2402.03300) Eq. 3 and 4:
    J = 1/G Σ_i 1/|o_i| Σ_t { min(ρ_it A_i, clip(ρ_it, 1 - ε, 1 + ε) A_i) - β D_it }
    ρ_it = π(o_it | q, o_i<t) / π_old(o_it | q, o_i<t)          D_it = π_ref/π - log(π_ref/π) - 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


# --- the model: two layers of Qwen3, as its configuration has it


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return weight * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def rotate(x: np.ndarray) -> np.ndarray:
    """Rotary positions (base 10,000) of vectors of shape (heads, tokens, width)."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] / 10000.0 ** (np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def logits(w: Weights, ids: np.ndarray, layers: int = 2, heads: int = 2) -> np.ndarray:
    """Next-token logits of shape (tokens, vocabulary) of the tiny model of the tests."""
    tokens = len(ids)
    hidden = w["model.embed_tokens.weight"][ids]
    future = np.triu(np.full((tokens, tokens), -np.inf), 1)
    for layer in range(layers):
        p = f"model.layers.{layer}."
        x = rms_norm(hidden, w[p + "input_layernorm.weight"])
        q, k, v = ((x @ w[f"{p}self_attn.{name}_proj.weight"].T).reshape(tokens, heads, -1).transpose(1, 0, 2) for name in "qkv")
        q = rotate(rms_norm(q, w[p + "self_attn.q_norm.weight"]))
        k = rotate(rms_norm(k, w[p + "self_attn.k_norm.weight"]))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + future
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        hidden = hidden + mixed.transpose(1, 0, 2).reshape(tokens, -1) @ w[p + "self_attn.o_proj.weight"].T
        x = rms_norm(hidden, w[p + "post_attention_layernorm.weight"])
        gate = x @ w[p + "mlp.gate_proj.weight"].T
        up = x @ w[p + "mlp.up_proj.weight"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    return rms_norm(hidden, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def log_probs(w: Weights, prompt: list[int], answer: list[int], temperature: float) -> np.ndarray:
    """log π(o_t | q, o_<t) of each token of an answer, of the distribution that it was sampled from."""
    rows = logits(w, np.array([*prompt, *answer]))[len(prompt) - 1 : -1] / temperature
    top = rows.max(-1, keepdims=True)
    rows = rows - top - np.log(np.exp(rows - top).sum(-1, keepdims=True))
    return rows[np.arange(len(answer)), answer]


# --- the objective


def z_scores(rewards: list[float | None], group: int, epsilon: float = 1e-4) -> np.ndarray:
    """(r - mean) / (std + epsilon) by group, sample deviation; 0 where there is no reward."""
    result = np.zeros(len(rewards))
    for start in range(0, len(rewards), group):
        found = [index for index in range(start, start + group) if rewards[index] is not None]
        values = np.array([rewards[index] for index in found], dtype=np.float64)
        result[found] = (values - values.mean()) / (values.std(ddof=1) + epsilon)
    return result


@dataclass
class Terms:
    """What one answer adds, token by token."""

    ratio: np.ndarray
    clipped: np.ndarray
    kl: np.ndarray
    loss: np.ndarray


def terms(
    now: np.ndarray, old: np.ndarray, reference: np.ndarray | None, advantage: float, low: float, high: float, beta: float,
    sequence: bool = False,
) -> Terms:  # fmt: skip
    """The formula, for one answer."""
    ratio = np.exp(now - old)
    if sequence:  # GSPO: the geometric mean of the tokens' ratios
        ratio = np.full_like(ratio, np.exp(np.mean(now - old)))
    bounded = np.clip(ratio, 1 - low, 1 + high)
    kl = np.zeros_like(now) if reference is None else np.exp(reference - now) - (reference - now) - 1
    clipped = (bounded != ratio) & (bounded * advantage < ratio * advantage)
    return Terms(ratio, clipped, kl, -np.minimum(ratio * advantage, bounded * advantage) + beta * kl)


# --- what TRL does, looked at


def copied(model: Any) -> Weights:
    return {name: tensor.detach().double().numpy().copy() for name, tensor in model.named_parameters()}


@dataclass
class SeenRollout:
    """A rollout as TRL made it: answers in the order of generation."""

    step: int
    policy: Weights
    reference: Weights | None
    prompts: list[list[int]]
    answers: list[list[int]]
    advantages: np.ndarray


@dataclass
class SeenPass:
    """One forward and backward pass over some answers of a minibatch."""

    step: int
    policy: Weights
    prompts: list[list[int]]
    answers: list[list[int]]
    mask: np.ndarray
    advantages: np.ndarray
    log_probs: np.ndarray
    old: np.ndarray
    reference: np.ndarray | None
    loss: float
    gradient: Weights = field(default_factory=dict)
    """Summed over the passes of the step so far."""


@dataclass
class Seen:
    """Everything recorded in a run."""

    rollouts: list[SeenRollout] = field(default_factory=list)
    passes: list[SeenPass] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)


def unpadded(ids: Any, mask: Any) -> list[list[int]]:
    return [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]


def watching(seen: Seen, trainer: type | None = None) -> type:
    """A GRPOTrainer, or the one given, that writes down what it does and changes nothing."""
    from trl import GRPOTrainer

    class Watching(trainer or GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            policy = copied(self.model)
            reference = copied(self.ref_model) if self.ref_model is not None else None
            out = super()._generate_and_score_completions(inputs)
            seen.limits.append(self.generation_config.max_new_tokens)
            prompts = unpadded(out["prompt_ids"], out["prompt_mask"])
            answers = unpadded(out["completion_ids"], out["completion_mask"])
            advantages = out["advantages"].double().numpy().copy()
            seen.rollouts.append(SeenRollout(self.state.global_step, policy, reference, prompts, answers, advantages))
            return out

        def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
            found = super()._get_per_token_logps_and_entropies(*arguments, **named)
            self.latest = found[0].detach().double().numpy().copy()
            return found

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            old, reference = inputs.get("old_per_token_logps"), inputs.get("ref_per_token_logps")
            seen.passes.append(
                SeenPass(
                    step=self.state.global_step,
                    policy=copied(model),
                    prompts=unpadded(inputs["prompt_ids"], inputs["prompt_mask"]),
                    answers=unpadded(inputs["completion_ids"], inputs["completion_mask"]),
                    mask=inputs["completion_mask"].numpy().astype(bool),
                    advantages=inputs["advantages"].double().numpy().copy(),
                    log_probs=self.latest,
                    old=self.latest if old is None else old.double().numpy().copy(),
                    reference=None if reference is None else reference.double().numpy().copy(),
                    loss=loss.item(),
                )
            )
            return loss

        def training_step(self, model: Any, *arguments: Any, **named: Any) -> Any:
            loss = super().training_step(model, *arguments, **named)
            seen.passes[-1].gradient = {
                name: p.grad.double().numpy().copy() for name, p in model.named_parameters() if p.grad is not None
            }
            return loss

    return Watching
