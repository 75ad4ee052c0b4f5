"""From what is wrong with a recipe to sentences that a person can act on.

Everything is collected before anything is raised, so that one look at the message is enough to mend the file.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from r1pipe.errors import RecipeError
from r1pipe.recipe_text import KeyLine, KeyPath, dotted, line_of

M = TypeVar("M", bound=BaseModel)

MOST_MISTAKES = 12
"""So many mistakes are listed; more would hide the first."""

EXPECTED = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table",
    "path": "a path, as text",
}
"""First part of a pydantic error type -> what is expected, in words."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong: where, a sentence, what to do about it, and whether `path` is a section whose keys disagree."""

    path: KeyPath
    sentence: str
    hint: str = ""
    whole: bool = False


def shown(value: Any) -> str:
    """A value as it stands in TOML, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, datetime.date | datetime.time):
        text = value.isoformat()
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def kind_of(value: Any) -> str:
    """What a TOML value is, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, datetime.date | datetime.time):
        return "a date or time"
    return "a list" if isinstance(value, list | tuple) else "a table"


def filled_in(
    raw: Mapping[str, Any], inherits: Callable[[Mapping[str, Any]], Mapping[str, Any]], before: Mapping[str, Any]
) -> dict[str, Any]:
    """A section's keys, and for those that it leaves out what it inherits; tables key by key.

    Args:
        before: the settings of the sections before it, by dotted name.
    """
    return _over(inherits(before), raw)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, found in above.items():
        there = result.get(key)
        result[key] = _over(there, found) if isinstance(there, Mapping) and isinstance(found, Mapping) else found
    return result


def unknown_key(path: KeyPath, known: Sequence[str], elsewhere: Mapping[str, str]) -> Mistake:
    """A key that nobody knows, with the nearest known one, or the section where it belongs.

    Args:
        known: keys that may stand there.
        elsewhere: key -> the section that knows it, over the whole recipe.
    """
    key = str(path[-1])
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif key in elsewhere:
        hint = f"{key!r} is a key of {elsewhere[key]}"
    else:
        hint = f"known here: {', '.join(known)}" if known else "nothing can be set here"
    return Mistake(path, f"unknown key {key!r}", hint)


def not_a_table(path: KeyPath, value: Any) -> Mistake:
    """A value where a whole section is expected."""
    return Mistake(path, f"{path[-1]} is {shown(value)}, where a section [{dotted(path)}] is expected")


