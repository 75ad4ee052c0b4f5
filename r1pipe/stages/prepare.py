"""Step 0: every table that the later stages read, in one place, before anything is trained.

Rows are normalised, given ids made from their content, deduplicated, and held against the evaluation sets: a row that overlaps
one of their items (`r1pipe.data.overlap`; the paper, D.1) is dropped, counted and noted with the passage. Gold answers are scored
against themselves, so that a problem that nobody could solve is dropped with its reason, not trained on.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from r1pipe.data.jsonl import shortened
from r1pipe.data.overlap import OVERLAP, OverlapIndex, build_index, item_texts, row_overlap
from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.sources import Table
from r1pipe.data.tables import (
    EVALUATION_COLUMNS,
    LABEL_COLUMNS,
    PAIR_COLUMNS,
    PROBLEM_COLUMNS,
    TRACE_COLUMNS,
    content_id,
    problem_of,
    write_table,
)
from r1pipe.errors import DataError
from r1pipe.rewards import Accuracy
from r1pipe.stage import StepConfig, StepContext
from r1pipe.stages.schema import SourceSpec, check_mapping, normalised, raw_rows, row_text

TABLES: dict[str, tuple[Table, dict[str, str]]] = {
    "evaluation": ("evaluation", EVALUATION_COLUMNS),
    "general_evaluation": ("general-evaluation", EVALUATION_COLUMNS),
    "problems": ("problems", PROBLEM_COLUMNS),
    "traces": ("traces", TRACE_COLUMNS),
    "general": ("general", PROBLEM_COLUMNS),
    "general_traces": ("general-traces", TRACE_COLUMNS),
    "pairs": ("pairs", PAIR_COLUMNS),
    "labels": ("labels", LABEL_COLUMNS),
}
"""Output -> what a source is asked for, and the columns. Evaluation sets come first: everything else is held against them."""
EVALUATING = ("evaluation", "general_evaluation")
SKIPPED_COLUMNS = {"table": "string", "where": "string", "reason": "string", "row": "string"}
BATCH_ROWS = 512
"""Gold answers that are scored at once."""
SENTINELS = frozenset({
    "proof", "see proof", "proof omitted", "not found", "answer not found", "n/a", "no answer", "see solution", "see explanation",
    "answers will vary", "tbd", "omitted",
})  # fmt: skip
"""What data sets write where a problem has no answer that could be checked."""


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


def run(context: StepContext) -> dict[str, Any]:
    """Write all tables of the pipeline; returns counts and reasons by table.

    Rows that cannot be used, where they are to be skipped, and rows that overlap an evaluation item are written to a table of
    their own, `skipped`, with their reasons.
    """
    config: ZeroConfig = context.config
    summary: dict[str, Any] = {}
    items, skipped = list[str](), list[dict[str, Any]]()
    against: OverlapIndex | None = None
    for output, (table, columns) in TABLES.items():
        if output not in type(config).model_fields:
            continue
        spec: SourceSpec = getattr(config, output)
        check_mapping(spec, table)
        evaluating = output in EVALUATING
        if not evaluating and against is None:
            against = build_index(items)
        source = Taken(spec, table, context.seed, None if evaluating else against, items)
        count = write_table(context.output(output), ({name: row[name] for name in columns} for row in source.rows()), columns)
        skipped += [{"table": output, **line} for line in source.skipped]
        if not count:
            reasons = "; ".join(f"{count} × {reason}" for reason, count in source.dropped.items()) or "the source is empty"
            raise DataError(
                f"prepare: no rows are left for {output} from {spec.source}: {reasons}",
                f"look at [prepare.{output}] in the recipe, and at r1pipe data preview",
            )
        summary[output] = {"rows": count, "dropped": dict(source.dropped), "source": spec.source}
        if spec.revision:
            summary[output]["revision"] = spec.revision
        print(f"prepare: {output}: {count} rows, dropped {dict(source.dropped) or 'none'}", flush=True)
    if skipped:
        write_table(context.folder / "skipped", skipped, SKIPPED_COLUMNS)
    return {"tables": summary}


@dataclass
class Taken:
    """The rows of one table as they come from its source, and what became of those that are left out.

    Attributes:
        against: the items of the evaluation sets; None for these sets themselves, whose texts are added to `items`.
        read: rows that the source has given. dropped: reason -> rows left out. skipped: rows that could not be used, or overlap.
    """

    spec: SourceSpec
    table: Table
    seed: int
    against: OverlapIndex | None
    items: list[str] = field(default_factory=list)
    checker: Accuracy = field(default_factory=Accuracy)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Normalised rows, each content once, none that overlaps an evaluation item, gold answers that can be judged."""
        here, asked, ids = set[bytes](), set[bytes](), set[str]()
        columns = next(columns for table, columns in TABLES.values() if table == self.table)
        for some in batched(self._whole(), BATCH_ROWS):
            fresh = []
            for row in some:
                mark = row_mark(row, columns)
                if mark in here:
                    self.dropped["exact duplicate"] += 1
                    if self.against is None:
                        self.items += item_texts(row)  # it may have another solution
                elif self.table == "problems" and question_mark(row) in asked:
                    self.dropped["asks what an earlier row asks"] += 1
                elif self.against is not None and (overlap := row_overlap(self.against, row)) is not None:
                    self.dropped[OVERLAP] += 1
                    note = f"{OVERLAP}: {shortened(overlap.passage, 200)}"
                    self.skipped.append({"where": row["_where"], "reason": note, "row": row_text(row)})
                else:
                    here.add(mark)
                    asked.add(question_mark(row))
                    fresh.append(row)
            golden = self.table in ("problems", "evaluation")
            for row, fault in zip(fresh, gold_faults(fresh, self.checker) if golden else [""] * len(fresh), strict=True):
                if fault:
                    self.dropped[f"gold answer {fault}"] += 1
                    continue
                if self.against is None:
                    self.items += item_texts(row)
                if row["id"] in ids:  # question and answer as before, but other options or tests
                    row["id"] = content_id(row["id"], *(str(row[name]) for name in columns if name != "id"))
                ids.add(row["id"])
                yield row

    def _whole(self) -> Iterator[dict[str, Any]]:
        """Rows with all that the table needs; others stop the step, or are skipped and noted."""
        skip = self.spec.bad_rows == "skip"
        for raw in raw_rows(self.spec, self.table, self.seed, self._skip if skip else None):
            self.read += 1
            try:
                row = normalised(raw, self.table, self.spec.fields, self.spec.values)
            except DataError as error:
                if not skip:
                    raise
                where, _, why = error.problem.partition(": ")
                self._skip(where, why.partition("; the row has ")[0], row_text(raw))
                continue
            yield {**row, "_where": raw.get("_where", f"{self.spec.source}, row {self.read}")}

    def _skip(self, where: str, reason: str, row: str) -> None:
        self.dropped[f"bad row: {reason}"] += 1
        self.skipped.append({"where": where, "reason": reason, "row": row})


