"""What `prepare` will make of a source, before anything is prepared.

Columns and types as they stand there, the first rows as they will be read, rows that cannot be used, gold answers that cannot be
judged, duplicates, and overlap with the evaluation sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r1pipe.data.jsonl import Written, shortened
from r1pipe.data.overlap import OverlapIndex, build_index, item_texts, row_overlap
from r1pipe.data.sources import HUB, Table, is_file, is_generated
from r1pipe.data.tables import problem_of
from r1pipe.errors import DataError
from r1pipe.rewards import Accuracy
from r1pipe.stages.prepare import BATCH_ROWS, TABLES, batched, gold_faults, question_mark, row_mark
from r1pipe.stages.schema import SourceSpec, check_mapping, normalised, raw_rows, row_text

GENERATED = 1000
"""Rows that are asked of a source that makes as many as are wanted, when nobody says how many."""
EXAMPLES = 5
TYPES = {
    bool: "true or false",
    int: "integer",
    float: "number",
    Written: "number",
    str: "text",
    list: "list",
    dict: "object",
    type(None): "missing",
}
"""Type of a value -> its name in the preview; others under their own."""


@dataclass
class Seen:
    """What the rows of a source add up to.

    Attributes:
        types: the source's column -> type -> rows. bad, gold: reason -> rows. exact: rows that are there twice, word for word.
        same_question: rows that ask what another row asks. shared: rows that overlap an evaluation item.
        examples: some rows of each kind, as {"where", "reason", "row"}.
    """

    rows: int = 0
    usable: int = 0
    types: dict[str, Counter[str]] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)
    gold: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    exact: int = 0
    same_question: int = 0
    shared: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def note(self, kind: str, where: str, reason: str, row: str) -> None:
        """Keep a row as an example of its kind, unless there are enough."""
        if len(some := self.examples.setdefault(kind, [])) < EXAMPLES:
            some.append({"where": where, "reason": reason, "row": row})

    def skip(self, where: str, reason: str, row: str) -> None:
        """Note a row that cannot be used."""
        self.bad[reason] += 1
        self.note("bad", where, reason, row)


def preview(spec: SourceSpec, table: Table, seed: int, against: Sequence[tuple[SourceSpec, Table]], shown: int) -> dict[str, Any]:
    """Read a source as `prepare` would, without stopping at bad rows.

    Args:
        against: the recipe's evaluation sets.
        shown: first rows to give back.

    Returns:
        source, commit (of a data set of the hub), table, rows, usable, columns (name, becomes, types), bad, gold, duplicates,
        overlap (None without evaluation sets, or for one of them), first.

    Raises:
        DataError: the source cannot be read at all. RecipeError: there is no such source.
    """
    check_mapping(spec, table)
    commit = ""
    if spec.source.startswith(HUB):
        spec, commit = _pinned(spec)
    if is_generated(spec.source) and not spec.count:
        spec = spec.model_copy(update={"count": GENERATED})
    evaluating = table in ("evaluation", "general-evaluation")
    overlap = None if evaluating or not against else _overlap(against, seed)
    seen, questions, marks = Seen(), set[bytes](), set[bytes]()
    checker = Accuracy()
    columns = next(columns for name, columns in TABLES.values() if name == table)
    for some in batched(_usable(spec, table, seed, seen), BATCH_ROWS):
        fresh = []
        for row in some:
            where, mark = str(row["_where"]), row_mark(row, columns)
            key = question_mark(row)
            if mark in marks:
                seen.exact += 1
                seen.note("duplicate", where, "exact duplicate", shortened(row["question"]))
            elif key in questions:
                seen.same_question += 1
                seen.note("duplicate", where, "same question as an earlier row", shortened(row["question"]))
            if overlap is not None and (found := row_overlap(overlap, row)) is not None:
                seen.shared += 1
                seen.note("overlap", where, f"shares: {shortened(found.passage, 120)}", shortened(row["question"]))
            if mark not in marks:
                fresh.append(row)
            marks.add(mark)
            questions.add(key)
            if len(seen.first) < shown:
                seen.first.append({name: row[name] for name in columns} | {"where": where})
        if table in ("problems", "evaluation"):
            _judge(fresh, checker, seen)
    if not seen.rows:
        raise DataError(f"{spec.source} has no rows", "check that it is the right source, split and subset")
    return _report(spec, table, commit, seen, [other.source for other, _ in against] if overlap is not None else None)


def _usable(spec: SourceSpec, table: Table, seed: int, seen: Seen) -> Iterator[dict[str, Any]]:
    """Rows that have what the table needs; the types of all of them are counted."""
    unreadable = 0

    def bad(where: str, reason: str, row: str) -> None:
        nonlocal unreadable
        unreadable += 1
        seen.rows += 1
        seen.skip(where, reason, row)

    for raw in raw_rows(spec, table, seed, bad):
        seen.rows += 1
        for name, value in raw.items():
            if name != "_where":
                seen.types.setdefault(name, Counter())[TYPES.get(type(value), type(value).__name__)] += 1
        try:
            row = normalised(raw, table, spec.fields, spec.values)
        except DataError as error:
            where, _, why = error.problem.partition(": ")
            seen.skip(where, why.partition("; the row has ")[0], row_text(raw))
            continue
        seen.usable += 1
        yield {**row, "_where": raw.get("_where", f"row {seen.rows}")}
    for types in seen.types.values():
        if lacking := seen.rows - unreadable - types.total():
            types["missing"] += lacking


def _judge(rows: list[dict[str, Any]], checker: Accuracy, seen: Seen) -> None:
    """Gold answers against their own checker, and what reading them tells."""
    from r1pipe.rewards.audit import gold_fault
    from r1pipe.rewards.language import is_known_language

    seen.judged += len(rows)
    for row, fault in zip(rows, gold_faults(rows, checker), strict=True):
        remark = gold_fault(problem_of(row))
        if not is_known_language(row["language"]):
            seen.remarks[f"language {row['language']!r} is no code that words are counted for (en, zh, fr, …)"] += 1
        if fault:
            seen.gold[fault] += 1
            seen.note("gold", str(row["_where"]), fault, f"{row['answer']!r} for {shortened(row['question'], 120)}")
        elif remark:
            seen.remarks[remark] += 1
            seen.note("gold", str(row["_where"]), remark, f"{row['answer']!r} for {shortened(row['question'], 120)}")


def _overlap(against: Sequence[tuple[SourceSpec, Table]], seed: int) -> OverlapIndex:
    """The items of the evaluation sets."""

    def texts() -> Iterator[str]:
        for spec, table in against:
            skip = spec.bad_rows == "skip"
            for raw in raw_rows(spec, table, seed, (lambda where, why, row: None) if skip else None):
                try:
                    yield from item_texts(normalised(raw, table, spec.fields, spec.values))
                except DataError:
                    if not skip:
                        raise

    return build_index(texts())


def _pinned(spec: SourceSpec) -> tuple[SourceSpec, str]:
    """The source at the commit that its revision means now."""
    from r1pipe.data.hub import Hub, files_of

    commit, _ = files_of(Hub(spec.source.removeprefix(HUB), spec.revision, spec.subset, spec.split))
    return (spec.model_copy(update={"revision": commit}), commit) if commit else (spec, "")


def _report(spec: SourceSpec, table: Table, commit: str, seen: Seen, against: list[str] | None) -> dict[str, Any]:
    ours = {theirs: name for name, theirs in spec.fields.items()}
    columns = next(columns for name, columns in TABLES.values() if name == table)
    judged = table in ("problems", "evaluation")
    return {
        "source": spec.source,
        "commit": commit,
        "bytes": Path(spec.source).expanduser().stat().st_size if is_file(spec.source) else None,
        "table": table,
        "rows": seen.rows,
        "usable": seen.usable,
        "columns": [
            {"name": name, "becomes": ours.get(name, name if name in columns else ""), "types": dict(types.most_common())}
            for name, types in seen.types.items()
        ],
        "bad": {"rows": seen.bad.total(), "reasons": dict(seen.bad.most_common()), "examples": seen.examples.get("bad", [])},
        "gold": {
            "judged": seen.judged,
            "right": seen.judged - seen.gold.total(),
            "unusable": dict(seen.gold.most_common()),
            "remarks": dict(seen.remarks.most_common()),
            "examples": seen.examples.get("gold", []),
        } if judged else None,
        "duplicates": {
            "exact": seen.exact, "same_question": seen.same_question, "examples": seen.examples.get("duplicate", []),
        },
        "overlap": None if against is None else {
            "rows": seen.shared, "against": against, "examples": seen.examples.get("overlap", []),
        },
        "first": seen.first,
    }  # fmt: skip
