"""Looks at the policy in the middle of its training: greedy answers to held-out problems and prompts, judged and written down.

What follows from them is decided in `r1pipe.train.hacking`. Nothing of what is made depends on a look: answers are greedy, the
random state is left as it was, and the problems are never trained on. Each process answers its share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import GenerationConfig
from trl.models import unwrap_model_for_generation

from r1pipe.data.chat import split_response
from r1pipe.data.refusals import refuses
from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import read_problems
from r1pipe.engines.text import prompt_ids, prompt_prefix
from r1pipe.engines.transformers_engine import BATCH
from r1pipe.guards import HackingSettings
from r1pipe.intervals import mean
from r1pipe.rewards import Mix, Row
from r1pipe.train.hacking import KIND, look_steps
from r1pipe.train.run import is_main, processes, rank
from r1pipe.train.settings import GrpoSettings
from r1pipe.train.watch import Watch

PREFERENCES = ("helpfulness", "safety")


@dataclass(frozen=True)
class HeldOut:
    """What is looked at, and when.

    Attributes:
        problems: problems that a rule judges, then general prompts.
        mix: rule accuracy, and the reward models.
        system: system text of every prompt.
        steps: the optimizer steps after which the policy is looked at.
        switch: the step at which preference rewards join.
        batch: answers generated at once.
    """

    problems: Sequence[Problem]
    mix: Mix
    system: str
    steps: tuple[int, ...]
    switch: int
    batch: int = BATCH

    def watching(self, trainer: Any, watch: Watch, settings: GrpoSettings) -> None:
        """Hook the looks into a training run; says so when they cannot be had."""
        if not self.steps:
            return
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            if is_main():
                watch.notice(
                    0, "no looks at held-out problems: the model is spread over the processes, and each would need it whole"
                )
            return
        watch.look = partial(self.look, trainer, watch, settings)

    def look(self, trainer: Any, watch: Watch, settings: GrpoSettings, step: int) -> bool:
        """Look at the policy when it is time; returns whether it was done.

        Raises:
            TrainingError: the recipe says to stop, and the reward models are being hacked.
        """
        if step not in self.steps:
            return False
        begun = time.monotonic()
        mine = range(rank(), len(self.problems), processes())
        prompts = [prompt_ids(trainer.processing_class, self.problems[place].question, self.system) for place in mine]
        prefix = prompt_prefix(trainer.processing_class, self.system)
        answers = greedy(trainer, prompts, settings.token_limit(step), self.batch)
        attempts = [
            Attempt(self.problems[place], text, prefix, "stop" if ended else "length", tokens)
            for place, (text, tokens, ended) in zip(mine, answers, strict=True)
        ]
        judged = list(zip(mine, attempts, self.mix.score(attempts), strict=True))
        everyone = sorted(gather_object(judged) if processes() > 1 else judged, key=lambda one: one[0])
        numbers = look_numbers([one[1] for one in everyone], [one[2] for one in everyone])
        line = {"kind": KIND, "step": step, "joined": step > self.switch, **numbers}
        line["look_seconds"] = round(time.monotonic() - begun, 3)
        if is_main():
            watch.metrics.write(line)
            print(
                f"{watch.what}: step {step}, held out: accuracy {line['held_out_accuracy']:.3f}"
                + (f", preference {line['held_out_preference']:.2f}" if line["held_out_preference"] is not None else ""),
                flush=True,
            )
            watch.observe(line)
        else:
            watch.hacking.observe(line)
        return True


def held_out(
    tables: Mapping[str, Path],
    mix: Mix,
    system: str,
    settings: HackingSettings,
    grpo: GrpoSettings,
    switch: int,
    batch: int | None,
) -> HeldOut:
    """The held-out part of a run: the last rows of its evaluation tables, which the evaluation itself takes from the front.

    Args:
        tables: "evaluation" and "general_evaluation" -> table.
        switch: the step at which preference rewards join.
    """
    steps = look_steps(switch, settings.every, grpo.minibatches, grpo.steps)
    if not steps:
        return HeldOut((), mix, system, (), switch)
    verifiable = [problem for problem in read_problems(tables["evaluation"]) if problem.kind == "verifiable"]
    general = [problem for problem in read_problems(tables["general_evaluation"]) if problem.kind in PREFERENCES]
    problems = [*verifiable[-settings.problems :], *general[-settings.general :]]
    return HeldOut(problems, mix, system, steps, switch, batch or BATCH)


def greedy(trainer: Any, prompts: Sequence[Sequence[int]], most_tokens: int, batch: int) -> list[tuple[str, int, bool]]:
    """(text, tokens, whether it ended by itself) of the policy's most likely answer to each prompt, in order."""
    tokenizer, device = trainer.processing_class, trainer.accelerator.device
    ends = set(trainer.eos_token_ids)
    config = GenerationConfig(
        do_sample=False, max_new_tokens=most_tokens, eos_token_id=sorted(ends), pad_token_id=tokenizer.pad_token_id,
        disable_compile=True,
    )  # fmt: skip
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    found: dict[int, tuple[str, int, bool]] = {}
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with (
        torch.random.fork_rng(devices=devices),
        unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model,
        torch.inference_mode(),
    ):
        was_training = model.training
        model.eval()
        for start in range(0, len(order), batch):
            members = order[start : start + batch]
            width = max(len(prompts[place]) for place in members)
            pads = [width - len(prompts[place]) for place in members]
            ids = [[tokenizer.pad_token_id] * pad + list(prompts[place]) for pad, place in zip(pads, members, strict=True)]
            mask = [[0] * pad + [1] * (width - pad) for pad in pads]
            out = model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                generation_config=config,
            )
            for place, row in zip(members, out[:, width:].tolist(), strict=True):
                end = next((at for at, token in enumerate(row) if token in ends), None)
                tokens = row if end is None else row[: end + 1]
                found[place] = (tokenizer.decode(tokens, skip_special_tokens=True), len(tokens), end is not None)
        model.train(was_training)
    return [found[place] for place in range(len(prompts))]


