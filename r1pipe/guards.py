"""When going on would be wrong: the signs of a reinforcement-learning run that is lost, and what is said of each.

A guard looks at the lines of metrics.jsonl as they are written and counts how long a sign has lasted. Its state follows from
those lines alone, so a resumed run, whose file ends at its checkpoint, counts on exactly where the unbroken run would have been.
Guards change nothing of what is made; they only stop. So they stand under `[launch]`, and may be loosened for a run that stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class GuardSettings(BaseModel):
    """`[launch.guards]`: how long each sign may last before the run stops; a length of 0 turns the guard off."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    entropy_below: float = Field(default=0.002, ge=0)
    """Mean entropy per token, in nats, below which the policy has stopped exploring."""
    entropy_steps: int = Field(default=16, ge=0)
    """Optimizer steps in a row."""
    kl_above: float = Field(default=10.0, gt=0)
    """Mean KL per token to the reference, in nats, above which the policy has left it for good."""
    kl_steps: int = Field(default=4, ge=0)
    """Optimizer steps in a row."""
    zero_rewards: tuple[str, ...] = ("accuracy", "format")
    """Rewards that must not stay at exactly zero."""
    zero_reward_rollouts: int = Field(default=8, ge=0)
    """Rollouts in a row."""
    truncated_share: float = Field(default=0.95, gt=0, le=1)
    """Share of the answers that were cut off at the length limit, from which on no rollout is any good."""
    truncated_rollouts: int = Field(default=8, ge=0)
    """Rollouts in a row."""
    flat_share: float = Field(default=0.9, gt=0, le=1)
    """Share of groups without signal above which a warning is given; nothing stops."""
    flat_rollouts: int = Field(default=4, ge=0)
    """Rollouts in a row."""


class HackingSettings(BaseModel):
    """`[launch.hacking]`: looks at held-out problems while preference rewards are on; see `r1pipe.train.hacking`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    every: int = Field(default=48, ge=0)
    """Optimizer steps between two looks, put at rollouts' ends; also one at the switch and one at the end. 0: no looks."""
    problems: PositiveInt = 256
    """Held-out problems that a rule judges: the last ones of the evaluation set, answered greedily."""
    general: PositiveInt = 64
    """Held-out general prompts that the reward models judge: the last ones of their evaluation set."""
    action: Literal["warn", "stop"] = "warn"
    """What is done once preference is up and accuracy down by more than chance: tell it, or stop the run."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A sign that has lasted too long.

    Attributes:
        guard: its name, e.g. "entropy".
        problem: what was seen, with numbers.
        hint: what to change.
        fatal: whether the run must stop; otherwise it is a warning.
        since: the last optimizer step before the sign was first seen.
        values: what was seen in a row, oldest first.
    """

    guard: str
    problem: str
    hint: str
    fatal: bool
    since: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sign:
    """One look at one number: whether it is bad, and what follows when that lasts."""

    guard: str
    value: float
    bad: bool
    limit: int
    problem: str
    hint: str
    fatal: bool = True


@dataclass
class Guards:
    """Counts, for each guard, what was seen in a row.

    Attributes:
        settings: the limits.
    """

    settings: GuardSettings
    _seen: dict[str, list[float]] = field(default_factory=dict)
    _since: dict[str, int] = field(default_factory=dict)

    def observe(self, line: Mapping[str, Any]) -> Alarm | None:
        """Look at a line of metrics.jsonl; returns the first alarm that it gives rise to, the fatal ones before warnings."""
        step = int(line.get("step", 0))
        before = step - 1 if line.get("kind") == "step" else step  # a step's numbers are of the policy before its update
        alarms = []
        for sign in _signs(line, self.settings):
            if not sign.bad:
                self._seen.pop(sign.guard, None)
                self._since.pop(sign.guard, None)
                continue
            seen = self._seen.setdefault(sign.guard, [])
            seen.append(sign.value)
            since = self._since.setdefault(sign.guard, before)
            if sign.limit and (len(seen) == sign.limit or (sign.fatal and len(seen) > sign.limit)):
                lasted = f"for {len(seen)} {'steps' if line.get('kind') == 'step' else 'rollouts'} in a row"
                problem = sign.problem.format(lasted=lasted)
                alarms.append(Alarm(sign.guard, problem, sign.hint, sign.fatal, since, tuple(seen[-16:])))
        return min(alarms, key=lambda alarm: not alarm.fatal, default=None)

    def suspect_since(self) -> int | None:
        """The last step before any sign that lasts now and could stop the run: those up to it are good. None: none lasts."""
        return min((step for guard, step in self._since.items() if guard != "flat"), default=None)


