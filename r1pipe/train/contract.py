"""The contract between stages, tried on a few rows before anything trains: seconds instead of a lost night.

What one stage hands to the next is a model folder and rows. Here both are put through the very functions that training will use
(tokenizer, template, think-parser, rewards), without weights: does the question reach the prompt; do the tags come back from
the tokens; does what the template opens fit what the responses begin with; does the model's own configuration stop at the
token that ends a turn; does it have room for prompt and completion; are the gold answers right by the rewards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from r1pipe.data.chat import CLOSE, join_response, messages, split_response
from r1pipe.data.rows import Attempt, Problem
from r1pipe.engines.text import configured_ends, prompt_ids, prompt_prefix, training_row
from r1pipe.errors import TrainingError
from r1pipe.guards import GuardSettings
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import Accuracy
from r1pipe.rewards.audit import gold_response
from r1pipe.rewards.format import FormatReward
from r1pipe.rewards.trial import THOUGHT
from r1pipe.train.settings import GrpoSettings

ROWS = 20
"""Rows that the hand-over is tried on, spread over the table; the longest question is always among them."""
MOST_ODD = 0.1
"""Share of gold answers that may fail; fewer are single bad rows and are only told, more are a mismatch."""
Item = TypeVar("Item")


def try_prompts(
    tokenizer: Any, folder: Path, problems: Sequence[Problem], mix: Mix, system: str, most_tokens: int, what: str
) -> list[str]:
    """Try what reinforcement learning is handed: the policy's folder and the problems.

    Args:
        most_tokens: longest completion, in tokens.

    Returns:
        What was found odd and stops nothing, one sentence each.

    Raises:
        TrainingError: what does not fit, and how to mend it.
    """
    chosen = spread(problems, key=lambda problem: len(problem.question))
    _stop_token(tokenizer, folder, what)
    _rendering(tokenizer, [problem.question for problem in chosen], system, what)
    _room(tokenizer, folder, chosen, system, most_tokens, what)
    empty = [problem.id for problem in chosen if problem.checker != "none" and problem.kind == "verifiable" and _no_gold(problem)]
    if empty:
        raise TrainingError(
            f"{what}: {len(empty)} of {len(chosen)} problems tried have nothing in the column 'answer' (e.g. {empty[0]})",
            "name the column with the gold answer under [prepare.problems] fields, then redo prepare",
        )
    return _gold_answers(tokenizer, chosen, mix, system, what)


def without_effect(settings: GrpoSettings, mix: Mix, guards: GuardSettings, passes: int) -> list[str]:
    """What is set and has no effect, or another one than it seems, one sentence each; it stops nothing.

    Args:
        passes: forward passes that a process makes for one optimizer step.
    """
    odd = []
    for part in mix.parts:
        joins = -(-part.from_step // settings.minibatches) * settings.minibatches
        if joins >= settings.steps:
            odd.append(f"reward {part.name} joins at step {joins} and the run has {settings.steps} steps: it never counts")
        elif joins != part.from_step:
            odd.append(f"reward {part.name} joins at step {joins}, the start of a rollout (the recipe says {part.from_step})")
    usual = GuardSettings().zero_rewards
    odd += [
        f"[launch.guards] zero_rewards names {name!r}, which is none of the rewards here: {', '.join(mix.weights)}"
        for name in guards.zero_rewards
        if name not in mix.weights and name not in usual
    ]
    if settings.loss == "bnpo" and passes > 1:
        odd.append(
            f'loss = "bnpo" is a mean over the tokens of a forward pass, and a step is {passes} passes: launch.micro_batch '
            "changes what is trained"
        )
    return odd


def try_examples(tokenizer: Any, folder: Path, examples: Sequence[tuple[str, str]], system: str, what: str) -> None:
    """Try what supervised training is handed: (question, response) examples.

    Raises:
        TrainingError: what does not fit, and how to mend it.
    """
    chosen = spread(examples, key=lambda example: len(example[0]))
    _stop_token(tokenizer, folder, what)
    _rendering(tokenizer, [question for question, _ in chosen], system, what)
    for question, response in chosen:
        _round_trip(tokenizer, question, system, response, what)


def try_judged(tokenizer: Any, rows: Sequence[Sequence[int]], what: str) -> None:
    """Try what a reward model is handed: token ids of judged texts, which must say something and end with the turn.

    Raises:
        TrainingError: what does not fit.
    """
    for ids in spread(rows, key=len):
        if not ids or ids[-1] != tokenizer.eos_token_id:
            raise TrainingError(
                f"{what}: a row to judge does not end with {tokenizer.eos_token!r}, where scores are read", "report this defect"
            )
        if not tokenizer.decode(ids, skip_special_tokens=True).strip():
            raise TrainingError(f"{what}: a row to judge holds no text", "look at the pairs and labels with `r1pipe inspect`")


def spread(items: Sequence[Item], key: Any) -> list[Item]:
    """At most ROWS items, spread evenly, with the largest by `key` among them."""
    if not items:
        return []
    places = {index * len(items) // (ROWS - 1) for index in range(ROWS - 1)} | {
        max(range(len(items)), key=lambda at: key(items[at]))
    }
    return [items[place] for place in sorted(places)]


def _stop_token(tokenizer: Any, folder: Path, what: str) -> None:
    """The model's own configuration must stop at the token that ends a turn, or its answers run on after this step."""
    name, stops = configured_ends(folder)
    if name and tokenizer.eos_token_id not in stops:
        raise TrainingError(
            f"{what}: {name} stops at token {', '.join(map(str, stops))} ({tokenizer.decode(list(stops[:1]))!r}) "
            f"and a turn ends with token {tokenizer.eos_token_id} ({tokenizer.eos_token!r}): answers would never end",
            f"set eos_token_id to {tokenizer.eos_token_id} in {folder / name}",
        )


