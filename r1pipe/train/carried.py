"""What one round of RL hands to the next beside the weights: the optimizer's moments and step counts, by parameter; of PPO the
value model with its own. Safetensors, so that nothing that is loaded can run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from r1pipe.errors import RecipeError, TrainingError
from r1pipe.train.methods.trainer import MethodTrainer
from r1pipe.train.methods.value import ValueModel

OPTIMIZER = "optimizer"
"""Name of the output and the input."""
STATE = "optimizer.safetensors"


class Carried:
    """The optimizer of a trainer, to leave behind or to take up."""

    def __init__(self, trainer: Any, what: str) -> None:
        self.trainer = trainer
        self.what = what

    def refuse_spread(self) -> None:
        """Refuse launches in which no process has the whole optimizer.

        Raises:
            RecipeError: FSDP or DeepSpeed.
        """
        if self.trainer.is_deepspeed_enabled or self.trainer.is_fsdp_enabled:
            raise RecipeError(
                f'{self.what}: optimizer_state = "keep", and the launch spreads the optimizer over processes',
                'train without FSDP and DeepSpeed, or set mixed-rl.rounds.optimizer_state = "reset"',
            )

    @property
    def _value(self) -> ValueModel | None:
        return self.trainer.frame.value if isinstance(self.trainer, MethodTrainer) else None

    def _names(self) -> dict[int, str]:
        """Number of a parameter in the optimizer's state -> its name in the model."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        optimizer = self.trainer.optimizer
        numbers = [number for group in optimizer.state_dict()["param_groups"] for number in group["params"]]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        return {number: names[id(parameter)] for number, parameter in zip(numbers, parameters, strict=True)}

    def leave(self, folder: Path) -> None:
        """Write the state into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        state, names = self.trainer.optimizer.state_dict()["state"], self._names()
        tensors = {
            f"{moment}/{names[number]}": torch.as_tensor(found).detach().cpu().contiguous()
            for number, moments in state.items()
            for moment, found in moments.items()
        }
        save_file(tensors, str(folder / STATE))
        if self._value is not None:
            self._value.save(folder)

    def take_up(self, folder: Path) -> None:
        """Put a state into the optimizer; learning rate and its schedule are those of this round.

        Raises:
            TrainingError: the state is not that of this model.
        """
        tensors = load_file(str(folder / STATE))
        now, names = self.trainer.optimizer.state_dict(), self._names()
        state: dict[int, dict[str, torch.Tensor]] = {number: {} for number in names}
        numbers = {name: number for number, name in names.items()}
        for key, tensor in tensors.items():
            moment, _, name = key.partition("/")
            if name not in numbers:
                raise TrainingError(f"{self.what}: the optimizer of the round before has {name}, and this model has not")
            state[numbers[name]][moment] = tensor
        if missing := [names[number] for number, moments in state.items() if not moments]:
            raise TrainingError(f"{self.what}: the optimizer of the round before knows nothing of {missing[0]}")
        self.trainer.optimizer.load_state_dict({**now, "state": state})
        if self._value is not None:
            self._value.load(folder)
        print(f"{self.what}: the optimizer goes on with the state of the round before", flush=True)