def _signs(line: Mapping[str, Any], settings: GuardSettings) -> Iterator[Sign]:
    """What a line tells each guard."""
    if line.get("kind") == "step":
        yield from _step_signs(line, settings)
    elif line.get("kind") == "rollout":
        yield from _rollout_signs(line, settings)


def _step_signs(line: Mapping[str, Any], settings: GuardSettings) -> Iterator[Sign]:
    loss, entropy, kl = (_number(line.get(key)) for key in ("loss", "entropy", "kl"))
    if loss is not None and not math.isfinite(loss):
        yield Sign(
            "loss", loss, True, 1, f"the loss of step {line.get('step')} is {loss}",
            "lower the learning rate, or look at the batch below",
        )  # fmt: skip
    if entropy is not None:
        yield Sign(
            "entropy", entropy, entropy < settings.entropy_below, settings.entropy_steps,
            f"the entropy has collapsed: {entropy:.3g} nats a token, below {settings.entropy_below:g} {{lasted}}",
            "lower the learning rate, or raise clip_high or kl; [launch.guards] entropy_below and entropy_steps say when to stop",
        )  # fmt: skip
    if kl is not None:
        yield Sign(
            "kl", kl, not kl <= settings.kl_above, settings.kl_steps,
            f"the policy has left its reference: KL {kl:.3g} nats a token, above {settings.kl_above:g} {{lasted}}",
            "lower the learning rate, or raise kl; [launch.guards] kl_above and kl_steps say when to stop",
        )  # fmt: skip


def _rollout_signs(line: Mapping[str, Any], settings: GuardSettings) -> Iterator[Sign]:
    rewards = line.get("rewards") or {}
    for name in settings.zero_rewards:
        value = _number(rewards.get(name))
        if value is not None:
            yield Sign(
                f"zero {name}", value, value == 0.0, settings.zero_reward_rollouts,
                f"reward {name} has been zero for every answer {{lasted}}: nothing can be learned from it",
                "look at the answers with `r1pipe inspect STEP --part last`: easier problems, another prompt, a longer limit, "
                "or a lower learning rate where it was above zero before; "
                "[launch.guards] zero_reward_rollouts says when to stop",
            )  # fmt: skip
    truncated, flat = _number(line.get("truncated_share")), _number(line.get("flat_share"))
    if truncated is not None:
        yield Sign(
            "truncated", truncated, truncated >= settings.truncated_share, settings.truncated_rollouts,
            f"{truncated:.0%} of the answers were cut off at the length limit, {settings.truncated_share:.0%} or more {{lasted}}",
            "raise max_completion_tokens, or make sure that the model ends its turns; "
            "[launch.guards] truncated_rollouts says when to stop",
        )  # fmt: skip
    if flat is not None:
        right, wrong = (_number(line.get(key)) or 0.0 for key in ("flat_right", "flat_wrong"))
        yield Sign(
            "flat", flat, flat > settings.flat_share, settings.flat_rollouts,
            f"{flat:.0%} of the groups have no signal, more than {settings.flat_share:.0%} {{lasted}} "
            f"({right:.0%} all right, {wrong:.0%} all wrong)",
            "harder problems, or easier ones",
            fatal=False,
        )  # fmt: skip


def _number(found: Any) -> float | None:
    """A number of a line, also of an array library; None when there is none."""
    if found is None or isinstance(found, str | bool):
        return None
    return float(found)
