"""Where rows come from: built-in generators, Reasoning Gym, and files of the user's.

A source is named in the recipe: a key of `SOURCES`, `reasoning-gym:NAME`, a path to a JSONL or Parquet file, or an import path
(`my_pkg.mine:rows`). It yields plain dicts; `prepare` turns them into rows with ids and refuses what is missing, naming file
and line.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from r1pipe.data.chat import split_response
from r1pipe.errors import DataError, RecipeError

Table = Literal["problems", "traces", "general", "general-traces", "pairs", "labels", "evaluation", "general-evaluation"]
"""The tables that `prepare` makes; a source is asked for one of them."""

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
    from r1pipe.data.nano.general import general_prompts, preference_pairs, safety_rows, worked_general
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
            thinking, summary = worked_general(problem, rng)
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
            "domain": name, "source": f"reasoning-gym:{name}", "check": {"dataset": name, "entry": kept},
        }  # fmt: skip


def file_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSONL or Parquet file; a `response` column is taken apart into thinking and summary where those are missing."""
    if not path.is_file():
        raise DataError(f"there is no file {path}", "check the path in the recipe's [prepare] section")
    if path.suffix == ".parquet":
        from r1pipe.data.tables import read_part

        rows: Iterator[tuple[str, dict[str, Any]]] = (
            (f"{path} row {number}", row) for number, row in enumerate(read_part(path), start=1)
        )
    elif path.suffix in (".jsonl", ".json"):
        from r1pipe.data.jsonl import read_jsonl

        rows = ((f"{path} line {number}", row) for number, row in read_jsonl(path))
    else:
        raise DataError(
            f"{path}: only .jsonl and .parquet files can be read, not {path.suffix or 'a file without ending'}",
            "convert the file",
        )
    for where, row in rows:
        if "thinking" not in row and "response" in row:
            parts = split_response(str(row["response"]))
            row = {**row, "thinking": parts.thinking or "", "summary": parts.summary}
        yield {**row, "_where": where}


SOURCES: dict[str, Callable[[Table, int, int], Iterator[dict[str, Any]]]] = {"nano": nano_rows}
"""Source name in a recipe -> function (table, count, seed) -> rows."""


def is_file(source: str) -> bool:
    """Whether a source is a file of the user's."""
    return source.endswith((".jsonl", ".json", ".parquet"))


def open_source(source: str, table: Table, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of a source for a table, at most `count` (0: all, for files).

    Raises:
        RecipeError: an unknown name. DataError: a file that is missing or of another kind.
    """
    if source in SOURCES:
        yield from SOURCES[source](table, count, seed)
    elif source.startswith("reasoning-gym:"):
        yield from gym_rows(source.removeprefix("reasoning-gym:"), count, seed)
    elif is_file(source):
        for number, row in enumerate(file_rows(Path(source).expanduser())):
            if count and number >= count:
                return
            yield row
    elif ":" in source:
        module, _, function = source.partition(":")
        yield from getattr(import_module(module), function)(table, count, seed)
    else:
        near = difflib.get_close_matches(source, SOURCES, n=1)
        raise RecipeError(
            f"unknown source {source!r}; known: {', '.join(SOURCES)}, reasoning-gym:NAME, "
            "a .jsonl or .parquet file, pkg.module:function",
            f"did you mean {near[0]!r}?" if near else "",
        )
