"""Which prompts were solved how often, and, when the recipe asks for it, which are asked no more.

A prompt whose answers were all right teaches nothing and costs a group each time. With `drop_always_right` it is left out from
the rollout after next: the trainer fetches one rollout ahead, so that is the first one that can depend on this one's results
without depending on when it was fetched. The order is always the one that follows from the seed and from what is recorded here,
and what is recorded is in every checkpoint; so a resumed run asks the same prompts. Light: no torch here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r1pipe.data.rows import Problem
from r1pipe.data.schedule import Order
from r1pipe.data.tables import COUNT, PROBLEM_COLUMNS, problem_row, write_table
from r1pipe.errors import TrainingError

STATE = "prompts.json"
"""Its file in a checkpoint."""
TABLE = "never_solved"
"""The table in the step's folder with the prompts that were asked and never answered right."""
LAG = 2
"""Rollouts from the one in which a prompt was always right to the first one without it."""


@dataclass
class PromptPool:
    """The prompts of a run of reinforcement learning.

    Attributes:
        problems: all of them; rows point into it.
        order: the order in which they would be asked if none was dropped.
        drop: whether prompts that were always right are asked no more.
        answers: row -> answers given so far. right: row -> right ones among them.
        dropped_from: row -> the first rollout without it.
    """

    problems: Sequence[Problem]
    order: Order
    drop: bool
    answers: dict[int, int] = field(default_factory=dict)
    right: dict[int, int] = field(default_factory=dict)
    dropped_from: dict[int, int] = field(default_factory=dict)
    _now: Order | None = None

    def record(self, rollout: int, answered: Sequence[tuple[int, str]]) -> None:
        """Take in a rollout's (row, verdict) pairs, of all processes; rows that no rule judges ("none") are left out."""
        asked: dict[int, list[str]] = {}
        for row, verdict in answered:
            if verdict != "none":
                asked.setdefault(row, []).append(verdict)
        for row, verdicts in asked.items():
            self.answers[row] = self.answers.get(row, 0) + len(verdicts)
            self.right[row] = self.right.get(row, 0) + verdicts.count("right")
            if self.drop and self.right[row] == self.answers[row] and row not in self.dropped_from:
                self.dropped_from[row] = rollout + LAG
                self._now = None

    def row_at(self, place: int) -> int:
        """The row that is asked at a place, counted through all rollouts."""
        rollout, inside = divmod(place, len(self.order.rollouts[0]))
        return self.order_now().rollouts[rollout][inside]

    def order_now(self) -> Order:
        """The order as it follows from what is known now; what lies at most one rollout ahead will not change any more."""
        if self._now is None:
            self._now = self.order.dropping(self.dropped_from) if self.dropped_from else self.order
        return self._now

    def save(self, checkpoint: Path) -> None:
        """Write what is known into a checkpoint, before it is sealed."""
        rows = {row: [count, self.right[row], self.dropped_from.get(row)] for row, count in sorted(self.answers.items())}
        (checkpoint / STATE).write_text(json.dumps(rows), encoding="utf-8")

    def load(self, checkpoint: Path) -> None:
        """Take up what was known when a checkpoint was made."""
        try:
            rows = json.loads((checkpoint / STATE).read_bytes())
        except FileNotFoundError as error:
            raise TrainingError(
                f"{checkpoint.name} has no {STATE}: which prompts were solved is not known", "redo the step with `--redo`"
            ) from error
        self.answers = {int(row): count for row, (count, _, _) in rows.items()}
        self.right = {int(row): right for row, (_, right, _) in rows.items()}
        self.dropped_from = {int(row): rollout for row, (_, _, rollout) in rows.items() if rollout is not None}
        self._now = None

    def report(self, folder: Path) -> dict[str, Any]:
        """Write the prompts that were never answered right as a table, and count the others.

        Returns:
            asked, always_right, dropped, never_solved: prompts.
        """
        never = [row for row, right in sorted(self.right.items()) if not right]
        if never:
            rows = ({**problem_row(self.problems[row]), "answers": self.answers[row]} for row in never)
            write_table(folder / TABLE, rows, {**PROBLEM_COLUMNS, "answers": COUNT})
        return {
            "asked": len(self.answers),
            "always_right": sum(self.right[row] == count for row, count in self.answers.items()),
            "dropped": sum(rollout < len(self.order.rollouts) for rollout in self.dropped_from.values()),
            "never_solved": len(never),
        }
