"""Texts as arrays of numbers: words, numbers, signs and single Han characters and kana, each with a 64-bit hash.

Repetition, overlap with evaluation sets and likeness to other texts all count runs of such pieces. Selection reads hundreds of
thousands of long texts, so the work is done on arrays: a text becomes code points, code points become kinds, pieces are found
where the kind changes, and a piece's hash is a difference of two sums over the whole text. Equal pieces have equal hashes on
every machine and in every process.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any, NamedTuple

CHARACTER_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "Kana": ((0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
    "Han": ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)),
}
"""Scripts in which each character is a piece of its own."""
LONGEST_RUN = 24
"""Letters and digits in a row beyond this many begin a new piece."""
NOTHING, RUN, SIGN, CHARACTER = range(4)
"""Kinds of code points: between pieces (spaces and underscores), part of a run, a sign, a character that stands alone."""
_LIMIT = 0x32400  # every code point above is a sign
_BASE = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_COMMA, _DOLLAR = 0x2C, 0x24


class Pieces(NamedTuple):
    """The pieces of a text, in order.

    Attributes:
        hashes: (pieces,) uint64.
        kinds: (pieces,) uint8, RUN, SIGN or CHARACTER.
        starts, ends: (pieces,) intp, places in `codes`.
        codes: (code points,) the text.
    """

    hashes: Any
    kinds: Any
    starts: Any
    ends: Any
    codes: Any

    def text(self, first: int, last: int) -> str:
        """The text from one piece to another, both included."""
        return "".join(map(chr, self.codes[int(self.starts[first]) : int(self.ends[last])].tolist()))


@cache
def _kinds() -> Any:
    """Code point -> kind; the last entry is for all beyond the table."""
    import numpy as np

    table = np.full(_LIMIT + 1, SIGN, dtype=np.uint8)
    for point in range(_LIMIT):
        character = chr(point)
        if character.isalnum():
            table[point] = RUN
        elif character == "_" or character.isspace():
            table[point] = NOTHING
    for ranges in CHARACTER_RANGES.values():
        for low, high in ranges:
            table[low : high + 1] = CHARACTER
    return table


@cache
def _powers(size: int) -> tuple[Any, Any]:
    """(powers of the base, powers of its inverse) modulo 2^64, `size` of each."""
    import numpy as np

    result = []
    for base in (_BASE, pow(_BASE, -1, 1 << 64)):
        powers = np.ones(1, dtype=np.uint64)
        while len(powers) < size:
            powers = np.concatenate([powers, powers * np.uint64(pow(base, len(powers), 1 << 64))])
        result.append(powers[:size])
    return result[0], result[1]


def _powers_for(size: int) -> tuple[Any, Any]:
    """At least `size` powers; tables are kept, and as long as the next power of two."""
    return _powers(1 << max(14, (size - 1).bit_length()))


def mixed(values: Any) -> Any:
    """Hashes whose every bit depends on every bit of the values (uint64)."""
    import numpy as np

    values = (values ^ (values >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _sums(values: Any) -> tuple[Any, Any]:
    """(sums of values × powers up to each place, inverse powers): what hashes of stretches are differences of."""
    import numpy as np

    powers, inverses = _powers_for(len(values) + 1)
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values * powers[: len(values)], out=sums[1:])
    return sums, inverses


def runs_of(hashes: Any, size: int) -> Any:
    """(pieces − size + 1,) uint64: a hash of each run of `size` pieces; empty when there are fewer."""
    import numpy as np

    count = len(hashes) - size + 1
    if count < 1:
        return np.zeros(0, dtype=np.uint64)
    sums, inverses = _sums(hashes)
    return (sums[size:] - sums[:-size]) * inverses[:count]  # a sum of hashes that are mixed already


def length_mark(size: int) -> int:
    """What tells the hash of a whole text of `size` pieces from the hash of a run."""
    return size * _BASE & _WORD


def whole_hash(hashes: Any) -> int:
    """One hash of all pieces in their order; their number is part of it. 0 for none."""
    return int(runs_of(hashes, len(hashes))[0]) ^ length_mark(len(hashes)) if len(hashes) else 0


def split(text: str) -> Pieces:
    """The pieces of a text as it is; callers fold case first."""
    import numpy as np

    if text.isascii():
        codes = np.frombuffer(text.encode(), dtype=np.uint8)
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return split_codes(codes)


def split_codes(codes: Any) -> Pieces:
    """The pieces of a text given as code points."""
    import numpy as np

    kinds = _kinds().take(codes, mode="clip")
    run = kinds == RUN
    inner = run[1:] & run[:-1]
    begins = kinds != NOTHING
    begins[1:] &= ~inner
    starts = np.flatnonzero(begins)
    ends = starts + 1
    last = run.copy()
    last[:-1] &= ~run[1:]
    found = kinds[starts]
    ends[found == RUN] = np.flatnonzero(last) + 1
    if len(starts) and int((ends - starts).max()) > LONGEST_RUN:
        starts, ends = _cut_long_runs(starts, ends)
        found = kinds[starts]
    sums, inverses = _sums(codes.astype(np.uint64) + np.uint64(1))
    return Pieces(mixed((sums[ends] - sums[starts]) * inverses[starts]), found, starts, ends, codes)


def _cut_long_runs(starts: Any, ends: Any) -> tuple[Any, Any]:
    import numpy as np

    parts = -(-(ends - starts) // LONGEST_RUN)
    which = np.repeat(np.arange(len(starts)), parts)
    within = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins = starts[which] + within * LONGEST_RUN
    return begins, np.minimum(begins + LONGEST_RUN, ends[which])


def split_folded(text: str) -> Pieces:
    """The pieces of a text without differences of case, width and spelling of numbers: full-width forms become plain ones,
    1,000 becomes 1000, dollars around formulas are spaces, and signs that mean the same (− and -, × and ·) become one."""
    import numpy as np

    if text.isascii():
        codes = np.frombuffer(text.lower().encode(), dtype=np.uint8)
    else:
        plain = unicodedata.normalize("NFKC", text).casefold()
        codes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        codes = _with_plain_signs(codes)
    return split_codes(_without_grouping(np.where(codes == _DOLLAR, codes.dtype.type(0x20), codes)))


_PLAIN_SIGNS = {0x2212: 0x2D, 0x2010: 0x2D, 0x2013: 0x2D, 0xD7: 0x2A, 0xB7: 0x2A, 0x22C5: 0x2A, 0xF7: 0x2F, 0x2215: 0x2F}


def _with_plain_signs(codes: Any) -> Any:
    import numpy as np

    odd = np.flatnonzero((codes > 0x7F) & (codes < 0x2300))
    for place in odd.tolist():
        plain = _PLAIN_SIGNS.get(int(codes[place]))
        if plain is not None:
            if not codes.flags.writeable:
                codes = codes.copy()
            codes[place] = plain
    return codes


def _without_grouping(codes: Any) -> Any:
    """The code points without commas between groups of three digits."""
    import numpy as np

    commas = np.flatnonzero(codes == _COMMA)
    commas = commas[(commas > 0) & (commas + 3 < len(codes))]
    if not len(commas):
        return codes

    def digit(places: Any) -> Any:
        inside = places < len(codes)
        found = codes[np.minimum(places, len(codes) - 1)]
        return inside & (found >= 0x30) & (found <= 0x39)

    commas = commas[digit(commas - 1) & digit(commas + 1)]
    grouping = commas[digit(commas + 2) & digit(commas + 3) & ~digit(commas + 4)]
    return np.delete(codes, grouping) if len(grouping) else codes
