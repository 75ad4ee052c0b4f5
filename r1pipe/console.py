"""The one module that prints: consoles, errors in two lines, JSON, and text that nobody may use to draw on the terminal.

Text by models and users is never markup: it goes through `plain`, which shows control characters instead of obeying them.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from r1pipe.errors import R1PipeError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

DEBUG_VARIABLE = "R1PIPE_DEBUG"
"""Environment variable that adds the traceback to an error."""

PIPE_WIDTH = 120
"""Columns when the output is not a terminal and nobody says how wide it is."""

JOINERS = "\u200c\u200d"
"""Invisible characters that ordinary writing needs (Persian, Indic scripts, emoji)."""

MARKS = {"done": ("✓", "green"), "running": ("▶", "bold cyan"), "partial": ("◐", "yellow"), "todo": ("○", "dim"),
         "changed": ("≠", "bold red"), "stale": ("!", "bold red"), "failed": ("✗", "bold red")}  # fmt: skip
"""State of a step -> its mark and style."""

VERDICT_STYLES = {"right": "green", "wrong": "red", "unjudged": "yellow", "none": "dim"}


def prepare_streams() -> None:
    """Let no character of a model's text crash the program on a terminal that cannot show it; a closed stream swallows all."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def is_dumb() -> bool:
    """Whether the output should be plain lines: not a terminal, a dumb one, or a build server."""
    return not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "unknown") or bool(os.environ.get("CI"))


@cache
def _console(error: bool) -> Console:
    from rich.console import Console

    target = sys.stderr if error else sys.stdout
    width = None if target.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(stderr=error, width=width, highlight=False, markup=False, emoji=False)


def forget() -> None:
    """Look at the streams anew: for programs that exchange them."""
    _console.cache_clear()


def out() -> Console:
    """The console for results. Strings that it is given are plain text, not markup."""
    return _console(False)


def err() -> Console:
    """The console for errors and notices."""
    return _console(True)


def say(*items: RenderableType) -> None:
    """Print results; on something that is no terminal without the spaces that fill a line."""
    from rich.console import Group

    console, whole = out(), Group(*items)  # a group keeps what a text says of its own wrapping
    if console.is_terminal:
        console.print(whole, crop=False)
        return
    with console.capture() as captured:
        console.print(whole, crop=False)
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def say_json(data: Any) -> None:
    """Print a value as JSON, for programs."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=not utf8, allow_nan=False, default=str) + "\n")


def show(json_wanted: bool, data: Callable[[], Any], view: Callable[[], RenderableType]) -> None:
    """Print a value as JSON, or its view; only one of the two is made."""
    if json_wanted:
        say_json(data())
    else:
        say(view())


def show_error(error: R1PipeError) -> int:
    """Print what was found and what to type next; returns the exit code. Lines are not wrapped: commands can be copied."""
    if os.environ.get(DEBUG_VARIABLE):
        err().print_exception(show_locals=False)
    word = ("stop ", "bold yellow") if error.exit_code == 75 else ("error", "bold red")
    _labelled(word, error.problem)
    if error.hint:
        _labelled(("hint ", "bold cyan"), error.hint)
    return error.exit_code


def notice(line: str) -> None:
    """One line for the user, on the side of errors so that results stay clean."""
    _labelled(("note ", "bold blue"), line)


def _labelled(label: tuple[str, str], text: str) -> None:
    from rich.text import Text

    for number, line in enumerate(text.splitlines() or [""]):
        head = label if number == 0 else (" " * len(label[0]), "")
        err().print(Text.assemble(head, " ", escaped(line)), soft_wrap=True)


def escaped(text: str) -> str:
    """Text with everything that steers a terminal shown instead of obeyed; line ends and tabs stay, as spaces for tabs.

    Control characters (also the C1 range), bidirectional and other invisible format characters, line separators that are not
    "\\n", and halves of surrogate pairs become escapes such as "\\x1b" and "\\u202e".
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character == "\n" else _visible(character) for character in text.expandtabs(4))


def _visible(character: str) -> str:
    if character in JOINERS or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str, style: str = "", most: int | None = None) -> Text:
    """Text by a model or a user, as a text object.

    Args:
        most: show at most so many characters, and say how many are left out.
    """
    from rich.text import Text

    left_out = len(text) - most if most is not None and len(text) > most else 0
    shown = Text(escaped(text[:most] if left_out else text), style=style)
    if left_out:
        shown.append(f" … ({left_out:,} more characters)", style="dim")
    return shown


def one_line(text: str, style: str = "", most: int = 400) -> Text:
    """The same on a single line: line ends are shown as "⏎"; the caller's column cuts it."""
    shown = plain(" ⏎ ".join(part.strip() for part in text[: most + 1].split("\n") if part.strip()), style, most)
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown


def mark(state: str) -> Text:
    """The mark of a step's state."""
    from rich.text import Text

    return Text(*MARKS[state])


def columns(rows: Sequence[Sequence[Text]], width: int, gap: int = 2, right: Sequence[int] = ()) -> RenderableType:
    """Rows of one line each: every column as wide as its widest cell, the last one cut to what is left of the width.

    Args:
        right: columns that are aligned to the right.
    """
    from rich.table import Table

    count = max(map(len, rows), default=0)
    widths = [max((row[number].cell_len for row in rows), default=0) for number in range(count)]
    if count:
        widths[-1] = max(8, min(widths[-1], width - sum(widths[:-1]) - gap * (count - 1)))
    table = Table.grid(padding=(0, gap, 0, 0))
    for number, wide in enumerate(widths):
        table.add_column(width=wide, no_wrap=True, overflow="ellipsis", justify="right" if number in right else "left")
    for row in rows:
        table.add_row(*row)
    return table


def heading(title: str, *details: str) -> Text:
    """A view's first line."""
    from rich.text import Text

    text = Text.assemble((escaped(title), "bold"))
    for detail in details:
        text.append("  ·  ", style="dim")
        text.append(escaped(detail))
    return text


def value(number: Any, digits: int = 3) -> str:
    """A number for a person: whole numbers with thousands, others with `digits` places after the point; "–" for none."""
    if number is None:
        return "–"
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        return f"{number:,}"
    if isinstance(number, float):
        if number != 0 and (abs(number) < 10**-digits or abs(number) >= 1e6):
            return f"{number:.2e}"
        return f"{number:,.{digits}f}" if abs(number) < 10 else f"{number:,.1f}"
    if isinstance(number, Mapping | list | tuple):
        return json.dumps(number, ensure_ascii=False, default=str)
    return str(number)


def setting(found: Any) -> str:
    """A setting as it would be typed: exact, without separators."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return found or '""'
    return "(none)" if found is None else json.dumps(found, ensure_ascii=False, default=str)


def duration(seconds: float | None, whole: bool = False) -> str:
    """A span of time for a person: "0.4 s", "43 s", "2 min 05 s", "1 h 02 min", "3 d 04 h".

    Args:
        whole: no tenths of seconds, for what is only an estimate.
    """
    if seconds is None:
        return "–"
    if seconds < 9.95 and not whole:
        return f"{max(0.0, seconds):.1f} s"
    rounded = max(0, round(seconds))
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    if rounded < 86400:
        return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
    return f"{rounded // 86400} d {rounded % 86400 // 3600:02d} h"


def size(count: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
