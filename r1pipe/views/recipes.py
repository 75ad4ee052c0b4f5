"""Recipes: the list, and a copy to edit that names every setting with its meaning and default."""

from __future__ import annotations

import ast
import inspect
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from r1pipe import console
from r1pipe.errors import RecipeError
from r1pipe.graph import Pipeline, section_of
from r1pipe.manifest import write_atomic
from r1pipe.opening import load, recipe_text
from r1pipe.recipe import BaseModelSection, Launch, load_recipe
from r1pipe.views.status import command

LONGEST = 160
"""Lines with a meaning at their end are at most so long."""

_ASSIGNMENT = re.compile(r"""^["']?([A-Za-z0-9_-]+)["']?\s*=""")
_HEADER = re.compile(r"^\[([^\[\]]+)\]\s*(#.*)?$")


def about(text: str) -> str:
    """What a recipe says of itself: the comment at its top."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines)


def recipes_view(known: Mapping[str, Path]) -> RenderableType:
    """Names and what each is for."""
    table = Table.grid(padding=(0, 3, 1, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, path in known.items():
        table.add_row(name, console.plain(about(path.read_text(encoding="utf-8"))))
    return Padding(table, (0, 0, 0, 0))


def recipes_json(known: Mapping[str, Path]) -> list[dict[str, str]]:
    """The same for programs."""
    return [{"name": name, "about": about(path.read_text(encoding="utf-8"))} for name, path in known.items()]


def write_recipe(file: Path, named: str) -> list[RenderableType]:
    """Write a copy of a recipe in which every setting is named; returns what to say.

    Raises:
        RecipeError: the file exists, its folder does not, or there is no such recipe.
    """
    if file.exists():
        raise RecipeError(f"{file} exists already, and is left as it is", f"r1pipe init another.toml, or remove {file} first")
    if not file.parent.is_dir():
        raise RecipeError(f"there is no folder {file.parent}", f"mkdir -p {file.parent}")
    text, where = recipe_text(named)
    pipeline, _ = load(text, where)
    commented = with_defaults(text, pipeline)
    load(commented, os.fspath(file))
    write_atomic(file, commented.encode())
    return [
        Text(f"wrote {file}: the recipe {named}, with every further setting as a comment"),
        command(f"r1pipe plan --recipe {file}", "says what it would do"),
        command(f"r1pipe run-all --recipe {file} --run NAME", "starts it"),
    ]


def with_defaults(text: str, pipeline: Pipeline) -> str:
    """A recipe with the settings that it leaves out added to each section as comments, with meaning and default."""
    models: dict[str, type[BaseModel]] = {"base": BaseModelSection}
    models |= dict(pipeline.shared)
    models |= {".".join(section_of(step)): step.config for step in pipeline.steps}
    models["launch"] = Launch
    # what a setting is without being written down: its default, or what a preset in the section makes of it
    resolved: dict[str, BaseModel] = {}
    recipe = load_recipe(text, pipeline)
    resolved |= {".".join(section_of(step)): recipe.configs[step.name] for step in pipeline.steps}
    result: list[str] = []
    seen: set[str] = set()
    section, block = "", list[str]()
    for line in [*text.rstrip().splitlines(), None]:
        header = _HEADER.match(line) if line is not None else None
        if line is not None and header is None:
            block.append(line)
            continue
        result += _completed(block, models.get(section), resolved.get(section))
        section, block = (header[1].strip(), [str(line)]) if header else ("", [])
        seen.add(section)
    for name, model in models.items():
        if name not in seen:
            result += ["", f"[{name}]", *defaults(model, set())]
    return "\n".join(result) + "\n"


def _completed(block: list[str], model: type[BaseModel] | None, resolved: BaseModel | None) -> list[str]:
    """A section's lines with what they leave out; comments and empty lines at its end belong to the next section."""
    if model is None:
        return block
    end = len(block)
    while end > 1 and (not block[end - 1].strip() or block[end - 1].startswith("#")):
        end -= 1
    meanings = field_docs(model)
    lines = [_explained(line, meanings) for line in block[:end]]
    given = {key for line in lines if (key := _key(line))}
    return [*lines, *defaults(model, given, resolved), *block[end:]]


def _key(line: str) -> str:
    """The key that a line sets; empty when it sets none."""
    found = _ASSIGNMENT.match(line)
    return found[1] if found else ""


def _explained(line: str, meanings: Mapping[str, str]) -> str:
    """A line with what its setting means, unless it has a comment already."""
    meaning = meanings.get(_key(line), "")
    return f"{line}   # {meaning}" if meaning and "#" not in line and len(line) + len(meaning) < LONGEST else line


def defaults(model: type[BaseModel], given: set[str], resolved: BaseModel | None = None) -> Iterator[str]:
    """Comment lines for the settings that are not given, with the values of `resolved` (by default those of the class)."""
    meanings = field_docs(model)
    for name, info in model.model_fields.items():
        if name in given or info.is_required():
            continue
        default = info.get_default(call_default_factory=True) if resolved is None else getattr(resolved, name)
        shown = f"# {name} = {toml(default)}" if default is not None else f"# {name} =      (not set)"
        meaning = meanings.get(name, "")
        yield f"{shown}   # {meaning}" if meaning and len(shown) + len(meaning) < LONGEST else shown


def toml(found: Any) -> str:
    """A value in TOML's syntax."""
    if isinstance(found, BaseModel):
        found = found.model_dump(mode="json", exclude_none=True)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return json.dumps(found, ensure_ascii=False)
    if isinstance(found, float) and math.isfinite(found):
        return repr(found)
    if isinstance(found, Mapping):
        inner = ", ".join(f"{key} = {toml(part)}" for key, part in found.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(found, list | tuple):
        return f"[{', '.join(toml(part) for part in found)}]"
    return str(found)


@cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Setting -> the text under it in its class, also in the classes that it inherits from."""
    docs: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if not issubclass(parent, BaseModel) or parent.__module__.startswith("pydantic"):
            continue
        body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(parent))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and _is_text(following):
                docs[statement.target.id] = " ".join(str(ast.literal_eval(following.value)).split())  # type: ignore[attr-defined]
    return docs


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )
