"""The options and arguments that several commands share, each in one place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def finite(number: float | None) -> float | None:
    """Refuse numbers that are not finite."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


RunArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Name of a run, or a path to its folder; by default the one worked on last.")
]
RunOption = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="The run, by name or path; by default the one worked on last.")
]
NewRunOption = Annotated[str | None, typer.Option("--run", metavar="NAME", help="The run's name; by default the recipe's.")]
RecipeOption = Annotated[
    str | None, typer.Option("--recipe", metavar="NAME|FILE", help="A recipe that comes with r1pipe, or a file; by default nano.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. reasoning-rl.steps=80; may be given several times."),
]
RedoOption = Annotated[
    list[str] | None,
    typer.Option("--redo", metavar="STEP", help="Discard a stage or step, and what was made from it, first. May be repeated."),
]
PlainOption = Annotated[bool, typer.Option("--plain", help="Progress as plain lines, also on a terminal.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Number = Annotated[float | None, typer.Option(callback=finite)]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl, .json, .csv or .parquet file.")]
