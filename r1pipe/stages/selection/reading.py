"""The first pass: every row is read once, judged by itself, and leaves one narrow line; texts are not kept.

A part of the table is read in batches, rows that fall without being read (wrong, cut off) are never decoded, and what the later
choice needs of a text (hashes of its thinking and of its words, MinHash bands) goes into a file of the same number. A file that
exists is whole, so a killed selection owes only the parts that it was at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r1pipe.data.chat import Response, split_response
from r1pipe.data.likeness import runs_to_compare
from r1pipe.data.overlap import OVERLAP, OverlapIndex, overlap_of, words_of
from r1pipe.data.pieces import Pieces, split_folded, whole_hash
from r1pipe.data.tables import open_part, part_path, write_columns
from r1pipe.stages.keeping import why_unfit, why_unreadable
from r1pipe.stages.selection.settings import SelectConfig

JUDGED_WRONG = "judged wrong by a model"
ROWS_AT_ONCE = 256
_ATTEMPT_COLUMNS = (
    "id", "sample", "question", "prefix", "completion", "finish", "tokens", "verdict", "scores", "error", "domain", "language",
    "source", "checker",
)  # fmt: skip
_GENERAL_COLUMNS = ("id", "question", "thinking", "summary", "domain", "language", "source", "checker")
ATTEMPTS, GENERAL = "attempts", "general"


@dataclass(frozen=True)
class Reader:
    """What a worker needs to judge rows.

    Attributes:
        index: the evaluation items; None to look for no overlap.
        verdicts: (part, row) -> verdict of a model, for rows that no rule could judge.
    """

    config: SelectConfig
    index: OverlapIndex | None
    verdicts: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def read(self, source: Path, kind: str, number: int, target: Path) -> int:
        """Judge the rows of one part of a table and write their lines as part `number` of `target`; returns their number.

        Raises:
            ArtifactError: the part is torn; names it.
        """
        lines = Lines()
        columns = _ATTEMPT_COLUMNS if kind == ATTEMPTS else _GENERAL_COLUMNS
        for batch in batches(source, columns):
            if kind == ATTEMPTS:
                self._attempts(batch, number, lines)
            else:
                self._general(batch, number, lines)
        write_columns(target, number, lines.table())
        return lines.count

    def _attempts(self, batch: Any, part: int, lines: Lines) -> None:
        finishes, errors, verdicts = (batch.column(name).to_pylist() for name in ("finish", "error", "verdict"))
        judged = [""] * len(verdicts)
        for row, verdict in enumerate(verdicts):
            said = self.verdicts.get((part, lines.count + row)) if verdict == "unjudged" and self.verdicts else None
            if said is not None:
                verdicts[row], judged[row] = said, "model"
        reasons = [why_unfit(error, finish, verdict) for error, finish, verdict in zip(errors, finishes, verdicts, strict=True)]
        reasons = [JUDGED_WRONG if reason == "wrong" and model else reason for reason, model in zip(reasons, judged, strict=True)]
        found = Found.empty(len(reasons))
        reads = [row for row, reason in enumerate(reasons) if not reason]
        texts = _rows(batch, reads, ("question", "prefix", "completion", "scores"))
        for row, (question, prefix, completion, scores) in zip(reads, texts, strict=True):
            response = split_response(prefix + completion)
            last = LastPieces()
            reasons[row] = why_unreadable(response, _language(scores), self.config, last)
            if not reasons[row]:
                reasons[row] = self._compare(question, response, last.pieces, found, row)
        lines.add(
            part, batch, reasons, found,
            sample=batch.column("sample"), tokens=batch.column("tokens"), verdict=verdicts, judged=judged,
        )  # fmt: skip

    def _general(self, batch: Any, part: int, lines: Lines) -> None:
        count = batch.num_rows
        reasons, found = [""] * count, Found.empty(count)
        texts = _rows(batch, range(count), ("question", "thinking", "summary"))
        for row, (question, thinking, summary) in enumerate(texts):
            kept = thinking if self.config.general_thinking == "given" else ""
            reasons[row] = self._compare(question, Response(kept, summary, ()), split_folded(kept), found, row, whole=True)
        none = [0] * count
        lines.add(part, batch, reasons, found, sample=none, tokens=none, verdict=["none"] * count, judged=[""] * count)

    def _compare(self, question: str, response: Response, thought: Any, found: Found, row: int, whole: bool = False) -> str:
        """Hash the texts of a row that is right and readable; the reason to drop it after all, if it overlaps."""
        thinking = response.thinking or ""
        asked, answered = split_folded(question), split_folded(response.summary)
        words = words_of(asked), words_of(thought)
        if self.index is not None:
            for pieces, has in ((asked, words[0]), (thought, words[1]), (answered, None)):
                overlap = overlap_of(self.index, pieces, has or words_of(pieces), question=pieces is asked)
                if overlap is not None:
                    found.notes[row] = f"item {overlap.item}: {overlap.passage[:200]}"
                    return OVERLAP
        found.size[row] = len(question) + len(thinking) + len(response.summary)
        found.thought[row] = short_hash(thinking)
        parts = [whole_hash(asked.hashes), whole_hash(thought.hashes), whole_hash(answered.hashes) if whole else 0]
        found.whole[row] = short_hash(",".join(map(str, parts)))
        if self.config.near_duplicate and not whole:
            import numpy as np

            found.runs[row] = np.concatenate([runs_to_compare(part) for part in words])
        return ""


@dataclass
class LastPieces:
    """Takes a text apart, and keeps the pieces for whoever comes next."""

    pieces: Pieces | None = None

    def __call__(self, text: str) -> Pieces:
        """The pieces of a text, folded."""
        self.pieces = split_folded(text)
        return self.pieces


@dataclass
class Found:
    """What is kept of the texts of a batch: zeros where a row fell before it was read."""

    notes: list[str]
    size: list[int]
    thought: list[int]
    whole: list[int]
    runs: list[Any]

    @classmethod
    def empty(cls, count: int) -> Found:
        """Nothing, for so many rows."""
        return cls([""] * count, [0] * count, [0] * count, [0] * count, [None] * count)


class Lines:
    """The lines of one part, as columns that are made batch by batch."""

    def __init__(self) -> None:
        self.count = 0
        self._batches: list[Any] = []

    def add(self, part: int, batch: Any, reasons: list[str], found: Found, **columns: Any) -> None:
        """One line a row of the batch."""
        import pyarrow

        numbers = pyarrow.array(range(self.count, self.count + batch.num_rows), pyarrow.int64())
        names = ("id", "domain", "language", "source", "checker")
        bands, marks = _likeness(found.runs)
        table = {
            "place": pyarrow.compute.add(numbers, part << 32),
            **{name: batch.column(name) for name in names},
            **columns,
            "reason": reasons, "note": found.notes,
            "size": pyarrow.array(found.size, pyarrow.int64()),
            "thought": pyarrow.array(found.thought, pyarrow.int64()),
            "whole": pyarrow.array(found.whole, pyarrow.int64()),
            "bands": bands, "marks": marks,
        }  # fmt: skip
        self._batches.append(pyarrow.table(table, schema=_schema()))
        self.count += batch.num_rows

    def table(self) -> Any:
        """All lines."""
        import pyarrow

        return pyarrow.concat_tables(self._batches) if self._batches else _schema().empty_table()


def _schema() -> Any:
    import pyarrow

    from r1pipe.data.likeness import BANDS, PERMUTATIONS

    text, number = pyarrow.string(), pyarrow.int64()
    columns = {
        "place": number, "id": text, "domain": text, "language": text, "source": text, "checker": text, "sample": number,
        "tokens": number, "verdict": text, "judged": text, "reason": text, "note": text, "size": number, "thought": number,
        "whole": number, "bands": pyarrow.binary(BANDS * 8), "marks": pyarrow.binary(PERMUTATIONS),
    }  # fmt: skip
    return pyarrow.schema(list(columns.items()))


def _likeness(runs: list[Any]) -> tuple[Any, Any]:
    """(bands, marks) as columns of bytes; null for rows without runs."""
    import pyarrow

    from r1pipe.data.likeness import BANDS, PERMUTATIONS, bands_of, marks_of, signatures

    rows = [row for row, part in enumerate(runs) if part is not None and len(part)]
    bands: list[bytes | None] = [None] * len(runs)
    marks: list[bytes | None] = [None] * len(runs)
    if rows:
        found = signatures([runs[row] for row in rows])
        for row, band, mark in zip(rows, bands_of(found), marks_of(found), strict=True):
            bands[row], marks[row] = band.tobytes(), mark.tobytes()
    return pyarrow.array(bands, pyarrow.binary(BANDS * 8)), pyarrow.array(marks, pyarrow.binary(PERMUTATIONS))


def batches(source: Path, columns: tuple[str, ...]) -> Iterator[Any]:
    """Batches of some columns of a part, decoded as they are needed."""
    with open_part(source) as file:
        yield from file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns))


def _rows(batch: Any, rows: Any, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The texts of some rows of a batch."""
    import pyarrow

    picked = batch.take(pyarrow.array(list(rows), pyarrow.int64()))
    return zip(*(picked.column(name).to_pylist() for name in columns), strict=True)


def _language(scores: str) -> float | None:
    pair = json.loads(scores).get("language")
    return None if pair is None else pair[0]


def short_hash(text: str) -> int:
    """A signed 64-bit hash of a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)


def is_read(target: Path, number: int, rows: int) -> bool:
    """Whether a part's lines are on disk, all of them."""
    from r1pipe.data.tables import part_rows

    return part_path(target, number).is_file() and part_rows(part_path(target, number)) == rows
