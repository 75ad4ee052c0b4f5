"""Training runs in miniature, for tests that break them: a reward that crashes or goes quiet at a given rollout, a context."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.schedule import prompt_order
from r1pipe.recipe import Launch
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.stage import Step, StepContext
from r1pipe.train.settings import GrpoSettings, SftSettings

PROBLEMS = [Problem(id=str(n), question=f"{n}+1=", answer=str(n + 1)) for n in range(40)]
GRPO = GrpoSettings(
    steps=8,
    questions_per_step=2,
    group=4,
    minibatches=2,
    learning_rate=1e-2,
    kl=0.1,
    max_completion_tokens=12,
    refresh_reference=4,
)


class Crash(Exception):
    """Stands for the moment of a kill: nothing after it runs, what is on disk stays."""


class Rule:
    """Rewards the share of even bytes, so that groups differ; crashes at a given call, gives zero from another on."""

    def __init__(self, crash_at: int = -1, zero_from: int = 1_000) -> None:
        self.calls = 0
        self.crash_at = crash_at
        self.zero_from = zero_from

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        self.calls += 1
        if self.calls == self.crash_at:
            raise Crash
        if self.calls >= self.zero_from:
            return [Score(0.0) for _ in attempts]
        return [Score(round(8 * sum(ord(c) % 2 == 0 for c in a.completion) / max(1, len(a.completion))) / 8) for a in attempts]


def context(folder: Path, stop: Any = lambda: False, outputs: tuple[str, ...] = ("model",), **launch: Any) -> StepContext:
    folder.mkdir(parents=True, exist_ok=True)
    step = Step("toy", "toy", lambda _: {}, SftSettings, writes=dict.fromkeys(outputs, "model"))
    settings = Launch(**{"checkpoint_every": 2, "threads": 1, **launch})
    return StepContext(step, None, {"chat": SimpleNamespace(system="")}, settings, {}, {"policy": "d"}, folder, 3, stop)


def grpo(
    ctx: StepContext,
    base: Path,
    settings: GrpoSettings = GRPO,
    crash_at: int = -1,
    late: int = 0,
    mix: Mix | None = None,
    problems: int = 40,
    held_out: Any = None,
) -> dict[str, Any]:
    from r1pipe.train.grpo import train_grpo

    order = prompt_order(
        verifiable=list(range(problems)), general=[], rollouts=settings.rollouts, questions=settings.questions_per_rollout,
        general_from=0, general_share=0.0, seed=3,
    )  # fmt: skip
    mix = mix or Mix((Part("rule", Rule(crash_at), 1.0), Part("late", Rule(), 0.5, late)))
    return train_grpo(
        ctx, settings, policy=base, problems=PROBLEMS, order=order, mix=mix, system="", what="toy", held_out=held_out
    )