def find_nonfinite(data: Any, path: KeyPath = ()) -> Iterator[Mistake]:
    """NaN and infinities, which TOML can write but no setting can be."""
    if isinstance(data, float) and not math.isfinite(data):
        yield Mistake(path, f"{path[-1]} is {data}; it must be a finite number")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from find_nonfinite(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from find_nonfinite(value, (*path, index))


def validate(model: type[M], raw: Mapping[str, Any], at: KeyPath, elsewhere: Mapping[str, str]) -> tuple[M | None, list[Mistake]]:
    """A section through its model.

    Args:
        raw: the section as parsed. at: where it stands. elsewhere: key -> section that knows it.

    Returns:
        The validated section (None when it was refused), and what is wrong with it.
    """
    try:
        section = model.model_validate(raw)
    except ValidationError as error:
        found = [_mistake(details, model, raw, at, elsewhere) for details in error.errors()]
        wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
        rest = {key: value for key, value in raw.items() if key not in wrong}
        with contextlib.suppress(ValidationError):  # what is right in itself may still be a flag in the place of a number
            found += _flags_as_numbers(rest, model.model_validate(rest), at)
        return None, found
    return section, list(_flags_as_numbers(raw, section, at))


def _mistake(details: Any, model: type[BaseModel], raw: Mapping[str, Any], at: KeyPath, elsewhere: Mapping[str, str]) -> Mistake:
    """One pydantic error as a sentence."""
    kind, value = str(details["type"]), details["input"]
    local = _existing(details["loc"], raw) if kind != "missing" else tuple(details["loc"])
    path = (*at, *local)
    if kind == "extra_forbidden":
        return unknown_key((*at, *details["loc"]), list(_model_at(model, details["loc"][:-1]).model_fields), elsewhere)
    if not local:
        return Mistake(path, str(details["msg"]).removeprefix("Value error, "), whole=True)
    key = dotted(local) if any(isinstance(part, int) for part in local) else str(local[-1])
    if kind == "missing":
        return Mistake(path, f"{key} needs a value")
    expected = EXPECTED.get(kind.split("_")[0])
    if expected and kind.split("_")[-1] in ("type", "parsing", "float", "size"):
        hint = (
            f"put quotes around it: {json.dumps(shown(value))}"
            if expected == "text" and not isinstance(value, dict | list)
            else ""
        )
        return Mistake(path, f"{key} is {shown(value)} ({kind_of(value)}), where {expected} is expected", hint)
    if kind == "literal_error":
        allowed = [part.strip(" '") for part in str(details["ctx"]["expected"]).replace(" or ", ", ").split(",")]
        near = get_close_matches(str(value), allowed, n=1)
        return Mistake(
            path,
            f"{key} is {shown(value)}; it must be {details['ctx']['expected']}",
            f"did you mean {near[0]!r}?" if near else "",
        )
    message = str(details["msg"]).removeprefix("Value error, ").replace("Input should", "it must", 1)
    return Mistake(path, f"{key} is {shown(value)}; {message[0].lower()}{message[1:]}")


def _existing(loc: Sequence[Any], raw: Any) -> KeyPath:
    """The part of a pydantic location that exists in the data (the rest names branches of a union)."""
    path: list[str | int] = []
    for part in loc:
        if (isinstance(raw, Mapping) and part in raw) or (isinstance(raw, list) and isinstance(part, int) and part < len(raw)):
            raw = raw[part]
            path.append(part)
        else:
            break
    return tuple(path)


def _model_at(model: type[BaseModel], loc: Sequence[Any]) -> type[BaseModel]:
    """The model that a location inside `model` belongs to."""
    here = model
    for part in loc:
        if isinstance(part, str) and part in here.model_fields:
            here = next(_models_in(here.model_fields[part].annotation), here)
    return here


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _flags_as_numbers(raw: Any, read: Any, path: KeyPath) -> Iterator[Mistake]:
    """`true` that was read as 1, and 1 that was read as true: pydantic allows both, a recipe means neither."""
    if isinstance(raw, bool) and isinstance(read, int | float) and not isinstance(read, bool):
        yield Mistake(path, f"{path[-1]} is {shown(raw)}, where a number is expected")
    elif isinstance(read, bool) and isinstance(raw, int | float) and not isinstance(raw, bool):
        yield Mistake(path, f"{path[-1]} is {shown(raw)}, where true or false is expected")
    elif isinstance(raw, Mapping):
        for key, value in raw.items():
            inner = (
                getattr(read, key, None) if isinstance(read, BaseModel) else read.get(key) if isinstance(read, Mapping) else None
            )
            yield from _flags_as_numbers(value, inner, (*path, key))
    elif isinstance(raw, list) and isinstance(read, list | tuple) and len(raw) == len(read):
        for index, (value, inner) in enumerate(zip(raw, read, strict=True)):
            yield from _flags_as_numbers(value, inner, (*path, index))


def as_error(mistakes: Sequence[Mistake], lines: Sequence[KeyLine], where: str, origins: Mapping[KeyPath, str]) -> RecipeError:
    """All mistakes as one error, in the order of the file."""
    placed: list[tuple[int, str, str]] = []
    for mistake in mistakes:
        path = mistake.path
        line = line_of(lines, path)
        # what stands below a section that the file does not have came with the section
        origin = next(
            (words for key, words in origins.items() if path[: len(key)] == key or (not line and key[: len(path)] == path)), ""
        )
        named = path if mistake.whole else path[:-1]
        section = f", [{dotted(named)}]" if named else ""
        given = [f" with {words}" for key, words in origins.items() if mistake.whole and key[: len(path)] == path]
        place = origin or "".join((f"{where} line {line}{section}" if line else f"{where}{section}", *given))
        placed.append((0 if origin else line or 0, f"{place}: {mistake.sentence}", mistake.hint))
    placed.sort(key=lambda entry: entry[0])
    problems = [f"{words} ({hint})" if hint and len(placed) > 1 else words for _, words, hint in placed[:MOST_MISTAKES]]
    if len(placed) > MOST_MISTAKES:
        problems.append(f"... and {len(placed) - MOST_MISTAKES} more")
    return RecipeError("\n".join(problems), placed[0][2] if len(placed) == 1 else "")
