"""From a source's row to a row of ours: the columns that a table needs, the text that an answer is written as, and what is wrong
with a row, said with file, line, column and the row itself.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from r1pipe.data.jsonl import OnBad, Written, shortened
from r1pipe.data.preferences import BadRow, labels_of, pair_of
from r1pipe.data.rows import Problem
from r1pipe.data.sources import NEEDED, Table, is_generated, open_source
from r1pipe.data.tables import PROBLEM_COLUMNS, content_id, problem_row
from r1pipe.errors import DataError
from r1pipe.stage import StepConfig

NUMBERED = ("answer", "level", "solution")
"""Columns in which a number is taken as the text that it was written as; elsewhere a number is a mistake."""
GIVEN = frozenset({"question", "answer", "checker", "language", "domain", "source", "level", "kind", "check"})
"""Columns of ours that a row of a problem may give."""
EVALUATING: tuple[Table, ...] = ("evaluation", "general-evaluation")
"""Tables whose rows may give a worked `solution` too."""


class SourceSpec(StepConfig):
    """One table's source."""

    source: str
    """A built-in source, `reasoning-gym:NAME`, `hf:OWNER/NAME`, a .jsonl, .json, .csv or .parquet file, or
    `pkg.module:function`."""
    count: int = Field(default=0, ge=0)
    """Rows to take; 0 takes all of a file."""
    fields: dict[str, str] = {}
    """Our column -> the source's column, where they differ."""
    values: dict[str, str] = {}
    """Our column -> the text that it has in rows that do not give it, e.g. { checker = "choice", language = "zh" }."""
    bad_rows: Literal["stop", "skip"] = "stop"
    """What to do with a row that cannot be used: "stop" with an error, or "skip" it, counted and kept with its reason."""
    revision: str = ""
    """The commit of a data set of the hub, 40 hex digits."""
    subset: str = ""
    """Its configuration; empty for the default one."""
    split: str = "train"


MAINLY = 0.5
"""Above this share of its words in another script a question is in that script's language."""


def raw_rows(spec: SourceSpec, table: Table, seed: int, bad: OnBad | None) -> Iterator[dict[str, Any]]:
    """The rows of a source as they stand there; those of preference data in our columns, whatever public form they have.

    Raises:
        DataError: a row that cannot be read, with file and line, where `bad` is not told of it instead.
    """
    rows = open_source(
        spec.source, table, spec.count, seed, revision=spec.revision, subset=spec.subset, split=spec.split, bad=bad
    )
    return rows if table not in ("pairs", "labels") or is_generated(spec.source) else _preferences(rows, spec, table, bad)


def _preferences(rows: Iterator[dict[str, Any]], spec: SourceSpec, table: Table, bad: OnBad | None) -> Iterator[dict[str, Any]]:
    """Rows of preference data with our columns; see `r1pipe.data.preferences` for what they may look like."""
    for raw in rows:
        row = {**raw, **{ours: raw[theirs] for ours, theirs in spec.fields.items() if theirs in raw}}
        row |= {ours: text for ours, text in spec.values.items() if row.get(ours) in (None, "")}
        try:
            found: list[dict[str, Any]] = [dict(pair_of(row))] if table == "pairs" else labels_of(row)
        except BadRow as error:
            if bad is None:
                raise _fault(raw, table, str(error)) from error
            bad(str(raw.get("_where", spec.source)), str(error), row_text(raw))
            continue
        for one in found:
            theirs = {column: one[ours] for ours, column in spec.fields.items() if ours in one}
            yield {**row, **theirs, **one}


def check_mapping(spec: SourceSpec, table: Table) -> None:
    """Refuse names of ours that there are not.

    Raises:
        DataError: names the key and the columns there are.
    """
    known = GIVEN | set(NEEDED[table]) | ({"solution"} if table in EVALUATING else set())
    for name in (*spec.fields, *spec.values):
        if name not in known:
            raise DataError(
                f"[prepare.{table.replace('-', '_')}]: {name!r} is no column of ours", f"ours are {', '.join(sorted(known))}"
            )


