"""Preference data from a judge: candidate answers in, pairs or safety labels out.

Paper, 3.1 of v2: four votes a pair, the order of the two at random, kept when the scores differ by more than 1, lengths balanced
over the set. Here each pair is judged in both orders equally often, so that a judge's liking for a place cancels, and how large
that liking is, is reported. Votes are written down as they come: a judging that was stopped goes on with what is owed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from r1pipe.data.jsonl import read_jsonl, shortened, write_jsonl
from r1pipe.data.preferences import BadRow, candidates_of, labels_of, turns
from r1pipe.data.readers import read_rows
from r1pipe.data.tables import content_id
from r1pipe.engines.base import Engine, Sampling
from r1pipe.engines.judge import HIGHEST, LOWEST, comparing_prompt, grading_prompt, read_grade, read_grades
from r1pipe.errors import DataError, EngineError, RecipeError
from r1pipe.intervals import mean
from r1pipe.manifest import write_atomic
from r1pipe.stage import StepConfig
from r1pipe.stages.judged_numbers import balanced, lengths, position_bias
from r1pipe.stages.schema import language_of

SHOWN = 5
"""Bad rows that are named."""


class JudgeSettings(StepConfig):
    """How candidates are judged."""

    kind: Literal["helpfulness", "safety"] = "helpfulness"
    """"helpfulness" makes pairs, "safety" labels single responses."""
    votes: PositiveInt = 4
    """Of each pair, half of them in each order; or of each response."""
    margin: float = Field(default=1.0, ge=0)
    """Kept when the mean grades of the two differ by more than this; for labels, when the mean grade is so far from the
    middle."""
    length_tolerance: float = Field(default=0.05, ge=0)
    """Over the set, chosen and rejected answers may differ in mean length by this share; surplus pairs are left out."""
    temperature: float = Field(default=1.0, ge=0)
    max_tokens: PositiveInt = 512
    seed: int = 0
    at_once: PositiveInt = 64
    """Candidates whose votes are asked for, and written down, together."""

    @model_validator(mode="after")
    def _even(self) -> JudgeSettings:
        if self.kind == "helpfulness" and self.votes % 2:
            raise ValueError(f"votes ({self.votes}) must be even: each pair is judged in both orders equally often")
        return self


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is judged together: a question with two answers, or with one (then `second` is empty)."""

    id: str
    question: str
    first: str
    second: str
    language: str


def judge_file(given: Path, target: Path, settings: JudgeSettings, engine: Engine, judge: str) -> dict[str, Any]:
    """Judge the candidates of a file and write the pairs or labels that are sure enough.

    Args:
        target: the JSONL to write; votes go beside it (`.votes.jsonl`), and so does the report (`.report.json`).
        judge: the judge's name, for the record; votes of another judge, or with other settings, are not mixed.

    Returns:
        The report.

    Raises:
        DataError: nothing could be read or kept, or the votes on disk were given by another judge.
        EngineError: the judge did not once keep to the form.
    """
    candidates, bad = read_candidates(given, settings.kind)
    votes = Votes(target.with_suffix(".votes.jsonl"), {**settings.model_dump(mode="json"), "judge": judge})
    owed = [one for one in candidates if one.id not in votes.given]
    unread: list[str] = []
    for start in range(0, len(owed), settings.at_once):
        members = owed[start : start + settings.at_once]
        votes.add(members, _ask(members, settings, engine, unread))
        print(f"judge: {len(votes.given)} of {len(candidates)} judged", flush=True)
    judged = [(one, votes.given[one.id]) for one in candidates]
    if not any(found for _, found in judged):
        raise EngineError(
            f"the judge {judge} kept to the form in none of {len(judged)} cases; it wrote, for one, "
            f"{shortened(unread[0]) if unread else ''!r}",
            "use a model that follows instructions, or more max_tokens; the same command asks again",
        )
    rows, report = (_pairs if settings.kind == "helpfulness" else _labels)(judged, settings)
    report = {
        "judge": judge,
        "candidates": len(candidates),
        "bad_rows": bad,
        **report,
        "settings": settings.model_dump(mode="json"),
    }
    write_atomic(target.with_suffix(".report.json"), json.dumps(report, ensure_ascii=False, indent=1).encode())
    if not rows:
        raise DataError(
            f"nothing of {len(candidates)} candidates is kept: "
            + ", ".join(f"{count} {reason}" for reason, count in report["dropped"].items()),
            f"see {target.with_suffix('.report.json')}",
        )
    write_jsonl(target, rows)
    return report


