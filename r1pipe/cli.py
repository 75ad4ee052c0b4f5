"""The commands: parse, call, print. Nothing here knows how a step works or what a view looks like."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from r1pipe import __version__, cli_checking, cli_data, cli_evidence, cli_lab, console
from r1pipe.errors import R1PipeError, Stopped
from r1pipe.options import (
    JsonOption,
    NewRunOption,
    PlainOption,
    RecipeOption,
    RedoOption,
    RunArgument,
    RunOption,
    SetOption,
    finite,
)

RUNNING, READING, RECIPES = "Run", "Look", "Recipes"
"""Groups of commands in the help."""

app = typer.Typer(
    name="r1pipe",
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="New here? [bold]r1pipe plan[/bold] says what would happen, [bold]r1pipe run-all[/bold] does it, "
    "Ctrl-C stops it, [bold]r1pipe resume[/bold] goes on.",
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"r1pipe {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """The DeepSeek-R1 recipe as a command that you can start, stop, inspect and trust."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@app.command("run-all", rich_help_panel=RUNNING)
def run_all(
    recipe: RecipeOption = None,
    run: NewRunOption = None,
    sets: SetOption = None,
    until: Annotated[str | None, typer.Option(metavar="STAGE", help="Stop after this stage or step.")] = None,
    redo: RedoOption = None,
    plain: PlainOption = False,
) -> None:
    """Take the base model through all stages; go on with a run that exists.

    Examples:
      r1pipe run-all                             the embedded default
      r1pipe run-all --recipe my.toml --run a    a recipe of your own
      r1pipe run-all --set seed=2 --run b        the same with another seed
      r1pipe run-all --until reasoning-rl        part of the chain
      r1pipe run-all --redo mixed-rl             make a stage again
    """
    from r1pipe.opening import open_or_begin
    from r1pipe.work import work

    raise typer.Exit(work(open_or_begin(recipe, run, sets or []), until=until, redo=redo or [], plain=plain))


@app.command("run", rich_help_panel=RUNNING)
def run_one(
    step: Annotated[str, typer.Argument(metavar="STAGE[/STEP]", help="What to run.")],
    run: RunOption = None,
    sets: SetOption = None,
    redo: Annotated[bool, typer.Option("--redo", help="Discard it, and what was made from it, first.")] = False,
    plain: PlainOption = False,
) -> None:
    """Run one stage or step; what it reads must be there.

    Examples:
      r1pipe run rejection-sft                   a stage with all its steps
      r1pipe run rejection-sft/select --redo     one step, made again
    """
    from r1pipe.opening import open_with_sets
    from r1pipe.work import work

    raise typer.Exit(work(open_with_sets(run, sets or []), only=step, redo=[step] if redo else [], plain=plain))


@app.command(rich_help_panel=RUNNING)
def resume(
    run: RunArgument = None,
    until: Annotated[str | None, typer.Option(metavar="STAGE", help="Stop after this one, not where it was asked to.")] = None,
    plain: PlainOption = False,
) -> None:
    """Go on with a run that was stopped, from where it stopped and as far as it was asked to go.

    Examples:
      r1pipe resume nano
      r1pipe resume nano --until evaluate        further than it was asked to go
    """
    from r1pipe.opening import open_run
    from r1pipe.work import go_on

    raise typer.Exit(go_on(open_run(run), until, plain))


@app.command(rich_help_panel=RUNNING)
def fork(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to share finished steps with.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Name of the new run.")],
    before: Annotated[str, typer.Option(metavar="STEP", help="The first stage or step that the new run makes itself.")],
    sets: SetOption = None,
) -> None:
    """Begin a second run that shares the finished steps of another.

    Example:
      r1pipe fork nano longer --before mixed-rl --set mixed-rl.train.steps=48
    """
    from r1pipe.opening import open_run
    from r1pipe.work import fork_run

    console.say(*fork_run(open_run(run), new, before, sets or []))


@app.command(rich_help_panel=READING)
def plan(
    recipe: RecipeOption = None,
    run: NewRunOption = None,
    sets: SetOption = None,
    settings: Annotated[bool, typer.Option("--settings", help="Show every setting, also the defaults.")] = False,
    json: JsonOption = False,
) -> None:
    """Say what would run and why, before anything starts.

    Examples:
      r1pipe plan                     the run worked on last, or nano
      r1pipe plan --recipe my.toml
      r1pipe plan --run nano --set reasoning-rl.steps=80
    """
    from r1pipe import states
    from r1pipe.opening import open_for_plan
    from r1pipe.views.plan import plan_json, plan_view

    opened = open_for_plan(recipe, run, sets or [])
    plans = states.plan(opened.run, opened.pipeline, opened.recipe)
    console.show(json, lambda: plan_json(opened, plans), lambda: plan_view(opened, plans, settings))


