"""Trains in processes of their own that kill themselves (SIGKILL) at a given moment: `python kill_driver.py SPECS.json`.

One process imports the libraries once and forks a child for each attempt; it never trains itself. Each spec is
{"name", "kind": sft | grpo | lora | late | rm, "base", "folder", "kills": [[place, nth time], ...]}; one attempt per kill, then
one that is left alone. The outcome of every attempt goes to standard output as JSON lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import train_helpers
from transformers import Trainer

import r1pipe.train.callbacks as callbacks
import r1pipe.train.checkpoint as checkpoint
import r1pipe.train.grpo
import r1pipe.train.reward_model
import r1pipe.train.sft
from r1pipe.train.settings import LoraSettings, RewardModelSettings, SftSettings

PLACES: dict[str, tuple[Any, str]] = {
    "scoring": (train_helpers.Rule, "score"),  # in the middle of a rollout
    "minibatch": (callbacks.RunCallback, "on_pre_optimizer_step"),  # in the middle of a step, gradients computed
    "saving": (Trainer, "_save_optimizer_and_scheduler"),  # weights are written, the optimizer is not
    "rng": (Trainer, "_save_rng_state"),  # all but the random states is written
    "seal": (callbacks, "seal"),  # everything is written, the seal is not
    "rotate": (callbacks, "rotate"),  # sealed, older ones not yet deleted
    "deleting": (checkpoint.shutil, "rmtree"),  # the seal of an old one is gone, its files are not
    "refreshed": (callbacks.RunCallback, "_report"),  # the reference was just replaced, nothing is saved yet
}
"""Moment -> the function at whose nth call the process dies."""


def die_at(place: str, count: int) -> None:
    """Replace a function by one that kills this process at its nth call."""
    owner, name = PLACES[place]
    original = getattr(owner, name)
    calls = 0

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, counting)


def train(spec: dict[str, Any]) -> None:
    """One attempt at a training run, from its newest whole checkpoint."""
    base, folder, kind = Path(spec["base"]), Path(spec["folder"]), spec["kind"]
    GRPO, context = train_helpers.GRPO, train_helpers.context  # noqa: N806
    if kind == "grpo":
        train_helpers.grpo(context(folder, keep_checkpoints=1), base)
    elif kind == "late":
        train_helpers.grpo(context(folder, keep_checkpoints=1), base, late=4)
    elif kind == "lora":
        settings = GRPO.model_copy(update={"lora": LoraSettings(rank=4, alpha=8.0), "refresh_reference": 4})
        train_helpers.grpo(context(folder, keep_checkpoints=1), base, settings)
    elif kind == "sft":
        examples = [(f"{n}+1=", f"<think>\n{n} and one\n</think>\n\n{n + 1}") for n in range(20)]
        settings_sft = SftSettings(epochs=2, batch=6, learning_rate=1e-2, max_tokens=256)
        r1pipe.train.sft.train_sft(
            context(folder, keep_checkpoints=1), settings_sft, model=base, examples=examples, system="", what="toy"
        )
    else:
        from r1pipe.engines.text import judged_ids, load_tokenizer
        from r1pipe.train.reward_model import Judged

        tokenizer = load_tokenizer(base)
        rows = [
            Judged(f"q{n}", *(judged_ids(tokenizer, f"q{n}", "", word * (1 + n % 3)) for word in ("yes", "no")))
            for n in range(120)
        ]
        settings_rm = RewardModelSettings(
            epochs=1, batch=8, learning_rate=5e-3, max_tokens=64, held_out_share=0.3, min_accuracy_above=0
        )
        r1pipe.train.reward_model.train_reward_model(
            context(folder, outputs=("rm",), keep_checkpoints=1), settings_rm, base=base, rows=rows, output="rm", what="toy"
        )


def attempt(work: Callable[[], None]) -> str:
    """Do the work in a forked child; "done", "killed", or how it failed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(2, 1)  # what training prints is not an outcome
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
    return "done" if os.WEXITSTATUS(status) == 0 else "failed"


def main() -> None:
    for spec in json.loads(Path(sys.argv[1]).read_text()):
        for place, count in [*spec["kills"], [None, 0]]:

            def work(spec: dict[str, Any] = spec, place: str | None = place, count: int = count) -> None:
                if place is not None:
                    die_at(place, count)
                train(spec)

            outcome = attempt(work)
            left = sorted(path.name for path in Path(spec["folder"]).rglob("checkpoint-*"))
            print(json.dumps({"name": spec["name"], "place": place, "outcome": outcome, "left": left}), flush=True)


if __name__ == "__main__":
    main()
