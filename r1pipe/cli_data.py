"""The commands about data, before a run: `r1pipe data preview`. Parse, call, print."""

from __future__ import annotations

from typing import Annotated

import typer

from r1pipe import console
from r1pipe.options import JsonOption, RecipeOption

data = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})


@data.callback()
def group() -> None:
    """Look at data before a run uses it."""  # with a callback its one command keeps its name


@data.command()
def preview(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE|KEY",
            help="A file (.jsonl, .json, .csv, .tsv, .parquet), hf:OWNER/NAME, reasoning-gym:NAME, pkg.module:function; "
            "with --recipe also a key of its \\[prepare].",
        ),
    ],
    recipe: RecipeOption = None,
    table: Annotated[str, typer.Option(help="What the rows are to be: problems, traces, pairs, …")] = "",
    field: Annotated[
        list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Our column, and the source's; may be repeated.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option(metavar="OURS=TEXT", help="What a column of ours is where rows do not say.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="Read so many rows; 0: all (of what is generated: 1000).")] = 0,
    revision: Annotated[str, typer.Option(help="Commit of a data set of the hub; by default the newest, which is named.")] = "",
    subset: Annotated[str, typer.Option(help="Its configuration.")] = "",
    split: Annotated[str, typer.Option(help="Its split; by default train.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 3,
    json: JsonOption = False,
) -> None:
    """Read a source as `prepare` will: columns, first rows, bad rows, gold answers, duplicates, overlap with evaluation sets.

    Examples:
      r1pipe data preview my.csv --field question=problem --field answer=solution
      r1pipe data preview problems --recipe my.toml
      r1pipe data preview hf:openai/gsm8k --subset main --recipe nano
    """
    from r1pipe.views.preview import preview_view, previewed

    given = {"fields": _pairs(field, "--field"), "values": _pairs(value, "--value"), "count": count,
             "revision": revision, "subset": subset, "split": split}  # fmt: skip
    found = previewed(source, recipe, table, limit, {name: what for name, what in given.items() if what})
    console.show(json, lambda: found, lambda: preview_view(found))
    if not found["usable"]:
        console.notice(
            f"no row can be used as {found['table']}: --field OURS=THEIRS says which column is which, --table what they are"
        )
        raise typer.Exit(1)


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """What stands before and behind the equals sign of each."""
    pairs = {}
    for pair in given or []:
        ours, equals, theirs = pair.partition("=")
        if not equals or not ours or not theirs:
            raise typer.BadParameter(f"{option} {pair}: write OURS=VALUE, e.g. {option} question=problem")
        pairs[ours.strip()] = theirs
    return pairs