def judge_with(given: Path, target: Path, settings: Mapping[str, Any], engine: str, model: str) -> dict[str, Any]:
    """`judge_file` with settings that are not checked yet, and a judge that is opened here.

    Raises:
        RecipeError: a setting, or the engine's name, is not right.
    """
    from r1pipe.engines.base import open_engine

    try:
        checked = JudgeSettings.model_validate(settings)
    except ValidationError as error:
        raise RecipeError("; ".join(str(one["msg"]).removeprefix("Value error, ") for one in error.errors())) from error
    if target.suffix != ".jsonl":
        raise RecipeError(f"{target} does not end with .jsonl", f"name it {target.with_suffix('.jsonl').name}")
    opened = open_engine(engine, model, system="", batch=None, dtype="auto")
    try:
        return judge_file(given, target, checked, opened, model)
    finally:
        opened.close()


def read_candidates(given: Path, kind: str) -> tuple[list[Candidate], dict[str, Any]]:
    """The candidates of a file, each once, and its bad rows: {count, reasons, first}."""
    found: dict[str, Candidate] = {}
    reasons: Counter[str] = Counter()
    first: list[str] = []
    for where, row in read_rows(given):
        try:
            several = candidates_of(row) if kind == "helpfulness" else [(q, r, "") for q, r in _responses(row)]
        except BadRow as error:
            reasons[str(error)] += 1
            if len(first) < SHOWN:
                first.append(f"{where}: {error}")
            continue
        for question, one, other in several:
            name = content_id(question, one, other)
            found[name] = Candidate(name, question, one, other, str(row.get("language") or language_of(question)))
    if not found:
        raise DataError(
            f"{given}: no row holds candidates: {'; '.join(first) or 'it is empty'}", "see docs/stage-4.md for the forms"
        )
    return list(found.values()), {"count": reasons.total(), "reasons": dict(reasons), "first": first}