def look_numbers(attempts: Sequence[Attempt], rows: Sequence[Row]) -> dict[str, Any]:
    """The numbers of a look.

    Returns:
        held_out_accuracy: share right of the problems that were judged; verdicts: one character a problem (1, 0, ?); preferences:
        each general prompt's score by its reward model, in standard deviations, null where none was given;
        held_out_preference, held_out_helpfulness, held_out_safety: their means; held_out_tokens, general_tokens: mean lengths of
        the answers to problems and to general prompts; refused_harmless, refused_risky: shares of answers that refuse.
    """
    marks = {"right": "1", "wrong": "0"}
    verdicts = "".join(
        marks.get(row.verdict, "?") for attempt, row in zip(attempts, rows, strict=True) if attempt.problem.kind == "verifiable"
    )
    general = [(attempt, row) for attempt, row in zip(attempts, rows, strict=True) if attempt.problem.kind != "verifiable"]
    scores: dict[str, list[float]] = {kind: [] for kind in PREFERENCES}
    refused: dict[str, list[float]] = {kind: [] for kind in PREFERENCES}
    preferences: list[float | None] = []
    for attempt, row in general:
        kind = attempt.problem.kind
        score = row.parts.get(kind)
        preferences.append(score.value if score is not None else None)
        if score is not None and score.value is not None:
            scores[kind].append(score.value)
        refused[kind].append(float(refuses(split_response(attempt.text).summary)))
    known = [value for value in preferences if value is not None]
    judged = [float(mark) for mark in verdicts if mark != "?"]
    return {
        "held_out_accuracy": fmean(judged) if judged else 0.0,
        "held_out_preference": mean(known),
        "held_out_helpfulness": mean(scores["helpfulness"]),
        "held_out_safety": mean(scores["safety"]),
        "held_out_tokens": mean([float(attempt.tokens) for attempt in attempts if attempt.problem.kind == "verifiable"]),
        "general_tokens": mean([float(attempt.tokens) for attempt, _ in general]),
        "refused_harmless": mean(refused["helpfulness"]),
        "refused_risky": mean(refused["safety"]),
        "verdicts": verdicts,
        "preferences": preferences,
    }