def normalised(
    raw: dict[str, Any], table: Table, fields: Mapping[str, str], values: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A source's row with all our columns; answers stay the text they are.

    Raises:
        DataError: naming file, row and column when something needed is missing or of the wrong type, with the row.
    """
    row = _mapped(raw, table, fields, values or {})
    for name in NEEDED[table]:
        value = row.get(name)
        if value is None or (isinstance(value, str) and not value.strip() and name != "answer"):
            raise _fault(raw, table, f"column {_shown(name, fields)} is missing or empty")
        if name == "safe":
            if str(value) not in ("0", "1", "True", "False"):
                raise _fault(raw, table, f"column 'safe' must be 0 or 1, not {value!r}")
            row[name] = int(str(value) in ("1", "True"))
        else:
            row[name] = _text(raw, table, name, value, fields)
    problem = problem_row(Problem(id=content_id(row["question"], str(row.get("answer", ""))), question=row["question"]))
    for name in PROBLEM_COLUMNS:
        value = row.get(name)
        if name not in ("id", "check") and value is not None and value != "":
            problem[name] = _text(raw, table, name, value, fields)
    if not row.get("language"):
        problem["language"] = language_of(row["question"])
    if check := row.get("check"):
        problem["check"] = _check(raw, table, check)
    if table in EVALUATING:
        problem["solution"] = _solution(raw, table, row.get("solution"), fields)
    if table in ("traces", "general-traces"):
        return {**problem, "thinking": row["thinking"], "summary": row["summary"], "origin": row.get("source") or "given"}
    return {**problem, **{name: row[name] for name in NEEDED[table] if name not in problem}}


def language_of(question: str) -> str:
    """The language of a question whose row does not name it: that of its script, such as zh or ru; en where the script is Latin,
    which tells no language."""
    from r1pipe.rewards.language import dominant_language
    from r1pipe.rewards.language_spans import SCRIPT_LANGUAGES

    if question.isascii():
        return "en"
    found, share = dominant_language(question)
    return "en" if share <= MAINLY or found in SCRIPT_LANGUAGES["Latin"] else found


def _mapped(raw: dict[str, Any], table: Table, fields: Mapping[str, str], values: Mapping[str, str]) -> dict[str, Any]:
    """The row with our names beside the source's."""
    row = dict(raw)
    for ours, theirs in fields.items():
        if theirs not in raw:
            raise _fault(raw, table, f"there is no column {theirs!r}, which is to be our {ours!r}")
        row[ours] = raw[theirs]
    for ours, text in values.items():
        if row.get(ours) in (None, ""):
            row[ours] = text
    return row


def _text(raw: dict[str, Any], table: Table, name: str, value: Any, fields: Mapping[str, str]) -> str:
    """A value as the text that it was written as."""
    if isinstance(value, str):
        if _is_text(value):
            return value
        raise _fault(
            raw, table, f"column {_shown(name, fields)} is no Unicode text: it holds half of a character (a lone surrogate)"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise _fault(raw, table, f"column {_shown(name, fields)} is {value}, which is no number")
    written = isinstance(value, int | float | decimal.Decimal | datetime.date | datetime.time) and not isinstance(value, bool)
    if name in NUMBERED and written:
        return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)  # with all digits, and no exponent
    raise _fault(raw, table, f"column {_shown(name, fields)} must be text, not {type(value).__name__}: {str(value)[:80]!r}")


def _is_text(text: str) -> bool:
    """Whether it can be written as UTF-8."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _solution(raw: dict[str, Any], table: Table, value: Any, fields: Mapping[str, str]) -> str:
    """A worked solution as text, several of them one below the other; empty where there is none."""
    if value is None:
        return ""
    several = value if isinstance(value, list) else [value]
    return "\n\n".join(_text(raw, table, "solution", one, fields) for one in several)


def _check(raw: dict[str, Any], table: Table, check: Any) -> str:
    """What a checker needs, as JSON text of an object."""
    try:
        found = json.loads(check) if isinstance(check, str) else check
    except ValueError as error:
        raise _fault(raw, table, f"column 'check' is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise _fault(raw, table, f"column 'check' must be an object, not {type(found).__name__}")
    if not _is_text(json.dumps(found, ensure_ascii=False, default=str)):
        raise _fault(raw, table, "column 'check' holds half of a character (a lone surrogate)")
    return check if isinstance(check, str) else json.dumps(check, ensure_ascii=False, sort_keys=True, default=str)


def _shown(name: str, fields: Mapping[str, str]) -> str:
    """A column of ours, and where the source has it."""
    return repr(name) if fields.get(name, name) == name else f"{name!r} (here {fields[name]!r})"


def _fault(raw: dict[str, Any], table: Table, what: str) -> DataError:
    where = raw.get("_where", "a generated row")
    columns = ", ".join(sorted(key for key in raw if key != "_where"))
    return DataError(
        f"{where}: {what}; the row has {columns}: {row_text(raw)}", f"map it with [prepare.{table.replace('-', '_')}] fields"
    )


def row_text(raw: Mapping[str, Any]) -> str:
    """A row as it can be shown in one line, its numbers as they were written."""
    shown = (
        f"{json.dumps(key, ensure_ascii=False)}: "
        f"{value.text if isinstance(value, Written) else json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in raw.items()
        if key != "_where"
    )
    return shortened(f"{{{', '.join(shown)}}}".encode("utf-8", "backslashreplace").decode())
