"""Length penalties, all off unless a recipe names them: the paper uses none.

`OverlongPenalty` is the soft punishment of DAPO (Yu et al. 2025, Eq. 13): nothing up to a length, then a straight line down to
-1 at the limit, so that an answer cut off at the limit is not a surprise. `CosineLength` is the reward of Yeo et al. 2025
(section 4): right answers are worth more when short, wrong ones less bad when long, along half a cosine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from r1pipe.data.rows import Attempt
from r1pipe.rewards.accuracy import Accuracy
from r1pipe.rewards.base import Reward, Score


def overlong_penalty(tokens: int, limit_tokens: int, buffer_tokens: int) -> float:
    """DAPO Eq. 13: 0 up to limit - buffer, then linear to -1 at the limit and beyond."""
    over = tokens - (limit_tokens - buffer_tokens)
    return 0.0 if over <= 0 else -min(1.0, over / buffer_tokens)


def cosine_value(tokens: int, limit_tokens: int, at_start: float, at_limit: float) -> float:
    """From `at_start` for no tokens to `at_limit` at the limit, along half a cosine."""
    progress = min(1.0, max(0.0, tokens / limit_tokens))
    return at_limit + 0.5 * (at_start - at_limit) * (1.0 + math.cos(math.pi * progress))


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """0 for a response of comfortable length, down to -1 at the limit; unjudged when the number of tokens is not known.

    Attributes:
        limit_tokens: the limit on completion tokens; a response cut off counts as that long at least.
        buffer_tokens: how long before the limit the penalty begins (DAPO: 4096 of 20480).
    """

    limit_tokens: int
    buffer_tokens: int

    def __post_init__(self) -> None:
        if not 0 < self.buffer_tokens <= self.limit_tokens:
            raise ValueError(f"buffer_tokens {self.buffer_tokens} is not between 1 and limit_tokens {self.limit_tokens}")

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One score an attempt, in order."""
        scores: list[Score | None] = []
        for attempt in attempts:
            if attempt.finish == "error" or attempt.tokens < 1:
                scores.append(Score(None, "number of tokens not known"))
                continue
            tokens = max(attempt.tokens, self.limit_tokens) if attempt.finish == "length" else attempt.tokens
            scores.append(
                Score(overlong_penalty(tokens, self.limit_tokens, self.buffer_tokens), f"{tokens}/{self.limit_tokens} tokens")
            )
        return scores


@dataclass(frozen=True, slots=True)
class CosineLength:
    """Right or wrong, and how long: replaces the accuracy reward, it is not added to it.

    Attributes:
        limit_tokens: the limit on completion tokens.
        right_short, right_long: the value of a right answer with no tokens and at the limit.
        wrong_short, wrong_long: the same of a wrong answer.
        accuracy: what judges right and wrong; what it leaves unjudged, or does not apply to, stays so.
    """

    limit_tokens: int
    right_short: float = 1.0
    right_long: float = 0.5
    wrong_short: float = -1.0
    wrong_long: float = -0.5
    accuracy: Reward = field(default_factory=Accuracy)

    def __post_init__(self) -> None:
        if self.limit_tokens < 1:
            raise ValueError(f"limit_tokens {self.limit_tokens} is not at least 1")

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One score an attempt, in order."""
        scores: list[Score | None] = []
        for attempt, judged in zip(attempts, self.accuracy.score(attempts), strict=True):
            if judged is None or judged.value is None:
                scores.append(judged)
            elif attempt.finish != "length" and attempt.tokens < 1:
                scores.append(Score(None, "number of tokens not known", judged.value >= 1.0))
            else:
                tokens = max(attempt.tokens, self.limit_tokens) if attempt.finish == "length" else attempt.tokens
                right = judged.value >= 1.0
                ends = (self.right_short, self.right_long) if right else (self.wrong_short, self.wrong_long)
                value = cosine_value(tokens, self.limit_tokens, *ends)
                scores.append(Score(value, f"{'right' if right else 'wrong'} in {tokens}/{self.limit_tokens} tokens", right))
        return scores
