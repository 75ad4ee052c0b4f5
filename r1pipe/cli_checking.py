"""The commands that check: this machine, a recipe or a run, a resumed step, answers and gold answers; and that judges. Parse,
call, print."""

from __future__ import annotations

from pathlib import Path
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

    found = verify_resume(open_run(run), stage, keep, tell=console.notice)
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


def judge(
    candidates: FileArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The .jsonl to write; votes and a report go beside it.")],
    model: Annotated[str, typer.Option(help="The judge: a model's folder, or its name on the server.")],
    engine: Annotated[str, typer.Option(help="Who runs it; openai is the server at OPENAI_BASE_URL.")] = "openai",
    kind: Annotated[str, typer.Option(help="helpfulness makes pairs, safety labels responses.")] = "helpfulness",
    votes: Annotated[int, typer.Option(min=1, help="Votes on each; of a pair half in each order.")] = 4,
    margin: Annotated[float, typer.Option(min=0, help="Least difference of the mean grades (1 to 10), exclusive.")] = 1.0,
    temperature: Annotated[float, typer.Option(min=0, help="Of the judge.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the judge.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make preference pairs, or safety labels, by a language model's judgement; goes on where it was stopped.

    Examples:
      r1pipe judge candidates.jsonl pairs.jsonl --model Qwen/Qwen3-32B
      r1pipe judge answers.jsonl labels.jsonl --model judge --kind safety
    """
    from r1pipe.stages.judging import judge_with
    from r1pipe.views.summary import summary_view

    settings = {"kind": kind, "votes": votes, "margin": margin, "temperature": temperature, "seed": seed}
    report = judge_with(candidates, target, settings, engine, model)
    console.show(json, lambda: report, lambda: summary_view(report))


def add_commands(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command(rich_help_panel=CHECKING)(doctor)
    app.command(rich_help_panel=CHECKING)(check)
    app.command("verify-resume", rich_help_panel=CHECKING)(verify_resume)
    app.command(rich_help_panel=CHECKING)(verify)
    app.command(rich_help_panel=CHECKING)(audit)
    app.command(rich_help_panel=CHECKING)(judge)
