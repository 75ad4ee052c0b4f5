"""The settings of a run on the page: beside their defaults, and what differs from the paper, its recipe and another run."""

from __future__ import annotations

from typing import Any

from r1pipe import console
from r1pipe.errors import R1PipeError
from r1pipe.manifest import changes
from r1pipe.opening import Opened, load, packaged_recipes
from r1pipe.report.markup import Child, Markup, h, join, table
from r1pipe.stage import Step
from r1pipe.views.recipes import field_docs
from r1pipe.views.settings import flat, settings_of

PAPER = "paper"
"""The packaged recipe with every number that the paper gives."""

PLACES = ("prepare",)
"""Steps whose settings say where data come from: no number of the paper stands there."""


def settings(opened: Opened, other: Opened | None, other_name: str) -> Markup:
    """Every step's settings beside their defaults, and what differs from the packaged recipe and from the other run."""
    parts: list[Child] = [from_the_paper(opened)]
    packaged = packaged_recipes().get(opened.recipe.name)
    if packaged is not None:
        try:
            pipeline, recipe = load(packaged.read_text(encoding="utf-8"), f"recipe {opened.recipe.name}")
        except R1PipeError:
            packaged = None  # a recipe of the same name for another pipeline
        else:
            there = Opened(opened.run, pipeline, recipe)
            parts.append(
                _differences(
                    opened, there, f"Differences from the recipe {opened.recipe.name} as it comes with r1pipe", "as packaged"
                )
            )
    if other is not None:
        parts.append(_differences(opened, other, f"Differences from {other_name}", other_name))
    for step in opened.pipeline.steps:
        given = settings_of(opened, step, False)
        every = settings_of(opened, step, True)
        usual = defaults_of(step)
        meanings = field_docs(step.config)
        rows: list[list[Child]] = []
        for key, found in every.items():
            default = usual.get(key, "")
            differs = key in given and key in usual and default != found
            shown = console.setting(found)
            rows.append(
                [
                    h("span", key, title=meanings.get(key.split(".")[0], "") or None),
                    h("strong", shown) if differs else shown,
                    "" if key not in usual else console.setting(default) if differs else "the same",
                ]
            )
        if rows:
            body = table([step.name, "this run", "default"], rows, f"Settings of {step.name}", numbers_from=9)
            parts.append(
                h("details", h("summary", f"{step.name} ", h("span", f"{len(given)} given in the recipe", class_="small")), body)
            )
    return join(*parts)


def defaults_of(step: Step) -> dict[str, Any]:
    """The settings of a step that have defaults, with them, flat."""
    fields = step.config.model_fields.items()
    tree = {name: info.get_default(call_default_factory=True) for name, info in fields if not info.is_required()}
    return flat({name: found.model_dump(mode="json") if hasattr(found, "model_dump") else found for name, found in tree.items()})


def _differences(mine: Opened, other: Opened, caption: str, column: str) -> Markup:
    found = changes(_all_settings(other), _all_settings(mine))
    if not found:
        return h("p", f"{caption}: none.")
    rows: list[list[Child]] = [[key, console.setting(now), console.setting(then)] for key, then, now in found]
    return table(["setting", "this run", column], rows, caption, numbers_from=9)


def _all_settings(opened: Opened) -> dict[str, Any]:
    """Everything that a recipe says of what to make."""
    tree: dict[str, Any] = {"seed": opened.recipe.seed, "base.model": opened.recipe.base.model}
    for step in opened.pipeline.steps:
        tree |= {
            f"{step.name.replace('/', '.')}.{key}": found
            for key, found in flat(opened.recipe.configs[step.name].model_dump(mode="json")).items()
        }
    for name, section in opened.recipe.shared.items():
        tree |= {f"{name}.{key}": found for key, found in flat(section.model_dump(mode="json")).items()}
    return tree


def from_the_paper(opened: Opened) -> Markup:
    """Every number that the paper gives for a step of this run, where the run has another one."""
    text = packaged_recipes()[PAPER].read_text(encoding="utf-8")
    _, recipe = load(text, f"recipe {PAPER}")
    rows: list[list[Child]] = []
    same = 0
    for step in opened.pipeline.steps:
        if step.stage in PLACES or step.name not in recipe.configs:
            continue
        given = flat(recipe.configs[step.name].model_dump(mode="json", exclude_unset=True))
        here = flat(opened.recipe.configs[step.name].model_dump(mode="json"))
        for key, papers in given.items():
            if key in here and here[key] == papers:
                same += 1
            elif key in here:
                rows.append([f"{step.name} · {key}", console.setting(here[key]), console.setting(papers)])
    if not rows:
        return h("p", f"All {same} settings for which the paper gives a number are the paper’s.") if same else Markup("")
    note = (
        f"The recipe “{PAPER}” holds every number that the paper gives; {same} of them are the same here. "
        "docs/paper.md says where each one stands."
    )
    body = table(["setting", "this run", "paper"], rows, "Differences from the paper", numbers_from=9, note=note)
    return h("details", h("summary", "Differences from the paper ", h("span", f"{len(rows)} settings", class_="small")), body)
