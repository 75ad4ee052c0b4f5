"""What a method keeps in memory and what an answer costs it, counted from its settings before anything is loaded. Light.

Bytes a parameter, in float32: a trained model has weights, gradients and AdamW's two moments, 16; a frozen one has weights, 4. In
bfloat16 both are half of that. What passes through the layers (activations, the cache of generation) comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from r1pipe.train.methods.choice import METHODS
from r1pipe.train.settings import GrpoSettings

TRAINED_BYTES, FROZEN_BYTES = 16, 4


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one process.

    Attributes:
        trained: models with gradients and optimizer state, by name.
        frozen: models that are only asked, by name. With adapters the reference and the input model are the policy without them.
        adapters: whether of the policy only adapters are trained.
        passes: what an answer costs after it was sampled, in forward passes of a model of the policy's size; a forward pass with
            its backward pass counts as three.
    """

    trained: tuple[str, ...]
    frozen: tuple[str, ...]
    adapters: bool
    passes: int

    def bytes_for(self, parameters: int) -> int:
        """Bytes for models of so many parameters each, in float32; adapters themselves are left out."""
        policy = FROZEN_BYTES if self.adapters else TRAINED_BYTES
        others = TRAINED_BYTES * (len(self.trained) - 1) + FROZEN_BYTES * len(self.frozen)
        return parameters * (policy + others)


def costs_of(settings: GrpoSettings) -> Costs:
    """What the method of these settings keeps and costs."""
    facts = METHODS[settings.method]
    adapters = settings.lora is not None
    frozen = []
    if settings.kl and not adapters:
        frozen.append("reference")
    if facts.sampler and not adapters:
        frozen.append("input model")
    old = settings.minibatches > 1 or facts.value_model
    passes = 3 + int(old) + int(settings.kl > 0) + (4 if facts.value_model else 0)
    return Costs(("policy", "value model") if facts.value_model else ("policy",), tuple(frozen), adapters, passes)


def costs_without_method(settings: GrpoSettings) -> Costs:
    """What GRPO would keep and cost in its place, with the same sizes, adapters and KL term."""
    return costs_of(settings.model_copy(update={"method": "grpo", "ppo": None, "process": None}))
