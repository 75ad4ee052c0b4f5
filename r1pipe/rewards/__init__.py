"""Rewards and answer checkers: one definition of correct for training, selection and evaluation.

    from r1pipe.rewards import Accuracy, Mix, RewardSpec, as_trl_reward

Names are loaded on first use, so importing this package costs nothing and needs neither torch nor SymPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

REWARDS: dict[str, str] = {
    "accuracy": "r1pipe.rewards.accuracy:Accuracy",
    "format": "r1pipe.rewards.format:FormatReward",
    "language": "r1pipe.rewards.language:LanguageConsistency",
    "readability": "r1pipe.rewards.readability:Readability",
    "overlong": "r1pipe.rewards.length:OverlongPenalty",
    "cosine_length": "r1pipe.rewards.length:CosineLength",
    "judge": "r1pipe.engines.judge:Judge",
    "score-server": "r1pipe.engines.score_server:ScoreServer",
}
"""Reward name in a recipe -> where its class lives; an own reward is named by import path instead, `my_pkg.mine:Brevity`."""

_EXPORTS: dict[str, str] = {
    "Accuracy": "r1pipe.rewards.accuracy",
    "Attempt": "r1pipe.data.rows",
    "FormatReward": "r1pipe.rewards.format",
    "LanguageConsistency": "r1pipe.rewards.language",
    "Mix": "r1pipe.rewards.mix",
    "Problem": "r1pipe.data.rows",
    "Readability": "r1pipe.rewards.readability",
    "Reward": "r1pipe.rewards.base",
    "RewardSpec": "r1pipe.rewards.mix",
    "Row": "r1pipe.rewards.mix",
    "Score": "r1pipe.rewards.base",
    "as_trl_reward": "r1pipe.rewards.trl",
    "quantise": "r1pipe.rewards.mix",
}

if TYPE_CHECKING:
    from r1pipe.data.rows import Attempt, Problem
    from r1pipe.rewards.accuracy import Accuracy
    from r1pipe.rewards.base import Reward, Score
    from r1pipe.rewards.format import FormatReward
    from r1pipe.rewards.language import LanguageConsistency
    from r1pipe.rewards.mix import Mix, RewardSpec, Row, quantise
    from r1pipe.rewards.readability import Readability
    from r1pipe.rewards.trl import as_trl_reward

__all__ = [
    "REWARDS",
    "Accuracy",
    "Attempt",
    "FormatReward",
    "LanguageConsistency",
    "Mix",
    "Problem",
    "Readability",
    "Reward",
    "RewardSpec",
    "Row",
    "Score",
    "as_trl_reward",
    "quantise",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
