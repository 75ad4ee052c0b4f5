"""The live view on a terminal: the chain, the running step with its bar and time left, its numbers, a sample now and then."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.manifest import Manifest
from r1pipe.observer import Observer
from r1pipe.stage import Step
from r1pipe.views.made import made
from r1pipe.views.numbers import Series, amount, is_headline, label, order
from r1pipe.views.plots import spark
from r1pipe.views.watch import Watch

REFRESH_PER_SECOND = 4
SPARK_WIDTHS = (14, 32)
"""Characters of a curve, at least and at most."""

SAMPLE_LINES = 4
LABEL_WIDTH = 28
"""Columns for mark and name in the line of a finished step."""


class Screen:
    """Draws a `Watch`; rich asks it for its picture at each refresh."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.stopping = ""

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        with self.watch.lock:
            yield picture(self.watch, options.max_width, terminal.height, self.stopping)


def picture(watch: Watch, width: int, height: int, stopping: str = "") -> RenderableType:
    """The whole view.

    Args:
        width, height: the terminal's, in characters; what does not fit is left out, samples first.
        stopping: what is said of a stop that was asked for.
    """
    done = sum(state == "done" for state in watch.states.values())
    head = console.heading(
        f"run {watch.run}", f"{done} of {len(watch.steps)} steps done", console.duration(watch.clock() - watch.began)
    )
    parts: list[RenderableType] = [head, chain(watch, width)]
    if watch.step is not None:
        parts += [Text(), running(watch, width)]
        numbers = numbers_table(watch, width)
        if numbers is not None:
            parts += [Text(), Padding(numbers, (0, 0, 0, 2))]
        if (domains := signal_line(watch.progress.get("domains"))).plain:
            parts.append(Padding(domains, (0, 0, 0, 2)))
        if watch.sample is not None and height >= 22:
            parts += [Text(), sample(watch.sample, width)]
    if stopping:
        parts += [Text(), Text(stopping, style="bold yellow")]
    return Group(*parts)


def chain(watch: Watch, width: int) -> Text:
    """All steps with the marks of their states, in as few lines as fit."""
    text, column = Text(), 0
    for index, step in enumerate(watch.steps):
        mark, style = console.MARKS[watch.states.get(step.name, "todo")]
        name = f"{step.name} → {step.makes}" if step.makes else step.name
        piece = Text.assemble((mark, style), " ", (name, "bold" if style == "bold cyan" else "dim" if mark == "○" else ""))
        wide = cell_len(piece.plain)
        if index and column + 3 + wide > width:
            text.append("\n")
            column = 0
        elif index:
            text.append(" ─ ", style="dim")
            column += 3
        text.append_text(piece)
        column += wide
    return text


def running(watch: Watch, width: int) -> RenderableType:
    """The running step: name, what it makes, bar, count, elapsed, left."""
    assert watch.step is not None
    step, done, total = watch.step, watch.done, watch.total
    title = Text.assemble(("▶ ", "bold cyan"), (step.name, "bold"))
    if step.makes:
        title.append(f" → {step.makes}", style="cyan")
    note = str(watch.progress.get("note", ""))
    if note and note != step.name:
        title.append_text(Text("  ")).append_text(console.one_line(note, "dim", 60))
    if watch.attempt > 1:
        title.append(f"  attempt {watch.attempt}", style="dim")
    begins = "starting" if watch.attempt == 1 else "resuming"
    unit = console.escaped(str(watch.progress.get("unit", "step")))[:20]
    words = [f"{unit} {done:,.0f} of {total:,.0f}"] if done is not None and total else [begins]
    words.append(console.duration(watch.elapsed))
    left = watch.seconds_left()
    if left is not None:
        words.append("finishing" if done == total else f"about {console.duration(left, whole=True)} left")
    line = Text(" · ".join(words))
    bar = ProgressBar(
        total=total or 1, completed=done or 0, width=max(10, min(40, width - cell_len(line.plain) - 4)), pulse=not total
    )
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(Padding(bar, (0, 0, 0, 2)), line)
    return Group(title, row)


