"""Stage 2, reasoning RL: GRPO on problems with checkable answers, with rewards for accuracy, format and language consistency;
Dev1 becomes Dev2.

Paper: 3.2.1 of v2. Departs from it in that the number of steps is a setting (the paper trained "until convergence").
"""

from __future__ import annotations

from typing import Any

from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import read_problems
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stage import StepContext
from r1pipe.train.settings import GrpoSettings


class Config(GrpoSettings):
    """`[reasoning-rl]`."""

    steps: int = 1600


def run(context: StepContext) -> dict[str, Any]:
    """Train the policy on the problems."""
    from r1pipe.train.grpo import train_grpo

    config: Config = context.config
    problems = read_problems(context.inputs["problems"])
    order = prompt_order(
        verifiable=list(range(len(problems))),
        general=[],
        rollouts=config.rollouts,
        questions=config.questions_per_rollout,
        general_from=0,
        general_share=0.0,
        seed=context.seed,
    )
    summary = train_grpo(
        context,
        config,
        policy=context.inputs["policy"],
        problems=problems,
        order=order,
        mix=Mix.build(context.shared["rewards"].rules),
        system=context.shared["chat"].system,
        what="reasoning-rl",
    )
    return {**summary, "verdict_version": VERDICT_VERSION}
