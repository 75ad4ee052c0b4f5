"""`r1pipe verify`: judge the responses of a file with the checker that trains.

Rows are read as data sets have them (question, problem or prompt; answer; options; tests), and judged in batches. With a
column of expected verdicts the report says how often the checker agrees, and counts false accepts and false rejects apart:
they are not equally bad.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from r1pipe.data.jsonl import Written
from r1pipe.data.readers import read_rows
from r1pipe.data.rows import Attempt, Problem
from r1pipe.errors import DataError, RecipeError
from r1pipe.rewards.accuracy import CHECKERS, Accuracy
from r1pipe.rewards.base import Score
from r1pipe.rewards.trl import message_text

BATCH_ROWS = 512
_QUESTIONS = ("question", "problem", "prompt")
_IDS = ("id", "task_id", "uid")
_CODE_FIELDS = (
    "tests", "test_list", "test_imports", "test_setup_code", "test", "entry_point", "prompt", "inputs", "outputs", "fn_name",
    "calls", "asserts",
)  # fmt: skip
_RIGHT = {
    "true": True,
    "right": True,
    "correct": True,
    "1": True,
    "1.0": True,
    "false": False,
    "wrong": False,
    "incorrect": False,
    "0": False,
    "0.0": False,
}


def check_domain(domain: str) -> None:
    """RecipeError, with the nearest name, for a domain that has no checker."""
    if domain not in CHECKERS:
        near = difflib.get_close_matches(domain, CHECKERS, n=1, cutoff=0.3)
        raise RecipeError(
            f"unknown domain {domain!r}; known: {', '.join(CHECKERS)}", f"did you mean {near[0]!r}?" if near else ""
        )


def field(row: Mapping[str, Any], name: str, where: str) -> Any:
    """A field of a row; a DataError that names the fields there are when it is missing."""
    if name not in row:
        near = difflib.get_close_matches(name, row, n=1)
        raise DataError(
            f"{where}: there is no column {name!r}; columns: {', '.join(row)}",
            f"did you mean {near[0]!r}?"
            if near
            else "say which one it is: --gold, --completion and --expected take a column's name",
        )
    return row[name]


def as_answer(value: Any, domain: str = "maths") -> str:
    """A gold answer as text: numbers, tables and lists as JSON writes them, dates and bytes as text, a missing one as empty text.

    Where the domain compares values (maths, choice) a list is its one item, or its items with semicolons between.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):  # what tables hold for a missing number
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) and domain in ("maths", "choice") and not any(isinstance(item, (list, dict)) for item in value):
        return "; ".join(as_answer(item, domain) for item in value)
    return (
        value if isinstance(value, str) else str(value) if _as_text(value) else json.dumps(value, ensure_ascii=False, default=str)
    )


def _as_text(value: Any) -> bool:
    """Whether the value has a text that JSON would not write: a decimal number, a date, a number as a file had it (3.10)."""
    return isinstance(value, Written) or not isinstance(value, (bool, int, float, list, dict))


