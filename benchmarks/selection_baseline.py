"""The filters of the selection as functions of one row, for `datasets.map` and `filter`: plain Python's, and r1pipe's own."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from r1pipe.data.chat import split_response
from r1pipe.data.likeness import BANDS, PERMUTATIONS, bands_of, marks_of, runs_to_compare, signatures, similarity
from r1pipe.data.overlap import build_index, find_overlap, words_of
from r1pipe.data.pieces import split_folded
from r1pipe.rewards.readability import code_blocks, has_long_paragraph, loop_pieces, repetition_share
from r1pipe.rewards.words import split_words

Row = dict[str, Any]
PIECE = re.compile(r"[^\W_]{1,24}|[^\w\s]")
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


@dataclass(frozen=True)
class Tests:
    """One way to write the filters."""

    split: Callable[[Row], Row]
    filters: dict[str, Callable[[Row], bool]]
    index: Callable[[list[str]], Any]
    overlaps: Callable[[Any, Row], bool]
    signature: Callable[[Row], Row]


def split(row: Row) -> Row:
    response = split_response(row["prefix"] + row["completion"])
    return {"thinking": response.thinking or "", "summary": response.summary, "faults": len(response.faults)}


def plain_paragraph(row: Row) -> bool:
    return max(sum(word.units for word in split_words(part)) for part in re.split(r"\n\s*\n", row["thinking"])) <= 600


def plain_loop(row: Row) -> bool:
    tail = PIECE.findall(row["thinking"].lower())[-4000:]
    for period in range(1, min(200, len(tail) // 4) + 1):
        length = period
        while length < len(tail) and tail[-length - 1] == tail[-length - 1 + period]:
            length += 1
        if length >= 4 * period and length >= 12:
            return False
    return True


def plain_repetition(row: Row) -> bool:
    pieces = PIECE.findall(row["thinking"].lower())
    total = len(pieces) - 11
    return total < 1 or 1 - len({tuple(pieces[place : place + 12]) for place in range(total)}) / total <= 0.3


def words(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def runs(text: str, size: int) -> set[str]:
    found = words(text)
    return {" ".join(found[place : place + size]) for place in range(len(found) - size + 1)}


def plain_index(texts: list[str]) -> set[str]:
    counts = Counter(run for text in texts for run in runs(text, 10))
    return {run for run, count in counts.items() if count <= 3}


def plain_overlaps(known: set[str], row: Row) -> bool:
    return any(not known.isdisjoint(runs(row[name], 10)) for name in ("question", "thinking", "summary"))


def plain_signature(row: Row) -> Row:
    from rensa import RMinHash

    found = RMinHash(num_perm=PERMUTATIONS, seed=1)
    found.update(list(runs(row["question"], 5) | runs(row["thinking"], 5)))
    return kept(found.digest())


def own_signature(row: Row) -> Row:
    import numpy as np

    parts = [runs_to_compare(words_of(split_folded(row[name]))) for name in ("question", "thinking")]
    return kept(signatures([np.concatenate(parts)])[0])


def kept(digest: Any) -> Row:
    import numpy as np

    found = np.array([digest], dtype=np.uint32)
    return {"bands": bands_of(found)[0].view(np.int64).tolist(), "marks": marks_of(found)[0].tobytes()}


PLAIN = Tests(
    split,
    {
        "format": lambda row: not row["faults"],
        "paragraphs": plain_paragraph,
        "code": lambda row: not re.search(r"^[ \t]*(?:```|~~~)", row["thinking"], re.MULTILINE),
        "loops": plain_loop,
        "repetition": plain_repetition,
    },
    plain_index, plain_overlaps, plain_signature,
)  # fmt: skip
OWN = Tests(
    split,
    {
        "format": lambda row: not row["faults"],
        "paragraphs": lambda row: not has_long_paragraph(row["thinking"], 600),
        "code": lambda row: code_blocks(row["thinking"]) == 0,
        "loops": lambda row: not loop_pieces(row["thinking"]),
        "repetition": lambda row: repetition_share(row["thinking"]) <= 0.3,
    },
    build_index,
    lambda known, row: any(
        find_overlap(known, row[name], question=name == "question") is not None for name in ("question", "thinking", "summary")
    ),
    own_signature,
)  # fmt: skip


def deduplicate(rows: Any) -> Any:
    """The rows in the order of problems and lengths without copies, one a problem."""
    import numpy as np

    names, tokens, bands = rows["id"], rows["tokens"], rows["bands"]
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        first.setdefault(name, place)
    order = sorted(range(len(rows)), key=lambda place: (first[names[place]], tokens[place], place))
    marks = [np.frombuffer(mark, dtype=np.uint8) for mark in rows["marks"]]
    buckets: dict[tuple[int, int], list[int]] = {}
    taken: set[str] = set()
    chosen = []
    for place in order:
        if names[place] in taken:
            continue
        keys = [(number, bands[place][number]) for number in range(BANDS)]
        near = {other for key in keys for other in buckets.get(key, ())}
        if any(similarity(marks[place], marks[other]) >= 0.8 for other in near):
            continue
        taken.add(names[place])
        chosen.append(place)
        for key in keys:
            buckets.setdefault(key, []).append(place)
    return rows.select(chosen)
