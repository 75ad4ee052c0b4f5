"""Logic: Reasoning Gym's own scorers, by the name of the data set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from r1pipe.data.chat import answer_block
from r1pipe.rewards.base import Score
from r1pipe.rewards.extract import last_box


@lru_cache(maxsize=128)
def scorer(dataset: str) -> Any:
    """The data set's object, which holds its scorer."""
    import reasoning_gym

    return reasoning_gym.create_dataset(dataset, size=1, seed=0)


def judge(gold: str, summary: str, check: Mapping[str, Any]) -> Score:
    """Right when the scorer gives full marks."""
    found = answer_block(summary) or last_box(summary) or summary
    value = float(scorer(check["dataset"]).score_answer(found.strip(), check["entry"]))
    return Score(1.0 if value >= 1.0 else 0.0, f"scorer of {check['dataset']} says {value:g}")
