"""The reference policy: replaced by the policy now and then, and part of every checkpoint.

In full training it is a second model, which the trainer's own callback replaces. With adapters there is no second model: the
reference is a second, frozen adapter named "ref" on the same base, which the trainer takes for its reference log-probabilities
when it is there. It starts as an adapter that changes nothing: the first reference is the input model, as in full training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file, save_model

POLICY_ADAPTER, REFERENCE_ADAPTER = "default", "ref"
"""The second name is the one that the trainer looks for."""


class WholeModel:
    """A reference that is a model of its own."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def refresh(self) -> None:
        """Nothing: the trainer's own callback has copied the weights by now."""

    def save(self, path: Path) -> None:
        """Write its weights."""
        save_model(self.model, str(path))

    def load(self, path: Path) -> None:
        """Take its weights."""
        load_model(self.model, path)


class SecondAdapter:
    """A reference that is a frozen adapter beside the policy's, on the same base."""

    def __init__(self, model: Any) -> None:
        self.model = model
        model.add_adapter(REFERENCE_ADAPTER, model.peft_config[POLICY_ADAPTER])
        with torch.no_grad():
            for name, parameter in self._pairs():
                parameter.copy_(model.get_parameter(name))
                if torch.count_nonzero(model.get_parameter(name)) and ".lora_B." in name:
                    raise AssertionError(f"{name} is not zero before training: the reference would not be the input model")
        model.set_adapter(POLICY_ADAPTER)

    def _pairs(self) -> list[tuple[str, Any]]:
        """(name of the policy's parameter, the reference's parameter)."""
        mark = f".{REFERENCE_ADAPTER}."
        return [
            (name.replace(mark, f".{POLICY_ADAPTER}."), parameter)
            for name, parameter in self.model.named_parameters()
            if mark in name
        ]

    def refresh(self) -> None:
        """Copy the policy's adapter."""
        with torch.no_grad():
            for name, parameter in self._pairs():
                parameter.copy_(self.model.get_parameter(name))

    def save(self, path: Path) -> None:
        """Write the reference's adapter."""
        save_file({name: parameter.detach().cpu().contiguous() for name, parameter in self._pairs()}, str(path))

    def load(self, path: Path) -> None:
        """Take the reference's adapter."""
        weights = load_file(str(path))
        with torch.no_grad():
            for name, parameter in self._pairs():
                parameter.copy_(weights[name])
