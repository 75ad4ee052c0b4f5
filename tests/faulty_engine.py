"""An engine for tests of what holds engines: answers a question with itself, or fails as the question says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from r1pipe.engines.base import Completion, Sampling, completion_seed


class FaultyEngine:
    """ "die" ends the process, "die once FILE" until FILE is there, "raise" raises each time, "wait SECONDS" takes so long."""

    prefix = ""

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        for question in questions:
            words = question.split()
            if words[0] == "die" and (len(words) == 1 or not Path(words[-1]).exists()):
                if len(words) > 1:
                    Path(words[-1]).touch()
                os._exit(9)
            if words[0] == "wait":
                time.sleep(float(words[1]))
            if words[0] == "raise":
                raise RuntimeError(f"no answer to {question!r}")
        for place, question in enumerate(questions):
            yield [
                Completion(
                    f"{question} {completion_seed(sampling, place, sample)}", 3, "stop", ids=(5, 6, 1), log_probs=(-0.1,) * 3
                )
                for sample in range(sampling.samples)
            ]

    def close(self) -> None:
        """Holds nothing."""


def open_engine(model: Path | str, **settings: Any) -> FaultyEngine:
    if settings["dtype"] == "bfloat16":
        raise RuntimeError("this engine cannot be opened")
    return FaultyEngine()
