"""TRL's GRPO trainer with the parts exchanged in which a method differs: who samples, and what a token's gradient is multiplied
with. Everything else, from generation to the clipped loss and the checkpoints, is the trainer's own.

The trainer's loss takes an advantage for each answer or for each token. Where a method compares no policies, the
log-probabilities of the policy that sampled are left out, and the ratio is one: the gradient is then the coefficient times that
of the log-likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from trl import GRPOTrainer

from r1pipe.data.rows import Attempt
from r1pipe.rewards import Row
from r1pipe.train.methods.choice import METHODS
from r1pipe.train.methods.coefficients import (
    generalised_advantages,
    leave_one_out,
    right_or_not,
    sum_of_later_steps,
    token_rewards,
    z_scored_steps,
)
from r1pipe.train.methods.steps import StepScorer
from r1pipe.train.methods.value import ValueModel
from r1pipe.train.rollouts import RolloutScorer
from r1pipe.train.settings import GrpoSettings


@dataclass
class Frame:
    """What a method adds to the trainer.

    Attributes:
        settings: of the stage.
        scorer: has the rollout that was scored last.
        steps: scores steps; of process supervision.
        value: of PPO.
        sampler: answers come from it; None: from the policy.
        what: label in messages.
    """

    settings: GrpoSettings
    scorer: RolloutScorer
    steps: StepScorer | None = None
    value: ValueModel | None = None
    sampler: Any = None
    what: str = ""


class MethodTrainer(GRPOTrainer):  # type: ignore[misc]
    """See the module's text. `frame` is set once the trainer is built."""

    frame: Frame
    model_wrapped: Any
    beta: float

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        """Sample, from the input model where the method says so."""
        trained = self.model_wrapped
        with self._as_sampler():
            try:
                return super()._generate_single_turn(*arguments, **named)
            finally:
                self.model_wrapped = trained

    def _as_sampler(self) -> AbstractContextManager[Any]:
        if not METHODS[self.frame.settings.method].sampler:
            return nullcontext()
        if self.frame.sampler is None:  # adapters: without them the model is the input model
            without: AbstractContextManager[Any] = self.accelerator.unwrap_model(self.model).disable_adapter()
            return without
        self.model_wrapped = self.frame.sampler
        return nullcontext()

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """A rollout, with the method's coefficients in place of the trainer's advantages."""
        out = super()._generate_and_score_completions(inputs)
        attempts, rows = self.frame.scorer.latest()
        settings = self.frame.settings
        if not METHODS[settings.method].own_ratio:
            out.pop("old_per_token_logps", None)
        totals = [row.total for row in rows]
        if settings.method in ("rft", "online-rft"):
            made = torch.tensor(right_or_not([row.verdict for row in rows]))
        elif settings.method == "reinforce-loo":
            made = torch.tensor(leave_one_out(totals, settings.group))
        elif settings.method == "grpo-process":
            made = self._by_steps(out, attempts, rows)
        else:
            made = self._by_value(out, totals)
        out["advantages"] = made.to(out["advantages"])
        counted = out["completion_mask"] if made.dim() == 2 else torch.ones_like(out["advantages"])
        self._note("coefficient", float((out["advantages"].abs() * counted).sum() / counted.sum().clamp(min=1)))
        return out

    def _by_steps(self, out: Any, attempts: Sequence[Attempt], rows: Sequence[Row]) -> torch.Tensor:
        """Sums of later step scores, (answers, tokens)."""
        assert self.frame.steps is not None
        width = out["completion_ids"].shape[1]
        ids = [row[: attempt.tokens].tolist() for row, attempt in zip(out["completion_ids"], attempts, strict=True)]
        found = self.frame.steps(attempts, rows, ids)
        scored = [score for steps in found for _, score in steps[:-1]]
        if scored:
            self._note("step_right", sum(scored) / len(scored))
        self._note("steps_written", len(scored) / max(1, len(found)))
        made = z_scored_steps(found, self.frame.settings.group)
        return torch.stack([sum_of_later_steps(steps, width) for steps in made])

    def _by_value(self, out: Any, totals: Sequence[float | None]) -> torch.Tensor:
        """Advantages by GAE, (answers, tokens); leaves what the value model is to learn in the rollout."""
        settings, ppo, value = self.frame.settings, self.frame.settings.ppo, self.frame.value
        assert ppo is not None
        assert value is not None
        ids, attention = _whole(out)
        tokens, batch = out["completion_ids"].shape[1], self.args.per_device_train_batch_size
        if "old_per_token_logps" not in out:
            with torch.no_grad():
                out["old_per_token_logps"], _, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, attention, tokens, batch_size=batch
                )
        old, reference = out["old_per_token_logps"].double(), out.get("ref_per_token_logps")
        judged = torch.tensor([[total is not None] for total in totals], device=ids.device)
        mask = out["completion_mask"].double() * judged
        rewards = token_rewards(
            torch.tensor([total or 0.0 for total in totals], dtype=torch.float64, device=ids.device),
            old - reference.double() if reference is not None else torch.zeros_like(old),
            mask,
            settings.kl,
        )
        values = value.look(ids, attention, tokens, batch).double()
        made = generalised_advantages(rewards, values, mask, ppo.gae_gamma, ppo.gae_lambda)
        returns = (made + values) * mask
        out["returns"], out["value_mask"] = returns.float(), mask.float()
        wanted, missed = self._variance(returns, mask), self._variance(made, mask)
        if wanted > 0:
            self._note("value_explained", 1 - missed / wanted)
        if settings.advantage_scale == "batch" and missed > 0:
            made = made / math.sqrt(missed)
        return made

    def _variance(self, found: torch.Tensor, mask: torch.Tensor) -> float:
        """The sample variance over the tokens of the mask, of all processes."""
        sums = torch.stack([mask.sum(), (found * mask).sum(), (found * found * mask).sum()])
        count, total, squares = self.accelerator.reduce(sums, reduction="sum").tolist()
        return max(0.0, (squares - total * total / count) / (count - 1)) if count > 1 else 0.0

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        """The trainer's loss; of PPO without its KL term, which is in the rewards, and with a lesson for the value model."""
        value = self.frame.value
        if value is None:
            return super()._compute_loss(model, inputs)
        weight, self.beta = self.beta, 0.0
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self.beta = weight
        if "ref_per_token_logps" in inputs:
            gap = inputs["ref_per_token_logps"] - inputs["old_per_token_logps"]
            counted = inputs["completion_mask"]
            pair = torch.stack([((torch.exp(gap) - gap - 1) * counted).sum(), counted.sum().float()])
            total, count = self.accelerator.reduce(pair, reduction="sum").tolist()
            self._note("kl", total / max(count, 1.0))
        ids, attention = _whole(inputs)
        share = 1 / self.current_gradient_accumulation_steps
        missed = value.learn(ids, attention, inputs["returns"], inputs["value_mask"], share)
        self._note("value_loss", float(self.accelerator.gather(missed).mean()))
        return loss

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        """A step of the trainer, and at the end of a batch one of the value model."""
        loss = super().training_step(*arguments, **named)
        if self.frame.value is not None and self.accelerator.sync_gradients:
            rate = self.lr_scheduler.get_last_lr()[0] / self.args.learning_rate
            self.frame.value.step(rate, self.frame.what)
        return loss

    def _note(self, name: str, number: float) -> None:
        self._metrics["train"][name].append(number)


def _whole(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of prompts with their answers."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    return ids, torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
