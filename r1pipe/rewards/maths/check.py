"""The maths checker for many answers at once: the cheap paths in this process, the rest in scoring processes.

A comparison that runs out of time or memory is asked once more with the gold answer alone. When that works, the model's
answer was to blame and is wrong; when it does not, the gold answer cannot be judged by, and the row stays unjudged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from r1pipe.rewards.base import Score
from r1pipe.rewards.maths.compare import LENIENT, Rules
from r1pipe.rewards.maths.judge import Decision, decide, prepare
from r1pipe.rewards.maths.symbolic import hazard
from r1pipe.rewards.service import Outcome, Pool, shared_pool

SECONDS = 5.0
"""Wall time for one symbolic comparison."""
REMEMBERED = 4096
_COMPARE = "r1pipe.rewards.maths.symbolic:compare_texts"
_GOLD = "r1pipe.rewards.maths.symbolic:check_gold"
_SCORES = {"right": 1.0, "wrong": 0.0}


@dataclass(frozen=True, slots=True)
class Request:
    """An answer to judge: gold answer, summary, language of the problem (ISO 639-1), and what is let pass."""

    gold: str
    summary: str
    language: str = "en"
    rules: Rules = LENIENT


class Memory:
    """The verdicts that SymPy gave, by (gold, answer); the oldest go first. Shared by threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.kept: OrderedDict[tuple[str, str], Decision] = OrderedDict()
        self.lock = Lock()

    def get(self, key: tuple[str, str]) -> Decision | None:
        """What is remembered of a pair."""
        with self.lock:
            return self.kept.get(key)

    def put(self, key: tuple[str, str], decision: Decision) -> None:
        """Remember a verdict."""
        with self.lock:
            self.kept[key] = decision
            while len(self.kept) > self.size:
                self.kept.popitem(last=False)


_memory = Memory(REMEMBERED)


def check(requests: Sequence[Request], pool: Pool | None = None, seconds: float = SECONDS) -> list[Score]:
    """One score per request: 1.0 right, 0.0 wrong, None unjudged, each with a note."""
    decisions = [decide(request.gold, request.summary, request.language, request.rules) for request in requests]
    pairs: dict[tuple[str, str], Decision] = {}
    for request, decision in zip(requests, decisions, strict=True):
        if decision.verdict == "open":
            pairs.setdefault((request.gold, decision.answer), decision)
    solved = _symbolic(pairs, pool, seconds) if pairs else {}
    return [
        _score(solved.get((r.gold, d.answer), d) if d.verdict == "open" else d) for r, d in zip(requests, decisions, strict=True)
    ]


def _score(decision: Decision) -> Score:
    return Score(_SCORES.get(decision.verdict), decision.note)


def _symbolic(pairs: dict[tuple[str, str], Decision], pool: Pool | None, seconds: float) -> dict[tuple[str, str], Decision]:
    solved: dict[tuple[str, str], Decision] = {}
    asked: list[tuple[tuple[str, str], str]] = []  # the pair and the gold answer as it is handed over
    for key, decision in pairs.items():
        known = _memory.get(key)
        gold = prepare(key[0]).text
        if known is not None:
            solved[key] = known
        elif hazard(gold):
            solved[key] = Decision("unjudged", f"the gold answer is not given to SymPy: {hazard(gold)}")
        elif hazard(key[1]):
            solved[key] = Decision("wrong", f"{decision.note}; not given to SymPy: {hazard(key[1])}")
        else:
            asked.append((key, gold))
    if not asked:
        return solved
    pool = pool or shared_pool()
    outcomes = pool.map(_COMPARE, [(gold, key[1]) for key, gold in asked], seconds)
    crashed = [index for index, outcome in enumerate(outcomes) if outcome.failure == "crash"]  # perhaps the machine's doing
    again = pool.map(_COMPARE, [(asked[index][1], asked[index][0][1]) for index in crashed], seconds)
    for index, outcome in zip(crashed, again, strict=True):
        outcomes[index] = outcome
    failed = sorted({gold for (_, gold), outcome in zip(asked, outcomes, strict=True) if outcome.failure})
    alone = dict(zip(failed, pool.map(_GOLD, [(gold,) for gold in failed], seconds), strict=True))
    for (key, gold), outcome in zip(asked, outcomes, strict=True):
        solved[key] = _decision(pairs[key].note, outcome, alone.get(gold))
        _memory.put(key, solved[key])
    return solved


def _decision(note: str, outcome: Outcome, alone: Outcome | None) -> Decision:
    if outcome.failure:
        if alone is not None and alone.value == "right":
            return Decision("wrong", f"{note} (stopped: {outcome.failure})")
        return Decision("unjudged", f"the gold answer could not be worked out (stopped: {outcome.failure})")
    if outcome.value == "gold":
        return Decision("unjudged", "the gold answer cannot be parsed")
    return Decision(str(outcome.value), f"{note} (SymPy)")
