"""Putting a claim to the test: write down what decides, run the arms, measure, decide, write the page.

Nothing is decided before all seeds are there. The definition of the claim (arms, seeds, quantities, bounds, sampling) lies in
its folder before the first run, and a folder that was begun with another one is refused.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from r1pipe.errors import StateError
from r1pipe.intervals import mean
from r1pipe.lab.arms import Show, arms_in_order, run_arm, same_but_for_seed, settings_of
from r1pipe.lab.claims import Claim, Place
from r1pipe.lab.listing import RESULTS
from r1pipe.lab.measure import ROLLOUTS, Rows, attempts, by_problem, differences, of_rollouts
from r1pipe.lab.page import PAGE_HTML, PAGE_MARKDOWN, html_page, markdown_page
from r1pipe.lab.rules import Verdict, decide, estimate, overall
from r1pipe.manifest import Manifest, changes, read_manifest, to_json, write_atomic
from r1pipe.opening import Opened

DEFINITION, SPENT = "claim.json", "spent.json"
"""Files of a claim's folder: what decides, and the processor seconds so far."""


def run_claim(
    claim: Claim, lab: Path, sets: Sequence[str], given: Sequence[Opened], show: Show, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Put a claim to the test; what is there already is not made again.

    Args:
        lab: the folder of all claims and their runs.
        sets: further settings of every arm, as `--set`; the page names them.
        given: finished runs that stand for the claim's only arm, one for each seed; empty makes the runs.
        show: the view that watches a run. tell: told where it stands, in lines.

    Returns:
        What `results.json` holds.

    Raises:
        StateError: the folder was begun with another definition, or the given runs cannot stand for the claim.
        Stopped: the user asked to stop; the same command goes on.
    """
    if given:
        _fit(claim, given)
    folder = folder_of(lab, claim, given)
    fixed = fix(folder, definition(claim, sets, given))
    before = _processor_seconds()
    runs: dict[tuple[str, int], Opened] = {}
    try:
        if given:
            runs = {(claim.arms[0], opened.recipe.seed): opened for opened in given}
        else:
            for seed in claim.seeds:
                for arm in arms_in_order(claim):
                    tell(f"{claim.name}: seed {seed} of {len(claim.seeds)}, {arm.name}")
                    runs[arm.name, seed] = run_arm(lab, claim, arm, seed, sets, show)
        rows: dict[tuple[Place, int], Rows] = {}
        for seed in dict.fromkeys(seed for _, seed in runs):
            for place in claim.places:
                opened = runs[place.arm, seed]
                kept = folder / "measured" / f"{opened.run.name}-{place.checkpoint}"
                rows[place, seed] = attempts(opened, place.checkpoint, claim.measure, kept, tell)
    finally:
        _add_spent(folder / SPENT, _processor_seconds() - before)
    results = {
        **judged(claim, runs, rows),
        "fixed": fixed,
        "settings": list(sets),
        "seeds": list(dict.fromkeys(seed for _, seed in runs)),
        "given": [opened.run.name for opened in given],
        "arms": {} if given else {arm.name: settings_of(arm, 0, sets)[1][1:] for arm in arms_in_order(claim)},
        "recipes": {name: runs[name, seed].recipe.name for name, seed in runs},
        "cost": cost(runs.values(), folder / SPENT),
        "machine": machine(runs.values()),
        "finished": _now(),
    }
    write_atomic(folder / RESULTS, to_json(results))
    write_atomic(folder / PAGE_MARKDOWN, markdown_page(claim, results).encode())
    write_atomic(folder / PAGE_HTML, html_page(claim, results).encode())
    return results


def judged(claim: Claim, runs: Mapping[tuple[str, int], Opened], rows: Mapping[tuple[Place, int], Rows]) -> dict[str, Any]:
    """Every check with its numbers and verdict, the claim's own verdict, and the means of every checkpoint."""
    seeds = list(dict.fromkeys(seed for _, seed in runs))
    checks, verdicts = [], []
    for check in claim.checks:
        values: dict[int, list[float]] = {}
        for seed in seeds:
            if check.quantity.startswith(ROLLOUTS):
                values[seed] = [of_rollouts(check.quantity, runs[check.second.arm, seed], check.second.checkpoint)]
            else:
                values[seed] = differences(check, rows[check.first, seed], rows[check.second, seed])
            if not values[seed]:
                raise StateError(
                    f"seed {seed}: {check.first.checkpoint} and {check.second.checkpoint} have no problem in common for "
                    f"{check.quantity}",
                    "give runs with the same held-out problems",
                )
        found = estimate(values)
        verdict: Verdict | None = decide(check.rule, found) if check.rule is not None else None
        if verdict is not None:
            verdicts.append(verdict)
        checks.append({
            "says": check.says, "quantity": check.quantity, "first": asdict(check.first), "second": asdict(check.second),
            "rule": check.rule.words() if check.rule is not None else None, "mean": found.mean,
            "low": None if found.low == float("-inf") else found.low,
            "high": None if found.high == float("inf") else found.high,
            "by_seed": {str(seed): number for seed, number in found.by_seed.items()}, "problems": found.units,
            "verdict": verdict,
        })  # fmt: skip
    return {"claim": claim.name, "verdict": overall(verdicts), "checks": checks, "checkpoints": _means(claim, seeds, rows)}


def _means(claim: Claim, seeds: Sequence[int], rows: Mapping[tuple[Place, int], Rows]) -> list[dict[str, Any]]:
    """Each checkpoint's own numbers, by seed, for the quantities that the claim compares by problem."""
    found = []
    for place in claim.places:
        names = [check.quantity for check in claim.checks if not check.quantity.startswith(ROLLOUTS)]
        numbers: dict[str, dict[str, float | None]] = {}
        for quantity in dict.fromkeys(names):
            numbers[quantity] = {str(seed): mean(list(by_problem(quantity, rows[place, seed]).values())) for seed in seeds}
        found.append({**asdict(place), "means": numbers})
    return found


def definition(claim: Claim, sets: Sequence[str], given: Sequence[Opened]) -> dict[str, Any]:
    """Everything that decides; where and how the runs work is left out."""
    arms = [asdict(arm) for arm in arms_in_order(claim)] if not given else []
    written = {key: found for key, found in asdict(claim).items() if key not in ("title", "source", "departs", "minutes")}
    found: dict[str, Any] = json.loads(json.dumps({
        **written, "arms": arms, "settings": [item for item in sets if not item.startswith("launch.")],
        "given": [opened.run.name for opened in given],
    }))  # fmt: skip
    return found


def fix(folder: Path, wanted: Mapping[str, Any]) -> str:
    """Write down what decides, or go on with a folder where the same stands; returns when it was first written.

    Raises:
        StateError: the folder was begun with another definition.
    """
    path = folder / DEFINITION
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        write_atomic(path, to_json({"fixed": _now(), **wanted}))
    stored = json.loads(path.read_bytes())
    fixed = str(stored.pop("fixed"))
    if found := changes(stored, dict(wanted)):
        lines = "\n".join(f"  {key}: {then} there, {now} now" for key, then, now in found)
        raise StateError(f"{folder} was begun with another definition of the claim:\n{lines}", "name another folder with --out")
    return fixed


def _fit(claim: Claim, given: Sequence[Opened]) -> None:
    """Refuse runs that cannot stand for the claim."""
    if len(claim.arms) > 1:
        raise StateError(
            f"{claim.name} compares runs of different settings ({', '.join(claim.arms)}), so finished runs of one recipe "
            "cannot stand for it",
            f"r1pipe lab run {claim.name}   makes them",
        )
    same_but_for_seed(given)
    for opened in given:
        makes = {"Base", *(step.makes for step in opened.pipeline.steps)}
        if missing := [place.checkpoint for place in claim.places if place.checkpoint not in makes]:
            raise StateError(f"run {opened.run.name} makes no {', '.join(missing)}", "give runs of the pipeline r1-full")


def folder_of(lab: Path, claim: Claim, given: Sequence[Opened]) -> Path:
    """Where a claim is kept: a folder of its own, and another one for each set of given runs."""
    return lab / "-of-".join([claim.name, *(["+".join(opened.run.name for opened in given)] if given else [])])[:120]


def cost(runs: Iterable[Opened], spent: Path) -> dict[str, float]:
    """Wall seconds of the steps that the runs needed (shared ones once), and processor seconds spent on this claim."""
    seconds: dict[str, float] = {}
    for opened in runs:
        seconds |= {manifest.build: manifest.wall_seconds for manifest in _manifests(opened)}
    stored = json.loads(spent.read_bytes()) if spent.is_file() else {}
    return {"step_seconds": round(sum(seconds.values()), 1), "processor_seconds": round(stored.get("processor_seconds", 0.0), 1)}


def machine(runs: Iterable[Opened]) -> dict[str, Any]:
    """Where the runs were made: platform, device, versions."""
    for opened in runs:
        for manifest in _manifests(opened)[-1:]:
            return {"platform": manifest.platform, "device": manifest.device, "versions": manifest.versions}
    return {}


def _manifests(opened: Opened) -> list[Manifest]:
    """The records of a run's finished steps."""
    paths = [(opened.run.manifest_path(step), step) for step in opened.pipeline.steps]
    return [read_manifest(path, step) for path, step in paths if path.is_file()]


def _processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _add_spent(path: Path, seconds: float) -> None:
    before = json.loads(path.read_bytes())["processor_seconds"] if path.is_file() else 0.0
    write_atomic(path, to_json({"processor_seconds": before + seconds}))


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
