"""Where rows come from: built-in generators, Reasoning Gym, data sets of the hub, and files of the user's.

A source is named in the recipe: a key of `SOURCES`, `reasoning-gym:NAME`, `hf:OWNER/NAME` at a commit, a path to a JSONL, JSON,
CSV or Parquet file, or an import path (`my_pkg.mine:rows`). It yields plain dicts; `prepare` turns them into rows with ids and
refuses what is missing, naming file and line.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from r1pipe.data.chat import split_response
from r1pipe.data.jsonl import OnBad
from r1pipe.data.readers import KINDS, read_rows
from r1pipe.errors import DataError, RecipeError

Table = Literal["problems", "traces", "general", "general-traces", "pairs", "labels", "evaluation", "general-evaluation"]
"""The tables that `prepare` makes; a source is asked for one of them."""

HUB, GYM = "hf:", "reasoning-gym:"
"""What the names of sources begin with that are no files."""

NEEDED: dict[str, tuple[str, ...]] = {
    "problems": ("question", "answer"),
    "evaluation": ("question", "answer"),
    "general": ("question",),
    "general-evaluation": ("question",),
    "traces": ("question", "thinking", "summary"),
    "general-traces": ("question", "thinking", "summary"),
    "pairs": ("question", "chosen", "rejected"),
    "labels": ("question", "response", "safe"),
}
"""Columns without which a row of the table is refused."""


def nano_rows(table: Table, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of the embedded default's own generators."""
    from r1pipe.data.nano.general import collected_general, general_prompts, preference_pairs, safety_rows
    from r1pipe.data.nano.problems import problems
    from r1pipe.data.nano.solutions import worked_trace

    rng = random.Random(f"nano {table} {seed}")
    if table in ("problems", "evaluation"):
        split: Literal["train", "held-out"] = "held-out" if table == "evaluation" else "train"
        yield from (asdict(problem) for problem in problems(count, seed, split=split))
    elif table in ("general", "general-evaluation"):
        general_split: Literal["train", "held-out"] = "held-out" if table == "general-evaluation" else "train"
        yield from (asdict(problem) for problem in general_prompts(count, seed, split=general_split))
    elif table == "traces":
        for problem in problems(count, f"traces {seed}"):
            thinking, summary = worked_trace(problem, rng, reflect=rng.random() < 0.3)
            yield {**asdict(problem), "thinking": thinking, "summary": summary}
    elif table == "general-traces":
        for problem in general_prompts(count, f"traces {seed}"):
            thinking, summary = collected_general(problem, rng)
            yield {**asdict(problem), "thinking": thinking, "summary": summary}
    elif table == "pairs":
        for pair in preference_pairs(count, seed):
            yield {**asdict(pair.prompt), "chosen": pair.chosen, "rejected": pair.rejected}
    else:
        for label in safety_rows(count, seed):
            yield {**asdict(label.prompt), "response": label.response, "safe": int(label.safe)}


def gym_rows(name: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Problems of one Reasoning Gym data set, with the entry that its own scorer needs."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        raise RecipeError(f"Reasoning Gym has no data set {name!r}", f"did you mean {near[0]!r}?" if near else "")
    for entry in reasoning_gym.create_dataset(name, size=count, seed=seed):
        kept = json.loads(json.dumps(entry, default=str))
        answer = entry["answer"]
        yield {
            "question": entry["question"], "answer": "" if answer is None else str(answer), "checker": "logic", "language": "en",
            "domain": name, "source": f"{GYM}{name}", "check": {"dataset": name, "entry": kept},
        }  # fmt: skip


def taken_apart(rows: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Rows with the place they stand at; a `response` column is taken apart into thinking and summary where those are missing."""
    for where, row in rows:
        if "thinking" not in row and isinstance(row.get("response"), str):
            parts = split_response(row["response"])
            row = {**row, "thinking": parts.thinking or "", "summary": parts.summary}
        yield {**row, "_where": where}


def own_rows(path: str, table: Table, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of a function of the user's, named by import path.

    Raises:
        RecipeError: there is no such function. DataError: it gives something else than rows.
    """
    module, _, name = path.partition(":")
    function = getattr(import_module(module), name, None)
    if not callable(function):
        raise RecipeError(f"source {path!r}: {module} has no function {name!r}", "name it as pkg.module:function")
    for number, row in enumerate(function(table, count, seed), start=1):
        if not isinstance(row, dict):
            raise DataError(f"{path}, row {number}: a {type(row).__name__}, where a dict is wanted", "yield one dict a row")
        yield {"_where": f"{path}, row {number}", **row}


SOURCES: dict[str, Callable[[Table, int, int], Iterator[dict[str, Any]]]] = {"nano": nano_rows}
"""Source name in a recipe -> function (table, count, seed) -> rows."""


def is_file(source: str) -> bool:
    """Whether a source is a file of the user's."""
    return not source.startswith((HUB, GYM)) and Path(source).suffix.lower() in KINDS


def is_generated(source: str) -> bool:
    """Whether a source makes as many rows as are asked for."""
    return source in SOURCES or source.startswith(GYM)


def open_source(
    source: str, table: Table, count: int, seed: int, *, revision: str = "", subset: str = "", split: str = "train",
    bad: OnBad | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Rows of a source for a table, at most `count` (0: all, for what is not generated).

    Args:
        revision, subset, split: which rows of a data set of the hub.
        bad: told of a row that cannot be read, which is then left out; without it such a row is an error.

    Raises:
        RecipeError: an unknown name. DataError: a file that is missing or of another kind, or a row that cannot be read.
    """
    if source in SOURCES:
        yield from SOURCES[source](table, count, seed)
    elif source.startswith(GYM):
        yield from gym_rows(source.removeprefix(GYM), count, seed)
    elif source.startswith(HUB):
        from r1pipe.data.hub import Hub, hub_rows

        found = hub_rows(Hub(source.removeprefix(HUB), revision, subset, split), bad)
        yield from islice(taken_apart(found), count or None)
    elif is_file(source):
        yield from islice(taken_apart(read_rows(Path(source).expanduser(), bad)), count or None)
    elif ":" in source:
        yield from own_rows(source, table, count, seed)
    else:
        near = difflib.get_close_matches(source, SOURCES, n=1)
        raise RecipeError(
            f"unknown source {source!r}; known: {', '.join(SOURCES)}, {GYM}NAME, {HUB}OWNER/NAME, "
            f"a file ({', '.join(KINDS)}), pkg.module:function",
            f"did you mean {near[0]!r}?" if near else "",
        )