def as_completion(value: Any, where: str, name: str) -> str:
    """A response: text, or the messages of a conversation, of which the last counts; DataError for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        return message_text(value)
    what = "nothing" if value is None else f"a {type(value).__name__}"
    raise DataError(f"{where}: column {name!r} holds {what} where text is wanted", "one response a row, as text or as messages")


def problem_of(row: Mapping[str, Any], domain: str, gold: str, number: int) -> Problem:
    """The problem of a row of some data set."""
    question = next((str(row[name]) for name in _QUESTIONS if row.get(name) is not None), "")
    return Problem(
        id=next((str(row[name]) for name in _IDS if row.get(name) is not None), str(number)),
        question=question,
        answer=as_answer(row.get(gold), domain),
        checker=domain,
        language=str(row.get("language") or "en"),
        check=check_of(row, domain, question),
    )


def check_of(row: Mapping[str, Any], domain: str, question: str) -> dict[str, Any]:
    """What the checker needs beside the gold answer: a `check` column as it is, else the fields that data sets have."""
    given = row.get("check")
    if given:
        return dict(json.loads(given) if isinstance(given, str) else given)
    if domain == "choice":
        return {"options": row["options"]} if row.get("options") else {}
    if domain == "logic":
        if "dataset" in row and "metadata" in row:
            return {
                "dataset": row["dataset"],
                "entry": {"question": question, "answer": row.get("answer"), "metadata": row["metadata"]},
            }
        return {}
    if domain == "code":
        found = {name: row[name] for name in _CODE_FIELDS if row.get(name) is not None}
        if "tests" not in found and row.get("expected_stdout") is not None:
            found["tests"] = [{"input": row.get("stdin") or "", "output": row["expected_stdout"]}]
        return found
    return {"tolerance": row["error"]} if row.get("error") else {}


def as_expected(value: Any, where: str) -> bool | None:
    """An expected verdict: true or false, 1 or 0, "right" or "wrong"; None for a missing one."""
    if value is None or value == "":
        return None
    verdict = _RIGHT.get(str(value).strip().lower())
    if verdict is None:
        raise DataError(f"{where}: expected verdict {value!r} is neither right nor wrong", "use true and false")
    return verdict


def score_rows(attempts: Sequence[Attempt]) -> list[Score]:
    """Scores in batches, so that a large file does not wait for its last row to begin."""
    reward = Accuracy()
    scores: list[Score] = []
    rest = iter(attempts)
    while batch := list(islice(rest, BATCH_ROWS)):
        scores.extend(score if score is not None else Score(None, "no checker applies") for score in reward.score(batch))
    return scores


def verify_file(
    path: Path, domain: str, gold_field: str = "answer", completion_field: str = "completion", expected_field: str | None = None
) -> dict[str, Any]:
    """Judge every row of a file.

    Args:
        path: JSON Lines, a JSON array, CSV or Parquet.
        domain: "maths", "choice", "logic" or "code".
        gold_field: column of the gold answer (not needed for code, whose tests stand in the row).
        completion_field: column of the response; without think tags it is all summary.
        expected_field: column of the verdict that is known to be right, if there is one.

    Returns:
        {"summary": {rows, right, wrong, unjudged, agreement, false_accepts, false_rejects}, "rows": [{id, verdict, note}]}.
        The last three of the summary are None without expected verdicts; an unjudged row agrees with neither.
    """
    check_domain(domain)
    attempts: list[Attempt] = []
    expected: list[bool | None] = []
    for number, (where, row) in enumerate(read_rows(Path(path)), start=1):
        if domain != "code" and "check" not in row:
            field(row, gold_field, where)
        completion = as_completion(field(row, completion_field, where), where, completion_field)
        attempts.append(Attempt(problem_of(row, domain, gold_field, number), completion))
        expected.append(as_expected(field(row, expected_field, where), where) if expected_field else None)
    if not attempts:
        raise DataError(f"{path} holds no rows", "check that it is the right file")
    scores = score_rows(attempts)
    verdicts = [score.verdict for score in scores]
    pairs = [(verdict, wanted) for verdict, wanted in zip(verdicts, expected, strict=True) if wanted is not None]
    agreed = sum(verdict == ("right" if wanted else "wrong") for verdict, wanted in pairs)
    summary = {
        "rows": len(scores),
        **{name: verdicts.count(name) for name in ("right", "wrong", "unjudged")},
        "agreement": round(agreed / len(pairs), 6) if pairs else None,
        "false_accepts": sum(verdict == "right" and not wanted for verdict, wanted in pairs) if pairs else None,
        "false_rejects": sum(verdict == "wrong" and bool(wanted) for verdict, wanted in pairs) if pairs else None,
    }
    rows = [{"id": a.problem.id, "verdict": s.verdict, "note": s.note} for a, s in zip(attempts, scores, strict=True)]
    return {"summary": summary, "rows": rows}
