"""Sampling and scoring, as stage 3 and the evaluation both do it: problems in, scored attempts out, one part at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import ATTEMPT_COLUMNS, attempt_row, part_path, read_part, write_part
from r1pipe.engines.base import Engine, Sampling
from r1pipe.errors import ArtifactError
from r1pipe.rewards import Mix


def sample_attempts(engine: Engine, problems: Sequence[Problem], sampling: Sampling) -> list[tuple[Attempt, int]]:
    """(attempt, sample number) for every completion, problem by problem."""
    questions = [problem.question for problem in problems]
    return [
        (Attempt(problem, one.text, engine.prefix, one.finish, one.tokens), index)
        for problem, several in zip(problems, engine.generate(questions, sampling), strict=True)
        for index, one in enumerate(several)
    ]


def write_scored(mix: Mix, attempts: Sequence[tuple[Attempt, int]], folder: Path, number: int) -> list[dict[str, Any]]:
    """Score attempts, write them as one part of the table, and return its rows."""
    scored = mix.score([attempt for attempt, _ in attempts])
    rows = [
        attempt_row(attempt, index, row.parts, row.total, row.verdict)
        for (attempt, index), row in zip(attempts, scored, strict=True)
    ]
    write_part(folder, number, rows, ATTEMPT_COLUMNS)
    return rows


def whole_part(folder: Path, number: int, rows: int) -> list[dict[str, Any]] | None:
    """A part's rows when it is on disk with all of them; None when it is missing or torn, and so owed again."""
    if not part_path(folder, number).is_file():
        return None
    try:
        found = read_part(part_path(folder, number))
    except ArtifactError:
        return None
    return found if len(found) == rows else None
