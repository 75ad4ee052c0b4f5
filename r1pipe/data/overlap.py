"""Overlap with evaluation sets: which text shares a passage with one of theirs.

The paper drops what shares ten words in a row with an evaluation question or a reference solution (D.1). What counts here:

- Words are runs of letters and digits, and single characters in Chinese and Japanese, after folding case, width, spacing and
  punctuation. A sign before a number or a single letter belongs to it, so that 3 + 5 is not 3 - 5.
- A run of ten counts when at least three of its words are words of a language (an identity such as a² + b² = c² is nobody's
  question), when no more than three evaluation items have it (what more have is the wording of a kind of question), and, in an
  item with numbers, when it has a number.
- In an item with several numbers two of them must be shared: problems of one wording with one number in common are not one.
- An item that has no such run, because it is short or is all formulas, is compared whole: with the whole question, and from
  five words on with any stretch of the question.

An index is built once from the texts of the evaluation sets; asking it reads no text of theirs. Every step that drops or counts
such rows asks here: `prepare`, its preview and the selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from r1pipe.data.pieces import CHARACTER, RUN, SIGN, Pieces, length_mark, mixed, runs_of, split_folded, whole_hash

OVERLAP = "overlaps an evaluation item"
"""The reason of a row that is dropped for it."""
WORDS = 10
"""Words in a row (the paper, D.1)."""
COMMON = 3
"""A run in more items than this is a common phrase, and no sign of overlap."""
LEAST_LANGUAGE_WORDS = 3
NUMBERS = 2
"""Numbers that must be shared with an item that has so many."""
LEAST_INSIDE = 5
"""A short item of at least this many words is also looked for inside a question; a shorter one must be the whole question."""
ANSWERING = ("thinking", "summary", "response", "chosen", "rejected")
"""Columns of any table in which something is said to the question."""
_SIGNS = "+-*/=<>^"
_BACKSLASH = 0x5C
_FILTER_BITS = 22


class Words(NamedTuple):
    """The words of a text as overlap counts them.

    Attributes:
        hashes: (words,) uint64, a preceding operator included where it matters.
        language: (words,) bool, a word of a language: two letters or more and no LaTeX command, or a character of Chinese or
            Japanese.
        numbers: (words,) bool, begins with a digit.
        places: (words,) intp, the word's number among the text's pieces.
    """

    hashes: Any
    language: Any
    numbers: Any
    places: Any


class Overlap(NamedTuple):
    """A passage that a text shares with an evaluation item: the item's number, and the passage, folded."""

    item: int
    passage: str


@dataclass(frozen=True)
class OverlapIndex:
    """The passages of evaluation items that count.

    Attributes:
        words: words in a row.
        windows: (windows,) uint64, sorted: hashes of runs.
        owners: (windows, most) int32: the items that have each, -1 where there are fewer.
        numbers: (items,) numbers in an item's runs that a text must share, 0 to 2.
        short: number of words -> {hash of a whole short item: the item}.
        whole: {hash of a whole item: the item}.
        sieve: (2^22,) bool, which low bits of hashes occur at all: most runs of a text are turned away by one look.
        items: how many texts were indexed.
    """

    words: int
    windows: Any
    owners: Any
    numbers: Any
    short: dict[int, dict[int, int]]
    whole: dict[int, int]
    sieve: Any
    items: int


@cache
def _operators() -> Any:
    """Code point -> whether it is an operator; the last entry is for all beyond the table."""
    import numpy as np

    table = np.zeros(129, dtype=bool)
    table[list(_SIGNS.encode())] = True
    return table


def words_of(pieces: Pieces) -> Words:
    """The words of a folded text (see `r1pipe.data.pieces.split_folded`)."""
    import numpy as np

    places = np.flatnonzero(pieces.kinds != SIGN)
    hashes = pieces.hashes[places]
    starts, sizes = pieces.starts[places], pieces.ends[places] - pieces.starts[places]
    first = pieces.codes[starts]
    numbers = (first >= 0x30) & (first <= 0x39)
    runs = pieces.kinds[places] == RUN
    command = pieces.codes[np.maximum(starts, 1) - 1] == _BACKSLASH  # of LaTeX
    language = (runs & (sizes > 1) & ~numbers & ~command) | (pieces.kinds[places] == CHARACTER)
    touchy = np.flatnonzero((numbers | (runs & (sizes == 1))) & (places > 0))
    before = places[touchy] - 1
    signed = touchy[_operators().take(pieces.codes[pieces.starts[before]], mode="clip") & (pieces.kinds[before] == SIGN)]
    hashes[signed] = mixed(hashes[signed] + pieces.hashes[places[signed] - 1] * np.uint64(3))
    return Words(hashes, language, numbers, places)


def _countable(words: Words, size: int) -> Any:
    """(runs,) bool: which runs of an item count."""
    import numpy as np

    def inside(marks: Any) -> Any:
        sums = np.concatenate([[0], np.cumsum(marks)])
        return sums[size:] - sums[:-size]

    if len(words.hashes) < size:
        return np.zeros(0, dtype=bool)
    counts = inside(words.language) >= LEAST_LANGUAGE_WORDS
    return counts & (inside(words.numbers) > 0) if words.numbers.any() else counts


def item_texts(row: Mapping[str, Any], words: int = WORDS) -> Iterator[str]:
    """What counts of an evaluation row: its question, and its solution and answer where they are long enough to be known by."""
    yield row["question"]
    for text in dict.fromkeys((row.get("solution") or "", row["answer"])):  # tables of older runs have no solutions
        if len(words_of(split_folded(text)).hashes) >= words:
            yield text


