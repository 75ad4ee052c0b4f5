"""The real graph, with steps that write real tables, metrics and models in no time: what the tests of the command line run.

Everything about the steps is the product's own (names, folders, settings, inputs, outputs); only what they compute is scripted.
The texts are as hostile as a model's can be.
"""

from __future__ import annotations

import json
import os
import random
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import (
    ATTEMPT_COLUMNS,
    LABEL_COLUMNS,
    PAIR_COLUMNS,
    PROBLEM_COLUMNS,
    TEXT,
    TRACE_COLUMNS,
    attempt_row,
    content_id,
    problem_row,
    write_part,
    write_table,
)
from r1pipe.errors import Stopped, TrainingError
from r1pipe.graph import Pipeline
from r1pipe.manifest import write_atomic
from r1pipe.metrics import METRICS, PROGRESS, MetricsWriter, write_progress
from r1pipe.pipeline import PIPELINES
from r1pipe.stage import StepContext
from r1pipe.stages.evaluate import checkpoints_of
from r1pipe.stages.sections import ChatSection, RewardsSection
from r1pipe.stages.traces import LEDGER_COLUMNS, rewriting_note
from r1pipe.train.hacking import told

PAUSE = "R1PIPE_SCRIPTED_PAUSE"
"""Environment variable: seconds that each optimizer step takes."""
FAIL = "R1PIPE_SCRIPTED_FAIL"
"""Environment variable: the step that fails at its third optimizer step."""
BASE_FOLDER = "R1PIPE_SCRIPTED_BASE"
"""Environment variable: the folder of the base model."""

HOSTILE = (
    "closing tag [/red] and [bold]open[/bold] and [link=x]y",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J gone?",
    "右から左 \u202eetacsufbo\u202c שלום مرحبا 漢字と仮名 🙂👩‍👩‍👧",
    "x" * 3000,
    "[1, 2, 3] {'a': [/]} \\[escaped] \r over \b\b back \x00 null \x9b31m",
)


