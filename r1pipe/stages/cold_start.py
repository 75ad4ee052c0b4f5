"""Stage 1, cold start: the base learns to write readable long thinking from a few thousand traces, and becomes Dev1.

Paper: 2.3.1 of v1, B.3.2 and B.4.2 of v2. In the pipeline r1-full the traces are built from what R1-Zero wrote
(`r1pipe.stages.traces`). Departs from the paper in that no people rewrite them, and in the pipeline r1 in that they are given:
from a file, or from the built-in problems' worked solutions.
"""

from __future__ import annotations

from typing import Any

from r1pipe.data.tables import read_examples
from r1pipe.stage import StepContext
from r1pipe.stages.base_model import base_of
from r1pipe.train.settings import SftSettings


class Config(SftSettings):
    """`[cold-start]`."""


def run(context: StepContext) -> dict[str, Any]:
    """Fine-tune the base on the traces."""
    from r1pipe.train.sft import train_sft

    examples = read_examples(context.inputs["traces"])
    return train_sft(
        context,
        context.config,
        model=base_of(context),
        examples=examples,
        system=context.shared["chat"].system,
        what="cold-start",
    )