def numbers_table(watch: Watch, width: int) -> Table | None:
    """The step's numbers with small curves, in two columns where there is room."""
    keys = sorted((key for key, series in watch.series.items() if is_headline(key) and series.last is not None), key=order)
    if not keys:
        return None
    columns = 2 if width >= 76 and len(keys) > 3 else 1
    rows = -(-len(keys) // columns)
    wide = max(SPARK_WIDTHS[0], min(SPARK_WIDTHS[1], width // columns - 27))
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(columns):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(justify="right", no_wrap=True, min_width=8)
        table.add_column(no_wrap=True, width=wide, style="cyan")
    for row in range(rows):
        cells: list[RenderableType] = []
        for key in keys[row::rows]:
            series = watch.series[key]
            cells += [console.one_line(label(key), most=24), amount(key, series.last), spark(series.values, wide)]
        table.add_row(*cells)
    return table


def signal_line(domains: Any) -> Text:
    """Share of groups without signal by domain, all right and all wrong apart; empty when nothing is known."""
    line = Text("", no_wrap=True, overflow="ellipsis")
    for name, found in domains.items() if isinstance(domains, Mapping) else ():
        if isinstance(found, Mapping) and isinstance(found.get("flat_share"), int | float):
            line.append(" · " if line.plain else "no signal  ", style="dim").append(console.escaped(str(name)))
            right, wrong = (found.get(key) or 0.0 for key in ("flat_right", "flat_wrong"))
            line.append(f" {found['flat_share']:.0%} (right {right:.0%}, wrong {wrong:.0%})", style="dim")
    return line


def sample(pair: tuple[str, str], width: int) -> RenderableType:
    """A question and what the model wrote, cut to a few lines."""
    question, completion = pair
    shown = console.one_line(completion, most=width * SAMPLE_LINES)
    shown.no_wrap = False
    lines = list(shown.wrap(console.out(), max(10, width - 6)))
    if len(lines) > SAMPLE_LINES:
        lines = [*lines[: SAMPLE_LINES - 1], Text.assemble(lines[SAMPLE_LINES - 1], (" …", "dim"))]
    return Padding(Group(console.one_line(question, "dim italic", width), *lines), (0, 2, 0, 2))


def finished_line(step: Step, manifest: Manifest, series: dict[str, Series]) -> Text:
    """What stays on the terminal of a finished step."""
    text = Text.assemble(("✓ ", "green"), (step.name, "bold"))
    if step.makes:
        text.append(f" → {step.makes}", style="cyan")
    text.append(" " * max(0, LABEL_WIDTH - text.cell_len))
    text.append(f" {console.duration(manifest.wall_seconds):>11}", style="dim")
    detail = made(manifest.summary, series)
    if detail:
        text.append("  ").append_text(console.one_line(detail))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


@contextmanager
def calm_keyboard() -> Iterator[None]:
    """Keep Ctrl-C from spoiling the picture: by default a terminal then drops half-written output and prints "^C"."""
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, termios.error):
        yield  # no such terminal: nothing to keep calm
        return
    calm = [*before[:3], (before[3] | termios.NOFLSH) & ~termios.ECHOCTL, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSANOW, calm)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


@contextmanager
def live_view(watch: Watch) -> Iterator[Observer]:
    """Shows the run for the length of a `with` block; what was finished stays on the terminal."""
    terminal = console.out()
    screen = Screen(watch)
    with (
        calm_keyboard(),
        Live(screen, console=terminal, refresh_per_second=REFRESH_PER_SECOND, transient=True) as live,
    ):

        def tell(what: str, about: Any) -> None:
            if what == "end":
                terminal.print(Group(finished_line(*about)))
            elif what == "notice":
                line = str(about)
                if line.startswith("stopping"):
                    screen.stopping = line
                else:
                    terminal.print(Text.assemble(("note  ", "bold blue"), console.plain(line)))
            if what != "report":
                live.refresh()

        yield watch.observer(tell)
