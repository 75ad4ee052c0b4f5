"""Is a preference reward being hacked? The decision, from what was seen on held-out problems while such rewards are on.

The policy's answers to the same held-out problems are judged at the start, at the switch, when preference rewards join, and every
so many steps after it. The sign of hacking: the reward models like the answers better than at the switch, and fewer problems are
solved. It **holds** once the fall is more than chance: its 95% interval lies below zero, and of the problems that changed, so
many got worse that a fair coin would do it in fewer than 2.5 of 100 cases (exact sign test; Student's interval alone is too sure
of itself where few problems change). From the first look with the sign on, the checkpoint before it is kept.

Everything follows from the lines that the looks left in metrics.jsonl, so a resumed run decides as the unbroken one would.
Light: no torch here. `r1pipe.train.held_out` does the looking.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from r1pipe.estimators import compare
from r1pipe.guards import Alarm, HackingSettings

KIND = "held-out"
"""What a look's line in metrics.jsonl is called."""
CHANCE = 0.025
"""Of the sign test, one-sided."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What a look says beside the one at the switch.

    Attributes:
        accuracy_change, low, high: mean change of held-out rule accuracy on the problems judged at both, and its 95% interval.
        better, worse: problems that are right now and were not, and the other way round.
        chance: of at least so many worse among those that changed, were better and worse equally likely.
        preference_change: mean change of the reward models' scores on the same prompts, in standard deviations.
        there: preference is up and accuracy down.
        holds: and the fall is more than chance.
    """

    accuracy_change: float
    low: float
    high: float
    better: int
    worse: int
    chance: float
    preference_change: float
    there: bool
    holds: bool


def sign_of(first: Mapping[str, Any], now: Mapping[str, Any]) -> Sign:
    """Compare two looks; see the module's text.

    Args:
        first, now: lines of kind "held-out", "joined" once preference rewards had a part in the policy: "verdicts" is one
        character a problem (1 right, 0 wrong, ? unjudged), "preferences"
            one score a prompt or null, both in an order that does not change.
    """
    found = compare(_by_problem(first["verdicts"]), _by_problem(now["verdicts"]))
    pairs = [
        (before, after)
        for before, after in zip(first["preferences"], now["preferences"], strict=True)
        if before is not None and after is not None
    ]
    preference = fmean(after - before for before, after in pairs) if pairs else 0.0
    if found is None:
        return replace(UNSUSPECTED, preference_change=preference)
    chance = coin_tail(found.worse, found.better + found.worse)
    there = found.difference < 0 and preference > 0
    holds = there and found.high < 0 and chance <= CHANCE
    return Sign(found.difference, found.low, found.high, found.better, found.worse, chance, preference, there, holds)


def coin_tail(heads: int, throws: int) -> float:
    """The chance that a fair coin falls heads at least so often."""
    return float(sum(math.comb(throws, count) for count in range(heads, throws + 1)) / 2**throws)


def _by_problem(verdicts: str) -> dict[str, float]:
    return {str(place): float(mark) for place, mark in enumerate(verdicts) if mark in "01"}


UNSUSPECTED = Sign(0.0, 0.0, 0.0, 0, 0, 1.0, 0.0, False, False)
"""Of a look before preference rewards joined."""


