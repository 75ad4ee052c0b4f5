"""HTML by functions: text is escaped, and only what these functions made is markup.

Text by models and users therefore cannot open a tag, close one, or leave an attribute. Control characters, bidirectional
overrides and other invisible characters are shown as escapes, as on the terminal.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from r1pipe.console import escaped

EMPTY_ELEMENTS = frozenset({"br", "hr"})
"""Elements without a closing tag; those of a picture need one."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | None
"""What may stand inside an element: markup, text (escaped), a number, nothing."""


def h(tag: str, *children: Child | Iterable[Child], **attributes: str | int | float | bool | None) -> Markup:
    """An element.

    Args:
        children: text is escaped, `Markup` is not; lists are flattened, None is left out.
        attributes: an underscore at the end is dropped and others become hyphens (`class_`, `aria_label`); True stands alone,
            False and None leave the attribute out.
    """
    opening = tag
    for name, found in attributes.items():
        if found is None or found is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        opening += f" {key}" if found is True else f' {key}="{html.escape(escaped(str(found)), quote=True)}"'
    if tag in EMPTY_ELEMENTS:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(*children)}</{tag}>")


def join(*children: Child | Iterable[Child]) -> Markup:
    """Several children as one piece of markup."""
    pieces: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            pieces.append(child)
        elif isinstance(child, str):
            pieces.append(html.escape(escaped(child), quote=False))
        elif isinstance(child, int):
            pieces.append(f"{child:,}")
        else:
            pieces += [join(one) for one in child]
    return Markup("".join(pieces))


def table(
    head: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    caption: str,
    numbers_from: int = 1,
    class_: str = "",
    note: Child = None,
) -> Markup:
    """A table in a frame that scrolls sideways on a narrow screen; the first cell of a row is its heading.

    Args:
        caption: what the table is, for everybody; it stands above.
        numbers_from: columns from this one on are aligned to the right.
        note: a line below.
    """
    kinds = ["number" if number >= numbers_from else None for number in range(len(head))]
    top = h("tr", [h("th", cell, scope="col", class_=kind) for cell, kind in zip(head, kinds, strict=True)])
    body = [
        h("tr", h("th", row[0], scope="row"), [h("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)])
        for row in rows
    ]
    whole = h("table", h("caption", h("span", caption)), h("thead", top), h("tbody", body), class_=class_ or None)
    frame = h("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return join(frame, h("p", note, class_="note") if note else None)


def definitions(pairs: Iterable[tuple[Child, Child]], class_: str | None = None) -> Markup:
    """A list of names and values."""
    return h("dl", [h("div", h("dt", name), h("dd", found)) for name, found in pairs if found not in (None, "")], class_=class_)


def json_block(data: Mapping[str, Any], name: str) -> Markup:
    """Data for the page's script. No character in it can end the element: "<", ">" and "&" are written as escapes."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}.items():
        text = text.replace(character, escape)
    return Markup(f'<script type="application/json" id="{name}">{text}</script>')
