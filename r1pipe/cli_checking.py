"""The commands that check: this machine, a recipe or a run, a resumed step, answers and gold answers. Parse, call, print."""

from __future__ import annotations

from typing import Annotated

import typer

from r1pipe import console
from r1pipe.options import FileArgument, JsonOption, RunOption

CHECKING = "Check"
"""Group of these commands in the help."""


def doctor(json: JsonOption = False) -> None:
    """Say what this machine and installation have, and what r1pipe would choose."""
    from r1pipe.machine import facts
    from r1pipe.views.doctor import report

    raise typer.Exit(report(facts(), json, "needed and missing, or not in the supported range"))


def check(
    what: Annotated[
        str | None, typer.Argument(metavar="RECIPE|RUN", help="A recipe, or a run; by default the newest run.")
    ] = None,
    contents: Annotated[bool, typer.Option("--contents", help="Read every byte of a run's outputs.")] = False,
    json: JsonOption = False,
) -> None:
    """Do every check of every stage that needs no weights, and compare a run's files with its manifests.

    Examples:
      r1pipe check my.toml
      r1pipe check nano --contents
    """
    from r1pipe.checks import check_named
    from r1pipe.views.doctor import report

    raise typer.Exit(report(list(check_named(what, contents)), json, "not right"))


def verify_resume(
    stage: Annotated[str, typer.Argument(metavar="STAGE[/STEP]", help="A step that trains.")],
    run: RunOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the scratch runs where they are.")] = False,
    json: JsonOption = False,
) -> None:
    """Prove on this machine that a killed and resumed step is the same step; the run itself is only read.

    Examples:
      r1pipe verify-resume reasoning-rl
      r1pipe verify-resume cold-start --run nano --json
    """
    from r1pipe.opening import open_run
    from r1pipe.rehearsal import report_json, report_lines, verify_resume

    found = verify_resume(open_run(run), stage, keep)
    console.show(json, lambda: report_json(found), lambda: console.plain("\n".join(report_lines(found))))
    raise typer.Exit(0 if found.passed else 1)


def verify(
    file: FileArgument,
    domain: Annotated[str, typer.Option(help="How answers are judged: maths, choice, logic, code.")],
    gold: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the right answer.")] = "answer",
    completion: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the response to judge.")] = "completion",
    expected: Annotated[str, typer.Option(metavar="COLUMN", help="Column that says what the verdict should be.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 10,
    json: JsonOption = False,
) -> None:
    """Judge the responses of a file with the checker that trains, and say why for each row."""
    from r1pipe.rewards.verify import verify_file
    from r1pipe.views.judged import judged_view

    report = verify_file(file, domain, gold, completion, expected or None)
    console.show(json, lambda: report, lambda: judged_view(report, limit))


def audit(
    data: FileArgument,
    domain: Annotated[str, typer.Option(help="How answers are judged: maths, choice, logic, code.")],
    gold: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the right answer.")] = "answer",
    limit: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 10,
    json: JsonOption = False,
) -> None:
    """Find gold answers that cannot be used, and try hostile responses on the checker."""
    from r1pipe.rewards.audit import audit_file
    from r1pipe.views.judged import judged_view

    report = audit_file(data, domain, gold)
    console.show(json, lambda: report, lambda: judged_view(report, limit))


def add_commands(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command(rich_help_panel=CHECKING)(doctor)
    app.command(rich_help_panel=CHECKING)(check)
    app.command("verify-resume", rich_help_panel=CHECKING)(verify_resume)
    app.command(rich_help_panel=CHECKING)(verify)
    app.command(rich_help_panel=CHECKING)(audit)
