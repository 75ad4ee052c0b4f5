"""A model's verdict on answers that no rule can judge.

The paper gives V3 the question, the reference answer and the model's answer and reads a verdict from JSON (B.3.3, Listing 4).
Here any engine may judge; only rows that the rules left unjudged are asked about, and what the model says is kept beside the
selection. A reply that is not the JSON that was asked for says nothing: the row stays unjudged, with the reason, and is never
taken for wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from r1pipe.data.chat import split_response
from r1pipe.data.tables import COUNT, TEXT, content_id, part_path, read_part, write_part
from r1pipe.engines.base import Completion, Engine, Sampling, open_engine
from r1pipe.errors import ArtifactError, Stopped
from r1pipe.stage import StepContext
from r1pipe.stages.selection.reading import batches
from r1pipe.stages.selection.settings import JudgeSection
from r1pipe.stall import still_moving

VERDICT_COLUMNS = {"part": COUNT, "row": COUNT, "id": TEXT, "sample": COUNT, "verdict": TEXT, "note": TEXT, "reply": TEXT}
VERDICTS = {"correct": "right", "incorrect": "wrong"}
REQUEST = """\
Below are a question, its reference answer, and an answer to be judged. Decide whether the answer to be judged says the same as \
the reference answer. Wording, order, format and the length of the explanation do not matter; a different value, a missing part \
or an added wrong part does. Do not solve the question yourself: the reference answer is right.

Reply with one JSON object and nothing else: {{"analysis": "one or two sentences", "verdict": "correct"}} or \
{{"analysis": "one or two sentences", "verdict": "incorrect"}}.

Question:
{question}

Reference answer:
{reference}

Answer to be judged:
{answer}"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One row that is asked about: where it stands, who it is, and the request."""

    part: int
    row: int
    id: str
    sample: int
    request: str


@dataclass
class Verdicts:
    """What the model said.

    Attributes:
        known: (part, row) -> "right" or "wrong".
        counts: "right", "wrong", "unjudged" -> rows.
        notes: why rows stayed unjudged -> rows.
    """

    known: dict[tuple[int, int], str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the verdicts of a shard."""
        for row in rows:
            self.counts[row["verdict"]] += 1
            if row["verdict"] == "unjudged":
                self.notes[row["note"]] += 1
            else:
                self.known[row["part"], row["row"]] = row["verdict"]


def judge(context: StepContext, section: JudgeSection, parts: Sequence[Path]) -> Verdicts:
    """Ask about every unjudged row, shard by shard; what is on disk is not asked for again.

    Raises:
        Stopped: the user asked to stop; finished shards stay.
    """
    verdicts = Verdicts()
    if not section.engine:
        return verdicts
    folder = context.folder / "verdicts"
    engine: Engine | None = None
    rows = unjudged(parts)
    number = 0
    while shard := list(islice(rows, section.rows_per_shard)):
        still_moving(context.launch.stall_minutes)
        said = _on_disk(folder, number, shard)
        if said is None:
            if context.stop_requested():
                raise Stopped(f"select stopped after {number} shards of verdicts", "r1pipe resume")
            engine = engine or open_engine(
                section.engine, section.model, system="", batch=context.launch.generation_batch, dtype=context.launch.dtype
            )
            seed = int(content_id("judge", str(context.seed), str(number))[:8], 16)
            sampling = Sampling(1, section.temperature, 1.0, section.max_tokens, seed)
            replies = engine.generate([one.request for one in shard], sampling)
            said = [_row(one, several[0]) for one, several in zip(shard, replies, strict=True)]
            write_part(folder, number, said, VERDICT_COLUMNS)
        verdicts.add(said)
        number += 1
    if engine is not None:
        engine.close()
    print(f"select: a model judged {verdicts.counts.total()} attempts: {dict(verdicts.counts)}", flush=True)
    return verdicts


def unjudged(parts: Sequence[Path]) -> Iterator[Asked]:
    """Every whole, well-formed answer that no rule could judge, with its request."""
    columns = ("id", "sample", "question", "answer", "prefix", "completion", "finish", "verdict", "error")
    for part, path in enumerate(parts):
        start = 0
        for batch in batches(path, columns):
            for offset, verdict in enumerate(batch.column("verdict").to_pylist()):
                if verdict != "unjudged":
                    continue
                row = batch.slice(offset, 1).to_pylist()[0]
                response = split_response(row["prefix"] + row["completion"])
                if row["error"] or row["finish"] != "stop" or response.faults:
                    continue  # falls for that, whatever its answer says
                request = REQUEST.format(question=row["question"], reference=row["answer"], answer=response.summary)
                yield Asked(part, start + offset, row["id"], row["sample"], request)
            start += batch.num_rows


def verdict_of(completion: Completion) -> tuple[str, str]:
    """(verdict, note): "right", "wrong", or "unjudged" with the reason; the note of a verdict is the model's analysis."""
    if completion.finish == "error":
        return "unjudged", "the request failed"
    if completion.finish != "stop":
        return "unjudged", "the reply was cut off"
    text = split_response(completion.text).summary
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return "unjudged", "the reply holds no JSON object"
    try:
        found = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return "unjudged", "the reply is not JSON"
    said = found.get("verdict") if isinstance(found, dict) else None
    verdict = VERDICTS.get(said.strip().lower()) if isinstance(said, str) else None
    if verdict is None:
        return "unjudged", "the reply names no verdict"
    return verdict, str(found.get("analysis", ""))[:1000]


def _row(asked: Asked, completion: Completion) -> dict[str, Any]:
    verdict, note = verdict_of(completion)
    return {
        "part": asked.part, "row": asked.row, "id": asked.id, "sample": asked.sample, "verdict": verdict, "note": note,
        "reply": completion.text or completion.note,
    }  # fmt: skip


def _on_disk(folder: Path, number: int, shard: Sequence[Asked]) -> list[dict[str, Any]] | None:
    """A shard's verdicts when they are on disk and about these rows; None when they are owed."""
    if not part_path(folder, number).is_file():
        return None
    try:
        rows = read_part(part_path(folder, number))
    except ArtifactError:
        return None  # torn: owed again
    same = [(row["part"], row["row"], row["id"]) for row in rows] == [(one.part, one.row, one.id) for one in shard]
    return rows if same else None
