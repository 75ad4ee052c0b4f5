"""GRPO on problems that a rule can judge, as R1-Zero and stage 2 both do it: the order of the prompts, then the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import read_problems
from r1pipe.rewards import Mix, RewardSpec
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stage import StepContext
from r1pipe.train.settings import GrpoSettings


def train_on_rules(
    context: StepContext, *, policy: Path, rules: Sequence[RewardSpec], what: str, chat_template: str = ""
) -> dict[str, Any]:
    """Train `policy` on the step's input `problems` with rule rewards; returns the summary for the manifest.

    Args:
        rules: the rewards, in order.
        what: label in progress lines and messages.
        chat_template: renders prompts instead of the policy's own, and goes into the model that is made; empty for its own.
    """
    from r1pipe.train.grpo import train_grpo
    from r1pipe.train.prompts import fitting_problems

    config: GrpoSettings = context.config
    policy = config.starts_from(policy)
    found, system = read_problems(context.inputs["problems"]), context.shared["chat"].system
    problems, too_long = fitting_problems(policy, found, system, config.longest_answer, what, chat_template)
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
        policy=policy,
        problems=problems,
        order=order,
        mix=Mix.build(rules),
        system=system,
        what=what,
        chat_template=chat_template,
    )
    return {**summary, "prompts_too_long": too_long, "verdict_version": VERDICT_VERSION}
