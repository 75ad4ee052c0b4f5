"""When finished or begun steps do not fit any more: what differs, and what to type. Nothing is started, discarded or written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from r1pipe.errors import StateError
from r1pipe.failures import shown
from r1pipe.graph import Pipeline
from r1pipe.manifest import Change
from r1pipe.rundir import RunDir, free_name
from r1pipe.stage import Step
from r1pipe.states import StepPlan


def refuse_blocked(
    run: RunDir,
    pipeline: Pipeline,
    plans: Mapping[str, StepPlan],
    wanted: Sequence[Step],
    redo: Sequence[str] = (),
    edits: Sequence[Change] = (),
) -> None:
    """Stop when a step that is wanted, or one that it is made from, is changed or stale and is not to be made again.

    Args:
        plans: where every step stands, by name.
        redo: stages or steps that will be discarded first.
        edits: changes of the run's recipe that are asked for and not written: the commands that are named ask for them too.

    Raises:
        StateError: with what differs, key by key, and the commands that go on.
    """
    chosen = [step.name for name in redo for step in pipeline.select(name)]
    doomed = {*chosen, *(step.name for step in pipeline.readers(*chosen))} if chosen else set()
    needed = [step for step in pipeline.steps if step in wanted or any(below in wanted for below in pipeline.readers(step.name))]
    blocked = [plans[step.name] for step in needed if step.name not in doomed and plans[step.name].state in ("changed", "stale")]
    if not blocked:
        return
    name = shown(run)
    below = {step.name for place in blocked for step in pipeline.readers(place.step.name)}
    redone = [place.step.name for place in blocked if place.step.name not in below]
    lines = []
    for place in blocked:
        lines.append(f"step {place.step.name} of run {run.name} is {place.state}: {place.why}")
        lines += [f"  {key}: {_value(then)} -> {_value(today)}" for key, then, today in place.changes]
    also = [step.name for step in pipeline.readers(*redone) if plans[step.name].state != "todo"]
    sets = "".join(f" --set {shlex.quote(f'{key}={_typed(after)}')}" for key, _, after in edits)
    again = f"r1pipe run-all --run {name} " + " ".join(f"--redo {step}" for step in redone) + sets
    copy = f"r1pipe fork {name} {free_name(run.name, run.root.parent)} --before {redone[0]}{sets}"
    hints = [
        f"{again}   discards {'it' if len(redone) == 1 else 'them'}"
        + (f" and what was made from it: {', '.join(also)}" if also else ""),
        f"{copy}   keeps both; finished steps that do not depend on it are shared",
    ]
    if edits:
        hints.append(f"{run.recipe_path} was not changed")
    elif any(place.changes for place in blocked):
        hints.append(f"or put the old value back in {run.recipe_path}")
    if any(place.edited for place in blocked):
        hints.append("or put the file back as it was")
    raise StateError("\n".join(lines), "\n".join(hints))


def _value(value: Any) -> str:
    """A setting in a message."""
    text = value if isinstance(value, str) and value.startswith("(") else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _typed(value: Any) -> str:
    """A setting as `--set` takes it: text as it is where nothing else is meant by it, TOML otherwise."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_typed_inside(found)}" for key, found in value.items()) + "}"
    if isinstance(value, str) and value and not value[0].isdigit() and value.replace("-", "").replace("_", "").isalnum():
        return value if value not in ("true", "false", "inf", "nan") else json.dumps(value)
    return _typed_inside(value)


def _typed_inside(value: Any) -> str:
    if isinstance(value, Mapping):
        return _typed(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_typed_inside(found) for found in value) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)
