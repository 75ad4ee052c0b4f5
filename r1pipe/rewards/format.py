"""The format reward: is the response thinking, then an answer, and nothing else?

Each stage states its own rule. Cold-started models write `<think>…</think>` and a summary (style "think"); R1-Zero's template
also asks for the answer in `<answer>` tags (style "think-answer", v2 Table 1 and section 2.2). Exactly one opening and one
closing tag are asked for, whether the model or its template opened the thinking, and neither part may be blank: an empty
thought in front of an empty answer is the first thing that a policy finds when tags alone are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt
from r1pipe.rewards.base import Score

ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
FormatStyle = Literal["think", "think-answer", "none"]
FORMAT_STYLES: tuple[FormatStyle, ...] = ("think", "think-answer", "none")


def format_faults(text: str, style: FormatStyle = "think") -> tuple[str, ...]:
    """What breaks the format of a whole response (template prefix included), in words; empty when nothing does."""
    if style == "none":
        return ()
    response = split_response(text)
    if style == "think" or not response.summary:
        return response.faults
    return response.faults + _answer_faults(response.summary)


def _answer_faults(summary: str) -> tuple[str, ...]:
    """What is wrong with the answer block: R1-Zero's summary is one block and nothing beside it."""
    opens, closes = summary.count(ANSWER_OPEN), summary.count(ANSWER_CLOSE)
    if opens == 0 and closes == 0:
        return ("no answer block",)
    faults = []
    if opens != 1:
        faults.append(f"{opens} opening answer tags")
    if closes != 1:
        faults.append(f"{closes} closing answer tags")
    start, end = summary.find(ANSWER_OPEN), summary.rfind(ANSWER_CLOSE)
    if start < 0 or end < start:
        return tuple(faults) or ("answer tags in the wrong order",)
    if not summary[start + len(ANSWER_OPEN) : end].strip():
        faults.append("empty answer block")
    if summary[:start].strip() or summary[end + len(ANSWER_CLOSE) :].strip():
        faults.append("text beside the answer block")
    return tuple(faults)


@dataclass(frozen=True, slots=True)
class FormatReward:
    """1.0 when the response keeps the stage's format, else 0.0 with the faults as the note.

    A response cut off at the length limit scores 0: it never finished the format. One that the engine failed to make is unjudged.

    Attributes:
        style: "think" (thinking, then a summary), "think-answer" (the summary is one `<answer>` block, as R1-Zero's template
            asks), or "none" (the stage has no format rule; the reward applies to no row).
    """

    style: FormatStyle = "think"

    def __post_init__(self) -> None:
        if self.style not in FORMAT_STYLES:
            raise ValueError(f'format style "{self.style}" is not one of {", ".join(FORMAT_STYLES)}')

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """One score an attempt, in order; None for every attempt when the style is "none"."""
        if self.style == "none":
            return [None for _ in attempts]
        return [self._score(attempt) for attempt in attempts]

    def _score(self, attempt: Attempt) -> Score:
        if attempt.finish == "error":
            return Score(None, "generation failed")
        if attempt.finish == "length":
            return Score(0.0, "cut off at the length limit")
        faults = format_faults(attempt.text, self.style)
        return Score(0.0, "; ".join(faults)) if faults else Score(1.0, "well formed")
