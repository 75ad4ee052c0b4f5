"""Scores of the steps of answers, placed on tokens: by the rule for problems with a plan, or by a step-scoring model.

The last step of an answer is the answer itself: it ends with the last token, and its score is the answer's total reward over the
sum of the weights of the rewards that apply. So step scores and outcome are on one scale, on which 1 is all right, and an answer
without any step is judged by its outcome alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1pipe.data.chat import CLOSE, OPEN
from r1pipe.data.rows import Attempt, Problem
from r1pipe.engines.text import prompt_ids
from r1pipe.errors import RecipeError
from r1pipe.rewards import Mix, Row
from r1pipe.rewards.steps import has_plan, judged_steps
from r1pipe.train.methods.choice import ProcessSettings
from r1pipe.train.methods.coefficients import Step
from r1pipe.train.scorer import LIMIT, loaded, score_ids


def check_plans(problems: Sequence[Problem], settings: ProcessSettings, what: str) -> None:
    """Refuse problems whose steps nobody could judge.

    Raises:
        RecipeError: the rule is to judge, and no problem carries a plan.
    """
    if settings.steps == "rule" and not any(has_plan(problem) for problem in problems):
        raise RecipeError(
            f'{what}: process.steps = "rule" needs problems that carry the plan of their solution, and none of '
            f"{len(problems)} does",
            'set process = { steps = "model", model = FOLDER }, or method = "grpo"',
        )


@dataclass(frozen=True)
class StepScorer:
    """Finds and scores the steps of a rollout's answers.

    Attributes:
        settings: who scores.
        tokenizer: of the policy.
        mix: the rewards of the stage, for the weights of the outcome.
        system: system text of the prompts.
    """

    settings: ProcessSettings
    tokenizer: Any
    mix: Mix
    system: str

    def __call__(self, attempts: Sequence[Attempt], rows: Sequence[Row], ids: Sequence[Sequence[int]]) -> list[list[Step]]:
        """The steps of each answer, the answer itself last; none for an answer without a total or without tokens."""
        found: list[list[Step]] = []
        for attempt, row, tokens in zip(attempts, rows, ids, strict=True):
            if row.total is None or not tokens:
                found.append([])
                continue
            steps = [] if self.settings.steps == "model" else judged_steps(attempt)
            ends = [self.tokens_up_to(tokens, attempt.completion, step.end) for step in steps]
            found.append([*zip(ends, (step.score for step in steps), strict=True), (len(tokens), self._outcome(row))])
        return self._by_model(attempts, ids, found) if self.settings.steps == "model" else found

    def _outcome(self, row: Row) -> float:
        """The total over the sum of the weights that it is made of; of penalties nothing is added to that sum."""
        weights = self.mix.weights
        applied = sum(weights[name] for name, score in row.parts.items() if score is not None and weights[name] > 0)
        return (row.total or 0.0) / (applied or 1.0)

    def tokens_up_to(self, ids: Sequence[int], text: str, end: int) -> int:
        """The least number of tokens whose text reaches the character `end` of the answer's text."""
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            reached = len(self._decoded(ids[:middle])) >= end
            low, high = (low, middle) if reached else (middle + 1, high)
        while low < len(ids) and self._decoded(ids[:low])[:end] != text[:end]:  # a character in several tokens looks longer
            low += 1
        return low

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def _by_model(self, attempts: Sequence[Attempt], ids: Sequence[Sequence[int]], found: list[list[Step]]) -> list[list[Step]]:
        """The same with a step at the end of each line, scored by a model that reads up to there."""
        model, tokenizer = loaded(str(Path(self.settings.model).expanduser()))
        scale = model.config.r1pipe_scale
        places: list[tuple[int, int]] = []
        texts: list[list[int]] = []
        for index, (attempt, tokens) in enumerate(zip(attempts, ids, strict=True)):
            if not found[index]:
                continue
            prompt = prompt_ids(tokenizer, attempt.problem.question, self.system)
            for end in line_ends(attempt.completion):
                places.append((index, self.tokens_up_to(tokens, attempt.completion, end)))
                text = tokenizer(attempt.text[: len(attempt.prefix) + end], add_special_tokens=False, split_special_tokens=True)
                texts.append([*prompt, *text["input_ids"], tokenizer.eos_token_id])
        limit = getattr(model.config, "max_position_embeddings", None)
        scores = score_ids(model, tokenizer.pad_token_id, [text[:limit] for text in texts]) if texts else []
        steps: list[list[Step]] = [[] for _ in found]
        for (index, end), score in zip(places, scores, strict=True):
            standard = (score - scale["mean"]) / (scale["spread"] or 1.0)
            steps[index].append((end, (max(-LIMIT, min(LIMIT, standard)) + LIMIT) / (2 * LIMIT)))
        return [[*before, *last] for before, last in zip(steps, found, strict=True)]


ENDS = (". ", ".\n", "。", "\n", "! ", "？", "? ")
"""What ends a step for a step-scoring model: a sentence or a line."""


def line_ends(text: str) -> list[int]:
    """Characters up to the end of each sentence or line of the thinking that says something; the answer after it is left out."""
    close = text.rfind(CLOSE)
    body = text[:close] if close >= 0 else text
    ends, last = [], 0
    for place in range(1, len(body) + 1):
        at_end = place == len(body) or body.endswith(ENDS, 0, place)
        if at_end and any(letter.isalnum() for letter in body[last:place].replace(OPEN, "")):
            ends.append(place)
            last = place
    return ends
