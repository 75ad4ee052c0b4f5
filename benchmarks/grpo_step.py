"""How long a GRPO step takes, beside bare TRL with the same settings and rewards.

    python benchmarks/grpo_step.py [--models nano large] [--rollouts 6] [--rounds 3]

Each measurement trains in a process of its own, ours and bare TRL by turns: the same model, prompts in the same order, sizes,
lengths, dtype, loss and seeds. Bare TRL is GRPOTrainer with a reward function that decodes and scores with the same rewards, and
nothing else: no record and no guard. Neither side writes checkpoints. A rollout's time is from one rollout's beginning to the
next's, the first one left out; the ratio is of the medians over all rounds. "large" is a random model of about 100 million
parameters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common import save

GOAL = 1.03
SIZES: dict[str, dict[str, Any]] = {
    "nano": {"questions_per_step": 16, "group": 8, "minibatches": 2, "max_completion_tokens": 96, "micro_batch": 64},
    "large": {"questions_per_step": 2, "group": 4, "minibatches": 2, "max_completion_tokens": 32, "micro_batch": 8},
}


def make_large(folder: Path) -> Path:
    """A random model of about 100 million parameters with the tokenizer of the embedded base."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from r1pipe.pipeline import locate_base

    tokenizer = AutoTokenizer.from_pretrained(str(locate_base("nano")))
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=768, hidden_size=768, intermediate_size=3072, num_hidden_layers=11, num_attention_heads=12,
        num_key_value_heads=12, head_dim=64, tie_word_embeddings=True, max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    print(f"large: {sum(parameter.numel() for parameter in model.parameters()):,} parameters", flush=True)
    return folder


def parts(model: Path, size: dict[str, Any], rollouts: int) -> Any:
    """What both sides train with: settings, problems, their order, rewards."""
    from r1pipe.data.schedule import prompt_order
    from r1pipe.data.sources import open_source
    from r1pipe.data.tables import problem_of
    from r1pipe.rewards import Mix, RewardSpec
    from r1pipe.stages.prepare import normalised
    from r1pipe.train.settings import GrpoSettings

    sizes = {key: value for key, value in size.items() if key != "micro_batch"}
    settings = GrpoSettings(steps=rollouts * size["minibatches"], learning_rate=1e-4, refresh_reference=0, **sizes)
    problems = [problem_of(normalised(row, "problems", {})) for row in open_source("nano", "problems", 400, 1)]
    order = prompt_order(
        verifiable=list(range(len(problems))), general=[], rollouts=rollouts, questions=settings.questions_per_rollout,
        general_from=0, general_share=0.0, seed=1,
    )  # fmt: skip
    mix = Mix.build([RewardSpec(name="accuracy"), RewardSpec(name="format"), RewardSpec(name="language")])
    return SimpleNamespace(settings=settings, problems=problems, order=order, mix=mix, model=model, micro=size["micro_batch"])


