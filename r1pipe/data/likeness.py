"""Near copies: which texts share most of their runs of words, found without comparing every pair.

MinHash signatures (by `rensa`) of runs of five words; their bands say which pairs may be alike, and the signatures whether they
are: two signatures agree in as large a share of their values as the texts share of their runs (Jaccard similarity). Case,
width, spacing and punctuation make no difference; another number does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from r1pipe.data.overlap import Words
from r1pipe.data.pieces import mixed, runs_of

RUN_WORDS = 5
"""Words in a row that are compared; a shorter text is compared whole."""
PERMUTATIONS = 128
BANDS = 16
"""Of 8 values each: a pair of similarity 0.8 meets in one band with probability 0.95, of 0.9 with 0.9999, of 0.5 with 0.06."""
_SEED = 1
_PAIRS_AT_ONCE = 200_000
_BY_CHANCE = 1 / 256
"""Share of values that agree by chance when a byte is kept of each."""


def runs_to_compare(words: Words) -> Any:
    """(runs,) uint64: the runs of a text's words; empty for a text without words."""
    return runs_of(words.hashes, min(RUN_WORDS, max(1, len(words.hashes))))


def signatures(runs: Sequence[Any]) -> Any:
    """(texts, PERMUTATIONS) uint32: MinHash signatures of texts given as their runs."""
    import numpy as np
    from rensa import RMinHash

    if not runs:
        return np.zeros((0, PERMUTATIONS), dtype=np.uint32)
    offsets = np.zeros(len(runs) + 1, dtype=np.uint64)
    offsets[1:] = np.cumsum([len(part) for part in runs])
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(runs), offsets, PERMUTATIONS, _SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32)


def bands_of(found: Any) -> Any:
    """(texts, BANDS) uint64: one hash a band; texts that are alike have one in common."""
    import numpy as np

    width = PERMUTATIONS // BANDS // 2
    pairs = np.ascontiguousarray(found).view(np.uint64).reshape(len(found), BANDS, width)
    result = np.zeros((len(found), BANDS), dtype=np.uint64)
    for place in range(width):
        result = mixed(result ^ pairs[:, :, place])
    return result


def marks_of(found: Any) -> Any:
    """(texts, PERMUTATIONS) uint8: what is kept of signatures to tell how much two agree."""
    import numpy as np

    return (found & np.uint32(0xFF)).astype(np.uint8)


def similarity(one: Any, other: Any) -> Any:
    """(pairs,) float: how alike texts are, from their marks; 1.0 for the same runs."""
    import numpy as np

    agree = np.count_nonzero(one == other, axis=-1) / PERMUTATIONS
    return np.maximum(0.0, (agree - _BY_CHANCE) / (1 - _BY_CHANCE))


def near_pairs(band: Callable[[int], Any], marks: Any, least: float) -> tuple[Any, Any]:
    """Pairs of texts that are alike, each as (the later, the earlier), sorted.

    In each band a text is held against the first with the same hash and against the one before it: of many copies of one text
    all are found, and no bucket makes a number of pairs that grows with its square.

    Args:
        band: the hashes of a band, by its number; one band is in memory at a time.
        marks: (texts, PERMUTATIONS) uint8, may lie on disk.
        least: similarity from which two are alike.
    """
    import numpy as np

    candidates = np.zeros(0, dtype=np.uint64)
    for number in range(BANDS):
        hashes = band(number)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        begins = np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)]
        firsts = order[np.flatnonzero(begins)][np.cumsum(begins) - 1] if len(hashes) else order
        later = np.flatnonzero(~begins)
        found = [(order[later], firsts[later]), (order[later], order[later - 1])]
        coded = [one.astype(np.uint64) << np.uint64(32) | other.astype(np.uint64) for one, other in found]
        candidates = np.unique(np.concatenate([candidates, *coded]))
    kept = [np.zeros(0, dtype=np.uint64)]
    for start in range(0, len(candidates), _PAIRS_AT_ONCE):
        part = candidates[start : start + _PAIRS_AT_ONCE]
        later, earlier = (part >> np.uint64(32)).astype(np.intp), (part & np.uint64(0xFFFFFFFF)).astype(np.intp)
        kept.append(part[similarity(marks[later], marks[earlier]) >= least])
    pairs = np.concatenate(kept)
    return (pairs >> np.uint64(32)).astype(np.intp), (pairs & np.uint64(0xFFFFFFFF)).astype(np.intp)
