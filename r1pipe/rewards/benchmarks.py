"""Files of problems in the forms that benchmarks have, as problems that can be asked and judged.

Known by their columns: GSM8K (`question`, `answer` with "####"), MATH and MATH-500 (`problem`, `answer` or a `solution` with a
box, `level`, `subject`), AIME (`problem`, `answer`), MGSM (`question`, `answer_number`), MMLU (`question`, `choices`, `answer`
as a number), HumanEval (`prompt`, `test`, `entry_point`), MBPP (`text`, `test_list`), Reasoning Gym, and r1pipe's own tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from r1pipe.data.readers import read_rows
from r1pipe.data.rows import Problem
from r1pipe.data.tables import content_id
from r1pipe.errors import DataError
from r1pipe.rewards.extract import final_answer
from r1pipe.rewards.verify import check_domain, problem_of

GOLD = ("answer", "answer_number", "target", "gold", "final_answer", "label", "solution", "canonical_solution")
"""Columns that may hold the right answer; the first that a row has is taken."""
QUESTIONS = ("question", "problem", "prompt", "text")
LEVELS = ("level", "difficulty")
SUBJECTS = ("domain", "subject", "category", "type")
LETTERS = "ABCDEFGHIJ"


def read_benchmark(path: Path, domain: str = "", gold: str = "", limit: int = 0) -> list[Problem]:
    """The problems of a file.

    Args:
        domain: how answers are judged; by default told from the columns.
        gold: column of the right answer; by default the first of `GOLD` that is there.
        limit: at most so many; 0 takes all.

    Raises:
        DataError: a row has no question, no right answer, or stands twice; names file, row and columns.
        RecipeError: no such domain.
    """
    if domain:
        check_domain(domain)
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for number, (where, row) in enumerate(read_rows(path), start=1):
        problem = one_problem(row, where, number, domain or domain_of(row), gold, path.stem)
        if problem.id in seen:
            raise DataError(f"{where}: the same problem as {seen[problem.id]} (id {problem.id})", "remove one of the two")
        seen[problem.id] = where
        problems.append(problem)
        if limit and len(problems) >= limit:
            break
    if not problems:
        raise DataError(f"{path} has no rows", "one problem a row")
    return problems


def domain_of(row: Mapping[str, Any]) -> str:
    """How a row's answers are judged, from its columns."""
    if isinstance(given := row.get("checker"), str) and given and given != "none":
        return given
    if row.get("options") or row.get("choices"):
        return "choice"
    if row.get("test_list") or row.get("tests") or (row.get("test") and row.get("entry_point")):
        return "code"
    return "logic" if row.get("dataset") and row.get("metadata") else "maths"


def one_problem(row: Mapping[str, Any], where: str, number: int, domain: str, gold: str, source: str) -> Problem:
    """One row as a problem."""
    asked = next((name for name in QUESTIONS if isinstance(row.get(name), str) and row[name].strip()), "")
    if not asked:
        raise DataError(f"{where}: no column of {', '.join(QUESTIONS)} holds a question; columns: {', '.join(row)}", "rename one")
    right = gold or next((name for name in GOLD if row.get(name) is not None), "")
    if domain != "code" and (not right or row.get(right) is None):
        raise DataError(f"{where}: there is no right answer; columns: {', '.join(row)}", "name its column with --gold")
    fields = {**row, "question": row[asked]}
    options = row.get("options") or row.get("choices")
    if domain == "choice" and isinstance(options, list | tuple):
        fields["options"] = list(options)
        if isinstance(row[right], int) and not isinstance(row[right], bool) and 0 <= row[right] < len(options):
            fields[right] = LETTERS[row[right]]
    found = problem_of(fields, domain, right, number)
    question = row[asked]
    if domain == "choice" and isinstance(options, list | tuple) and not all(str(option) in question for option in options):
        question += "\n" + "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    answer = found.answer
    if (
        domain == "maths"
        and isinstance(row.get(right), str)
        and ("####" in answer or right in ("solution", "canonical_solution"))
    ):
        answer = final_answer(answer).text
    return replace(
        found,
        id=str(row["id"]) if row.get("id") is not None else content_id(question, answer, source),
        question=question,
        answer=answer,
        domain=_label(row, SUBJECTS) or source,
        level=_label(row, LEVELS),
        source=source,
    )


def _label(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((str(row[name]) for name in names if isinstance(row.get(name), str | int) and str(row[name]).strip()), "")
