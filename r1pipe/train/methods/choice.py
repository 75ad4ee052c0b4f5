"""Which method an RL stage uses, what each one needs, and which settings do not fit it. Light: no torch here.

The frame is DeepSeekMath's (arXiv 2402.03300, 5.2.1, Eq. 5 and Table 10): every method follows the gradient

    E[ 1/|o| Σ_t GC(q, o, t) ∇ log π(o_t | q, o_<t) ]

and they differ in where the answers o come from, in the reward, and in the gradient coefficient GC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, PositiveFloat, model_validator

from r1pipe.stage import StepConfig

Method = Literal["grpo", "rft", "online-rft", "grpo-process", "reinforce-loo", "ppo"]


class ProcessSettings(StepConfig):
    """`process = {...}` of an RL stage with `method = "grpo-process"`: who scores the steps of an answer."""

    steps: Literal["rule", "model"] = "rule"
    """"rule" checks each step of a problem that carries its plan, as the built-in ones do; "model" asks a step-scoring model."""
    model: str = ""
    """Folder of the step-scoring model: a reward model that is shown the answer up to the end of each step."""

    @model_validator(mode="after")
    def _model_is_named(self) -> ProcessSettings:
        if (self.steps == "model") != bool(self.model):
            raise ValueError(
                'steps = "model" and model = FOLDER go together: name the folder of a reward model'
                if self.steps == "model"
                else f'model = {self.model!r} is not asked while steps = "{self.steps}": set steps = "model"'
            )
        return self


class PpoSettings(StepConfig):
    """`ppo = {...}` of an RL stage with `method = "ppo"`: the value model, and advantages by GAE (Schulman et al. 2016)."""

    gae_gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of later rewards, by token."""
    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """How far an advantage looks ahead: 1 to the end of the answer; 0.95 is the usual default, and the R1 paper found it clearly
    worse than GRPO (v2 A.3)."""
    value_learning_rate: PositiveFloat | None = None
    """Of the value model; by default the policy's."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a method is made of.

    Attributes:
        answers: where they come from.
        coefficient: the gradient coefficient, in one line.
        own_ratio: whether the ratio to the policy that sampled is part of it.
        sampler: whether a frozen copy of the input model is kept to sample from.
        value_model: whether a second model is trained.
    """

    answers: str
    coefficient: str
    own_ratio: bool = True
    sampler: bool = False
    value_model: bool = False


METHODS: Mapping[Method, Facts] = {
    "grpo": Facts("the policy, in groups", "(reward - group's mean) / group's deviation, and the KL term"),
    "rft": Facts("the stage's input model", "1 for right answers, 0 for others", own_ratio=False, sampler=True),
    "online-rft": Facts("the policy", "1 for right answers, 0 for others", own_ratio=False),
    "grpo-process": Facts(
        "the policy, in groups", "sum of the scores of the steps that end at or after the token, each less the group's mean over "
        "its deviation, and the KL term",
    ),
    "reinforce-loo": Facts("the policy, in groups", "reward - mean of the group's other rewards, and the KL term"),
    "ppo": Facts("the policy", "advantage by GAE, with the KL in the reward of each token", value_model=True),
}  # fmt: skip

LEARNS_FROM_FLAT = ("rft", "online-rft", "ppo")
"""Methods to which a group of equal rewards says something: for them it is no sign of a run without signal."""

_PLAIN: dict[str, Any] = {"advantage_floor": 0.0, "flat_groups": "keep"}
FILLS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {},
    "rft": {"kl": 0.0, "refresh_reference": 0, "advantage_scale": "none", **_PLAIN},
    "online-rft": {"kl": 0.0, "refresh_reference": 0, "advantage_scale": "none", **_PLAIN},
    "grpo-process": {"advantage_scale": "group", **_PLAIN},
    "reinforce-loo": {"advantage_scale": "none", **_PLAIN},
    "ppo": {"advantage_scale": "none", **_PLAIN},
}
"""Method -> what it fills in of the settings that a recipe leaves out."""

_NO_RATIO = "compares no policies: answers are learned like examples"
_MADE = "makes its own advantages"
UNFIT: Mapping[str, Mapping[str, tuple[tuple[Any, ...], str]]] = {
    **{
        method: {
            "kl": ((0.0,), "has a coefficient of 1 or 0 and no KL term"),
            "clip": ((10.0,), _NO_RATIO),
            "clip_high": ((None,), _NO_RATIO),
            "ratio": (("token",), _NO_RATIO),
            "loss": (("grpo", "dr_grpo", "dapo", "bnpo"), "learns from likelihoods, not from clipped ratios"),
            "advantage_scale": (("none",), "has a coefficient of 1 or 0, which nothing divides"),
            "advantage_floor": ((0.0,), "divides by no deviation"),
            "flat_groups": (("keep",), "learns from groups that are all right, too"),
            "overlong_share": ((0.0,), "asks only whether an answer is right: no reward is taken away"),
        }
        for method in ("rft", "online-rft")
    },
    "grpo-process": {
        "ratio": (("token",), "gives each token an advantage of its own"),
        "advantage_scale": (("group",), "divides step scores by the deviation of the group's steps"),
        "advantage_floor": ((0.0,), _MADE),
        "flat_groups": (("keep",), _MADE),
    },
    "reinforce-loo": {
        "advantage_scale": (("none",), "takes off the mean of the other answers and divides by nothing"),
        "advantage_floor": ((0.0,), "divides by no deviation"),
        "flat_groups": (("keep",), _MADE),
    },
    "ppo": {
        "ratio": (("token",), "gives each token an advantage of its own"),
        "advantage_scale": (("none", "batch"), "compares with the value model and not with the group"),
        "advantage_floor": ((0.0,), _MADE),
        "flat_groups": (("keep",), "learns from groups of equal rewards, too"),
    },
}
"""Method -> setting -> (what it may be, why nothing else fits)."""


def fitted(data: Mapping[str, Any], presets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of a recipe, with what its preset and then its method fill in of those that it leaves out."""
    method, preset = data.get("method"), data.get("preset")
    filled: dict[str, Any] = {}
    if isinstance(preset, str):
        filled |= presets.get(preset, {})
    if isinstance(method, str):
        filled |= FILLS.get(method, {})
        if method == "ppo":
            filled["ppo"] = {}
        if method == "grpo-process":
            filled["process"] = {}
    return {**filled, **data}


def refuse_unfit(settings: Any) -> None:
    """Refuse settings that mean nothing for the method.

    Raises:
        ValueError: naming the setting, its value, the reason, and what it may be.
    """
    method = settings.method
    for name, (allowed, reason) in UNFIT.get(method, {}).items():
        found = getattr(settings, name)
        if found not in allowed:
            shown = " or ".join(_word(value) for value in allowed)
            raise ValueError(f'{name} = {_word(found)} does not fit method = "{method}", which {reason}: set {name} = {shown}')
    for name, owner in (("process", "grpo-process"), ("ppo", "ppo")):
        if getattr(settings, name) is not None and method != owner:
            raise ValueError(
                f'the settings under {name} are those of method = "{owner}", and method is "{method}": leave them out'
            )
        if getattr(settings, name) is None and method == owner:
            raise ValueError(f'method = "{owner}" needs its settings: leave {name} out, or give it as {name} = {{...}}')


def _word(value: Any) -> str:
    return "left out" if value is None else f'"{value}"' if isinstance(value, str) else f"{value:g}"
