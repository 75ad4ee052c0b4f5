"""Stage 3, rejection sampling and SFT: sample from Dev2, keep what is right and readable, add general data, and fine-tune the
**clean base** into Dev3.

Paper: 2.3.3 of v1, B.3.3 and B.4.2 of v2, Table 5. Three steps (sampling is `r1pipe.stages.sampling`, the selection's passes are
`r1pipe.stages.selection`), because their costs differ and each must be redone without the others. Departs from it in that a
model judges what the rules cannot only if the recipe names one; otherwise such rows are dropped as unjudged, and counted.
"""

from __future__ import annotations

from typing import Any

from r1pipe.data.tables import read_examples
from r1pipe.stage import StepContext
from r1pipe.stages.base_model import base_of
from r1pipe.stages.selection.settings import SelectConfig
from r1pipe.train.settings import SftSettings

__all__ = ["SelectConfig", "TrainConfig", "select", "train"]


class TrainConfig(SftSettings):
    """`[rejection-sft.train]`."""


def select(context: StepContext) -> dict[str, Any]:
    """Keep right, readable attempts, at most some per problem; add general rows; say for every attempt why it was kept or
    dropped."""
    from r1pipe.stages.selection.run import select as run

    return run(context)


def train(context: StepContext) -> dict[str, Any]:
    """Fine-tune the clean base on the selection."""
    from r1pipe.train.sft import train_sft

    examples = read_examples(context.inputs["selection"])
    return train_sft(
        context,
        context.config,
        model=base_of(context),
        examples=examples,
        system=context.shared["chat"].system,
        what="rejection-sft",
    )
