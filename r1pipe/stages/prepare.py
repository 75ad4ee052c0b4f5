"""Step 0: every table that the later stages read, in one place, before anything is trained.

Rows are normalised, given ids made from their content, deduplicated, and held against the evaluation sets: a row whose
question is one of theirs is dropped and counted (the paper, D.1, drops what shares ten words in a row; the questions here that
are shorter than that are compared whole). Gold answers are scored against themselves, so that a problem that nobody could
solve is dropped with its reason, not trained on.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.sources import NEEDED, Table, is_file, open_source
from r1pipe.data.tables import (
    LABEL_COLUMNS,
    PAIR_COLUMNS,
    PROBLEM_COLUMNS,
    TRACE_COLUMNS,
    content_id,
    problem_of,
    problem_row,
    write_table,
)
from r1pipe.errors import DataError
from r1pipe.rewards import Accuracy
from r1pipe.stage import StepConfig, StepContext

BOILERPLATE = 3
"""A run of words that stands in more evaluation questions than this is a common phrase, and no sign of overlap."""
OVERLAP_WORDS = 10
"""A question that shares this many words in a row with an evaluation question is dropped (D.1)."""

TABLES: dict[str, tuple[Table, dict[str, str]]] = {
    "evaluation": ("evaluation", PROBLEM_COLUMNS),
    "general_evaluation": ("general-evaluation", PROBLEM_COLUMNS),
    "problems": ("problems", PROBLEM_COLUMNS),
    "traces": ("traces", TRACE_COLUMNS),
    "general": ("general", PROBLEM_COLUMNS),
    "general_traces": ("general-traces", TRACE_COLUMNS),
    "pairs": ("pairs", PAIR_COLUMNS),
    "labels": ("labels", LABEL_COLUMNS),
}
"""Output -> what a source is asked for, and the columns. Evaluation sets come first: everything else is held against them."""


class SourceSpec(StepConfig):
    """One table's source."""

    source: str
    """A built-in source, `reasoning-gym:NAME`, a .jsonl or .parquet file, or `pkg.module:function`."""
    count: int = Field(default=0, ge=0)
    """Rows to take; 0 takes all of a file."""
    fields: dict[str, str] = {}
    """Our column -> the source's column, where they differ."""


class ZeroConfig(StepConfig):
    """`[prepare]` of the pipeline r1-zero."""

    problems: SourceSpec
    evaluation: SourceSpec


class FullConfig(ZeroConfig):
    """`[prepare]` of the pipeline r1-full, which makes its own cold-start traces."""

    general: SourceSpec
    general_traces: SourceSpec
    pairs: SourceSpec
    labels: SourceSpec
    general_evaluation: SourceSpec


class Config(FullConfig):
    """`[prepare]`."""

    traces: SourceSpec


def files(config: ZeroConfig) -> dict[str, Path]:
    """The files among the sources, by the key that names them."""
    specs = {name: getattr(config, name) for name in type(config).model_fields}
    return {
        f"{name}.source": Path(spec.source).expanduser()
        for name, spec in specs.items()
        if isinstance(spec, SourceSpec) and is_file(spec.source)
    }


def run(context: StepContext) -> dict[str, Any]:
    """Write all tables of the pipeline; returns counts and reasons by table."""
    config: ZeroConfig = context.config
    summary: dict[str, Any] = {}
    checker = Accuracy()
    seen: set[str] = set()
    windows: Counter[str] = Counter()
    for output, (table, columns) in TABLES.items():
        if output not in type(config).model_fields:
            continue
        spec: SourceSpec = getattr(config, output)
        dropped: Counter[str] = Counter()
        evaluating = output in ("evaluation", "general_evaluation")
        rows = []
        here: set[str] = set()
        for raw in open_source(spec.source, table, spec.count, context.seed):
            row = normalised(raw, table, spec.fields)
            key = question_key(row["question"])
            mark = content_id(*(str(row[name]) for name in columns if name in row and name != "id"))
            if mark in here:
                dropped["exact duplicate"] += 1
            elif not evaluating and (key in seen or any(0 < windows[window] <= BOILERPLATE for window in word_windows(key))):
                dropped["overlaps an evaluation question"] += 1
            elif table in ("problems", "evaluation") and (fault := gold_fault(row, checker)):
                dropped[f"gold answer {fault}"] += 1
            else:
                here.add(mark)
                rows.append({name: row[name] for name in columns})
                if evaluating:
                    seen.add(key)
                    windows.update(word_windows(key))
        if not rows:
            reasons = "; ".join(f"{count} × {reason}" for reason, count in dropped.items()) or "the source is empty"
            raise DataError(
                f"prepare: no rows are left for {output} from {spec.source}: {reasons}",
                f"look at [prepare.{output}] in the recipe",
            )
        write_table(context.output(output), rows, columns)
        summary[output] = {"rows": len(rows), "dropped": dict(dropped), "source": spec.source}
        print(f"prepare: {output}: {len(rows)} rows, dropped {dict(dropped) or 'none'}", flush=True)
    return {"tables": summary}