def build_index(texts: Iterable[str], words: int = WORDS, common: int = COMMON) -> OverlapIndex:
    """An index of evaluation items: questions and worked solutions, one text each; bare answers do not belong here.

    Args:
        texts: one evaluation item each; copies of an item count once. Empty texts are numbered and ignored.
        words: words in a row that make an overlap.
        common: runs that stand in more items than this do not.
    """
    import numpy as np

    seen: dict[int, int] = {}
    runs, owners = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int32)]
    numbers: list[int] = []
    spare: list[tuple[int, int, int]] = []  # item, words, hash
    where: list[tuple[Any, Any]] = []  # places of its runs, which of its words are numbers
    for item, text in enumerate(texts):
        found = words_of(split_folded(text))
        numbers.append(0)
        key = whole_hash(found.hashes)
        if not key or seen.setdefault(key, item) != item:
            continue
        places = np.flatnonzero(_countable(found, words))
        windows, first = np.unique(runs_of(found.hashes, words)[places], return_index=True)
        spare.append((item, len(found.hashes), key))
        where.append((places[first], found.numbers))
        runs.append(windows)
        owners.append(np.full(len(windows), item, dtype=np.int32))
    every, owner = np.concatenate(runs), np.concatenate(owners)
    order = np.argsort(every, kind="stable")
    every, owner = every[order], owner[order]
    kept, first, times = np.unique(every, return_index=True, return_counts=True)
    rare = times <= common
    windows, first, times = kept[rare], first[rare], times[rare]
    table = np.full((len(windows), common), -1, dtype=np.int32)
    for place in range(common):
        table[times > place, place] = owner[first[times > place] + place]
    covered = set(table[table >= 0].tolist())
    short: dict[int, dict[int, int]] = {}
    whole: dict[int, int] = {}
    for (item, count, key), (places, digits), own in zip(spare, where, runs[1:], strict=True):
        whole[key] = item
        if item in covered:
            known = places[np.isin(own, windows, assume_unique=True)]
            inside = np.zeros(len(digits), dtype=bool)
            inside[(known[:, None] + np.arange(words)).ravel()] = True
            numbers[item] = min(NUMBERS, int(np.count_nonzero(inside & digits)))
        elif LEAST_INSIDE <= count <= words:
            short.setdefault(count, {})[key] = item
    sieve = np.zeros(1 << _FILTER_BITS, dtype=bool)
    sieve[(windows & np.uint64((1 << _FILTER_BITS) - 1)).astype(np.intp)] = True
    return OverlapIndex(words, windows, table, np.array(numbers, dtype=np.int64), short, whole, sieve, len(numbers))


def find_overlap(index: OverlapIndex, text: str, *, question: bool = True) -> Overlap | None:
    """The first passage of a text that stands in an evaluation item; None when there is none.

    Args:
        question: whether the text is a question, and so is compared with short items too; an answer that contains "2 + 2" is
            not a copy of the item that asks for it.
    """
    pieces = split_folded(text)
    return overlap_of(index, pieces, words_of(pieces), question=question)


def row_overlap(index: OverlapIndex, row: Mapping[str, Any]) -> Overlap | None:
    """The first passage of a row of any table that stands in an evaluation item: in its question, or in what is said to it."""
    texts = [("question", row["question"]), *((name, row[name]) for name in ANSWERING if row.get(name))]
    return next((found for name, text in texts if (found := find_overlap(index, text, question=name == "question"))), None)


def overlap_of(index: OverlapIndex, pieces: Pieces, words: Words, *, question: bool) -> Overlap | None:
    """`find_overlap` for a text that was split before."""
    import numpy as np

    if question and (key := whole_hash(words.hashes)) in index.whole:
        return Overlap(index.whole[key], pieces.text(int(words.places[0]), int(words.places[-1])))
    if (found := _shared_run(index, words)) is not None:
        item, place = found
        return Overlap(item, _passage(pieces, words, place, index.words))
    if question:
        for size, items in index.short.items():
            for place, run in enumerate((runs_of(words.hashes, size) ^ np.uint64(length_mark(size))).tolist()):
                if run in items:
                    return Overlap(items[run], _passage(pieces, words, place, size))
    return None


def _shared_run(index: OverlapIndex, words: Words) -> tuple[int, int] | None:
    """(item, place of the run) of the first item that shares enough; None without one."""
    import numpy as np

    runs = runs_of(words.hashes, index.words)
    near = np.flatnonzero(index.sieve[(runs & np.uint64((1 << _FILTER_BITS) - 1)).astype(np.intp)])
    if not len(near) or not len(index.windows):
        return None
    at = np.minimum(np.searchsorted(index.windows, runs[near]), len(index.windows) - 1)
    hits = np.flatnonzero(index.windows[at] == runs[near])
    shared: dict[int, tuple[int, set[int]]] = {}
    for hit in hits.tolist():
        place = int(near[hit])
        numbers = {place + number for number in np.flatnonzero(words.numbers[place : place + index.words]).tolist()}
        for item in index.owners[at[hit]].tolist():
            if item >= 0:
                begun, known = shared.setdefault(item, (place, set()))
                known |= numbers
                if len(known) >= index.numbers[item]:
                    return item, begun
    return None


def _passage(pieces: Pieces, words: Words, place: int, size: int) -> str:
    return pieces.text(int(words.places[place]), int(words.places[place + size - 1]))
