"""Which prompt comes when: the whole order of an RL stage, known before it starts.

The order is a list of row numbers, one list a rollout, made from the seed alone. It can be looked at, a resumed run continues
it at the next rollout by counting, and general prompts join at a stated rollout in a stated share.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice


@dataclass(frozen=True, slots=True)
class Order:
    """Row numbers per rollout.

    Attributes:
        rollouts: one tuple of row numbers per rollout; each rollout asks every listed question `group` times.
        epochs: how often the pool of verifiable problems was gone through, as a fraction.
        draw: makes the order anew, given from which rollout on a row is left out.
    """

    rollouts: tuple[tuple[int, ...], ...]
    epochs: float
    draw: Callable[[Mapping[int, int]], Order] = field(compare=False, repr=False)

    def dropping(self, dropped_from: Mapping[int, int]) -> Order:
        """The same order with rows left out, each from a rollout of its own on; later rows move up.

        Args:
            dropped_from: row -> the first rollout that does not ask it. When nothing would be left, everything is asked again.
        """
        return self.draw(dropped_from)


def _endless(rows: list[int], seed: str) -> Iterator[int]:
    """The rows in shuffled order, reshuffled at each pass."""
    passes = 0
    while True:
        order = list(rows)
        random.Random(f"{seed}:{passes}").shuffle(order)
        yield from order
        passes += 1


def prompt_order(
    *,
    verifiable: list[int],
    general: list[int],
    rollouts: int,
    questions: int,
    general_from: int,
    general_share: float,
    seed: int,
) -> Order:
    """The order of an RL stage.

    Args:
        verifiable: row numbers of problems that a rule can judge.
        general: row numbers of general prompts; may be empty.
        rollouts: number of rollouts.
        questions: distinct questions per rollout.
        general_from: first rollout with general prompts.
        general_share: share of a rollout's questions that are general from then on, spread evenly through the rollout.
        seed: the run's seed.
    """
    count = round(questions * general_share) if general else 0

    def draw(dropped_from: Mapping[int, int]) -> Order:
        rules, others = _endless(verifiable, f"rules:{seed}"), _endless(general, f"general:{seed}")
        result, used = [], 0
        for rollout in range(rollouts):
            mixed = count if rollout >= general_from else 0
            left_out = {row for row, first in dropped_from.items() if first <= rollout}
            if left_out.issuperset(verifiable):
                left_out = set()
            known = (row for row in rules if row not in left_out)
            rows = [*islice(known, questions - mixed), *islice(others, mixed)]
            used += questions - mixed
            random.Random(f"place:{seed}:{rollout}").shuffle(rows)
            result.append(tuple(rows))
        return Order(tuple(result), used / max(1, len(verifiable)), draw)

    return draw({})
