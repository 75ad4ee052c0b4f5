"""The frame that every training step shares: find the checkpoint, train, check that something was trained, hand the model on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from r1pipe.engines.text import pick_dtype
from r1pipe.errors import Stopped, TrainingError
from r1pipe.guards import Guards
from r1pipe.metrics import MetricsWriter
from r1pipe.stage import StepContext
from r1pipe.stall import finished
from r1pipe.train.callbacks import RunCallback, drop_unsealed_after
from r1pipe.train.checkpoint import newest_whole, step_of
from r1pipe.train.hacking import HackingWatch
from r1pipe.train.watch import Watch

PROCESS_COUNT, PROCESS_RANK = "WORLD_SIZE", "RANK"


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get(PROCESS_COUNT, "1"))


def rank() -> int:
    """Which of them this one is, from 0."""
    return int(os.environ.get(PROCESS_RANK, "0"))


def is_main() -> bool:
    """Whether this process writes."""
    return rank() == 0


def enough_rows(rows: int, what: str) -> None:
    """Refuse to share out fewer rows than there are processes."""
    if rows < processes():
        raise TrainingError(
            f"{what}: {rows} rows cannot be shared out over {processes()} processes",
            "give more rows, or lower launch.processes",
        )


def make_watch(context: StepContext, what: str, steps: int, boundary: int, belongs_to: dict[str, Any], name: str = "") -> Watch:
    """The watch of a training run inside a step; `name` keeps several runs of one step apart."""
    folder = context.folder / "checkpoints" / name if name else context.folder / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    dtype = str(pick_dtype(context.launch.dtype)).removeprefix("torch.")  # weights and moments of one are not those of another
    return Watch(
        what=what,
        folder=folder,
        steps=steps,
        boundary=boundary,
        checkpoint_every=context.launch.checkpoint_every or max(boundary, steps // 10),
        keep=context.launch.keep_checkpoints,
        belongs_to={**belongs_to, "steps": steps, "seed": context.seed, "processes": processes(), "dtype": dtype},
        metrics=MetricsWriter(context.folder / (f"metrics-{name}.jsonl" if name else "metrics.jsonl")),
        progress=context.folder / "progress.json",
        stop_requested=context.stop_requested,
        stall_minutes=context.launch.stall_minutes,
        guards=Guards(context.launch.guards),
        hacking=HackingWatch(context.launch.hacking),
    )


def run_training(trainer: Any, watch: Watch) -> int:
    """Train from the newest whole checkpoint (or from the start) to the planned step; returns optimizer steps done in this
    process.

    Raises:
        Stopped: at a boundary, after a sealed checkpoint, when the user asked.
        TrainingError: when the run ended with another number of steps than planned, or had nothing to do.
    """
    checkpoint, notices = newest_whole(watch.folder, watch.belongs_to)
    start = step_of(checkpoint) if checkpoint else 0
    for notice in notices if is_main() else ():
        watch.metrics.write({"kind": "notice", "step": start, "notice": notice})
        print(notice, flush=True)
    if start >= watch.steps:
        raise TrainingError(
            f"{watch.what}: {watch.steps} steps are planned and checkpoint-{start} is there: nothing would be trained",
            "redo the step with `r1pipe run-all --redo STEP`",
        )
    if is_main():
        watch.metrics.truncate_after(start)
        drop_unsealed_after(watch.folder, start)
        watch.count_again()
    how = "resuming" if start else "starting"
    print(f"{watch.what}: {how} at step {start} of {watch.steps}, over {processes()} processes", flush=True)
    trainer.add_callback(RunCallback(watch, is_main()))
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finished()
    done = int(trainer.state.global_step)
    if done < watch.steps:
        if watch.stop_requested():
            raise Stopped(f"{watch.what} stopped at step {done} of {watch.steps}; the checkpoint is whole", "r1pipe resume")
        raise TrainingError(
            f"{watch.what} ended after {done} of {watch.steps} planned steps", "look at the step's log; the data may be too small"
        )
    return done - start


def save_final(trainer: Any, tokenizer: Any, folder: Path, merge: bool) -> None:
    """Write the model that the step hands on: self-contained, adapters merged, with tokenizer, template and generation
    settings."""
    if not is_main():
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    if merge:
        model = model.merge_and_unload()
    clean_generation(model, tokenizer)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def clean_generation(model: Any, tokenizer: Any) -> None:
    """Make the model's own generation settings stop at the turn's end and forget what training set for itself."""
    from transformers import GenerationConfig

    if getattr(model, "generation_config", None) is not None:
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
        )
    model.config.use_cache = True