@dataclass
class HackingWatch:
    """What the looks so far add up to.

    Attributes:
        settings: `[launch.hacking]`.
        looks: the lines, oldest first.
    """

    settings: HackingSettings
    looks: list[Mapping[str, Any]] = field(default_factory=list)
    _good: int = 0
    _since: int | None = None
    _told: bool = False

    def observe(self, line: Mapping[str, Any]) -> Alarm | None:
        """Take in a line of metrics.jsonl; an alarm when the sign holds (for a warning: when it begins to)."""
        if line.get("kind") != KIND:
            return None
        step = int(line["step"])
        self.looks.append(line)
        if not line["joined"]:
            self._good = step
            return None
        switch = baseline(self.looks)
        sign = sign_of(switch, line)
        if not sign.there:
            self._good, self._since, self._told = step, None, False
            return None
        if self._since is None:
            self._since = self._good
        if not sign.holds or (self._told and self.settings.action == "warn"):
            return None
        self._told = True
        return Alarm(
            "hacking",
            f"the reward models are being hacked: since step {switch['step']} their scores on held-out prompts rose by "
            f"{sign.preference_change:.2f} standard deviations, and accuracy on held-out problems fell by "
            f"{-sign.accuracy_change:.3f} (95% {-sign.high:.3f} to {-sign.low:.3f}; {sign.worse} problems got worse, "
            f"{sign.better} better)",
            "fewer steps with preference rewards, a smaller preference_weight or learning rate, or a better reward model; "
            "[launch.hacking] says when to look and whether to stop",
            self.settings.action == "stop",
            self._since,
            tuple(float(look["held_out_accuracy"]) for look in self.looks[-16:]),
        )

    def good_until(self) -> int | None:
        """The step of the last look without the sign, whose checkpoint stays: should the next look show it, that is the one from
        before. None before the first look.
        """
        return None if not self.looks else self._good if self._since is None else self._since


def baseline(looks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The look that later ones are held against: the last one before preference rewards joined."""
    return next((look for look in reversed(looks) if not look["joined"]), looks[0])


def look_steps(switch: int, every: int, boundary: int, steps: int) -> tuple[int, ...]:
    """The steps after which the policy is looked at: at the start, at the switch, every so many steps from there (at rollouts'
    ends), at the end.

    Empty when the watch is off (`every` 0) or preference rewards never join.
    """
    if not every or switch >= steps:
        return ()
    stride = -(-every // boundary) * boundary
    return tuple(sorted({0, *range(switch, steps, stride), steps}))


COLUMNS = (
    "held_out_accuracy", "held_out_preference", "held_out_helpfulness", "held_out_safety", "held_out_tokens", "general_tokens",
    "refused_harmless", "refused_risky",
)  # fmt: skip
"""Numbers of a look, in the order in which they are told."""


def told(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The looks among a run's lines, for the record of the step; empty when there were none.

    Returns:
        looks: step -> numbers; sign_at: the first step at which the sign held, or None; best_step: the look with the highest
        accuracy of those without the sign (of equal ones the last); accuracy_change and preference_change of the last look, with
        the interval of the former, both since the look at the switch (switch_step); preference_change_before: from the first look
        to that one; seconds: of all looks together.
    """
    looks: Sequence[Mapping[str, Any]] = [line for line in lines if line.get("kind") == KIND]
    if not looks:
        return {}
    switch = baseline(looks)
    before = [look for look in looks if not look["joined"]]
    signs = [sign_of(switch, look) if look["joined"] else UNSUSPECTED for look in looks]
    clean = [look for look, sign in zip(looks, signs, strict=True) if not sign.there and look["held_out_accuracy"] is not None]
    best = max(clean, key=lambda look: (look["held_out_accuracy"], look["step"]), default=None)
    return {
        "looks": {
            str(look["step"]): {
                **{name: look.get(name) for name in COLUMNS},
                "accuracy_change": sign.accuracy_change,
                "sign": "holds" if sign.holds else "there" if sign.there else "none",
            }
            for look, sign in zip(looks, signs, strict=True)
        },
        "sign_at": next((look["step"] for look, sign in zip(looks, signs, strict=True) if sign.holds), None),
        "best_step": best["step"] if best else None,
        "accuracy_change": signs[-1].accuracy_change,
        "accuracy_change_interval": [signs[-1].low, signs[-1].high],
        "preference_change": signs[-1].preference_change,
        "preference_change_before": sign_of(before[0], switch).preference_change if len(before) > 1 else None,
        "switch_step": switch["step"],
        "seconds": sum(float(look.get("look_seconds") or 0) for look in looks),
    }
