"""`r1pipe lab`: claims of the papers put to the test in miniature. Parse, call, print, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r1pipe import console
from r1pipe.options import JsonOption, PlainOption, SetOption

NAME = "lab"

LabOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of all claims and their runs.")]

lab_app = typer.Typer(help="Put claims of the papers to the test, in miniature and over several seeds.", no_args_is_help=True)


def list_claims(out: LabOption = Path("lab"), json: JsonOption = False) -> None:
    """List the claims, and what came out of those that were tested."""
    from r1pipe.lab.listing import claims_json, claims_view

    console.show(json, lambda: claims_json(out), lambda: claims_view(out))


def run(
    claim: Annotated[str, typer.Argument(metavar="CLAIM", help="Its name in `r1pipe lab list`.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="RUN", help="A finished run that stands for one seed; may be repeated. Makes no runs."),
    ] = None,
    out: LabOption = Path("lab"),
    sets: SetOption = None,
    plain: PlainOption = False,
    json: JsonOption = False,
) -> None:
    """Make the runs of a claim, measure, and write a page with numbers, intervals and verdict; goes on where it was stopped.

    The bounds that decide are written down before the first run. The runs are ordinary runs below DIR/runs.

    Examples:
      r1pipe lab run growth
      r1pipe lab run clip --set launch.threads=1
      r1pipe lab run shape --from nano-full-1 --from nano-full-2 --from nano-full-3
    """
    from functools import partial

    from r1pipe.lab.arms import Show
    from r1pipe.lab.experiment import folder_of, run_claim
    from r1pipe.lab.listing import find_claim, result_view
    from r1pipe.opening import open_run
    from r1pipe.work import notices_of, view_of

    found, runs = find_claim(claim), [open_run(name) for name in given or []]
    show: Show = notices_of if json else partial(view_of, plain=plain)
    results = run_claim(found, out, sets or [], runs, show, console.notice)
    console.show(json, lambda: results, lambda: result_view(results, folder_of(out, found, runs)))


lab_app.command("list")(list_claims)
lab_app.command("run")(run)
