"""Which checkpoint was made from which: drawn from the pipeline, confirmed by the manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from r1pipe.graph import Pipeline
from r1pipe.stage import Base, Output, Step
from r1pipe.states import StepPlan

BASE = "Base"


@dataclass(frozen=True, slots=True)
class Link:
    """One checkpoint: the step that makes it, where its weights start, and the checkpoints whose output it learns from."""

    step: Step
    parent: str
    learns_from: tuple[str, ...]

    @property
    def name(self) -> str:
        """The checkpoint's name in the paper."""
        return self.step.makes


def links(pipeline: Pipeline) -> list[Link]:
    """All checkpoints of a pipeline, in order."""
    steps = {step.name: step for step in pipeline.steps}
    found = []
    for step in pipeline.steps:
        if not step.makes:
            continue
        parent, others = "", list[str]()
        for source in step.reads.values():
            if isinstance(source, Base):
                parent = parent or BASE
            elif steps[source.step].makes and not parent:
                parent = steps[source.step].makes
            else:
                others += _makers(steps[source.step], steps)
        found.append(Link(step, parent, tuple(dict.fromkeys(name for name in others if name != parent))))
    return found


def _makers(step: Step, steps: Mapping[str, Step]) -> list[str]:
    """The checkpoints that a step without one of its own got its output from."""
    if step.makes:
        return [step.makes]
    sources = [source for source in step.reads.values() if isinstance(source, Output)]
    return [name for source in sources for name in _makers(steps[source.step], steps)]


def chains(pipeline: Pipeline) -> list[list[str]]:
    """The lines of descent from the base: [["Base", "Dev1", "Dev2"], ["Base", "Dev3", "R1"]]."""
    parents = {link.name: link.parent for link in links(pipeline)}
    leaves = [name for name in parents if name not in parents.values()]
    result = []
    for leaf in leaves:
        line = [leaf]
        while parents.get(line[0]):
            line.insert(0, parents[line[0]])
        result.append(line)
    return result


def picture(pipeline: Pipeline, plans: Sequence[StepPlan]) -> Text:
    """The lines of descent with the steps between them, and what is known of the base's weights."""
    found = {link.name: link for link in links(pipeline)}
    states = {place.step.name: place.state for place in plans}
    text = Text()
    for line in chains(pipeline):
        text.append("\n" if text.plain else "").append(line[0], style="bold")
        for name in line[1:]:
            step = found[name].step
            done = states.get(step.name) == "done"
            text.append(f" ── {step.name} ──▶ ", style="" if done else "dim")
            text.append(name, style="bold green" if done else "bold dim")
    for link in found.values():
        if link.learns_from:
            text.append("\n").append(f"{link.name} learns from what {' and '.join(link.learns_from)} wrote", style="dim")
    if digests := base_digests(plans):
        text.append("\n").append_text(_base_line(digests))
    return text


def base_digests(plans: Sequence[StepPlan]) -> dict[str, str]:
    """Step -> digest of the base model that it really started from, from the manifests."""
    return {
        place.step.name: record.digest
        for place in plans
        if place.manifest is not None
        for name, record in place.manifest.inputs.items()
        if record.step == "base" and isinstance(place.step.reads.get(name), Base)
    }


def _base_line(digests: Mapping[str, str]) -> Text:
    kinds = set(digests.values())
    if len(kinds) == 1:
        return Text(f"the same clean base, {next(iter(kinds))[:12]}, in {', '.join(digests)}", style="dim")
    shown = ", ".join(f"{name} {digest[:12]}" for name, digest in digests.items())
    return Text(f"different base models: {shown}", style="bold red")


def lineage_json(pipeline: Pipeline, plans: Sequence[StepPlan]) -> dict[str, Any]:
    """The same for programs."""
    manifests = {place.step.name: place.manifest for place in plans}
    return {
        "chains": chains(pipeline),
        "checkpoints": [
            {
                "name": link.name,
                "step": link.step.name,
                "parent": link.parent,
                "learns_from": list(link.learns_from),
                "build": manifest.build if (manifest := manifests.get(link.step.name)) else None,
            }
            for link in links(pipeline)
        ],
        "base": base_digests(plans),
    }
