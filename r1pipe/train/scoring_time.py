"""How long scoring one rollout may take at worst, and whether training processes that wait for each other will wait that long.

Each process scores its own answers between two collective operations; one that scores for longer than the collective timeout
ends the whole run. Every answer has a deadline, so the worst case is known beforehand. Light: no torch here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from r1pipe.data.rows import Problem
from r1pipe.data.schedule import Order
from r1pipe.errors import RecipeError
from r1pipe.rewards.logic import SECONDS as LOGIC_SECONDS
from r1pipe.rewards.maths.check import SECONDS as MATHS_SECONDS
from r1pipe.rewards.sandbox import Limits
from r1pipe.rewards.service import Pool

DEADLINES = {"maths": MATHS_SECONDS, "logic": LOGIC_SECONDS, "code": Limits().total_seconds}
"""Checker -> most seconds for one answer; a checker that is not here (choice) only compares text."""
MOST_SHARE = 0.5
"""Of the collective timeout that scoring may take at worst: generation and the network need the rest."""


def check_scoring_time(
    what: str, answers: Mapping[str, int], processes: int, collective_minutes: float, workers: int | None = None
) -> None:
    """Refuse a rollout whose scoring may outlast the other processes' patience.

    Args:
        answers: checker -> answers of one rollout over all processes.
        workers: scoring processes of each training process; by default what `Pool` takes here.

    Raises:
        RecipeError: with the arithmetic, and the timeout that would do.
    """
    if processes == 1:
        return
    workers = workers or Pool().size
    parts = []
    seconds = 0.0
    for checker, count in sorted(answers.items()):
        if not (deadline := DEADLINES.get(checker, 0.0)) or not count:
            continue
        each = math.ceil(count / processes)
        seconds += deadline * math.ceil(each / workers)
        parts.append(f"{deadline:g} s × ⌈{each:,} {checker} answers ÷ {workers} scoring processes⌉")
    limit = MOST_SHARE * 60 * collective_minutes
    if seconds >= limit:
        enough = math.floor(seconds / 60 / MOST_SHARE) + 1
        raise RecipeError(
            f"{what}: scoring one rollout may take a process {' + '.join(parts)} = {seconds:,.0f} s, and must take less than "
            f"half of launch.collective_minutes ({collective_minutes:g} min, so {limit:,.0f} s), or the others give up waiting",
            f"set launch.collective_minutes = {enough}, or smaller rollouts, or more processes",
        )


def busiest_rollout(problems: Sequence[Problem], order: Order, group: int) -> dict[str, int]:
    """Checker -> most answers of a rollout that it judges."""
    most: Counter[str] = Counter()
    for rollout in order.rollouts:
        most |= Counter(problems[row].checker for row in rollout)
    return {checker: count * group for checker, count in most.items()}
