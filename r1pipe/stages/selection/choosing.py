"""The choice among rows that are right and readable: at most some of a problem, no copies, the mix of domains, the order.

DuckDB sorts the narrow lines of the first pass (and spills what does not fit into its share of memory); the choice itself is one
walk through them in rank order: problems in the order of their first usable attempt, attempts shortest first. What is kept and
where it stands in the selection follow from the settings and the seed alone.
"""

from __future__ import annotations

import glob
import os
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1pipe.stages.selection.reading import ATTEMPTS, GENERAL
from r1pipe.stages.selection.settings import DOMAIN_OF_CHECKER, GENERAL_PART, SelectConfig

SAME, NEAR_OF_PROBLEM = "same thinking as another of the problem", "near copy of another of the problem"
DUPLICATE, NEAR = "duplicate of another row", "near copy of another row"
NO_PART, OVER_SHARE = "no part of the mix", "over the share of general rows"
RANKED, DECIDED = "ranked.parquet", "decided.parquet"
_MEMORY = "400MB"


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        kinds: ATTEMPTS or GENERAL -> (place, position) int64 of each chosen row, by place.
        kept, general: numbers of rows. bytes: characters of all chosen rows, about.
        mix: domain -> {"wanted", "found", "taken"}; empty without a mix.
    """

    kinds: dict[str, tuple[Any, Any]]
    kept: int
    general: int
    size: int
    mix: dict[str, dict[str, int]]

    @property
    def rows(self) -> int:
        """Rows of the selection."""
        return self.kept + self.general


def connect(work: Path, threads: int) -> Any:
    """A DuckDB that keeps to its share of memory and spills into the step's own folder."""
    import duckdb

    spill = str(work / "spill")
    return duckdb.connect(config={"memory_limit": _MEMORY, "threads": threads, "temp_directory": spill})


def lines_of(work: Path, kind: str) -> str:
    """The lines of a kind, as a table in SQL."""
    return f"read_parquet('{quoted(glob.escape(str(work / kind)))}/part-*.parquet')"


def file_of(path: Path) -> str:
    """One Parquet file, as a table in SQL."""
    return f"read_parquet('{quoted(glob.escape(str(path)))}')"


def quoted(text: str) -> str:
    """Text inside quotes in SQL."""
    return text.replace("'", "''")


def choose(connection: Any, work: Path, config: SelectConfig, seed: int) -> Choice:
    """Choose among the rows that the first pass left, and write each one's reason or its place in the selection."""
    import numpy as np

    ranked = rank(connection, work)
    order = {name: ranked.column(name).to_numpy() for name in ("place", "problem", "size", "thought", "whole")}
    pairs = _pairs(work, len(order["place"]), config.near_duplicate)
    reasons = walk(order["problem"], order["thought"], order["whole"], pairs, config)
    kept = np.flatnonzero(np.array([not reason for reason in reasons], dtype=bool))
    wanted = config.wanted()
    parts = part_of(ranked.column("domain").to_pylist(), ranked.column("checker").to_pylist(), wanted) if wanted else []
    kept, mix = by_mix(kept, order["problem"], order["place"], parts, wanted, reasons, seed)
    general = connection.sql(f"SELECT place, size, whole, reason FROM {lines_of(work, GENERAL)} ORDER BY place").to_arrow_table()
    others, other_reasons = choose_general(general, general_number(len(kept), config), seed)
    if GENERAL_PART in wanted:
        found = sum(not reason or reason == OVER_SHARE for reason in other_reasons)
        mix[GENERAL_PART] = {"wanted": wanted[GENERAL_PART], "found": found, "taken": len(others)}
    positions = np.empty(len(kept) + len(others), dtype=np.int64)
    positions[np.frombuffer(shuffled(len(positions), f"order {seed}"), dtype=np.int64)] = np.arange(len(positions))
    places = general.column("place").to_numpy()
    kinds = {
        ATTEMPTS: _by_place(order["place"][kept], positions[: len(kept)]),
        GENERAL: _by_place(places[others], positions[len(kept) :]),
    }
    _write_decided(work, ATTEMPTS, order["place"], reasons, kinds[ATTEMPTS])
    _write_decided(work, GENERAL, places, other_reasons, kinds[GENERAL])
    size = int(order["size"][kept].sum()) + int(general.column("size").to_numpy()[others].sum())
    return Choice(kinds, len(kept), len(others), size, mix)