def write_model(folder: Path, seed: int) -> None:
    """A model folder that passes the checks: a header, a few random bytes, a tokenizer, a template."""
    folder.mkdir(parents=True, exist_ok=True)
    data = random.Random(seed).randbytes(64)
    header = json.dumps({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (folder / "config.json").write_text('{"architectures": ["Scripted"]}')
    (folder / "tokenizer.json").write_text('{"added_tokens": []}')
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")


def problem(number: int) -> Problem:
    a, b = number % 40 + 2, number % 17 + 3
    domain, language = ("arithmetic", "words", "choice")[number % 3], ("en", "zh")[number % 2]
    question = f"What is {a} + {b}?" if language == "en" else f"{a} 加 {b} 等于多少？"
    return Problem(content_id(question, str(number)), question, str(a + b), "maths", language, domain, "scripted", "1")


def attempt(number: int, skill: float) -> tuple[Attempt, dict[str, Score | None], float, str]:
    """One attempt at a problem; right with probability `skill`."""
    rng, asked = random.Random(f"{number} {skill}"), problem(number)
    right = rng.random() < skill
    answer = asked.answer if right else str(int(asked.answer) + rng.randint(1, 9))
    thought = (
        HOSTILE[number % len(HOSTILE)]
        if number % 4 == 0
        else f"{asked.question} I add the two numbers: {answer}. Let me check: yes."
    )
    text = (
        f"<think>\n{thought}\n</think>\n\nThe answer is \\boxed{{{answer}}}."
        if rng.random() < 0.5 + skill / 2
        else f"it is {answer}"
    )
    formed = text.startswith("<think>")
    scores: dict[str, Score | None] = {
        "accuracy": Score(float(right), f"parsed {answer}" + ("" if right else f", wanted {asked.answer}")),
        "format": Score(float(formed), "" if formed else "no thinking tags"),
        "language": Score(round(rng.uniform(0.6, 1.0), 3), "7 of 8 words") if formed else None,
    }
    if number % 29 == 0:
        scores["accuracy"] = Score(None, "gave up after 2 s")
    total = sum(score.value or 0.0 for score in scores.values() if score)
    verdict = scores["accuracy"].verdict if scores["accuracy"] else "none"
    return Attempt(asked, text, "", "stop" if rng.random() < 0.9 else "length", len(text) // 3), scores, total, verdict


def attempts(count: int, skill: float, start: int = 0) -> list[dict[str, Any]]:
    rows = []
    for number in range(start, start + count):
        tried, scores, total, verdict = attempt(number, skill)
        rows.append(attempt_row(tried, number % 4, scores, total, verdict))
    return rows


def prepare(context: StepContext) -> dict[str, Any]:
    problems = [problem_row(problem(number)) for number in range(60)]
    traces = [
        {**row, "thinking": HOSTILE[index % 5], "summary": f"It is {row['answer']}.", "origin": "given"}
        for index, row in enumerate(problems)
    ]
    pairs = [
        {
            "id": row["id"],
            "question": row["question"],
            "language": "en",
            "kind": "helpfulness",
            "chosen": "yes",
            "rejected": "no",
            "source": "scripted",
        }
        for row in problems
    ]
    labels = [
        {
            "id": row["id"],
            "question": row["question"],
            "language": "en",
            "response": HOSTILE[index % 5],
            "safe": index % 2,
            "source": "scripted",
        }
        for index, row in enumerate(problems)
    ]
    tables = {
        "problems": (problems, PROBLEM_COLUMNS),
        "traces": (traces, TRACE_COLUMNS),
        "general": (problems, PROBLEM_COLUMNS),
        "general_traces": (traces, TRACE_COLUMNS),
        "pairs": (pairs, PAIR_COLUMNS),
        "labels": (labels, LABEL_COLUMNS),
        "evaluation": (problems, PROBLEM_COLUMNS),
        "general_evaluation": (problems, PROBLEM_COLUMNS),
    }
    tables = {name: table for name, table in tables.items() if name in context.step.writes}
    for name, (rows, columns) in tables.items():
        write_table(context.output(name), rows, columns)
    return {"tables": {name: {"rows": len(rows), "dropped": {}, "source": "scripted"} for name, (rows, _) in tables.items()}}


def _loop(context: StepContext, steps: int, each: Any) -> None:
    """A training loop with a checkpoint at each step."""
    state_path = context.folder / "state.json"
    first = json.loads(state_path.read_bytes())["step"] if state_path.exists() else 0
    print(f"{context.step.name}: {'resuming' if first else 'starting'} at step {first} of {steps}", flush=True)
    with MetricsWriter(context.folder / METRICS) as metrics:
        metrics.truncate_after(first)
        for step in range(first + 1, steps + 1):
            if context.stop_requested():
                raise Stopped(f"stopped after step {step - 1} of {steps}", "r1pipe resume")
            if os.environ.get(FAIL) == context.step.name and step == 3:
                raise TrainingError(f"{context.step.name}: the loss of step 3 is nan [/red]", "lower the learning rate")
            time.sleep(float(os.environ.get(PAUSE, "0")))
            live = each(step, metrics)
            write_atomic(state_path, json.dumps({"step": step}).encode(), durable=False)
            progress = {"done": step, "total": steps, "unit": "step", "note": context.step.name, **live}
            write_progress(context.folder / PROGRESS, progress)


def train_sft(context: StepContext) -> dict[str, Any]:
    def each(step: int, metrics: MetricsWriter) -> dict[str, Any]:
        loss = 2.5 / step
        metrics.write(
            {
                "kind": "step",
                "step": step,
                "loss": loss,
                "learning_rate": 5e-4,
                "gradient_norm": 1.0,
                "token_accuracy": 1 - 1 / (step + 1),
            }
        )
        return {"loss": loss}

    _loop(context, 8, each)
    write_model(context.output("model"), context.seed)
    return {"rows": 400, "rows_too_long": 0, "steps": 8}


def look(step: int, right: int, preference: float, joined: bool) -> dict[str, Any]:
    """What a look at held-out problems leaves: 64 problems, 8 prompts."""
    return {
        "kind": "held-out", "step": step, "joined": joined, "held_out_accuracy": right / 64, "held_out_preference": preference,
        "held_out_helpfulness": preference, "held_out_safety": preference, "held_out_tokens": 30.0, "general_tokens": 20.0 + step,
        "refused_harmless": 0.0, "refused_risky": 1.0, "verdicts": "1" * right + "0" * (64 - right),
        "preferences": [preference] * 8, "look_seconds": 1.0,
    }  # fmt: skip


LOOKS = {4: look(4, 48, 0.1, False), 8: look(8, 47, 0.4, True), 12: look(12, 36, 0.9, True)}
"""Step -> a look of stage 4: the last one shows the sign of hacking."""


def train_grpo(context: StepContext) -> dict[str, Any]:
    steps = min(12, context.config.steps)
    watched = LOOKS if context.step.name == "mixed-rl/train" else {}

    def each(step: int, metrics: MetricsWriter) -> dict[str, Any]:
        skill = 0.2 + 0.6 * step / steps
        rows = attempts(16, skill, step * 16)
        rewards = {"accuracy": skill, "format": 0.5 + skill / 2, "language": 0.6 + skill / 3}
        tokens = 30 + step % 5
        metrics.write(
            {
                "kind": "rollout",
                "step": step,
                "rewards": rewards,
                "total_mean": sum(rewards.values()),
                "answers": 16,
                "unjudged": 1,
                "tokens_mean": tokens,
                "tokens_total": 16 * tokens,
                "truncated_share": 0.1,
                "flat_share": 1 - skill,
                "flat_right": 0.0,
                "flat_wrong": 0.1,
                "domains": {"arithmetic": {"right": skill, "flat_share": 0.1, "groups": 4}},
            }
        )
        metrics.write(
            {
                "kind": "step",
                "step": step,
                "loss": 0.01 / step,
                "kl": 0.002 * step,
                "gradient_norm": 1.0,
                "learning_rate": 1e-4,
                "step_seconds": 1.0,
            }
        )
        if step in watched:
            metrics.write(watched[step])
        write_part(context.folder / "rollouts", step - 1, rows, ATTEMPT_COLUMNS)
        sample = {"question": rows[0]["question"], "completion": HOSTILE[step % len(HOSTILE)]}
        return {
            "rewards": rewards,
            "tokens": tokens,
            "flat_groups": 1 - skill,
            "truncated": 0.1,
            "kl": 0.002 * step,
            "loss": 0.01 / step,
            "sample": sample,
        }

    _loop(context, steps, each)
    write_model(context.output("model"), context.seed + 1)
    looks = {"hacking_watch": told([found for step, found in watched.items() if step <= steps])} if watched else {}
    return {"steps": steps, "rollouts": steps, **looks}


def sample(context: StepContext) -> dict[str, Any]:
    for shard in range(3):
        write_part(context.output("attempts"), shard, attempts(40, 0.6, shard * 40), ATTEMPT_COLUMNS)
    return {"problems": 30, "attempts": 120, "verdicts": {"right": 70, "wrong": 45, "unjudged": 5}, "tokens": 4000, "shards": 3}


def build(context: StepContext) -> dict[str, Any]:
    rows = [
        {**problem_row(problem(n)), "thinking": HOSTILE[n % 5], "summary": "ok", "origin": "R1-Zero, thinking as sampled"}
        for n in range(50)
    ]
    line = {"thinking_from": "as sampled", "summary_from": "answer alone", "notes": ""}
    ledger = [
        {"id": str(n), "sample": 0, "outcome": outcome, "reason": "" if outcome == "kept" else HOSTILE[n % 5], **line}
        for n, outcome in enumerate(["kept"] * 50 + ["dropped"] * 70)
    ]
    write_table(context.output("traces"), rows, TRACE_COLUMNS)
    write_table(context.output("ledger"), ledger, LEDGER_COLUMNS)
    report = {
        "attempts": 120,
        "kept": 50,
        "dropped": 70,
        "unjudged": 0,
        "error": 0,
        "reasons": {"wrong": 45, "mixed language": 25},
        "rewriting": rewriting_note(context.config.rewrite),
    }
    write_atomic(context.output("report"), json.dumps(report).encode())
    return report


def select(context: StepContext) -> dict[str, Any]:
    rows = [
        {**problem_row(problem(n)), "thinking": HOSTILE[n % 5], "summary": "ok", "origin": "rejection sampling"}
        for n in range(50)
    ]
    write_table(context.output("selection"), rows, TRACE_COLUMNS)
    ledger = [{"id": row["id"], "outcome": "kept", "reason": ""} for row in rows]
    write_table(context.output("ledger"), ledger, {"id": TEXT, "outcome": TEXT, "reason": TEXT})
    reasons = {"kept": 50, "wrong": 45, "mixed language": 15, "format: no thinking tags [/x]": 10}
    report = {
        "attempts": 120,
        "reasons": reasons,
        "kept": 50,
        "general": 8,
        "rows": 58,
        "domains": {"arithmetic": 20, "words": 30},
        "problems": 30,
        "problems_solved": 26,
    }
    write_atomic(context.output("report"), json.dumps(report).encode())
    return report


def train_reward_models(context: StepContext) -> dict[str, Any]:
    for name in ("helpfulness", "safety"):
        with MetricsWriter(context.folder / f"metrics-{name}.jsonl") as metrics:
            for step in range(1, 6):
                metrics.write({"kind": "step", "step": step, "loss": 0.7 / step, "pair_accuracy": 0.5 + step / 12})
        write_model(context.output(name), 7)
    part = {"rows": 480, "held_out": 120, "accuracy": 0.91, "accuracy_interval": [0.85, 0.95], "score_mean": 0.0}
    return {"helpfulness": part, "safety": part}


def evaluate(context: StepContext) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    skills = {"base": 0.2, "zero": 0.75, "dev1": 0.35, "dev2": 0.8, "dev3": 0.7, "r1": 0.85}
    for number, name in enumerate(checkpoints_of(context.inputs)):
        skill = skills[name]
        write_part(context.output("attempts"), number, attempts(20, skill, number * 20), ATTEMPT_COLUMNS)
        rows[name] = {
            "pass_at_1": skill,
            "pass_at_1_interval": [skill - 0.03, skill + 0.03],
            "unjudged": 2,
            "format": 0.5 + skill / 2,
            "language": 0.9,
            "tokens": 31.5,
            "truncated": 0.01,
            "helpfulness": 0.3,
            "safety": None,
            "reflection": 0.4,
            "domains": {"arithmetic (en)": skill, "words [/x] (zh)": None},
        }
    sampling = {"samples": 4, "temperature": 1.0, "top_p": 1.0, "max_tokens": 96}
    write_atomic(context.output("results"), json.dumps({"sampling": sampling, "problems": 256, "checkpoints": rows}).encode())
    return {"table": {name: {key: value for key, value in row.items() if key != "domains"} for name, row in rows.items()}}


SCRIPTED = {
    "prepare": prepare,
    "zero/train": train_grpo,
    "zero/sample": sample,
    "zero/build": build,
    "cold-start": train_sft,
    "reasoning-rl": train_grpo,
    "rejection-sft/sample": sample,
    "rejection-sft/select": select,
    "rejection-sft/train": train_sft,
    "mixed-rl/reward-models": train_reward_models,
    "mixed-rl/train": train_grpo,
    "evaluate": evaluate,
}


def locate_base(model: str) -> Path:
    return Path(os.environ[BASE_FOLDER]) if model == "nano" else Path(model)


def load(name: str) -> Pipeline:
    """What the command line and the workers call to find the pipeline."""
    steps = tuple(replace(step, run=SCRIPTED[step.name]) for step in PIPELINES[name])
    return Pipeline(name, steps, shared={"chat": ChatSection, "rewards": RewardsSection}, locate_base=locate_base)
