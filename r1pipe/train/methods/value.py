"""The value model of PPO: how much reward is to come, after each token of an answer.

It is the stage's input model with its output head replaced by one number, which starts at 0, so that the first advantages are
those without a value model. It is trained beside the policy, by an optimizer of its own, and both are part of every checkpoint.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import reduce
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from r1pipe.errors import TrainingError
from r1pipe.train.settings import OptimizerSettings

STATE = "value.safetensors"
"""Its file in a checkpoint: weights, and the optimizer's two moments and step count of each."""
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class ValueModel:
    """The model, its optimizer, and their place in a checkpoint.

    Attributes:
        backbone: gives a vector for each token.
        head: gives the value for a vector.
        optimizer: AdamW, with the settings of the policy's.
        learning_rate: its own, before the policy's schedule.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, device: Any, learning_rate: float, settings: OptimizerSettings) -> None:
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=devices):
            self.backbone = AutoModel.from_pretrained(str(folder), dtype=dtype).to(device)
            width = self.backbone.config.get_text_config().hidden_size
            self.head = torch.nn.Linear(width, 1, dtype=torch.float32, device=device)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.bias.zero_()
        self.learning_rate = learning_rate
        self._clip = settings.max_grad_norm
        self.optimizer = torch.optim.AdamW(
            list(self._parameters().values()),
            lr=learning_rate,
            betas=(settings.adam_beta1, settings.adam_beta2),
            weight_decay=settings.weight_decay,
        )

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        """Name -> parameter, in the optimizer's order."""
        parts = (("backbone", self.backbone), ("head", self.head))
        return {f"{part}.{name}": parameter for part, module in parts for name, parameter in module.named_parameters()}

    def values(self, ids: torch.Tensor, mask: torch.Tensor, tokens: int) -> torch.Tensor:
        """The value before each of the last `tokens` tokens of each row, in float32; shape (rows, tokens).

        Args:
            ids, mask: (rows, length) prompt and answer, and which of them are not padding.
        """
        hidden = self.backbone(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        found: torch.Tensor = self.head(hidden[:, -tokens - 1 : -1].float()).squeeze(-1)
        return found

    def look(self, ids: torch.Tensor, mask: torch.Tensor, tokens: int, rows: int) -> torch.Tensor:
        """The same without learning, `rows` rows at a time."""
        with torch.no_grad():
            parts = [self.values(*pair, tokens) for pair in zip(ids.split(rows), mask.split(rows), strict=True)]
        return torch.cat(parts)

    def learn(
        self, ids: torch.Tensor, mask: torch.Tensor, returns: torch.Tensor, counted: torch.Tensor, share: float
    ) -> torch.Tensor:
        """Add the gradient of half the mean squared error over the tokens `counted`, times `share`; returns that error's loss.

        Args:
            returns, counted: (rows, tokens) what the value should have been, and for which tokens that is known.
        """
        with torch.enable_grad():
            error = (self.values(ids, mask, returns.shape[1]) - returns) ** 2 * counted
            loss = error.sum() / counted.sum().clamp(min=1.0) / 2
            (loss * share).backward()
        return loss.detach()

    def step(self, rate_share: float, what: str) -> None:
        """Apply the gradients that were added, averaged over the processes.

        Args:
            rate_share: the policy's learning rate now, over its first one.

        Raises:
            TrainingError: a gradient is not finite; nothing is applied.
        """
        parameters = list(self._parameters().values())
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = reduce(parameter.grad, reduction="mean")
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._clip))
        if not math.isfinite(norm):
            raise TrainingError(f"{what}: the value model's gradient is {norm}", "lower value_learning_rate")
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * rate_share
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, checkpoint: Path) -> None:
        """Write weights and optimizer into a checkpoint, before the seal."""
        tensors = {}
        for name, parameter in self._parameters().items():
            tensors[name] = parameter
            tensors |= {f"{moment}/{name}": value for moment, value in self.optimizer.state[parameter].items()}
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(kept, str(checkpoint / STATE))

    def load(self, checkpoint: Path) -> None:
        """Take weights and optimizer up from a checkpoint.

        Raises:
            TrainingError: the checkpoint has no value model.
        """
        if not (checkpoint / STATE).is_file():
            raise TrainingError(f"{checkpoint.name} has no {STATE}: the value model is not there", "redo the step with `--redo`")
        tensors = load_file(str(checkpoint / STATE))
        with torch.no_grad():
            for name, parameter in self._parameters().items():
                parameter.copy_(tensors[name])
                found = {moment: tensors[f"{moment}/{name}"] for moment in MOMENTS if f"{moment}/{name}" in tensors}
                moments = {moment: value if moment == "step" else value.to(parameter.device) for moment, value in found.items()}
                if moments:
                    self.optimizer.state[parameter] = moments
