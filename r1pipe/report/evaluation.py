"""What the evaluation of a run says of each checkpoint, from its scored attempts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from r1pipe.data.chat import split_response
from r1pipe.data.reflection import reflection_words
from r1pipe.data.tables import attempt_of, read_part, scores_of
from r1pipe.estimators import Comparison, compare
from r1pipe.intervals import mean, share_interval
from r1pipe.opening import Opened
from r1pipe.rewards.readability import repetition_share
from r1pipe.stages.tallies import at_k, shares_by, tallies
from r1pipe.views.results import NAMES, read_results
from r1pipe.views.tables import is_table, part_labels, parts_of

EVALS = "evals"
"""Folder in a run's folder for evaluations by `r1pipe eval --out`."""

Share = tuple[float, float, float, int]
"""Mean, low, high, number of problems."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a checkpoint writes, over its verifiable attempts.

    Attributes:
        words: reflection word -> how often a response holds it, in the mean.
        reflections: all of them, per response; per_thousand: per 1,000 tokens.
        tokens_right, tokens_wrong: mean length by verdict.
        thinking_share: mean share of a response's characters that is thinking.
        repetition: mean share of the thinking that repeats an earlier run of words.
        cut_off, well_formed, one_language: shares of responses.
        faults: what breaks the format -> how many responses.
    """

    words: dict[str, float]
    reflections: float
    per_thousand: float
    tokens_right: float | None
    tokens_wrong: float | None
    thinking_share: float
    repetition: float
    cut_off: float
    well_formed: float
    one_language: float | None
    faults: dict[str, int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint's evaluation.

    Attributes:
        key: its name in the results; name: what people call it.
        row: its line of the results.
        attempts: all its attempts; rates: problem -> share of right ones.
        pass_at_1: None when nothing was judged.
        domains, levels: pass@1 by domain and language, by level.
        curves: pass@k and maj@k; empty without judged attempts.
    """

    key: str
    name: str
    row: Mapping[str, Any]
    attempts: Sequence[dict[str, Any]]
    rates: Mapping[str, float]
    pass_at_1: Share | None
    domains: Mapping[str, Share]
    levels: Mapping[str, Share]
    curves: Mapping[str, list[dict[str, float]]]
    behaviour: Behaviour | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All checkpoints of a run that were evaluated, in order.

    Attributes:
        sampling: settings of the sampling.
    """

    sampling: Mapping[str, Any]
    checkpoints: tuple[Checkpoint, ...] = ()
    problems: int = 0


def read_evaluation(opened: Opened) -> Evaluation | None:
    """The evaluation of a run; None while there is none."""
    results = read_results(opened.run, opened.pipeline)
    if results is None:
        return None
    folder = attempts_folder(opened)
    parts = dict(zip(part_labels(folder, paths := parts_of(folder)), paths, strict=True)) if folder else {}
    checkpoints = [
        read_checkpoint(key, row, read_part(parts[key]) if key in parts else [])
        for key, row in results["checkpoints"].items()
        if isinstance(row, Mapping)
    ]
    return Evaluation(results.get("sampling") or {}, tuple(checkpoints), max((len(one.rates) for one in checkpoints), default=0))


def further_evaluations(root: Path) -> list[tuple[str, dict[str, Any]]]:
    """(name, results) of what `r1pipe eval` left in a run's folder with four samples a problem or more."""
    found = []
    for path in sorted((root / EVALS).glob("*/results.json")):
        try:
            results = json.loads(path.read_bytes())
            many = any(len(row["at_k"]["pass"]) > 2 for row in results["checkpoints"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not whole, or not an evaluation: the page shows what can be read
        if many:
            found.append((path.parent.name, results))
    return found


def attempts_folder(opened: Opened) -> Path | None:
    """The table of the evaluation's attempts."""
    for step in opened.pipeline.steps:
        if step.writes.get("results") == "json" and step.writes.get("attempts") == "table":
            folder = opened.run.output_path(step, "attempts")
            return folder if is_table(folder) else None
    return None


def read_checkpoint(key: str, row: Mapping[str, Any], attempts: Sequence[dict[str, Any]]) -> Checkpoint:
    """One checkpoint from its attempts; without them, from its line of the results."""
    found = tallies(attempts)
    rates = {name: tally.pass_at_1 for name, tally in found.items()}
    shares = list(rates.values())
    pass_at_1: Share | None = (fmean(shares), *share_interval(shares), len(shares)) if shares else None
    if not attempts and isinstance(row.get("pass_at_1"), int | float):
        low, high = row.get("pass_at_1_interval") or (row["pass_at_1"], row["pass_at_1"])
        pass_at_1 = (row["pass_at_1"], low, high, 0)
    rules = [one for one in attempts if one["kind"] == "verifiable"]
    return Checkpoint(
        key,
        NAMES.get(key, key[:1].upper() + key[1:]),
        row,
        attempts,
        rates,
        pass_at_1,
        shares_by(attempts, lambda one: f"{one['domain']} ({one['language']})"),
        shares_by(attempts, lambda one: str(one["level"] or "")),
        at_k(list(found.values())),
        behaviour(rules) if rules else None,
    )


def behaviour(rows: Sequence[dict[str, Any]]) -> Behaviour:
    """How the attempts of a checkpoint are written."""
    words: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    lengths: dict[str, list[float]] = {"right": [], "wrong": []}
    thinking_shares, repetitions, one_language = [], [], []
    tokens = 0
    for row in rows:
        attempt = attempt_of(row)
        parts = split_response(attempt.text)
        thinking = parts.thinking or ""
        words.update(reflection_words(attempt))
        faults.update(parts.faults[:1])
        tokens += row["tokens"]
        lengths.setdefault(row["verdict"], []).append(float(row["tokens"]))
        thinking_shares.append(len(thinking) / max(1, len(attempt.text)))
        repetitions.append(repetition_share(thinking))
        language = scores_of(row).get("language")
        if language is not None and language.value is not None:
            one_language.append(float(language.value >= 1))
    count = len(rows)
    return Behaviour(
        {word: words[word] / count for word, _ in words.most_common()},
        words.total() / count,
        1000 * words.total() / max(1, tokens),
        mean(lengths["right"]),
        mean(lengths["wrong"]),
        fmean(thinking_shares),
        fmean(repetitions),
        fmean(float(row["finish"] == "length") for row in rows),
        1 - faults.total() / count,
        mean(one_language),
        dict(faults.most_common()),
    )


def steps_between(evaluation: Evaluation) -> list[tuple[Checkpoint, Checkpoint, Comparison]]:
    """Each checkpoint against the one before it, on the problems that both answered."""
    pairs = zip(evaluation.checkpoints, evaluation.checkpoints[1:], strict=False)
    return [(first, second, found) for first, second in pairs if (found := compare(first.rates, second.rates)) is not None]


def between_runs(mine: Evaluation, other: Evaluation) -> list[tuple[Checkpoint, Checkpoint, Comparison]]:
    """The same checkpoint of two runs, where both answered the same problems."""
    theirs = {one.key: one for one in other.checkpoints}
    pairs = [(theirs[one.key], one) for one in mine.checkpoints if one.key in theirs]
    return [(first, second, found) for first, second in pairs if (found := compare(first.rates, second.rates)) is not None]
