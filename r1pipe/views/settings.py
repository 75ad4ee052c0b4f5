"""Settings for people: flat, and the differences between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from r1pipe import console
from r1pipe.opening import Opened
from r1pipe.stage import Step


def changes_text(changes: Sequence[tuple[str, Any, Any]]) -> Text:
    """Settings that differ, key by key."""
    text = Text()
    for key, then, now in changes:
        text.append("\n" if text.plain else "")
        text.append_text(console.plain(key)).append(": ", style="dim")
        text.append_text(console.plain(console.setting(then), "red")).append(" → ", style="dim")
        text.append_text(console.plain(console.setting(now), "green"))
    return text


def settings_of(opened: Opened, step: Step, every: bool) -> dict[str, Any]:
    """A step's settings, flat.

    Args:
        every: also those that the recipe does not write down and that have their defaults.
    """
    config = opened.recipe.configs[step.name]
    settings = flat(config.model_dump(mode="json", exclude_unset=not every))
    if every:
        for name in step.shares:
            settings |= {
                f"{name}.{key}": found for key, found in flat(opened.recipe.shared[name].model_dump(mode="json")).items()
            }
    return settings


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    result: dict[str, Any] = {}
    for key, found in tree.items():
        if isinstance(found, Mapping) and found:
            result |= flat(found, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = found
    return result
