"""Cutting cleaned text at its top level: outside all brackets and upright words."""

from __future__ import annotations

import re

from r1pipe.rewards.maths.clean import GAP, TEXT_CLOSE, TEXT_OPEN

OPENING, CLOSING = "([{", ")]}"
_JOINING = ("and", "or", "und", "oder", "et", "ou", "или", "和", "或", "与", "及")
_JOINER = re.compile(
    rf"\s*(?:,\s*)?(?:{TEXT_OPEN}\s*)?(?:,\s*)?\b(and|or|und|oder|et|ou|или)\b(?:\s*{TEXT_CLOSE})?\s*|\s*{TEXT_OPEN}?\s*(和|或|与|及|以及|或者)\s*{TEXT_CLOSE}?\s*"
)


def split_list(source: str) -> tuple[list[str], str]:
    """Parts between top-level commas, semicolons and the words and/or; and what joined them."""
    words = _JOINER.search(source) if any(word in source for word in _JOINING) else None
    joiner = ","
    if words and _JOINER.sub("", source).strip():
        pieces = _split_words(source)
        if len(pieces) > 1:
            joiner = "or" if (words.group(1) or words.group(2)) in ("or", "oder", "o", "ou", "или", "或", "或者") else "and"
        parts = [part for piece in pieces for part in split_top(piece, ";,")]
        parts = [part for part in parts if part.strip()] if len(pieces) > 1 else parts
    else:
        parts = split_top(source, ";,")
    return [part.strip(f" {GAP}") for part in parts], joiner


def _split_words(source: str) -> list[str]:
    """Pieces between top-level joining words."""
    pieces, start = [], 0
    for match in _JOINER.finditer(source):
        before = source[: match.start()]
        if sum(before.count(c) for c in OPENING) == sum(before.count(c) for c in CLOSING):
            pieces.append(source[start : match.start()])
            start = match.end()
    return [piece for piece in (*pieces, source[start:]) if piece.strip()]


def split_top(source: str, separators: str) -> list[str]:
    """Parts between separators that stand outside all brackets and upright words."""
    if not any(separator in source for separator in separators):
        return [source]
    parts, level, start, in_text = [], 0, 0, False
    for index, character in enumerate(source):
        in_text = (in_text or character == TEXT_OPEN) and character != TEXT_CLOSE
        level += (character in OPENING) - (character in CLOSING)
        if level == 0 and not in_text and character in separators:
            parts.append(source[start:index])
            start = index + 1
    return [*parts, source[start:]]


def closes_at(source: str, start: int) -> int:
    """Where the bracket at `start` closes, any bracket closing any; -1 when it does not."""
    level = 0
    for index in range(start, len(source)):
        level += (source[index] in OPENING) - (source[index] in CLOSING)
        if level == 0:
            return index
    return -1