def normalised(raw: dict[str, Any], table: Table, fields: dict[str, str]) -> dict[str, Any]:
    """A source's row with all our columns; answers stay the text they are.

    Raises:
        DataError: naming file, row and column when something needed is missing or of the wrong type.
    """
    row = {**raw, **{ours: raw[theirs] for ours, theirs in fields.items() if theirs in raw}}
    where = row.get("_where", "a generated row")
    for name in NEEDED[table]:
        value = row.get(name)
        if value is None or (isinstance(value, str) and not value.strip() and name != "answer"):
            columns = ", ".join(sorted(key for key in raw if key != "_where"))
            raise DataError(
                f"{where}: column {name!r} is missing or empty; the row has {columns}",
                f"map it with [prepare.{table}] fields",
            )
        if name == "safe" and value not in (0, 1, True, False):
            raise DataError(f"{where}: column 'safe' must be 0 or 1, not {value!r}")
        if name != "safe" and not isinstance(value, str):
            if name == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
                row[name] = str(value)
            else:
                raise DataError(f"{where}: column {name!r} must be text, not {type(value).__name__}: {value!r}")
    problem = problem_row(Problem(id=content_id(row["question"], str(row.get("answer", ""))), question=row["question"]))
    for name in PROBLEM_COLUMNS:
        value = row.get(name)
        if name in ("id", "check") or value is None or value == "":
            continue
        if not isinstance(value, str):
            raise DataError(f"{where}: column {name!r} must be text, not {type(value).__name__}: {value!r}")
        problem[name] = value
    if check := row.get("check"):
        problem["check"] = check if isinstance(check, str) else json.dumps(check, ensure_ascii=False, sort_keys=True)
    if table in ("traces", "general-traces"):
        return {**problem, "thinking": row["thinking"], "summary": row["summary"], "origin": row.get("source") or "given"}
    extra = {name: row[name] for name in NEEDED[table] if name not in problem}
    if "safe" in extra:
        extra["safe"] = int(extra["safe"])
    return {**problem, **extra}


def question_key(question: str) -> str:
    """A question without differences of case, width, spacing and punctuation."""
    text = unicodedata.normalize("NFKC", question).casefold()
    return re.sub(r"[^\w+*/<>=^.-]+", " ", text).strip()


def word_windows(key: str) -> Iterator[str]:
    """Every run of OVERLAP_WORDS words; scripts without spaces count each character as a word; shorter texts have none.

    In a question with numbers only runs with a number count: the rest is the wording that problems of a kind share.
    """
    words = re.findall(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+", key)
    numeric = any(character.isdigit() for character in key)
    for start in range(len(words) - OVERLAP_WORDS + 1):
        window = " ".join(words[start : start + OVERLAP_WORDS])
        if not numeric or any(character.isdigit() for character in window):
            yield window


def gold_fault(row: dict[str, Any], checker: Accuracy) -> str:
    """Why a gold answer cannot be used; empty when it scores right against itself."""
    problem = problem_of(row)
    if problem.checker in ("none", "code"):
        return ""
    score = checker.score([Attempt(problem, f"\\boxed{{{problem.answer}}}")])[0]
    if score is None or score.value is None:
        return f"cannot be judged ({score.note if score else 'no checker'})"
    return "" if score.value == 1 else f"is judged wrong against itself ({score.note})"
