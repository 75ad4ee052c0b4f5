"""Sampling in rounds: which problems of a shard are asked again, and what has become of each.

A problem is asked no more when it has enough answers that can be kept, when it is hopeless, when it has had all its samples, or
when the shard's share of the token budget is used up. All of it follows from the shard's own rows, and each round has a seed of
its own, so a shard that is made again is the same shard. With a fixed number of samples (the paper's way) there is one round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, PositiveInt

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Problem
from r1pipe.data.tables import COUNT, NUMBER, TEXT, attempt_of, content_id
from r1pipe.stage import StepConfig
from r1pipe.stages.keeping import KeepSection, why_dropped

BY_PROBLEM_COLUMNS = {
    "id": TEXT, "domain": TEXT, "language": TEXT, "level": TEXT, "source": TEXT, "tried": COUNT, "right": COUNT, "wrong": COUNT,
    "unjudged": COUNT, "errors": COUNT, "usable": COUNT, "tokens": COUNT, "pass_rate": NUMBER, "ended": TEXT,
}  # fmt: skip
"""Columns of the statistics by problem. pass_rate: right among the judged answers; null when none was judged. usable: different
answers that can be kept; null where a fixed number was asked."""


class AdaptiveSection(StepConfig):
    """`adaptive` of a sampling step: ask in rounds, and stop asking where it is of no more use. The paper asks a fixed number."""

    enough: PositiveInt = 1
    """Different answers that are right and readable (by the default thresholds of the selection) after which a problem is asked
    no more."""
    hopeless_after: int = Field(default=0, ge=0)
    """Answers, none of them right, after which a problem is given up; 0 gives none up before `samples`."""
    per_round: PositiveInt = 1
    """Answers per problem in a round."""
    budget_tokens: int = Field(default=0, ge=0)
    """Completion tokens for the whole step, shared out over its shards by problems; 0 sets no limit. It is kept as closely as the
    length of answers can be foreseen."""


@dataclass(slots=True)
class Asked:
    """One problem of a shard and what has become of it."""

    problem: Problem
    counts: Counter[str] = field(default_factory=Counter)
    usable: set[str] = field(default_factory=set)
    tried: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """What is to be generated next: `samples` answers for each of the problems, numbered from `first`."""

    problems: tuple[Problem, ...]
    samples: int
    first: int
    seed: int


@dataclass
class Shard:
    """One shard on its way: its problems, the rounds so far and their rows.

    Attributes:
        seed: of the first round; later rounds have their own.
        samples: the most answers of a problem.
        budget: tokens that it may use; 0 for any number.
        max_tokens: longest answer.
    """

    number: int
    problems: Sequence[Problem]
    seed: int
    samples: int
    max_tokens: int
    adaptive: AdaptiveSection | None = None
    budget: float = 0.0
    rounds: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    over: bool = False

    def next_round(self) -> Round | None:
        """What to ask now; None when the shard is finished. Its answer depends on nothing but the rows that were added."""
        if self.over:
            return None
        if not self.asked:
            self.asked = {problem.id: Asked(problem) for problem in self.problems}
        if self.adaptive is None:
            return Round(tuple(self.problems), self.samples, 0, self.seed) if not self.rounds else None
        waiting = [one for one in self.asked.values() if not self._ended(one)]
        if not waiting:
            return None
        first = min(one.tried for one in waiting)
        samples = min(self.adaptive.per_round, self.samples - first)
        behind = [one.problem for one in waiting if one.tried == first]
        chosen = behind[: self._affordable(samples)]
        seed = self.seed if not self.rounds else int(content_id("round", str(self.seed), str(self.rounds))[:8], 16)
        return Round(tuple(chosen), samples, first, seed) if chosen else None

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Take up the scored rows of a round."""
        self.rounds += 1
        self.rows += rows
        for row in rows:
            one = self.asked[row["id"]]
            one.tried += 1
            one.tokens += row["tokens"]
            one.counts["error" if row["error"] else row["verdict"]] += 1
            if self.adaptive is not None and not why_dropped(row, KeepSection()):
                one.usable.add(content_id(str(split_response(attempt_of(row).text).thinking)))

    def close(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The shard is finished: its rows, in the order of problems and samples, and the statistics; both are forgotten here."""
        order = {name: place for place, name in enumerate(self.asked)}
        rows = sorted(self.rows, key=lambda row: (order[row["id"]], row["sample"]))
        statistics = self.statistics()
        self.over, self.rows, self.asked = True, [], {}
        return rows, statistics

    def statistics(self) -> list[dict[str, Any]]:
        """One row per problem, in the shard's order."""
        return [self._statistics(one) for one in self.asked.values()]

    def _statistics(self, one: Asked) -> dict[str, Any]:
        problem, right, wrong = one.problem, one.counts["right"], one.counts["wrong"]
        return {
            "id": problem.id, "domain": problem.domain, "language": problem.language, "level": problem.level,
            "source": problem.source, "tried": one.tried, "right": right, "wrong": wrong,
            "unjudged": one.counts["unjudged"] + one.counts["none"], "errors": one.counts["error"],
            "usable": None if self.adaptive is None else len(one.usable), "tokens": one.tokens,
            "pass_rate": right / (right + wrong) if right + wrong else None, "ended": self._ended(one) or "budget",
        }  # fmt: skip

    def _ended(self, one: Asked) -> str:
        """Why a problem is asked no more; empty while it may be."""
        if self.adaptive is not None and len(one.usable) >= self.adaptive.enough:
            return "enough"
        if one.tried >= self.samples:
            return "all samples"
        if self.adaptive is not None and 0 < self.adaptive.hopeless_after <= one.tried and not one.counts["right"]:
            return "hopeless"
        return ""

    def _affordable(self, samples: int) -> int:
        """Problems that a round of so many answers each can be paid for; by the longest answer until some are there."""
        if not self.budget:
            return len(self.problems)
        used, tried = sum(one.tokens for one in self.asked.values()), sum(one.tried for one in self.asked.values())
        length = used / tried if tried else self.max_tokens
        paid = int((self.budget - used) / (max(1.0, length) * samples))
        return max(paid, 0 if self.rounds else 1)  # every shard asks something


def rate_label(rate: float | None) -> str:
    """The bar of a histogram that a pass rate belongs to: exactly 0, tenths, exactly 1, and what was never judged."""
    if rate is None:
        return "not judged"
    if rate in (0.0, 1.0):
        return f"{rate:.0f}"
    low = min(9, int(rate * 10 + 1e-9))
    return f"{low / 10:.1f}–{(low + 1) / 10:.1f}"


RATE_LABELS = ("0", *(f"{low / 10:.1f}–{(low + 1) / 10:.1f}" for low in range(10)), "1", "not judged")
"""The bars in order."""
