"""Questions to prompt tokens, completion tokens to text: the same for every engine that is handed tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1pipe.engines.base import Completion, Sampling, completion_seed, failed, unusable
from r1pipe.engines.text import end_tokens, load_tokenizer, prompt_ids, prompt_prefix, turn_end


@dataclass(frozen=True, slots=True)
class Job:
    """One completion to make.

    Attributes:
        question: the question's place in the list.
        prompt: token ids.
        most: completion tokens at most.
        seed: of this completion alone.
    """

    question: int
    prompt: list[int]
    most: int
    seed: int


@dataclass(frozen=True, slots=True)
class Codec:
    """A model's way with text.

    Attributes:
        tokenizer: checked (see `load_tokenizer`).
        system: system text of every prompt.
        ends: tokens that end a completion.
        prefix: what the template opens for the model.
        positions: tokens that the model takes, prompt and completion together; None when it sets no limit.
    """

    tokenizer: Any
    system: str
    ends: tuple[int, ...]
    prefix: str
    positions: int | None = None

    def jobs(self, questions: Sequence[str], sampling: Sampling) -> tuple[list[Job], dict[int, list[Completion]]]:
        """(completions to make, question by question; place -> completions of the questions that cannot be put)."""
        jobs: list[Job] = []
        bad: dict[int, list[Completion]] = {}
        for place, question in enumerate(questions):
            if why := unusable(question):
                bad[place] = failed(why, sampling.samples)
                continue
            prompt = prompt_ids(self.tokenizer, question, self.system)
            if self.positions is not None and len(prompt) >= self.positions:
                why = f"the prompt has {len(prompt):,} tokens, which leaves no room in the model's {self.positions:,} positions"
                bad[place] = failed(why, sampling.samples)
                continue
            most = sampling.max_tokens if self.positions is None else min(sampling.max_tokens, self.positions - len(prompt))
            jobs += [Job(place, prompt, most, completion_seed(sampling, place, one)) for one in range(sampling.samples)]
        return jobs, bad

    def stopped(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether one of the texts stands at the end of what was generated; to be asked after every token."""
        if not stop:
            return False
        longest = max(len(text.encode()) for text in stop)  # a token is at least a byte
        tail: str = self.tokenizer.decode(ids[-longest - 4 :], skip_special_tokens=True)
        return any(text in tail for text in stop)

    def completion(self, ids: Sequence[int], log_probs: Sequence[float], stopped: bool, stop: Sequence[str]) -> Completion:
        """A completion of its tokens; the end token is one of them.

        Args:
            stopped: whether it ended by a text of `stop`.
        """
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        places = [found for one in stop if (found := text.find(one)) >= 0]
        ended = stopped or bool(ids and ids[-1] in self.ends)
        return Completion(
            text[: min(places)] if places else text,
            len(ids),
            "stop" if ended else "length",
            ids=tuple(ids),
            log_probs=tuple(log_probs),
        )


def open_codec(folder: Path, system: str) -> Codec:
    """The codec of a model folder.

    Raises:
        ArtifactError: see `load_tokenizer` and `turn_end`.
    """
    tokenizer = load_tokenizer(folder)
    turn_end(tokenizer)
    return Codec(tokenizer, system, end_tokens(tokenizer, folder), prompt_prefix(tokenizer, system))
