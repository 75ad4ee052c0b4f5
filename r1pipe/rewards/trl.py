"""The one-line bridge to TRL: any reward of this package as a TRL reward function.

    from r1pipe.rewards import Accuracy, as_trl_reward

    GRPOTrainer(..., reward_funcs=[as_trl_reward(Accuracy())], train_dataset=rows_with("prompt", "answer"))

TRL calls `f(prompts=…, completions=…, completion_ids=…, **columns)` and takes a list of floats, None where a reward does not
apply. Columns named like the fields of `r1pipe.data.rows.Problem` are read (`answer`, `checker`, `language`, `check`, …),
also `problem` (a `Problem`, or its fields as a dict or as JSON text) and `prefix` (what the template had already opened, such
as "<think>\\n"). No torch is needed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from r1pipe.data.rows import Attempt, Problem
from r1pipe.rewards.base import Reward
from r1pipe.rewards.mix import quantise

_FIELDS = tuple(f.name for f in fields(Problem))


def as_trl_reward(reward: Reward, *, prefix: str = "", rename: Mapping[str, str] | None = None, **defaults: Any) -> TrlReward:
    """A TRL reward function made of one of our rewards.

    Args:
        reward: e.g. `Accuracy()`.
        prefix: what the chat template had already opened for the model; a `prefix` column wins over it.
        rename: field of `Problem` -> name of the data set's column, e.g. `{"answer": "solution"}`.
        defaults: fields of `Problem` that are the same for every row, e.g. `checker="choice"`.
    """
    unknown = [name for name in (*(rename or {}), *defaults) if name not in _FIELDS]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no field of Problem; fields: {', '.join(_FIELDS)}")
    return TrlReward(reward, prefix, dict(rename or {}), dict(defaults))


@dataclass(frozen=True)
class TrlReward:
    """A reward that TRL can call; picklable, with the `__name__` that TRL logs under."""

    reward: Reward
    prefix: str = ""
    rename: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def __name__(self) -> str:
        return type(self.reward).__name__.lower()

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """One value per completion, on the dyadic grid; None for "does not apply" and for "unjudged"."""
        attempts = [self._attempt(index, prompts, completions, columns) for index in range(len(completions))]
        scores = self.reward.score(attempts)
        return [None if score is None or score.value is None else quantise(score.value) for score in scores]

    def _attempt(self, index: int, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]) -> Attempt:
        values = dict(self.defaults)
        for name in _FIELDS:
            found = cell(columns, self.rename.get(name, name), index)
            if found is not None:
                values[name] = found
        problem = as_problem(cell(columns, "problem", index), values)
        if problem is None:
            problem = as_problem({"question": message_text(prompts[index]), **values}, {})
        assert problem is not None
        ids = cell(columns, "completion_ids", index)
        prefix = cell(columns, "prefix", index)
        return Attempt(
            problem=problem,
            completion=message_text(completions[index]),
            prefix=self.prefix if prefix is None else str(prefix),
            tokens=0 if ids is None else len(ids),
        )


def cell(columns: Mapping[str, Any], name: str, index: int) -> Any:
    """A column's value for a row; None where there is no such column (TRL also passes things that are no columns)."""
    column = columns.get(name)
    return column[index] if isinstance(column, (list, tuple)) and index < len(column) else None


def message_text(value: Any) -> str:
    """The text of a prompt or completion: plain text, or the content of the last message of a conversation."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and isinstance(value[-1], Mapping):
        content = value[-1].get("content")
        if isinstance(content, list):  # typed parts
            return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
        return content or ""
    raise TypeError(f"expected text or a list of messages, got {type(value).__name__}")


def as_problem(value: Any, values: Mapping[str, Any]) -> Problem | None:
    """A `Problem` from a Problem, a dict or JSON text; None for plain text (some data sets call the question "problem")."""
    if isinstance(value, Problem):
        return value
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return None
        value = json.loads(value)
    if not isinstance(value, Mapping):
        return None
    merged = {**values, **{name: value[name] for name in _FIELDS if value.get(name) is not None}}
    if isinstance(merged.get("check"), str):
        merged["check"] = json.loads(merged["check"])
    merged["answer"] = str(merged.get("answer", ""))
    merged.setdefault("id", "")
    merged.setdefault("question", "")
    return Problem(**merged)