class Clock:
    """Notes when each rollout is scored, around a reward function."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def around(self, function: Any) -> Any:
        """The function, and a note of when it was called."""

        def timed(*arguments: Any, **named: Any) -> Any:
            self.times.append(time.monotonic())
            return function(*arguments, **named)

        timed.__name__ = "total"
        return timed


def ours(given: Any, folder: Path) -> list[float]:
    """Train with r1pipe, guards and records on."""
    import r1pipe.train.grpo as module
    from r1pipe.recipe import Launch
    from r1pipe.stage import Step, StepContext
    from r1pipe.train.settings import GrpoSettings

    clock = Clock()
    trainer = module.GRPOTrainer
    module.GRPOTrainer = lambda *arguments, reward_funcs, **named: trainer(  # type: ignore[misc, assignment]
        *arguments, reward_funcs=[clock.around(reward_funcs[0])], **named
    )
    step = Step("bench", "bench", lambda _: {}, GrpoSettings, writes={"model": "model"})
    launch = Launch(threads=1, micro_batch=given.micro, checkpoint_every=given.settings.steps)  # none on the way
    context = StepContext(step, given.settings, {}, launch, {}, {}, folder, 1)
    module.train_grpo(
        context, given.settings, policy=given.model, problems=given.problems, order=given.order, mix=given.mix, system="",
        what="bench",
    )  # fmt: skip
    return clock.times


def bare(given: Any, folder: Path) -> list[float]:
    """Train with TRL alone."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from r1pipe.data.chat import messages
    from r1pipe.data.rows import Attempt

    tokenizer = AutoTokenizer.from_pretrained(str(given.model), padding_side="left")
    settings, problems = given.settings, given.problems
    rows = [row for rollout in given.order.rollouts for row in rollout]
    micro, accumulation = settings.split(1, given.micro)

    def total(*, completion_ids: list[list[int]], row: list[int], **columns: Any) -> list[float | None]:
        attempts = [
            Attempt(problems[index], tokenizer.decode(ids, skip_special_tokens=True), tokens=len(ids))
            for ids, index in zip(completion_ids, row, strict=True)
        ]
        return [scored.total for scored in given.mix.score(attempts, 0)]

    arguments = GRPOConfig(
        output_dir=str(folder), max_steps=settings.steps, per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulation, steps_per_generation=accumulation * settings.minibatches,
        num_generations=settings.group, shuffle_dataset=False, max_completion_length=settings.max_completion_tokens,
        temperature=settings.temperature, top_p=1.0, top_k=0, beta=settings.kl, epsilon=settings.clip, loss_type=settings.loss,
        scale_rewards=settings.advantage_scale, use_bias_correction_kl=False, disable_dropout=True,
        lr_scheduler_type=settings.schedule, learning_rate=settings.learning_rate, weight_decay=0.0, adam_beta1=0.9,
        adam_beta2=0.95, max_grad_norm=1.0, logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=True, bf16=False, gradient_checkpointing=False, seed=1, data_seed=1, model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    clock = Clock()
    data = Dataset.from_dict({"prompt": [messages(problems[row].question) for row in rows], "row": rows})
    trainer = GRPOTrainer(
        model=str(given.model), reward_funcs=[clock.around(total)], args=arguments, train_dataset=data, processing_class=tokenizer
    )
    trainer.train()
    return clock.times


def one(side: str, model: Path, name: str, rollouts: int) -> None:
    """A measurement, in this process; prints the rollouts' times as its last line."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        times = {"ours": ours, "bare": bare}[side](parts(model, SIZES[name], rollouts), Path(folder))
    print(json.dumps([round(after - before, 4) for before, after in pairwise(times[1:])]))


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rollouts", type=int, default=6, help="rollouts per measurement; the first is not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "FOLDER", "NAME"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rollouts < 3:
        parser.error("--rollouts must be at least 3: a time needs two rollouts, and the first is not counted")
    if chosen.one:
        side, folder, name = chosen.one
        one(side, Path(folder), name, chosen.rollouts)
        return
    from r1pipe.pipeline import locate_base

    report: dict[str, Any] = {"goal": GOAL, "rollouts": chosen.rollouts, "rounds": chosen.rounds}
    with tempfile.TemporaryDirectory() as scratch:
        for name in chosen.models:
            model = locate_base("nano") if name == "nano" else make_large(Path(scratch) / "large")
            times: dict[str, list[float]] = {"ours": [], "bare": []}
            for round_number in range(chosen.rounds):
                sides = ("bare", "ours") if round_number % 2 == 0 else ("ours", "bare")
                for side in sides:
                    command = [sys.executable, __file__, "--rollouts", str(chosen.rollouts), "--one", side, str(model), name]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    if done.returncode:
                        raise SystemExit(f"{side} on {name} failed:\n{done.stderr[-3000:]}")
                    times[side] += json.loads(done.stdout.splitlines()[-1])
            steps = SIZES[name]["minibatches"]
            medians = {side: statistics.median(found) / steps for side, found in times.items()}
            ratio = medians["ours"] / medians["bare"]
            report[name] = {"sizes": SIZES[name], "rollout_seconds": times, "step_seconds": medians, "ratio": round(ratio, 4)}
            verdict = "within" if ratio <= GOAL else "above"
            print(
                f"{name}: {medians['ours']:.3f} s a step, bare TRL {medians['bare']:.3f} s, ratio {ratio:.3f} ({verdict} {GOAL})",
                flush=True,
            )
    save("grpo_step", report)


if __name__ == "__main__":
    main()
