"""The commands that show what came of a run: report, watch, eval, chat, export. Parse, call, print, as in `cli`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from r1pipe import console
from r1pipe.options import JsonOption, PlainOption, RunArgument, RunOption, finite

EVIDENCE = "Show"
"""Group of these commands in the help."""

AgainstOption = Annotated[
    str | None, typer.Option("--against", metavar="RUN", help="A second run, by name or path, to compare with.")
]


CheckpointsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CHECKPOINT]...", help="Names in the run (base, dev2), RUN/NAME, or folders; by default r1."),
]
EngineOption = Annotated[str, typer.Option(help="What generates; an engine's name or import path.")]


def report(
    run: RunArgument = None,
    against: AgainstOption = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it; by default into the run.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Show it on this machine's own address, with news of the run.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --serve; 0 takes any that is free.")] = 8017,
    json: JsonOption = False,
) -> None:
    """Write a page with everything that came of a run: one HTML file that opens offline.

    Checkpoints with intervals, curves, samples side by side, what was kept and why, settings, cost.

    Examples:
      r1pipe report                          the run worked on last
      r1pipe report nano --against longer    two runs on one page
      r1pipe report --serve                  refreshes while the run goes on; Ctrl-C ends it
    """
    from r1pipe.opening import open_run
    from r1pipe.report.build import report_json, report_view, write_report

    opened, other = open_run(run), open_run(against) if against else None
    if serve:
        from r1pipe.report.serve import Pages, open_server

        with open_server(port, Pages(opened.run.root, other.run.root if other else None)) as server:
            console.notice(f"run {opened.run.name} is shown at {server.url}, for this machine only; Ctrl-C ends it")
            with suppress(KeyboardInterrupt):
                server.serve_forever()
        raise typer.Exit
    written = write_report(opened, other, out)
    console.show(json, lambda: report_json(written), lambda: report_view(written))


def watch(run: RunArgument = None, plain: PlainOption = False) -> None:
    """Watch a run that works elsewhere on this machine: the chain, the running step, its curves. Ctrl-C only ends the watching.

    Example:
      r1pipe watch nano
    """
    from r1pipe.opening import open_run
    from r1pipe.views.follow import follow

    raise typer.Exit(follow(open_run(run), plain))


def evaluate(
    on: Annotated[Path, typer.Option("--on", metavar="FILE", help="Problems: .jsonl or .parquet, in the form of a benchmark.")],
    checkpoints: CheckpointsArgument = None,
    run: RunOption = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Answers a problem.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, callback=finite, help="0: greedy.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, callback=finite)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    limit: Annotated[int, typer.Option(min=0, help="Only the first problems; 0 takes all.")] = 0,
    domain: Annotated[
        str, typer.Option(help="How answers are judged: maths, choice, logic, code; by default by the columns.")
    ] = "",
    gold: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the right answer; by default by its name.")] = "",
    engine: EngineOption = "transformers",
    batch: Annotated[int | None, typer.Option(min=1, help="Answers to generate at once.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where it is kept; by default evals/FILE.")] = None,
    json: JsonOption = False,
) -> None:
    """Evaluate checkpoints on problems of your own; goes on where it was stopped.

    Sampling is by default that of the run's own evaluation. Attempts are kept as Parquet, results as JSON.

    Examples:
      r1pipe eval r1 --on gsm8k.jsonl                        a checkpoint of the run worked on last
      r1pipe eval base dev2 r1 --on math500.jsonl --samples 16
      r1pipe eval ./models/some-model --on aime.parquet --temperature 0.6 --top-p 0.95
    """
    from dataclasses import replace

    from r1pipe.checkpoints import find_checkpoint
    from r1pipe.evals import Asked, evals_view, usual_sampling
    from r1pipe.evals import evaluate as evaluate_all

    found = [find_checkpoint(name, run) for name in checkpoints or ["r1"]]
    wanted: dict[str, Any] = {
        "samples": samples,
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "seed": seed,
    }
    sampling = replace(usual_sampling(found), **{key: value for key, value in wanted.items() if value is not None})
    folder = out or Path("evals") / on.stem
    results = evaluate_all(found, Asked(on, sampling, domain, gold, limit, engine, batch), folder, console.notice)
    console.show(json, lambda: results, lambda: evals_view(results, folder))


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A name in the run, RUN/NAME, or a model's folder.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    run: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint as a model folder that transformers loads as it is, with a card of its lineage, data and results.

    Example:
      r1pipe export r1 ./my-r1
    """
    from r1pipe.checkpoints import find_checkpoint
    from r1pipe.export import export as export_checkpoint
    from r1pipe.export import export_view

    found = find_checkpoint(checkpoint, run)
    files = export_checkpoint(found, folder)
    console.show(json, lambda: {"checkpoint": found.name, "files": files}, lambda: export_view(found, folder, files))


def chat(
    checkpoints: CheckpointsArgument = None,
    run: RunOption = None,
    ask: Annotated[list[str] | None, typer.Option("--ask", metavar="TEXT", help="Ask this and leave; may be repeated.")] = None,
    temperature: Annotated[float, typer.Option(min=0, callback=finite, help="0: greedy.")] = 0.6,
    top_p: Annotated[float, typer.Option(min=0, max=1, callback=finite)] = 0.95,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 1024,
    fold: Annotated[bool, typer.Option("--fold", help="Show only how long the thinking was; /thinking switches.")] = False,
    engine: EngineOption = "transformers",
) -> None:
    """Ask checkpoints questions and see their answers side by side, the thinking dimmed. Each question stands alone.

    Examples:
      r1pipe chat                        R1 of the run worked on last
      r1pipe chat base dev1 r1 --ask "What is 17 + 25?"
    """
    from r1pipe.checkpoints import find_checkpoint
    from r1pipe.engines.base import Sampling
    from r1pipe.talk import converse, open_speakers, questions

    found = [find_checkpoint(name, run) for name in checkpoints or ["r1"]]
    speakers = open_speakers(found, engine, "auto")
    converse(speakers, Sampling(1, temperature, top_p, max_tokens), not fold, questions(ask or []), console.say)


def add_commands(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command(rich_help_panel=EVIDENCE)(report)
    app.command(rich_help_panel=EVIDENCE)(watch)
    app.command("eval", rich_help_panel=EVIDENCE)(evaluate)
    app.command(rich_help_panel=EVIDENCE)(chat)
    app.command(rich_help_panel=EVIDENCE)(export)
