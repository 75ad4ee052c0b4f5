"""What a generation engine is: prompts and sampling in, completions out, in the order of the prompts.

Inside GRPO the trainer generates; engines serve sampling (stage 3) and evaluation. The import stays light: an engine's library
is imported by its own module.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from r1pipe.errors import RecipeError

ENGINES: dict[str, str] = {
    "transformers": "r1pipe.engines.transformers_engine:open_engine",
    "openai": "r1pipe.engines.openai_engine:open_engine",
}
"""Engine name in a recipe -> the function that opens it; an own engine is named by import path."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample.

    Attributes:
        samples: completions per prompt.
        temperature: 0 means greedy.
        top_p: nucleus.
        max_tokens: completion tokens at most.
        seed: the same seed, prompts and engine give the same completions.
    """

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 32768
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion.

    Attributes:
        text: decoded, special tokens left out (thinking tags are ordinary text).
        tokens: completion tokens, the end token included.
        finish: "stop", "length", or "error" when the engine could not make it.
        note: why it could not.
    """

    text: str
    tokens: int
    finish: str
    note: str = ""


class Engine(Protocol):
    """An open engine. `prefix` is what the template opens for the model (see `Attempt.prefix`)."""

    prefix: str

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """`sampling.samples` completions for each question, in order."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


def open_engine(name: str, model: Path | str, *, system: str, batch: int | None, dtype: str) -> Engine:
    """Open an engine by name or import path.

    Args:
        model: a model folder, or the name of a model that a server serves.
        batch: sequences to generate at once; None lets the engine decide.

    Raises:
        RecipeError: unknown name, with the nearest one.
    """
    path = ENGINES.get(name, name)
    module, colon, function = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        raise RecipeError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}", f"did you mean {near[0]!r}?" if near else "")
    opened: Engine = getattr(import_module(module), function)(model, system=system, batch=batch, dtype=dtype)
    return opened