def rank(connection: Any, work: Path) -> Any:
    """The lines of usable rows in rank order: on disk with everything, and in memory what the walk looks at."""
    import pyarrow.parquet

    target = work / RANKED
    connection.execute(
        f"""COPY (
            SELECT place, min(place) OVER (PARTITION BY id) AS problem, size, thought, whole, domain, checker, bands, marks
            FROM {lines_of(work, ATTEMPTS)} WHERE reason = '' ORDER BY problem, tokens, sample, place
        ) TO '{quoted(str(target))}' (FORMAT parquet, COMPRESSION zstd)"""
    )
    columns = ["place", "problem", "size", "thought", "whole", "domain", "checker"]
    return pyarrow.parquet.read_table(target, columns=columns, read_dictionary=["domain", "checker"])


def _pairs(work: Path, count: int, least: float) -> tuple[Any, Any, Any]:
    """(later, earlier, marks): pairs of near copies by rank, and the marks of every row, on disk."""
    import numpy as np
    import pyarrow.parquet

    from r1pipe.data.likeness import BANDS, PERMUTATIONS, near_pairs
    from r1pipe.data.pieces import mixed

    none = np.zeros(0, dtype=np.intp)
    if not least or not count:
        return none, none, None
    bands = _mapped(work / "bands.npy", np.uint64, (count, BANDS))
    marks = _mapped(work / "marks.npy", np.uint8, (count, PERMUTATIONS))
    start = 0
    for batch in pyarrow.parquet.ParquetFile(work / RANKED).iter_batches(batch_size=8192, columns=["bands", "marks"]):
        end = start + batch.num_rows
        known = [
            (row, *pair)
            for row, pair in enumerate(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            if pair[0]
        ]
        bands[start:end] = mixed(np.arange(start, end, dtype=np.uint64))[:, None]  # rows without words are like no other
        marks[start:end] = 0
        if known:
            rows = start + np.array([row for row, _, _ in known])
            bands[rows] = np.frombuffer(b"".join(band for _, band, _ in known), dtype=np.uint64).reshape(-1, BANDS)
            marks[rows] = np.frombuffer(b"".join(mark for _, _, mark in known), dtype=np.uint8).reshape(-1, PERMUTATIONS)
        start = end
    return *near_pairs(lambda number: np.array(bands[:, number]), marks, least), marks


def _mapped(path: Path, kind: Any, shape: tuple[int, int]) -> Any:
    """An array in a new file, whose room on the disk is taken now: a disk that is full is an error here, and would be a signal
    that ends the process where the array is written."""
    import numpy as np

    array = np.lib.format.open_memmap(path, "w+", kind, shape)
    with path.open("rb+") as stream:
        os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    return array


def walk(problems: Any, thoughts: Any, wholes: Any, pairs: tuple[Any, Any, Any], config: SelectConfig) -> list[str]:
    """The reason to drop each row, in rank order; empty for those kept."""
    import numpy as np

    from r1pipe.data.likeness import similarity

    later, earlier, marks = pairs
    bounds = np.searchsorted(later, np.arange(len(problems) + 1)).tolist()
    keep, surplus = config.keep_per_problem, f"more than {config.keep_per_problem} of the problem"
    reasons: list[str] = []
    texts: set[int] = set()
    mine: list[int] = []
    thought_of: set[int] = set()
    now = None
    for row, (problem, thought, whole) in enumerate(zip(problems.tolist(), thoughts.tolist(), wholes.tolist(), strict=True)):
        if problem != now:
            now, mine, thought_of = problem, [], set()
        if thought in thought_of:
            reason = SAME
        elif len(mine) >= keep:
            reason = surplus
        elif mine and marks is not None and (similarity(marks[mine], marks[row]) >= config.near_duplicate).any():
            reason = NEAR_OF_PROBLEM
        elif whole in texts:
            reason = DUPLICATE
        elif any(not reasons[other] for other in earlier[bounds[row] : bounds[row + 1]].tolist()):
            reason = NEAR
        else:
            reason = ""
            mine.append(row)
            thought_of.add(thought)
            texts.add(whole)
        reasons.append(reason)
    return reasons


def part_of(domains: Sequence[str], checkers: Sequence[str], wanted: dict[str, int]) -> list[str]:
    """The part of the mix that each row counts for; empty for none."""
    names = {
        pair: pair[0] if pair[0] in wanted else part if (part := DOMAIN_OF_CHECKER.get(pair[1], "")) in wanted else ""
        for pair in set(zip(domains, checkers, strict=True))
    }
    return [names[pair] for pair in zip(domains, checkers, strict=True)]


def by_mix(
    kept: Any, problems: Any, places: Any, parts: list[str], wanted: dict[str, int], reasons: list[str], seed: int
) -> tuple[Any, dict[str, dict[str, int]]]:
    """The kept rows that the mix has room for (in their order), and what it found; reasons of the others are filled in.

    Room goes to the best row of each problem first, then to the second ones; among equals it is drawn by the seed.
    """
    import numpy as np

    from r1pipe.data.pieces import mixed

    if not wanted:
        return kept, {}
    problem = problems[kept]
    new = np.concatenate([[True], problem[1:] != problem[:-1]])[: len(kept)]
    since = np.maximum.accumulate(np.where(new, np.arange(len(kept)), 0)) if len(kept) else new
    rank_in_problem = np.arange(len(kept)) - since
    drawn = mixed(places[kept].astype(np.uint64) + mixed(np.array([seed + 1], dtype=np.uint64)))
    names = np.array([parts[row] for row in kept.tolist()], dtype=object)
    taken = np.zeros(len(kept), dtype=bool)
    mix: dict[str, dict[str, int]] = {}
    for name, count in wanted.items():
        if name == GENERAL_PART:
            continue
        rows = np.flatnonzero(names == name)
        best = rows[np.lexsort((drawn[rows], rank_in_problem[rows]))][:count]
        taken[best] = True
        mix[name] = {"wanted": count, "found": len(rows), "taken": len(best)}
    for row in np.flatnonzero(~taken).tolist():
        reasons[int(kept[row])] = f"over the mix's number of {names[row]}" if names[row] else NO_PART
    return kept[taken], mix


def general_number(kept: int, config: SelectConfig) -> int:
    """How many general rows go with so many others: their share, or their number in the mix, in proportion to what there is of
    the other parts."""
    wanted = config.wanted()
    if GENERAL_PART not in wanted:
        return round(kept * config.general_share / (1 - config.general_share))
    others = sum(count for name, count in wanted.items() if name != GENERAL_PART)
    return round(wanted[GENERAL_PART] * kept / others) if others else wanted[GENERAL_PART]


def choose_general(general: Any, count: int, seed: int) -> tuple[list[int], list[str]]:
    """(rows in the order drawn, the reason to drop each): so many general rows at most, copies left out."""
    reasons: list[str] = general.column("reason").to_pylist()
    seen: set[int] = set()
    for row, whole in enumerate(general.column("whole").to_pylist()):
        if not reasons[row] and whole in seen:
            reasons[row] = DUPLICATE
        seen.add(whole)
    drawn = [row for row in shuffled(len(reasons), f"select {seed}") if not reasons[row]]
    for row in drawn[count:]:
        reasons[row] = OVER_SHARE
    return drawn[:count], reasons


def shuffled(count: int, seed: str) -> array[int]:
    """The numbers below `count` in an order drawn by the seed."""
    numbers = array("q", range(count))
    random.Random(seed).shuffle(numbers)
    return numbers


def _by_place(places: Any, positions: Any) -> tuple[Any, Any]:
    import numpy as np

    order = np.argsort(places, kind="stable")
    return places[order], positions[order]


def _write_decided(work: Path, kind: str, places: Any, reasons: list[str], chosen: tuple[Any, Any]) -> None:
    """One line a usable row: why it was dropped, or where it stands."""
    import numpy as np
    import pyarrow
    import pyarrow.parquet

    order = np.argsort(places, kind="stable")
    positions = np.full(len(places), -1, dtype=np.int64)
    positions[order[np.searchsorted(places[order], chosen[0])]] = chosen[1]
    columns = {"place": places, "reason": pyarrow.array(reasons, pyarrow.string()), "position": positions}
    pyarrow.parquet.write_table(pyarrow.table(columns), work / f"{kind}-{DECIDED}", compression="zstd")
