"""Reward models at work: batched scores of attempts, on the scale that was measured on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForSequenceClassification

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt, Kind, Score
from r1pipe.engines.text import judged_ids, load_tokenizer
from r1pipe.errors import ArtifactError
from r1pipe.rewards import quantise
from r1pipe.rewards.base import CUT

LIMIT = 2.0
"""Scores are clipped at this many standard deviations: one odd answer must not rule its group. A missing summary scores the
lower end."""


def score_ids(model: Any, pad: int, rows: Sequence[Sequence[int]], batch: int = 64) -> list[float]:
    """Raw scores (logits) of token rows; sorted by length inside, so that little is padded, and returned in order."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    scores = [0.0] * len(rows)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            members = order[start : start + batch]
            width = max(len(rows[index]) for index in members)
            ids = torch.full((len(members), width), pad, dtype=torch.long)
            mask = torch.zeros((len(members), width), dtype=torch.long)
            for line, index in enumerate(members):
                ids[line, : len(rows[index])] = torch.tensor(rows[index])
                mask[line, : len(rows[index])] = 1
            logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits[:, 0]
            for index, value in zip(members, logits.float().tolist(), strict=True):
                scores[index] = value
    model.train(was_training)
    return scores


@cache
def loaded(folder: str) -> tuple[Any, Any]:
    """Model and tokenizer of a reward model, once per process.

    Raises:
        ArtifactError: the folder's weights have no scalar head (a fresh one would score at random), or no scale was measured.
    """
    model, loading = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if missing := sorted(loading["missing_keys"]):
        raise ArtifactError(
            f"{Path(folder).name} is not a reward model: {', '.join(missing)} is not among its weights",
            "name the output of mixed-rl/reward-models",
        )
    if not hasattr(model.config, "r1pipe_scale"):
        raise ArtifactError(f"{Path(folder).name} has no measured scale of scores", "train it with mixed-rl/reward-models")
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model.eval(), load_tokenizer(Path(folder))


@dataclass(frozen=True, slots=True)
class PreferenceReward:
    """A trained reward model as a reward; it applies to prompts of its kind only.

    Attributes:
        folder: the reward model.
        kind: "helpfulness" reads the summary, "safety" the whole response.
        system: system text of the prompt.
        max_tokens: longer texts are cut at their end before scoring, and the note says so; never more than the model has
            positions for.
    """

    folder: str
    kind: Literal["helpfulness", "safety"]
    system: str = ""
    max_tokens: int = 8192

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """Standardised scores within ±LIMIT on a grid of 1/64; None for prompts of another kind."""
        model, tokenizer = loaded(self.folder)
        scale = model.config.r1pipe_scale
        limit = min(self.max_tokens, getattr(model.config, "max_position_embeddings", self.max_tokens))
        result: list[Score | None] = [None] * len(attempts)
        wanted: list[tuple[int, list[int]]] = []
        for index, attempt in enumerate(attempts):
            if attempt.problem.kind != self._applies_to:
                continue
            text = attempt.text if self.kind == "safety" else split_response(attempt.text).summary
            if not text.strip():
                result[index] = Score(-LIMIT, "no summary")
                continue
            wanted.append((index, judged_ids(tokenizer, attempt.problem.question, self.system, text)))
        raw = score_ids(model, tokenizer.pad_token_id, [ids[:limit] for _, ids in wanted])
        for (index, ids), value in zip(wanted, raw, strict=True):
            standard = (value - scale["mean"]) / (scale["spread"] or 1.0)
            cut = f", {CUT} {limit} tokens" if len(ids) > limit else ""
            result[index] = Score(quantise(max(-LIMIT, min(LIMIT, standard))), f"{self.kind} {standard:+.2f}{cut}")
        return result

    @property
    def _applies_to(self) -> Kind:
        return self.kind
