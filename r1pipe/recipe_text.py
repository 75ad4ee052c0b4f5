"""TOML as text: on which line a key stands, which keys are given twice, and edits that keep comments.

The standard parser gives neither line numbers for keys nor both places of a duplicate; this module finds them by reading the
statements of the file (headers and keys), skipping over values.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from r1pipe.errors import RecipeError

KeyPath = tuple[str | int, ...]
"""Keys from the top, e.g. ("rejection-sft", "sample", "attempts"); a number is the place in an array of tables."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key or a table header, and the line (from 1) where it stands."""

    path: KeyPath
    line: int
    header: bool


class _Unreadable(Exception):
    """The scanner met something that is not TOML; what was read so far stands."""


def key_lines(text: str) -> list[KeyLine]:
    """Every header and every key of a TOML text, in order. Reads as far as the text is TOML; keys inside values are left out."""
    found: list[KeyLine] = []
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position = 0
    try:
        while (position := _skip_blank(text, position)) < len(text):
            line = text.count("\n", 0, position) + 1
            if text[position] == "[":
                array = text.startswith("[[", position)
                keys, position = _read_key(text, position + (2 if array else 1), "]")
                position += 2 if array else 1
                table = _place(keys, counts, array)
                found.append(KeyLine(table, line, header=True))
                position = _skip_value(text, position)
            else:
                keys, position = _read_key(text, position, "=")
                found.append(KeyLine(table + keys, line, header=False))
                position = _skip_value(text, position + 1)
    except _Unreadable:
        pass
    return found


def duplicates(text: str) -> list[tuple[KeyPath, int, int]]:
    """Keys and headers that are given twice: path, first line, second line."""
    first: dict[KeyPath, int] = {}
    twice: list[tuple[KeyPath, int, int]] = []
    for key in key_lines(text):
        if key.path in first:
            twice.append((key.path, first[key.path], key.line))
        else:
            first[key.path] = key.line
    return twice


def line_of(lines: Sequence[KeyLine], path: KeyPath) -> int | None:
    """The line of a key; of the nearest enclosing key or header when it stands inside a value; None when there is none."""
    for length in range(len(path), 0, -1):
        for key in lines:
            if key.path == path[:length]:
                return key.line
        for key in lines:  # a key below it, as for "a" when only [a.b] is written
            if length == len(path) and key.path[:length] == path:
                return key.line
    return None


def dotted(path: KeyPath) -> str:
    """A path as it is written in a recipe; parts that are not plain are quoted."""
    return ".".join(
        str(part) if isinstance(part, int) or _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path
    )


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with one key set, everything else (comments, order, layout) kept.

    Raises:
        ValueError: the path goes through something that is not a table.
    """
    import tomlkit
    from tomlkit.items import AbstractTable

    document = tomlkit.parse(text)
    here: Any = document
    for depth, part in enumerate(path[:-1]):
        if part not in here:
            here[part] = tomlkit.table(is_super_table=depth < len(path) - 2)
        here = here[part]
        if not isinstance(here, AbstractTable | dict):
            raise ValueError(dotted(tuple(path[: depth + 1])))
    here[path[-1]] = value
    edited = tomlkit.dumps(document)
    wanted = tomllib.loads(text)
    there = wanted
    for part in path[:-1]:
        there = there.setdefault(part, {})
    there[path[-1]] = value
    if tomllib.loads(edited) != wanted:  # never write a recipe that means something else than was asked for
        raise ValueError(dotted(tuple(path)))
    return edited


def read_set(item: str) -> tuple[tuple[str, ...], Any]:
    """Key and value of a `--set section.key=value`; `RecipeError` when it is not of that form."""
    key, equals, value = item.partition("=")
    if not equals or not key.strip():
        raise RecipeError(
            f"--set {item}: there is no '='" if not equals else f"--set {item}: there is no key", "write --set section.key=value"
        )
    parts: list[str] = []
    try:
        parsed: Any = tomllib.loads(f"{_quoted_slashes(key.strip())} = 0")
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"--set {item}: {key.strip()!r} is not a key", "write --set section.key=value") from error
    while isinstance(parsed, dict):
        part, parsed = next(iter(parsed.items()))
        parts += [part] if parts[:2] == ["launch", "steps"] else part.split("/")
    return tuple(parts), _read_value(value.strip())


def _quoted_slashes(key: str) -> str:
    """A key with the parts that hold a "/" quoted, as TOML wants them."""
    return key if '"' in key or "'" in key else ".".join(f'"{part}"' if "/" in part else part for part in key.split("."))


def _read_value(value: str) -> Any:
    """A value in TOML's syntax; anything that is not is text."""
    try:
        parsed = tomllib.loads(f"x = {value}")
    except tomllib.TOMLDecodeError:
        return value
    return parsed["x"] if len(parsed) == 1 else value  # a value with line ends could otherwise bring further keys


def _place(keys: tuple[str, ...], counts: dict[KeyPath, int], array: bool) -> KeyPath:
    """A header's path, with the current place in each array of tables that it goes through."""
    path: KeyPath = ()
    for depth, key in enumerate(keys):
        path = (*path, key)
        last = depth == len(keys) - 1
        if last and array:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _skip_blank(text: str, position: int) -> int:
    """Past white space, line ends and comments."""
    while position < len(text):
        if text[position] == "#":
            position = _line_end(text, position)
        elif text[position] in " \t\r\n":
            position += 1
        else:
            break
    return position


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _read_key(text: str, position: int, until: str) -> tuple[tuple[str, ...], int]:
    """A dotted key that ends before the character `until`; returns its parts and the position of that character."""
    parts: list[str] = []
    while True:
        while position < len(text) and text[position] in " \t":
            position += 1
        if position < len(text) and text[position] in "\"'":
            end = _string_end(text, position)
            raw = text[position:end]
            parts.append(tomllib.loads(f"x = {raw}")["x"] if "\n" not in raw else raw)
        elif match := _BARE.match(text, position):
            end = match.end()
            parts.append(match.group())
        else:
            raise _Unreadable
        position = end
        while position < len(text) and text[position] in " \t":
            position += 1
        if position >= len(text) or text[position] not in f".{until}":
            raise _Unreadable
        if text[position] == until:
            return tuple(parts), position
        position += 1


def _string_end(text: str, position: int) -> int:
    """The position after a string of any of TOML's four kinds."""
    quote = text[position]
    mark = quote * 3 if text.startswith(quote * 3, position) else quote
    here = position + len(mark)
    while here < len(text):
        if quote == '"' and text[here] == "\\":
            here += 2
        elif text.startswith(mark, here):
            here += len(mark)
            while len(mark) == 3 and here < len(text) and text[here] == quote:
                here += 1  # up to two quotes may stand before the closing mark
            return here
        elif len(mark) == 1 and text[here] == "\n":
            raise _Unreadable
        else:
            here += 1
    raise _Unreadable


def _skip_value(text: str, position: int) -> int:
    """To the end of a statement: the first line end outside strings and brackets."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character in "\"'":
            position = _string_end(text, position)
            continue
        if character == "#":
            position = _line_end(text, position)
            continue
        if character == "\n" and depth <= 0:
            return position
        depth += (character in "[{") - (character in "]}")
        position += 1
    return position
