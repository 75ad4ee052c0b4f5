"""A mix of rewards: several rewards with weights, some of which join late.

The same mix trains, selects and evaluates. Values go to training on a dyadic grid (`quantise`): the float32 mean of eight equal
rewards of 0.7 is not 0.7, and the residue, divided by a standard deviation of nearly zero, becomes an advantage; multiples of a
power of two add up exactly, so equal rewards give an advantage of exactly zero.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from r1pipe.data.rows import Attempt
from r1pipe.errors import RecipeError
from r1pipe.rewards import REWARDS
from r1pipe.rewards.base import Reward, Score

ANSWER_REWARDS = frozenset({"accuracy", "Accuracy", "cosine_length", "CosineLength", "label"})
"""Rewards that judge the answer: a row whose answer they leave unjudged has no total, and so no part in training."""
OWN_REWARD = "a reward is a class with a method score(attempts); docs/own-reward.md shows one"
"""What to do about an own reward of another form."""
TAKEN = ANSWER_REWARDS | {"helpfulness", "safety", "overlong", "total", "tokens"}
"""Names that no further reward may take."""
TOTAL_STEP = 1 / 4096
"""Grid of the totals: fine enough for small weights, coarse enough that float32 sums over thousands of rows stay exact."""


class RewardSpec(BaseModel):
    """One reward of a mix, as a recipe states it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    """A key of `r1pipe.rewards.REWARDS`, or an import path such as `my_pkg.mine:Brevity`."""
    weight: float = 1.0
    """What its value is multiplied with; negative for a penalty that returns positive values."""
    from_step: int = Field(default=0, ge=0)
    """First optimizer step at which it counts; preference rewards join late (paper: the last 400 of 1,700 steps)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the reward's class."""

    @field_validator("weight")
    @classmethod
    def _weight_is_felt(cls, weight: float) -> float:
        if 0 < abs(weight) < TOTAL_STEP:
            raise ValueError(f"totals are multiples of 1/{round(1 / TOTAL_STEP)}, and it would be rounded away")
        return weight

    @property
    def part(self) -> str:
        """Its name in reports: the key, or the class name of an import path."""
        return self.name.rpartition(":")[2]


class NamedReward(RewardSpec):
    """A reward with a name of its own in tables and curves, whatever its class is called."""

    called: str

    @property
    def part(self) -> str:
        """Its name in reports."""
        return self.called


def rules_of(accuracy: RewardSpec, others: Sequence[RewardSpec], more: Mapping[str, RewardSpec]) -> tuple[RewardSpec, ...]:
    """The rewards of a recipe section, in order.

    Args:
        accuracy: says what a right answer is; code of the user's in its place is called "accuracy", so that it decides verdicts.
        more: further rewards, by the name that they are to have.
    """
    judge = NamedReward(**accuracy.model_dump(), called="accuracy") if ":" in accuracy.name else accuracy
    return (judge, *others, *(NamedReward(**spec.model_dump(), called=name) for name, spec in more.items()))


def check_names(more: Mapping[str, RewardSpec]) -> Mapping[str, RewardSpec]:
    """Refuse names of further rewards that mean something else, or cannot be a column's; a ValueError says which."""
    for name in more:
        if name in TAKEN or name in REWARDS:
            raise ValueError(f"{name!r} is the name of something else in tables and curves: call it otherwise")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
            raise ValueError(f"{name!r} cannot be the name of a reward: letters, digits, '_' and '-', a letter first")
    return more


def quantise(value: float, step: float = 1 / 64) -> float:
    """The nearest multiple of `step` (a power of two), halves away from zero; refuses non-finite values with a ValueError."""
    if not math.isfinite(value):
        raise ValueError(f"a reward must be finite, got {value}")
    return math.copysign(math.floor(abs(value) / step + 0.5) * step, value) + 0.0


