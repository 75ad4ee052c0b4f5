"""Answers that are exact structures: words, sorted lists, grids, brackets to close, JSON. Equal or not; nothing is evaluated."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

MAX_CHARS = 20_000
_ITEM = re.compile(r"[\s,;，；、]+")


def canonical(text: str) -> str:
    """One spelling: composed characters, no Markdown or LaTeX around it, single spaces, no full stop at the end."""
    text = unicodedata.normalize("NFKC", text[:MAX_CHARS]).strip()
    text = re.sub(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"^(?:\*\*|`{1,3}|\$)+|(?:\*\*|`{1,3}|\$)+$", "", text.strip()).strip()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    text = "\n".join(line for line in lines if line)
    return text.rstrip(" .。") if re.search(r"\w\s*[.。]$", text) else text


def as_json(text: str) -> Any:
    """The JSON value of a list or object; None for anything else, and for what is nested too deeply to read."""
    if text[:1] not in "[{" or text.count("[") + text.count("{") > 2000:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def same_structure(gold: str, answer: str) -> bool:
    """Whether two answers are the same, whatever their spacing, letter case and separators between items."""
    one, two = canonical(gold), canonical(answer)
    if not one or not two:
        return False
    if one == two or one.casefold() == two.casefold():
        return True
    first, second = as_json(one), as_json(two)
    if first is not None and second is not None:
        return bool(first == second)
    if not re.search(r"\w", one):  # brackets: the symbols in their order
        return "".join(one.split()) == "".join(two.split())
    rows = [[_items(line) for line in text.splitlines()] for text in (one, two)]
    if any(len(side) > 1 and max(map(len, side)) > 1 for side in rows):  # a grid keeps its shape
        return rows[0] == rows[1]
    left, right = _items(one), _items(two)
    return len(left) > 1 and left == right


def _items(line: str) -> list[str]:
    return [item for item in _ITEM.split(_unlisted(line).casefold()) if item]


def _unlisted(text: str) -> str:
    """A bracketed or numbered list without its brackets, numbers and quotes."""
    text = re.sub(r"^\s*[\[({]|[\])}]\s*$", "", text)
    return re.sub(r"(?m)^\s*(?:\d+[.)]|[-*•])\s+", "", text).replace('"', "").replace("'", "")