@app.command(rich_help_panel=READING)
def status(run: RunArgument = None, json: JsonOption = False) -> None:
    """Show where a run stands: its steps, what they made, the lineage of its checkpoints."""
    from r1pipe import states
    from r1pipe.opening import open_run
    from r1pipe.views.status import status_json, status_view

    opened = open_run(run)
    plans = states.plan(opened.run, opened.pipeline, opened.recipe)
    console.show(json, lambda: status_json(opened, plans), lambda: status_view(opened, plans, console.out().width))


@app.command(rich_help_panel=READING)
def inspect(
    what: Annotated[
        str | None, typer.Argument(metavar="STAGE[/STEP[/ARTIFACT]]", help="A stage, a step, or something it made.")
    ] = None,
    run: RunOption = None,
    reward: Annotated[
        str, typer.Option(metavar="NAME", help="What --below and --above are about: a reward, or tokens.")
    ] = "total",
    below: Annotated[float | None, typer.Option(callback=finite, help="Rows whose reward is below this.")] = None,
    above: Annotated[float | None, typer.Option(callback=finite, help="Rows whose reward is above this.")] = None,
    verdict: Annotated[Literal["right", "wrong", "unjudged", "none"] | None, typer.Option(help="Rows with this verdict.")] = None,
    domain: Annotated[str, typer.Option(help="Rows of this domain.")] = "",
    language: Annotated[str, typer.Option(help="Rows in this language, e.g. zh.")] = "",
    find: Annotated[str, typer.Option(metavar="TEXT", help="Rows that hold this text.")] = "",
    part: Annotated[str, typer.Option(help="One rollout, shard or checkpoint, or 'last'.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 5,
    row: Annotated[int | None, typer.Option(min=0, metavar="N", help="One row in full.")] = None,
    problem: Annotated[str, typer.Option("--id", metavar="ID", help="Rows of this problem.")] = "",
    sql: Annotated[str | None, typer.Option(metavar="SELECT", help="One query over the run's tables (DuckDB).")] = None,
    json: JsonOption = False,
) -> None:
    """Look into a run: settings, curves, samples with every reward and its reason.

    Examples:
      r1pipe inspect                             the run as a whole
      r1pipe inspect reasoning-rl                record, curves, samples
      r1pipe inspect reasoning-rl --part last --reward format --below 1
      r1pipe inspect rejection-sft/sample --verdict wrong --language zh
      r1pipe inspect evaluate/attempts --part r1 --row 6
      r1pipe inspect rejection-sft/sample --sql "SELECT verdict, count(*) FROM attempts GROUP BY ALL"
    """
    from r1pipe.opening import open_run
    from r1pipe.views.inspect import inspection, sql_inspection
    from r1pipe.views.tables import Filter

    wanted = Filter(reward, below, above, domain, language, verdict or "", find, part, problem)
    if sql is not None:
        shown = sql_inspection(open_run(run), what, sql, json)
    else:
        shown = inspection(open_run(run), what, wanted, limit, row, json, console.out().width)
    console.say_json(shown) if json else console.say(shown)


@app.command(rich_help_panel=RECIPES)
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one.")] = None, json: JsonOption = False
) -> None:
    """List the recipes that come with r1pipe, or print one."""
    from r1pipe.opening import packaged_recipes, recipe_text
    from r1pipe.views.recipes import recipes_json, recipes_view

    if name is not None:
        sys.stdout.write(recipe_text(name)[0])
        return
    known = packaged_recipes()
    console.show(json, lambda: recipes_json(known), lambda: recipes_view(known))


@app.command(rich_help_panel=RECIPES)
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")] = Path("recipe.toml"),
    recipe: Annotated[str, typer.Option(metavar="NAME|FILE", help="The recipe to start from.")] = "nano",
) -> None:
    """Write a recipe to edit, with what each setting means.

    Example:
      r1pipe init my.toml && r1pipe plan --recipe my.toml
    """
    from r1pipe.views.recipes import write_recipe

    console.say(*write_recipe(file, recipe))


cli_checking.add_commands(app)
cli_evidence.add_commands(app)
app.add_typer(cli_lab.lab_app, name=cli_lab.NAME, rich_help_panel=cli_evidence.EVIDENCE)
app.add_typer(cli_data.data, name="data", rich_help_panel=cli_checking.CHECKING)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error of ours is two lines and its exit code, anything else keeps its traceback."""
    console.prepare_streams()
    every, groups = app.registered_commands, app.registered_groups
    typed = (sys.argv[1:] if arguments is None else arguments)[:1]
    # only the command that was typed is built: building all of them takes longer than most answers
    commands, known = [one for one in every if [_name(one)] == typed], [one for one in groups if [one.name] == typed]
    if commands or known:
        app.registered_commands, app.registered_groups = commands, known
    try:
        app(arguments, prog_name="r1pipe")
    except R1PipeError as error:
        sys.exit(console.show_error(error))
    except KeyboardInterrupt:
        sys.exit(console.show_error(Stopped("interrupted")))
    finally:
        app.registered_commands, app.registered_groups = every, groups


def _name(command: typer.models.CommandInfo) -> str:
    """What is typed for a command."""
    return command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