def batched(rows: Iterable[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    """The rows, some at a time."""
    rest = iter(rows)
    while some := list(islice(rest, size)):
        yield some


def row_mark(row: dict[str, Any], columns: Iterable[str]) -> bytes:
    """What two rows have in common that are the same; a worked solution does not make another problem of it."""
    return bytes.fromhex(content_id(*(str(row[name]) for name in columns if name not in ("id", "solution"))))


def question_key(question: str) -> str:
    """A question without differences of case, width, spacing and punctuation."""
    text = unicodedata.normalize("NFKC", question).casefold()
    text = re.sub(r"[^\w+*/<>=^.-]+", " ", text)
    return re.sub(r" ?([+*/<>=^.-]) ?", r"\1", text).strip()


def question_mark(row: dict[str, Any]) -> bytes:
    """What two rows have in common that ask the same: the question, however it is written, and the options or tests to it."""
    return bytes.fromhex(content_id(question_key(row["question"]), str(row.get("check", ""))))


def gold_faults(rows: Sequence[dict[str, Any]], checker: Accuracy) -> list[str]:
    """Why each gold answer cannot be used; empty where it scores right against itself."""
    problems = [problem_of(row) for row in rows]
    faults = [sentinel_fault(problem) for problem in problems]
    asked = [index for index, problem in enumerate(problems) if not faults[index] and problem.checker not in ("none", "code")]
    scores = checker.score([Attempt(problems[index], f"\\boxed{{{problems[index].answer}}}") for index in asked])
    for index, score in zip(asked, scores, strict=True):
        if score is None or score.value is None:
            faults[index] = f"cannot be judged ({score.note if score else 'no checker'})"
        elif score.value != 1:
            faults[index] = f"is judged wrong against itself ({score.note})"
    return faults


def sentinel_fault(problem: Problem) -> str:
    """Whether a gold answer is a word that data sets write where there is no answer."""
    word = problem.answer.strip().strip(".").casefold()
    return f"is no answer ({problem.answer.strip()!r})" if problem.checker == "maths" and word in SENTINELS else ""
