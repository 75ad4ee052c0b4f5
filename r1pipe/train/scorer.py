"""Reward models at work: batched scores of attempts, on the scale that was measured on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from r1pipe.data.rows import Attempt, Score
from r1pipe.engines.text import load_tokenizer
from r1pipe.errors import ArtifactError
from r1pipe.rewards.base import CUT
from r1pipe.rewards.preference import LIMIT, PreferenceKind, standardised, to_judge
from r1pipe.train.adopted import OWN_TEMPLATE, load_classifier, readings

__all__ = ["LIMIT", "PreferenceReward", "score_ids"]


def score_ids(model: Any, pad: int, rows: Sequence[Sequence[int]], batch: int = 64, label: int = 0) -> list[float]:
    """Raw scores of token rows; sorted by length inside, so that little is padded, and returned in order.

    A model with one output gives its logit; of one with several, the log-odds of output `label` against the others.
    """
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
            logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits.float()
            chosen = logits[:, label]
            if logits.shape[1] > 1:
                others = [place for place in range(logits.shape[1]) if place != label]
                chosen = chosen - torch.logsumexp(logits[:, others], dim=1)
            for index, value in zip(members, chosen.tolist(), strict=True):
                scores[index] = value
    model.train(was_training)
    return scores


@cache
def loaded(folder: str) -> tuple[Any, Any]:
    """Model and tokenizer of a reward model, once per process.

    Raises:
        ArtifactError: the folder's weights have no scalar head (a fresh one would score at random), or no scale was measured.
    """
    if getattr(AutoConfig.from_pretrained(folder), OWN_TEMPLATE, False):
        return load_classifier(Path(folder), 0)
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
    kind: PreferenceKind
    system: str = ""
    max_tokens: int = 8192

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """Standardised scores within ±LIMIT on a grid of 1/64; None for prompts of another kind."""
        result, texts = to_judge(attempts, self.kind)
        if not texts:
            return result
        model, tokenizer = loaded(self.folder)
        scale = model.config.r1pipe_scale
        limit = min(self.max_tokens, getattr(model.config, "max_position_embeddings", None) or self.max_tokens)
        rows = readings(model.config, tokenizer, self.system, [(attempts[index].problem.question, text) for index, text in texts])
        raw = score_ids(
            model, tokenizer.pad_token_id, [row.cut(limit) for row in rows], label=getattr(model.config, "r1pipe_logit", 0)
        )
        for (index, _), row, value in zip(texts, rows, raw, strict=True):
            cut = f", {CUT} {limit} tokens" if row.tokens > limit else ""
            standard = (value - scale["mean"]) / (scale["spread"] or 1.0)
            result[index] = Score(standardised(value, scale["mean"], scale["spread"]), f"{self.kind} {standard:+.2f}{cut}")
        return result