def _responses(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(question, response) of every answer in a row, whatever it says of them."""
    unlabelled = {**row, "label": 1} if not any(name in row for name in ("safe", "is_safe", "label", "chosen")) else row
    if isinstance(row.get("responses"), Sequence) and not isinstance(row["responses"], str):
        return [
            (label["question"], label["response"])
            for one in row["responses"]
            for label in labels_of({**row, "responses": None, "response": turns(one)[-1][1], "label": 1})
        ]
    return [(label["question"], label["response"]) for label in labels_of(unlabelled)]


@dataclass
class Votes:
    """The votes on disk: a first line that says whose they are, then one line a candidate, written as they come.

    Attributes:
        given: candidate -> its votes; for pairs [grade of the first answer, of the second, 1 when the first one stood first].
    """

    path: Path
    belongs_to: dict[str, Any]

    def __post_init__(self) -> None:
        self.given: dict[str, list[list[float]]] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        own = {key: value for key, value in self.belongs_to.items() if key not in ("margin", "length_tolerance", "at_once")}
        lines = list(_whole_lines(self.path))
        if not lines:
            self._append({"belongs_to": own})
            return
        if (there := lines[0].get("belongs_to")) != own:
            differing = [key for key in own if not isinstance(there, dict) or there.get(key) != own[key]]
            raise DataError(
                f"{self.path} holds votes that were given otherwise: {', '.join(differing)} differs",
                "remove it, or name another target",
            )
        self.given = {str(line["id"]): line["votes"] for line in lines[1:] if line["votes"]}  # what was unreadable is asked again

    def add(self, members: Sequence[Candidate], votes: Sequence[list[list[float]]]) -> None:
        """Take in the votes of some candidates."""
        for one, found in zip(members, votes, strict=True):
            self.given[one.id] = found
            self._append({"id": one.id, "votes": found})

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of the votes; one that a stop has torn is cut off the file first, so that the next is not glued to it."""
    if not path.is_file():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end != len(content):
        write_atomic(path, content[:end])
    yield from (line for _, line in read_jsonl(path))


def _ask(members: Sequence[Candidate], settings: JudgeSettings, engine: Engine, unread: list[str]) -> list[list[list[float]]]:
    """The readable votes on each candidate; the texts of the others go into `unread`."""
    if settings.kind == "safety":
        prompts = [grading_prompt(one.question, one.first, "safety") for one in members]
        sampling = Sampling(settings.votes, settings.temperature, 1.0, settings.max_tokens, settings.seed)
        found: list[list[list[float]]] = []
        for votes in engine.generate(prompts, sampling):
            read = [(vote.text or vote.note, read_grade(vote.text)) for vote in votes]
            unread += [text for text, grade in read if grade is None]
            found.append([[grade] for _, grade in read if grade is not None])
        return found
    half = settings.votes // 2
    result: list[list[list[float]]] = [[] for _ in members]
    for first_stands_first in (1, 0):
        prompts = [
            comparing_prompt(
                one.question, *((one.first, one.second) if first_stands_first else (one.second, one.first)), "helpfulness"
            )
            for one in members
        ]
        sampling = Sampling(half, settings.temperature, 1.0, settings.max_tokens, settings.seed + (1 - first_stands_first) * half)
        for place, votes in enumerate(engine.generate(prompts, sampling)):
            for vote in votes:
                if grades := read_grades(vote.text):
                    ours = grades if first_stands_first else grades[::-1]
                    result[place].append([*ours, first_stands_first])
                else:
                    unread.append(vote.text or vote.note)
    return result


def _labels(
    judged: Sequence[tuple[Candidate, list[list[float]]]], settings: JudgeSettings
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows {question, response, safe}, and what became of every candidate."""
    rows, dropped = [], Counter[str]()
    middle = (LOWEST + HIGHEST) / 2
    for one, votes in judged:
        grade = mean([vote[0] for vote in votes])
        if grade is None:
            dropped["no readable vote"] += 1
        elif abs(grade - middle) <= settings.margin:
            dropped["within the margin"] += 1
        else:
            rows.append(
                {
                    "question": one.question,
                    "response": one.first,
                    "safe": int(grade > middle),
                    "grade": grade,
                    "language": one.language,
                }
            )
    return rows, {"kept": len(rows), "dropped": dict(dropped), "safe": sum(row["safe"] for row in rows)}


def _pairs(
    judged: Sequence[tuple[Candidate, list[list[float]]]], settings: JudgeSettings
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows {question, chosen, rejected, margin}, balanced in length, and what became of every candidate."""
    rows, dropped = [], Counter[str]()
    for one, votes in judged:
        # both orders weigh the same, however many votes of each could be read
        orders = [[vote[0] - vote[1] for vote in votes if vote[2] == order] for order in (1, 0)]
        if not all(orders):
            dropped["no readable vote in one order" if any(orders) else "no readable vote"] += 1
            continue
        margin = fmean(fmean(order) for order in orders)
        if abs(margin) <= settings.margin:
            dropped["within the margin"] += 1
            continue
        chosen, rejected = (one.first, one.second) if margin > 0 else (one.second, one.first)
        rows.append(
            {"question": one.question, "chosen": chosen, "rejected": rejected, "margin": abs(margin), "language": one.language}
        )
    kept = balanced(rows, settings.length_tolerance)
    dropped["surplus in length"] = len(rows) - len(kept)
    after = lengths(kept)
    if kept and abs(after["chosen"] - after["rejected"]) > settings.length_tolerance * min(after["chosen"], after["rejected"]):
        print(
            f"judge: chosen answers have {after['chosen']:.0f} characters on average and rejected ones {after['rejected']:.0f}, "
            f"which is more than {settings.length_tolerance:.0%} apart: too few pairs to balance them",
            flush=True,
        )
    return kept, {
        "kept": len(kept), "dropped": {reason: count for reason, count in dropped.items() if count},
        "position": position_bias([votes for _, votes in judged]),
        "length": {"before": lengths(rows), "after": after},
    }  # fmt: skip
