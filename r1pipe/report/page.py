"""The page around the sections: one file with styles, scripts and data inside, and a policy that forbids it to load anything."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from r1pipe import __version__
from r1pipe.report.markup import Markup, h, join

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its title, and its content (left out when that is empty)."""

    name: str
    title: str
    body: Markup


def render(title: str, facts: str, sections: Sequence[Section], data: Markup, live: bool) -> str:
    """The whole page.

    Args:
        facts: a line below the title.
        data: the script's data, as an element.
        live: whether the page may ask the server that it came from for news.
    """
    style = asset("uPlot.min.css") + asset("report.css")
    scripts = [asset("uPlot.iife.min.js"), asset("report.js")]
    policy = [
        "default-src 'none'",
        f"style-src {_hash(style)}",
        f"script-src {' '.join(map(_hash, scripts))}",
        "img-src data:",
        f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    links = [h("li", h("a", one.title, href=f"#{one.name}")) for one in sections]
    content = [
        h("section", h("h2", one.title, id=f"{one.name}-title"), one.body, id=one.name, aria_labelledby=f"{one.name}-title")
        for one in sections
    ]
    places = {
        "policy": "; ".join(policy),
        "title": join(title),
        "facts": join(facts),
        "style": style,
        "links": join(links),
        "content": join(content),
        "data": data,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
        "version": __version__,
    }
    return _PLACE.sub(lambda match: places[match[1]], asset("page.html"))  # one pass: what is put in is never read as a place


@cache
def asset(name: str) -> str:
    """A file of the page that lies in the package."""
    return (files("r1pipe.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a policy names an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