def _rendering(tokenizer: Any, questions: Sequence[str], system: str, what: str) -> None:
    """Every question, and the system text, must stand in the prompt that the template makes of it."""
    for question in questions:
        text: str = tokenizer.apply_chat_template(messages(question, system), add_generation_prompt=True, tokenize=False)
        for name, wanted in (("question", question.strip()), ("system text", system.strip())):
            if wanted not in text:
                raise TrainingError(
                    f"{what}: the chat template loses the {name}: {wanted[:120]!r} does not stand in {text[:200]!r}",
                    "mend chat_template.jinja in the model's folder",
                )
        if text.rstrip().endswith(CLOSE):
            raise TrainingError(
                f"{what}: the chat template ends the thinking before the answer begins: the prompt ends with {text[-40:]!r}",
                "make chat_template.jinja open the thinking ('<think>\\n'), or leave it to the model",
            )


def _room(tokenizer: Any, folder: Path, problems: Sequence[Problem], system: str, most_tokens: int, what: str) -> None:
    """Prompt and completion must fit into the positions that the model was made for."""
    positions = json.loads((folder / "config.json").read_bytes()).get("max_position_embeddings")
    if not isinstance(positions, int):
        return
    length, problem = max(((len(prompt_ids(tokenizer, p.question, system)), p) for p in problems), key=lambda pair: pair[0])
    if length + most_tokens > positions:
        raise TrainingError(
            f"{what}: problem {problem.id} has a prompt of {length:,} tokens, and {length:,} + max_completion_tokens "
            f"{most_tokens:,} = {length + most_tokens:,} is more than the model's {positions:,} positions",
            f"set max_completion_tokens to at most {max(1, positions - length)}, or leave such problems out",
        )


def _no_gold(problem: Problem) -> bool:
    """Whether there is nothing to judge an answer by."""
    return problem.checker in ("maths", "choice") and not problem.answer.strip()


def _round_trip(tokenizer: Any, question: str, system: str, response: str, what: str) -> str:
    """A response through tokens and back as training sees it, after what the template opens; returns the completion."""
    row = training_row(tokenizer, question, system, response)
    labels = [label for label in row.labels if label != -100]
    completion: str = tokenizer.decode(labels, skip_special_tokens=True)
    if labels[-1] != tokenizer.eos_token_id:
        raise TrainingError(f"{what}: a training row does not end with {tokenizer.eos_token!r}", "report this defect")
    prefix = prompt_prefix(tokenizer, system)
    before, after = split_response(response), split_response(prefix + completion)
    if (before.thinking, before.summary, before.faults) != (after.thinking, after.summary, after.faults):
        opened = (
            f"the template opens {prefix!r} and the response begins {response[:20]!r}" if prefix else f"it is {completion[:60]!r}"
        )
        raise TrainingError(
            f"{what}: thinking and summary do not come back from the tokens: {opened}, together they read as "
            f"{'; '.join(after.faults) or 'another split'}",
            "make chat_template.jinja open the thinking exactly as responses begin ('<think>\\n'), or not at all",
        )
    return completion


def _gold_answers(tokenizer: Any, problems: Sequence[Problem], mix: Mix, system: str, what: str) -> list[str]:
    """Responses made up around the gold answers must be right, and well formed, by the rewards that will train."""
    prefix = prompt_prefix(tokenizer, system)
    checked = {
        part.name: part for part in mix.parts if isinstance(part.reward, Accuracy | FormatReward)
    }  # own rewards promise nothing
    style = next((part.reward.style for part in checked.values() if isinstance(part.reward, FormatReward)), "think")
    attempts = []
    for problem in problems:
        if problem.kind != "verifiable" or not (answer := gold_response(problem, problem.check)):
            continue
        summary = f"<answer>{answer}</answer>" if style == "think-answer" and not answer.startswith("<answer>") else answer
        completion = _round_trip(tokenizer, problem.question, system, join_response(THOUGHT, summary), what)
        attempts.append(Attempt(problem, completion, prefix))
    odd = []
    for name, part in checked.items():
        scores = part.reward.score(attempts) if attempts else []
        failed = [
            (attempt, score)
            for attempt, score in zip(attempts, scores, strict=True)
            if score is not None and score.verdict != "right"
        ]
        if not failed:
            continue
        attempt, score = failed[0]
        said = (
            f"reward {name} gives {score.value} to {len(failed)} of {len(attempts)} gold answers, "
            f"e.g. to {attempt.text[-120:]!r} of problem {attempt.problem.id} ({score.note})"
        )
        if len(failed) > MOST_ODD * len(attempts):
            raise TrainingError(
                f"{what}: {said}",
                "check the columns 'answer' and 'checker' of the problems with `r1pipe audit`, and the options under [rewards]",
            )
        odd.append(said)
    return odd
