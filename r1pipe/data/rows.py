"""What a row is: the problems that a run trains and tests on, and the attempts made at them.

A **problem** is a question with what is needed to check an answer. An **attempt** is one completion for it; a **score** is
what a reward says of it. Gold answers are text, exactly as written in the source ("007" stays "007"); the checker named in
`checker` gives them a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["verifiable", "helpfulness", "safety"]
"""How a problem is rewarded: by a rule, or by one of the two reward models of stage 4."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One prompt.

    Attributes:
        id: stable id made from the content (see `r1pipe.data.tables.content_id`).
        question: what the user asks, plain text.
        answer: the gold answer as written in the source; empty for prompts without one.
        checker: which checker judges an answer: "maths", "choice", "logic", "code", or "none".
        language: the language the thinking must be in (ISO 639-1, e.g. "en", "zh").
        domain: label for reports and quotas, e.g. "arithmetic".
        source: where the row came from.
        level: difficulty label for reports; may be empty.
        kind: how it is rewarded.
        check: what the checker needs beside the gold answer (options of a choice, tests of a program, a Reasoning Gym entry).
    """

    id: str
    question: str
    answer: str = ""
    checker: str = "maths"
    language: str = "en"
    domain: str = "maths"
    source: str = ""
    level: str = ""
    kind: Kind = "verifiable"
    check: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One completion for a problem.

    Attributes:
        problem: the problem attempted.
        completion: the text the model wrote, thinking tags included, end-of-turn token excluded.
        prefix: what the prompt's template had already opened for the model (e.g. "<think>\\n"); rewards read prefix + completion.
        finish: "stop" (the model ended its turn), "length" (cut off), or "error".
        tokens: number of completion tokens.
    """

    problem: Problem
    completion: str
    prefix: str = ""
    finish: str = "stop"
    tokens: int = 0

    @property
    def text(self) -> str:
        """The whole response: what the template opened, then what the model wrote."""
        return self.prefix + self.completion


@dataclass(frozen=True, slots=True)
class Score:
    """What a reward says of one attempt.

    Attributes:
        value: the reward, finite; None when the attempt could not be judged.
        note: a short reason, e.g. "parsed 211, wanted 210".
        right: whether the answer is right, where the value does not say so.
    """

    value: float | None
    note: str = ""
    right: bool | None = None

    @property
    def verdict(self) -> str:
        """ "right" (value at least 1), "wrong", or "unjudged"; for accuracy rewards."""
        if self.right is not None:
            return "right" if self.right else "wrong"
        if self.value is None:
            return "unjudged"
        return "right" if self.value >= 1.0 else "wrong"
