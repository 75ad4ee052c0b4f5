"""Reward models between two rounds of RL: the former one goes on training on fresh answers of the policy and a share of the old
rows (DeepSeekMath 4.1.4: 10%).

The same questions are held out in every round, so nothing that measures was ever trained on. Accuracy is measured on held-out
fresh rows before and after, and on held-out old ones, which tell whether something was forgotten.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import AutoModelForSequenceClassification

from r1pipe.engines.text import load_tokenizer, pick_dtype
from r1pipe.manifest import write_atomic
from r1pipe.stage import StepContext
from r1pipe.train.reward_model import Judged, fit, hand_on, judge_numbers, measure, measured_path, split_by_question
from r1pipe.train.run import is_main
from r1pipe.train.settings import RewardModelSettings
from r1pipe.train.short import rehearsed

NUMBERS = ("held_out", "accuracy", "accuracy_interval")


def continue_reward_model(
    context: StepContext, settings: RewardModelSettings, *, former: Path, fresh: Sequence[Judged], old: Sequence[Judged],
    replay: float, seed: int, output: str, what: str, counts: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    """Train `former` on fresh rows and some old ones, and write it to the step's output; where the fresh rows show no contrast
    (no pairs, or labels of one kind only), it is taken over as it is, and the summary says why.

    Args:
        old: every row of earlier rounds, those that were held out included.
        replay: share of the old training rows that is trained on again.
        seed: of this round.
        counts: what became of the fresh answers, for the summary.

    Returns:
        Summary: rows (fresh and replayed ones), accuracy before and after on held-out fresh rows, the same on old ones, and what
        `measure` finds on both together, which gives the scale.

    Raises:
        TrainingError: held-out accuracy over both is not above the recipe's threshold with 95% certainty.
    """
    finished = measured_path(context, output)
    if finished.is_file():  # an earlier attempt of the step got this far
        measured: dict[str, Any] = json.loads(finished.read_text())
        return measured
    (new, new_out), (known, known_out) = (
        split_by_question(_usable(rows, settings.max_tokens), settings.held_out_share, context.seed) for rows in (fresh, old)
    )
    pairs = old[0].worse is not None
    dtype, tokenizer = pick_dtype(context.launch.dtype), load_tokenizer(former)
    model = AutoModelForSequenceClassification.from_pretrained(str(former), num_labels=1, dtype=dtype)
    pad = tokenizer.pad_token_id
    facts: dict[str, Any] = {"answers": dict(counts), "fresh": len(new), "old": len(known)}
    if why := _without_contrast(new, new_out, pairs):
        numbers = measure(model, pad, [*new, *new_out], pairs) if new or new_out else {}
        unchanged = {"fresh_before": _numbers(numbers)} if numbers else {}
        return take_over(context, former, output, why, what, {**facts, **unchanged})
    before, old_before = (_numbers(measure(model, pad, rows, pairs)) for rows in (new_out, known_out))
    del model
    replayed = replayed_rows(known, replay, seed)
    training = list(rehearsed([*new, *replayed]))
    print(f"{what}: trained on {len(new)} fresh rows and {len(replayed)} of {len(known)} old ones", flush=True)
    trained, steps = fit(
        replace(context, seed=seed), settings, base=former, tokenizer=tokenizer, training=training, output=output, what=what
    )
    after, old_after = (_numbers(measure(trained, pad, rows, pairs)) for rows in (new_out, known_out))
    summary = {
        "rows": len(training), **facts, "replayed": len(replayed), "steps": steps, "fresh_before": before, "fresh_after": after,
        "old_before": old_before, "old_after": old_after, **measure(trained, pad, [*new_out, *known_out], pairs),
    }  # fmt: skip
    print(
        f"{what}: accuracy on {after['held_out']} held-out fresh rows {before['accuracy']:.3f} before, {after['accuracy']:.3f} "
        f"after; on {old_after['held_out']} old ones {old_before['accuracy']:.3f} before, {old_after['accuracy']:.3f} after",
        flush=True,
    )
    judge_numbers(summary, settings, what)
    hand_on(context, trained, tokenizer, output, summary)
    return summary


def replayed_rows(known: Sequence[Judged], share: float, seed: int) -> list[Judged]:
    """So large a share of the old training rows, rounded to whole rows, in their order."""
    places = random.Random(f"replay {seed}").sample(range(len(known)), round(share * len(known)))
    return [known[place] for place in sorted(places)]


def take_over(
    context: StepContext, former: Path, output: str, why: str, what: str, facts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Hand the former model on as it is, and say why."""
    summary = {"rows": 0, "steps": 0, "taken_over": why, **(facts or {})}
    print(f"{what}: taken over as it is: {why}", flush=True)
    if is_main():
        shutil.copytree(former, context.output(output), dirs_exist_ok=True)
        write_atomic(measured_path(context, output), json.dumps(summary, indent=1).encode())
    return summary


def _usable(rows: Sequence[Judged], most: int) -> list[Judged]:
    """The rows that can be learned from: two different answers, none too long."""
    return [row for row in rows if row.better != row.worse and max(len(row.better), len(row.worse or [])) <= most]


def _without_contrast(training: Sequence[Judged], held_out: Sequence[Judged], pairs: bool) -> str:
    """Why nothing can be learned from fresh rows; empty when something can."""
    what = "pairs" if pairs else "labelled responses"
    if not training or not held_out:
        return f"{len(training) + len(held_out)} fresh {what} leave {len(training)} for training and {len(held_out)} held out"
    if not pairs and len(labels := {row.label > 0.5 for row in training}) == 1:
        return f"every one of {len(training)} fresh labelled responses is {'safe' if True in labels else 'unsafe'}"
    return ""


def _numbers(measured: Mapping[str, Any]) -> dict[str, Any]:
    return {name: measured[name] for name in NUMBERS}
