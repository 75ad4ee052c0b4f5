"""The commands that show what came of a run: report. Parse, call, print, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r1pipe import console
from r1pipe.options import JsonOption, RunArgument

EVIDENCE = "Show"
"""Group of these commands in the help."""

AgainstOption = Annotated[
    str | None, typer.Option("--against", metavar="RUN", help="A second run, by name or path, to compare with.")
]


def report(
    run: RunArgument = None,
    against: AgainstOption = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it; by default into the run.")] = None,
    json: JsonOption = False,
) -> None:
    """Write a page with everything that came of a run: one HTML file that opens offline.

    Checkpoints with intervals, curves, samples side by side, what was kept and why, settings, cost.

    Examples:
      r1pipe report                          the run worked on last
      r1pipe report nano --against longer    two runs on one page
    """
    from r1pipe.opening import open_run
    from r1pipe.report.build import report_json, report_view, write_report

    written = write_report(open_run(run), open_run(against) if against else None, out)
    console.show(json, lambda: report_json(written), lambda: report_view(written))


def add_commands(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command(rich_help_panel=EVIDENCE)(report)
