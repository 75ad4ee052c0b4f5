"""Stage 2, reasoning RL: GRPO on problems with checkable answers, with rewards for accuracy, format and language consistency;
Dev1 becomes Dev2.

Paper: 3.2.1 of v2. Departs from it in that the number of steps is a setting (the paper trained "until convergence").
"""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt

from r1pipe.stage import StepContext
from r1pipe.stages.rules_rl import train_on_rules
from r1pipe.train.settings import GrpoSettings


class Config(GrpoSettings):
    """`[reasoning-rl]`."""

    steps: PositiveInt = 1600


def run(context: StepContext) -> dict[str, Any]:
    """Train the policy on the problems."""
    return train_on_rules(context, policy=context.inputs["policy"], rules=context.shared["rewards"].rules, what="reasoning-rl")
