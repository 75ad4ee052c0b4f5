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

from r1pipe.data.tables import content_id
from r1pipe.errors import RecipeError

ENGINES: dict[str, str] = {
    "transformers": "r1pipe.engines.transformers_engine:open_engine",
    "vllm": "r1pipe.engines.vllm_engine:open_engine",
    "openai": "r1pipe.engines.openai_engine:open_engine",
    "ray": "r1pipe.engines.ray_engine:open_engine",
    "ray-transformers": "r1pipe.engines.ray_engine:open_transformers",
}
"""Engine name in a recipe -> the function that opens it; an own engine is named by import path. Workers of "ray" hold vLLM."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample.

    Attributes:
        samples: completions per prompt.
        temperature: 0 means greedy.
        top_p: nucleus.
        max_tokens: completion tokens at most; less where the model's positions end before.
        seed: the same seed, prompts and engine give the same completions.
        stop: texts that end a completion, beside the model's own end tokens; what is kept ends before them.
        log_probs: whether log-probabilities are wanted.
        first: the number of the first question, where the list is a part of a longer one: seeds go by numbers.
    """

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 32768
    seed: int = 0
    stop: tuple[str, ...] = ()
    log_probs: bool = False
    first: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion.

    Attributes:
        text: decoded, special tokens left out (thinking tags are ordinary text).
        tokens: completion tokens, the end token included.
        finish: "stop", "length", or "error" when the engine could not make it.
        note: why it could not.
        ids: the tokens themselves; empty where the engine does not tell (a server that is not vLLM).
        log_probs: natural logarithm of the probability that the model gave each token, before temperature and nucleus; empty
            unless asked for.
    """

    text: str
    tokens: int
    finish: str
    note: str = ""
    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()


class Engine(Protocol):
    """An open engine. `prefix` is what the template opens for the model (see `Attempt.prefix`)."""

    prefix: str

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """`sampling.samples` completions for each question, in order. What concerns one question only (a prompt that is too
        long, text that is not Unicode) is a completion with finish "error" and its reason."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


def on_processor(name: str) -> bool:
    """Whether an engine of this name would generate on this machine's processor, and so with all of it."""
    if name not in ("transformers", "vllm"):
        return False
    import torch

    return not torch.cuda.is_available()


def completion_seed(sampling: Sampling, place: int, sample: int) -> int:
    """The seed of one completion (52 bits, exact in JSON): it depends on nothing that is generated beside it.

    Args:
        place: of the question in the list.
    """
    return int(content_id("completion", str(sampling.seed), str(sampling.first + place), str(sample))[:13], 16)


def unusable(question: str) -> str:
    """Why a question cannot be put to any model; empty when it can."""
    try:
        question.encode()
    except UnicodeEncodeError as error:
        return f"the question is not Unicode text: {question[error.start]!r} at character {error.start}"
    return ""


def failed(note: str, samples: int) -> list[Completion]:
    """The completions of a question that could not be put."""
    return [Completion("", 0, "error", note)] * samples


def engine_path(name: str) -> tuple[str, str]:
    """(module, function) of an engine's name or import path.

    Raises:
        RecipeError: unknown name, with the nearest one.
    """
    module, colon, function = ENGINES.get(name, name).partition(":")
    if not colon:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        raise RecipeError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}", f"did you mean {near[0]!r}?" if near else "")
    return module, function


def open_engine(name: str, model: Path | str, *, system: str, batch: int | None, dtype: str) -> Engine:
    """Open an engine by name or import path.

    Args:
        model: a model folder, or the name of a model that a server serves.
        batch: sequences to generate at once; None lets the engine decide.

    Raises:
        RecipeError: unknown name, with the nearest one. EngineError: what it needs is not installed, or of another version.
    """
    from r1pipe.engines.needs import check_engine

    module, function = engine_path(name)
    check_engine(name)
    opened: Engine = getattr(import_module(module), function)(model, system=system, batch=batch, dtype=dtype)
    return opened
