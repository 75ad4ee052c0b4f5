"""The runs behind a claim: ordinary runs in the lab's folder, made or gone on with, sharing what they have in common."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from r1pipe.errors import StateError, Stopped
from r1pipe.graph import Pipeline
from r1pipe.lab.claims import ARMS, Arm, Claim
from r1pipe.launch import StopRequest
from r1pipe.manifest import changes, write_atomic
from r1pipe.observer import Observer
from r1pipe.opening import Opened, load, loader, recipe_text
from r1pipe.rundir import RunDir
from r1pipe.runner import create_run, execute, fork, plan
from r1pipe.stage import Step

Show = Callable[[Any], AbstractContextManager[Observer]]
"""From a `views.watch.Watch` to a view of it, for the length of a `with` block."""

RUNS = "runs"
"""Folder of the arms' runs in the lab's folder; all claims share it."""


def arms_in_order(claim: Claim) -> list[Arm]:
    """The claim's arms, each after the one that it shares steps with."""
    wanted: dict[str, Arm] = {}
    for name in claim.arms:
        line = [ARMS[name]]
        while line[0].fork_of:
            line.insert(0, ARMS[line[0].fork_of])
        wanted |= {arm.name: arm for arm in line}
    return list(wanted.values())


def settings_of(arm: Arm, seed: int, sets: Sequence[str]) -> tuple[str, list[str]]:
    """(packaged recipe, everything that is set in it) of an arm; `sets` come last."""
    inherited = settings_of(ARMS[arm.fork_of], seed, ()) if arm.fork_of else (arm.recipe, [f"seed={seed}"])
    return inherited[0], [*inherited[1], *arm.settings, *sets]


def last_step(claim: Claim, arm: Arm, pipeline: Pipeline) -> Step | None:
    """The step up to which an arm has to be run; None when nothing of it is needed."""
    checkpoints = {place.checkpoint for place in claim.places if place.arm == arm.name}
    needed = [step for step in pipeline.steps if step.makes in checkpoints]
    if claim.measure is None and needed:
        needed.append(pipeline.steps[-1])
    elif claim.measure is not None and claim.measure.general and needed:
        needed += [step for step in pipeline.steps if "helpfulness" in step.writes]
    if checkpoints:
        needed.append(pipeline.steps[0])  # the held-out problems
    for reader in arms_in_order(claim):
        if reader.fork_of == arm.name:
            first = pipeline.steps.index(pipeline.select(reader.before)[0])
            needed += [pipeline.steps[first - 1]] if first else []
    return max(needed, key=pipeline.steps.index, default=None)


def run_arm(lab: Path, claim: Claim, arm: Arm, seed: int, sets: Sequence[str], show: Show) -> Opened:
    """Make an arm's run, or go on with it, up to what the claim needs.

    Args:
        show: the view that watches the run.
        sets: further settings, as `--set`; those under launch change nothing of what is made.

    Raises:
        StateError: there is a run of that name with other settings. Stopped: the user asked to stop.
    """
    opened = _open(lab, arm, seed, sets)
    last = last_step(claim, arm, opened.pipeline)
    places = plan(opened.run, opened.pipeline, opened.recipe)
    wanted = places[: opened.pipeline.steps.index(last) + 1] if last is not None else []
    left = [place.step for place in wanted if place.state != "done"]
    if not left or last is None:
        return opened
    from r1pipe.checks import refuse_mistakes
    from r1pipe.views.watch import Watch

    refuse_mistakes(opened.pipeline, opened.recipe, left)
    states = {place.step.name: str(place.state) for place in places}
    watch = Watch(opened.run.name, opened.pipeline.steps, states, opened.run.metrics_path)
    stop = StopRequest()
    try:
        with show(watch) as observer:
            execute(opened.run, opened.pipeline, opened.recipe, last.name, None, (), observer, loader(), stop)
    except Stopped as stopped:
        raise Stopped(stopped.problem, f"r1pipe lab run {claim.name}   goes on with it") from stopped
    return opened


def _open(lab: Path, arm: Arm, seed: int, sets: Sequence[str]) -> Opened:
    """The arm's run, made when it is not there."""
    root = lab / RUNS / f"{arm.name}-{seed}"
    named, settings = settings_of(arm, seed, sets)
    text, where = recipe_text(named)
    pipeline, recipe = load(text, where, settings)
    run = RunDir(root)
    if not run.recipe_path.is_file():
        if arm.fork_of:
            source = RunDir(lab / RUNS / f"{arm.fork_of}-{seed}")
            run = fork(source, root.name, arm.before, pipeline, root.parent)
            write_atomic(run.recipe_path, recipe.text.encode())
        else:
            run = create_run(root.name, recipe.text, root.parent)
        return Opened(run, pipeline, recipe)
    stored = run.recipe_path.read_text(encoding="utf-8")
    if found := changes(_makes(stored), _makes(recipe.text)):
        lines = "\n".join(f"  {key}: {then} there, {now} now" for key, then, now in found)
        raise StateError(f"{os.fspath(root)} was begun with other settings:\n{lines}", "name another folder with --out")
    if stored != recipe.text:
        write_atomic(run.recipe_path, recipe.text.encode())  # where and how it runs may change
    return Opened(run, pipeline, recipe)


def _makes(text: str) -> dict[str, Any]:
    """What of a recipe decides what is made."""
    return {key: found for key, found in tomllib.loads(text).items() if key != "launch"}


def same_but_for_seed(runs: Sequence[Opened]) -> None:
    """Refuse given runs that differ in more than their seeds, or share one.

    Raises:
        StateError: naming two runs and what differs.
    """
    seeds: dict[int, Opened] = {}
    for opened in runs:
        if opened.recipe.seed in seeds:
            other = seeds[opened.recipe.seed].run.name
            raise StateError(f"runs {other} and {opened.run.name} have the same seed, {opened.recipe.seed}", "give one of them")
        seeds[opened.recipe.seed] = opened
    first = {**_makes(runs[0].recipe.text), "seed": 0, "name": ""}
    for opened in runs[1:]:
        if found := changes(first, {**_makes(opened.recipe.text), "seed": 0, "name": ""}):
            lines = "\n".join(f"  {key}: {then}, {now}" for key, then, now in found)
            raise StateError(
                f"runs {runs[0].run.name} and {opened.run.name} differ in more than their seed:\n{lines}",
                "give runs of one recipe",
            )
