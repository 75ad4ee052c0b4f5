"""Small plots for a terminal: a sparkline in one row, and a line plot in braille dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from r1pipe.console import value

if TYPE_CHECKING:
    from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column of its dot."""


def finite(values: Sequence[float | None]) -> list[float]:
    """The values that are numbers."""
    return [float(number) for number in values if number is not None and math.isfinite(number)]


def squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: means of neighbouring ones; None where all of them are missing."""
    if len(values) <= width:
        return [number if number is not None and math.isfinite(number) else None for number in values]
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    bins = [finite(values[start:end]) for start, end in pairwise(edges)]
    return [fmean(numbers) if numbers else None for numbers in bins]


def spark(values: Sequence[float | None], width: int, low: float | None = None, high: float | None = None) -> str:
    """One row of blocks; a gap where a value is missing.

    Args:
        low, high: the scale; by default the smallest and largest value.
    """
    squeezed = squeeze(values, width)
    known = finite(squeezed)
    if not known:
        return ""
    bottom, top = min(known) if low is None else low, max(known) if high is None else high
    span = top - bottom
    return "".join(
        " " if number is None else BLOCKS[min(7, max(0, int((number - bottom) / span * 7.999)))] if span > 0 else BLOCKS[3]
        for number in squeezed
    )


def braille(values: Sequence[float | None], width: int, height: int, low: float, high: float) -> list[str]:
    """A line through the values, `width` × `height` characters of 2 × 4 dots each, top row first."""
    squeezed = squeeze(values, width * 2)
    columns, rows = width * 2, height * 4
    cells = [[0] * width for _ in range(height)]
    span = high - low or 1.0

    def dot(x: int, y: int) -> None:
        row = rows - 1 - y
        cells[row // 4][x // 2] |= DOTS[row % 4][x % 2]

    before: tuple[int, int] | None = None
    for index, number in enumerate(squeezed):
        if number is None:
            before = None
            continue
        x = round(index * (columns - 1) / max(1, len(squeezed) - 1))
        y = min(rows - 1, max(0, round((number - low) / span * (rows - 1))))
        if before is not None:
            reach = max(abs(x - before[0]), abs(y - before[1]))
            for part in range(1, reach):
                dot(before[0] + round((x - before[0]) * part / reach), before[1] + round((y - before[1]) * part / reach))
        dot(x, y)
        before = (x, y)
    return ["".join(chr(0x2800 + bits) for bits in row) for row in cells]


def plot(
    title: str, steps: Sequence[int], values: Sequence[float | None], width: int, height: int = 4, style: str = "cyan"
) -> Text:
    """A line plot with a title, the scale at its left and the steps below; `width` columns in all."""
    from rich.text import Text

    known = finite(values)
    text = Text(no_wrap=True, overflow="crop")
    if not known:
        return text.append(f"{title}: no values", style="dim")
    low, high = min(known), max(known)
    labels = (
        [value(high), *[""] * (height - 2), value(low)]
        if low != high
        else ["", *[value(low) if row == height // 2 else "" for row in range(1, height)]]
    )
    margin = max(map(len, labels))
    inner = max(4, width - margin - 2)
    pad = 0.0 if low != high else 1.0
    rows = braille(values, inner, height, low - pad, high + pad)
    head = f"{title}  {value(known[0])} → {value(known[-1])}" if len(known) > 1 else f"{title}  {value(known[0])}"
    text.append(head[:width].ljust(width) + "\n", style="bold")
    for label, row in zip(labels, rows, strict=True):
        text.append(label.rjust(margin) + " ", style="dim")
        text.append("┤" if label else "│", style="dim")
        text.append(row.ljust(inner), style=style)
        text.append("\n")
    ends = f"{steps[0]}".ljust(inner - len(str(steps[-1]))) + f"{steps[-1]}" if len(steps) > 1 else f"{steps[0]}"
    return text.append(" " * (margin + 2) + ends.ljust(inner), style="dim")
