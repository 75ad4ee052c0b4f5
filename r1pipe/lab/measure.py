"""What is measured of a checkpoint: attempts at held-out problems, and numbers by problem made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from r1pipe.artifact import base_files, digest_of, file_record
from r1pipe.checkpoints import checkpoints_of
from r1pipe.data.rows import Problem
from r1pipe.data.tables import read_problems, scores_of
from r1pipe.engines.base import Sampling
from r1pipe.errors import StateError
from r1pipe.estimators import Tally, majority_at_k, pass_at_k
from r1pipe.evals import agree, attempts_of
from r1pipe.intervals import correlation, mean
from r1pipe.lab.claims import Check, Measure
from r1pipe.metrics import read_metrics
from r1pipe.opening import Opened
from r1pipe.report.evaluation import read_evaluation
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.rewards.mix import Part
from r1pipe.stages.evaluate import JUDGES
from r1pipe.stages.sections import ChatSection
from r1pipe.stages.tallies import tallies

Rows = Sequence[Mapping[str, Any]]
ROLLOUTS = "rollouts: "
"""Quantities that begin so are one number of a run's rollouts."""


def attempts(opened: Opened, checkpoint: str, measure: Measure | None, folder: Path, tell: Callable[[str], None]) -> Rows:
    """The scored attempts of a checkpoint, those that are owed made now.

    Args:
        measure: None takes those of the run's own evaluation.
        folder: where they are kept.

    Raises:
        StateError: there is no such checkpoint or evaluation, or the folder holds attempts of other weights.
    """
    if measure is None:
        evaluation = read_evaluation(opened)
        rows = next((one.attempts for one in evaluation.checkpoints if one.name == checkpoint), ()) if evaluation else ()
        if not rows:
            raise StateError(
                f"run {opened.run.name} has no finished evaluation of {checkpoint}", f"r1pipe resume {opened.run.root}"
            )
        return rows
    found = next((one for one in checkpoints_of(opened) if one.name == checkpoint), None)
    if found is None:
        raise StateError(f"run {opened.run.name} has no finished {checkpoint}", f"r1pipe resume {opened.run.root}")
    seed = opened.recipe.seed
    sampling = Sampling(measure.samples, measure.temperature, measure.top_p, measure.max_tokens, seed)
    problems = _problems(opened, "evaluation")[: measure.problems]
    if measure.general:
        problems += _problems(opened, "general_evaluation")[: measure.general]
    weights = digest_of({file.name: file_record(file) for file in base_files(found.folder)})
    asked = {"samples": sampling.samples, "temperature": sampling.temperature, "top_p": sampling.top_p,
             "max_tokens": sampling.max_tokens, "seed": seed, "problems": len(problems)}  # fmt: skip
    agree(folder, {"sampling": asked, "verdict_version": VERDICT_VERSION, "checkpoints": {checkpoint: weights}})
    judges = _judges(opened) if measure.general else ()

    def told(line: str) -> None:
        tell(f"{opened.run.name}, {line}")

    return attempts_of(found, problems, sampling, folder / "attempts", told, judges=judges)


def _problems(opened: Opened, table: str) -> list[Problem]:
    step = opened.pipeline.steps[0]
    return read_problems(opened.run.output_path(step, table))


def _judges(opened: Opened) -> tuple[Part, ...]:
    """The run's reward models as rewards."""
    from r1pipe.train.scorer import PreferenceReward

    chat = opened.recipe.shared.get("chat")
    system = chat.system if isinstance(chat, ChatSection) else ""
    step = next(one for one in opened.pipeline.steps if "helpfulness" in one.writes)
    return tuple(Part(kind, PreferenceReward(str(opened.run.output_path(step, kind)), kind, system), 1.0) for kind in JUDGES)


def by_problem(quantity: str, rows: Rows) -> dict[str, float]:
    """Problem id -> the quantity.

    Raises:
        KeyError: there is no such quantity.
    """
    name, at, k = quantity.partition("@")
    if at and name in AT_K and k != "1":
        return {found: AT_K[name](tally, int(k)) for found, tally in tallies(rows).items()}
    return BY_PROBLEM[quantity](rows)


def _pass_at_1(rows: Rows) -> dict[str, float]:
    return {name: tally.pass_at_1 for name, tally in tallies(rows).items()}


def _scored(names: Sequence[str]) -> Callable[[Rows], dict[str, float]]:
    """The mean over a problem's attempts of the first of these rewards that applies and was judged."""

    def measured(rows: Rows) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for row in rows:
            scores = scores_of(dict(row))
            known = [score.value for name in names if (score := scores.get(name)) is not None and score.value is not None]
            if known:
                values.setdefault(row["id"], []).append(known[0])
        return {name: mean(found) or 0.0 for name, found in values.items()}

    return measured


def _verifiable(measured: Callable[[Rows], dict[str, float]]) -> Callable[[Rows], dict[str, float]]:
    return lambda rows: measured([row for row in rows if row["kind"] == "verifiable"])


def _tokens(rows: Rows) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row["id"], []).append(float(row["tokens"]))
    return {name: mean(found) or 0.0 for name, found in values.items()}


AT_K: dict[str, Callable[[Tally, int], float]] = {
    "pass": lambda tally, k: pass_at_k(tally.right, tally.samples, k),
    "maj": majority_at_k,
}
BY_PROBLEM: dict[str, Callable[[Rows], dict[str, float]]] = {
    "pass@1": _pass_at_1,
    "format": _verifiable(_scored(("format",))),
    "language": _verifiable(_scored(("language",))),
    "tokens": _verifiable(_tokens),
    "preference": _scored(JUDGES),
}
"""Quantity -> from attempts to one number a problem. "maj@K" and "pass@K" are known besides."""


def differences(check: Check, first: Rows, second: Rows) -> list[float]:
    """Second less first, for each problem that both have a number for, in the order of their ids."""
    before, after = by_problem(check.quantity, first), by_problem(check.quantity, second)
    return [after[name] - before[name] for name in sorted(before.keys() & after.keys())]


def of_rollouts(quantity: str, opened: Opened, checkpoint: str) -> float:
    """One number of the rollouts of the step that made a checkpoint.

    Raises:
        StateError: the step recorded fewer than three rollouts. KeyError: there is no such quantity.
    """
    step = next(one for one in opened.pipeline.steps if one.makes == checkpoint)
    lines = [line for line in read_metrics(opened.run.metrics_path(step)) if line.get("kind") == "rollout"]
    if len(lines) < 3:
        raise StateError(f"step {step.name} of run {opened.run.name} recorded {len(lines)} rollouts; 3 are the least")
    return OF_ROLLOUTS[quantity.removeprefix(ROLLOUTS)](lines)


def _accuracy_with_tokens(lines: Rows) -> float:
    pairs = [(line["rewards"]["accuracy"], line["tokens_mean"]) for line in lines if line["rewards"].get("accuracy") is not None]
    return correlation([right for right, _ in pairs], [tokens for _, tokens in pairs])


def _growth_of_thinking(lines: Rows) -> float:
    third = len(lines) // 3
    first, last = ([line.get("thinking_characters") or 0.0 for line in part] for part in (lines[:third], lines[-third:]))
    return (mean(last) or 0.0) - (mean(first) or 0.0)


OF_ROLLOUTS: dict[str, Callable[[Rows], float]] = {
    "accuracy with tokens": _accuracy_with_tokens,
    "growth of thinking": _growth_of_thinking,
}
"""Quantity -> from the rollouts' lines to one number: a correlation; characters."""