def load_reward(name: str, options: Mapping[str, Any]) -> Reward:
    """The reward of that name with these options; a RecipeError that names the nearest key when there is none."""
    path = REWARDS.get(name, name)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, REWARDS, n=1, cutoff=0.4)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise RecipeError(
            f"unknown reward {name!r}; known: {', '.join(sorted(REWARDS))}",
            f"{meant}an own reward is named by import path, e.g. 'my_pkg.mine:Brevity'",
        )
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise RecipeError(f"reward {name!r}: cannot import {module_name}: {error}", "check the path and PYTHONPATH") from error
    if not hasattr(module, class_name):
        near = difflib.get_close_matches(class_name, dir(module), n=1)
        raise RecipeError(f"reward {name!r}: {module_name} has no {class_name!r}", f"did you mean {near[0]!r}?" if near else "")
    try:
        reward: Reward = getattr(module, class_name)(**options)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"reward {name!r} does not accept its options {dict(options)}: {error}", OWN_REWARD) from error
    if not callable(getattr(reward, "score", None)):
        raise RecipeError(f"reward {name!r} has no method score(attempts)", OWN_REWARD)
    return reward


@dataclass(frozen=True, slots=True)
class Row:
    """What a mix says of one attempt.

    Attributes:
        parts: reward name -> its score; None where the reward does not apply (or has not joined yet).
        total: weighted sum over the parts that apply and were judged, on the grid of `TOTAL_STEP`; None when the answer was left
            unjudged (`ANSWER_REWARDS`) or nothing could be judged: such a row must be left out of training.
    """

    parts: dict[str, Score | None]
    total: float | None

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "unjudged" by what judges the answer (`ANSWER_REWARDS`); "none" when nothing does."""
        judged = (score for name, score in self.parts.items() if name in ANSWER_REWARDS and score is not None)
        return next((score.verdict for score in judged), "none")


@dataclass(frozen=True)
class Part:
    """A reward with its place in the mix."""

    name: str
    reward: Reward
    weight: float
    from_step: int = 0


@dataclass(frozen=True)
class Mix:
    """Several rewards, weighted by name.

    Attributes:
        parts: the rewards in the recipe's order.
    """

    parts: tuple[Part, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        """Refuse a name that is used twice: scores and weights are kept by name."""
        names = [part.name for part in self.parts]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise RecipeError(f"reward {twice!r} stands twice in the mix", "give one of them another class name, or merge them")

    @staticmethod
    def build(specs: Sequence[RewardSpec]) -> Mix:
        """Load every reward of the recipe; RecipeError for an unknown name, a refused option or a name used twice."""
        parts: list[Part] = []
        for spec in specs:
            parts.append(Part(spec.part, load_reward(spec.name, spec.options), spec.weight, spec.from_step))
        return Mix(tuple(parts))

    @property
    def weights(self) -> dict[str, float]:
        """Reward name -> weight."""
        return {part.name: part.weight for part in self.parts}

    def score(self, attempts: Sequence[Attempt], step: int | None = None) -> list[Row]:
        """Score attempts with every reward that has joined by `step` (None: all of them).

        A reward that returns another number of scores than attempts, or a non-finite value, is a defect and raises RuntimeError
        with its name: such values must never reach training.
        """
        columns: dict[str, list[Score | None]] = {}
        for part in self.parts:
            joined = step is None or step >= part.from_step
            columns[part.name] = score_checked(part, attempts) if joined else [None] * len(attempts)
        return [self._row({name: column[index] for name, column in columns.items()}) for index in range(len(attempts))]

    def _row(self, scores: dict[str, Score | None]) -> Row:
        undecided = any(score is not None and score.value is None for name, score in scores.items() if name in ANSWER_REWARDS)
        judged = [(self.weights[name], score.value) for name, score in scores.items() if score and score.value is not None]
        if not judged or undecided:
            return Row(scores, None)
        return Row(scores, quantise(math.fsum(weight * value for weight, value in judged), TOTAL_STEP))


def score_checked(part: Part, attempts: Sequence[Attempt]) -> list[Score | None]:
    """A part's scores, checked for number and finiteness."""
    scores = list(part.reward.score(attempts))
    if len(scores) != len(attempts):
        raise RuntimeError(f"reward {part.name!r} returned {len(scores)} scores for {len(attempts)} attempts")
    for attempt, score in zip(attempts, scores, strict=True):
        if score is not None and not isinstance(score, Score):
            raise RuntimeError(
                f"reward {part.name!r} gave {score!r} for problem {attempt.problem.id!r}, where a Score or None is expected: "
                "from r1pipe.rewards import Score"
            )
        if score is not None and score.value is not None and not math.isfinite(score.value):
            raise RuntimeError(
                f"reward {part.name!r} gave {score.value} for problem {attempt.problem.id!r}; rewards must be finite"
            )
    return scores
