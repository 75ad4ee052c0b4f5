"""What every trainer of ours does around its steps: guard, record, checkpoint, stop.

One callback (the trainer's library wants a class here) holds the four duties, so that their order within a step is plain:
non-finite numbers stop the run *before* the optimizer applies them; then metrics are written, and the guards look at them; then a
checkpoint is sealed with the reference policy inside; then, if the user asked, training stops at a boundary from which it can be
resumed exactly.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from r1pipe.errors import TrainingError
from r1pipe.guards import Alarm
from r1pipe.metrics import write_progress
from r1pipe.stall import still_moving
from r1pipe.train.checkpoint import check_space, checkpoints, rotate, seal, step_of
from r1pipe.train.watch import Watch

REFERENCE = "reference.safetensors"

LIBRARY_CARD = "README.md"
"""What the libraries write beside a checkpoint: a card of a model that is not finished, with nothing of the run in it."""

RENAMED = {
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
    "kl": "kl",
    "entropy": "entropy",
    "clip_ratio/region_mean": "clipped_share",
    "step_time": "step_seconds",
    "mean_token_accuracy": "token_accuracy",
    "accuracy": "pair_accuracy",
    "margin": "margin",
    "coefficient": "coefficient",
    "step_right": "step_right",
    "steps_written": "steps_written",
    "value_loss": "value_loss",
    "value_explained": "value_explained",
}
"""The trainers' names -> ours, in metrics.jsonl."""


class RunCallback(TrainerCallback):
    """See the module's text. One instance per training run."""

    def __init__(self, watch: Watch, main_process: bool) -> None:
        self.watch = watch
        self.main_process = main_process
        self.last_saved: Path | None = None
        self.refreshed_at = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put back what the trainer does not know of as it was when the checkpoint was made."""
        still_moving(self.watch.stall_minutes)
        self.watch.first_step = state.global_step
        self.watch.started = time.monotonic()
        if state.global_step:
            self._restore(int(state.global_step))
        self.watch.at_start()
        if not state.global_step:
            self.watch.look(0)

    def _restore(self, step: int) -> None:
        checkpoint = self.watch.folder / f"checkpoint-{step}"
        self.last_saved = checkpoint
        if self.watch.extra is not None:
            self.watch.extra.load(checkpoint)
        if self.watch.refresh:
            self.refreshed_at = step // self.watch.refresh * self.watch.refresh
        if self.watch.reference is not None and (checkpoint / REFERENCE).is_file():
            self.watch.reference.load(checkpoint / REFERENCE)
        elif self.refreshed_at:
            raise TrainingError(
                f"{checkpoint.name} should hold the reference of step {self.refreshed_at} and has no {REFERENCE}",
                "redo the step with `r1pipe run-all --redo STEP`",
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What depends on the step alone is set from the step alone, so that a resumed run has it too."""
        self.watch.before_step(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop before a non-finite gradient reaches the weights; nothing of this step is saved."""
        gradients = [p.grad for p in kwargs["model"].parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients) if gradients else torch.tensor(0.0)
        if not torch.isfinite(norm):
            step = int(state.global_step)
            problem = f"the gradient of step {step + 1} is {norm.item()}; the weights were not changed"
            hint = "lower the learning rate, or look at the batch"
            raise self.watch.alarmed(Alarm("gradient", problem, hint, True, step, (norm.item(),)), step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Refresh the reference, look at held-out problems, ask for a checkpoint at boundaries, stop there when the user
        asked."""
        step = state.global_step
        still_moving(self.watch.stall_minutes)
        if self.watch.reference is not None and self.watch.refresh and step % self.watch.refresh == 0:
            self.watch.reference.refresh()
            self.refreshed_at = step
        at_boundary = step % self.watch.boundary == 0
        stopping = self.watch.stop_requested() and at_boundary and step < self.watch.steps
        if stopping:
            control.should_training_stop = True
        looked = at_boundary and self.watch.look(step)
        if at_boundary and step < self.watch.steps and (stopping or looked or step % self.watch.interval == 0):
            control.should_save = True
            check_space(self.watch.folder, self.last_saved)
        if self.main_process:
            self._report(step)
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Write the step's numbers under our names."""
        if not self.main_process or not logs or "loss" not in logs:
            return
        numbers = {RENAMED[name]: value for name, value in logs.items() if name in RENAMED}
        self.watch.live.update(
            {key: numbers[key] for key in ("loss", "kl", "entropy", "pair_accuracy") if numbers.get(key) is not None}
        )
        line = {"kind": "step", "step": int(state.global_step), **numbers}
        self.watch.metrics.write(line)
        self.watch.observe(line)  # the trainer logs before it saves: a run that stops here has not saved this step

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add what the trainer leaves out, seal the checkpoint, and only then delete older ones."""
        if not self.main_process:
            return
        checkpoint = self.watch.folder / f"checkpoint-{state.global_step}"
        if self.watch.reference is not None and self.refreshed_at:
            self.watch.reference.save(checkpoint / REFERENCE)
        if self.watch.extra is not None:
            self.watch.extra.save(checkpoint)
        for folder in (self.watch.folder, checkpoint):
            (folder / LIBRARY_CARD).unlink(missing_ok=True)
        for name, tensor in kwargs["model"].named_parameters():
            if not torch.isfinite(tensor).all():
                raise TrainingError(
                    f"{self.watch.what}: {name} is not finite after step {state.global_step}; the checkpoint is not sealed"
                )
        seal(checkpoint, self.watch.belongs_to)
        self.last_saved = checkpoint
        rotate(self.watch.folder, self.watch.keep, self.watch.good_until())

    def _report(self, step: int) -> None:
        elapsed = time.monotonic() - self.watch.started
        done = step - self.watch.first_step
        left = elapsed / done * (self.watch.steps - step) if done else None
        write_progress(
            self.watch.progress,
            {
                "done": step,
                "total": self.watch.steps,
                "unit": "step",
                "note": self.watch.what,
                "seconds_left": left,
                **self.watch.live,
            },
        )


def drop_unsealed_after(folder: Path, step: int) -> None:
    """Remove checkpoint folders newer than the one resumed from: they are torn, and the trainer will write them again."""
    import shutil

    for path in checkpoints(folder):
        if step_of(path) > step:
            shutil.rmtree(path)
