"""A pipeline: the steps in order, and how they hang together.

A pipeline is plain data, checked once when it is made. The order of the tuple is the order of execution; what a step reads
decides what goes stale when another step is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from r1pipe.errors import ArtifactError, RecipeError
from r1pipe.stage import Base, Output, Step, StepConfig

DEFAULT_LOADER = "r1pipe.pipeline:load"
"""Which function gives a pipeline by name, as "module:function"."""

RESERVED_SECTIONS = ("name", "pipeline", "seed", "base", "launch", "revision")
"""Top-level names of a recipe that no step and no shared section may take."""

RESERVED_OUTPUTS = ("manifest", "begun", "result", "error", "worker", "progress", "metrics", "logs", "stop")
"""Names in a step's folder that belong to the runner."""


def locate_folder(model: str) -> Path:
    """The folder that `[base] model` names, when it is a path to a local folder.

    Raises:
        ArtifactError: there is no such folder.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise ArtifactError(
            f"base model {model!r}: no such folder (looked in {os.fspath(Path.cwd())})", "name a local folder in [base] model"
        )
    return folder


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Steps in order of execution, and the recipe sections that several of them share.

    Attributes:
        name: what `pipeline = ` says in a recipe.
        steps: in order of execution; a step only reads from steps before it.
        shared: top-level recipe section -> its model; a step uses one by naming it in `Step.shares`.
        locate_base: from the text of `[base] model` to a local folder; raises `ArtifactError` when there is none.
        sections: dotted recipe section -> its model, of sections that decide which steps there are (e.g. how many rounds).
        grow: from the steps without them and these sections to the steps that there are.
        shape: those sections as a recipe writes them, as JSON: what a step's process needs to find the same steps.
        plain: the steps before they were grown.
    """

    name: str
    steps: tuple[Step, ...]
    shared: Mapping[str, type[StepConfig]] = field(default_factory=dict)
    locate_base: Callable[[str], Path] = locate_folder
    sections: Mapping[str, type[StepConfig]] = field(default_factory=dict)
    grow: Callable[[tuple[Step, ...], Mapping[str, StepConfig]], tuple[Step, ...]] | None = None
    shape: str = ""
    plain: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        problems = _problems(self)
        if problems:
            raise ValueError(f"pipeline {self.name!r}: " + "; ".join(problems))

    def shaped(self, data: Mapping[str, Any]) -> Pipeline:
        """The pipeline with the steps that this recipe (its TOML as data) asks for. Sections that are not right count as left
        out: whoever checks the recipe says so."""
        if self.grow is None:
            return self
        given: dict[str, StepConfig] = {}
        written: dict[str, Any] = {}
        for name, model in self.sections.items():
            *outer, last = name.split(".")
            raw: Any = data
            for part in (*outer, last):
                raw = raw.get(part, {}) if isinstance(raw, Mapping) else {}
            try:
                given[name] = model.model_validate(raw)
            except ValidationError:
                given[name] = model()
            if unlike := given[name].model_dump(mode="json", exclude_defaults=True):
                here = written
                for part in outer:
                    here = here.setdefault(part, {})
                here[last] = unlike
        plain = self.plain or self.steps
        shape = json.dumps(written, sort_keys=True) if written else ""
        return replace(self, steps=self.grow(plain, given), shape=shape, plain=plain)

    def step(self, name: str) -> Step:
        """The step of that exact name; `RecipeError` with the nearest one otherwise."""
        for step in self.steps:
            if step.name == name:
                return step
        raise self._unknown(name)

    def select(self, name: str) -> tuple[Step, ...]:
        """The steps meant by a stage ("rejection-sft") or a step ("rejection-sft/sample"), in order."""
        wanted = name.strip("/")
        found = tuple(step for step in self.steps if wanted in (step.name, step.stage))
        if not found:
            raise self._unknown(name)
        return found

    def readers(self, *names: str) -> tuple[Step, ...]:
        """Every step that was made from one of the named steps, directly or not, in order; without the named ones."""
        made = set(names)
        for step in self.steps:
            if any(isinstance(source, Output) and source.step in made for source in step.reads.values()):
                made.add(step.name)
        return tuple(step for step in self.steps if step.name in made and step.name not in names)

    def reads_base(self) -> tuple[Step, ...]:
        """The steps that start from the recipe's base model."""
        return tuple(step for step in self.steps if reads_base(step))

    def _unknown(self, name: str) -> RecipeError:
        names = list(dict.fromkeys([step.name for step in self.steps] + [step.stage for step in self.steps]))
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return RecipeError(
            f"there is no step or stage {name!r} in pipeline {self.name!r}",
            f"{hint}steps: {', '.join(s.name for s in self.steps)}",
        )


def reads_base(step: Step) -> bool:
    """Whether the step starts from the recipe's base model."""
    return any(isinstance(source, Base) for source in step.reads.values())


def section_of(step: Step) -> tuple[str, ...]:
    """Where a step's settings stand in a recipe: ("rejection-sft", "sample") for `[rejection-sft.sample]`."""
    return tuple(step.name.split("/"))


def _problems(pipeline: Pipeline) -> list[str]:
    """Everything that is wrong with a pipeline, for whoever writes one."""
    problems: list[str] = []
    before: dict[str, Step] = {}
    for step in pipeline.steps:
        if step.name in before:
            problems.append(f"two steps are called {step.name!r}")
        if ".".join(section_of(step)) in pipeline.sections:
            problems.append(f"step {step.name!r} takes the name of a section that decides which steps there are")
        if step.stage in RESERVED_SECTIONS or step.stage in pipeline.shared:
            problems.append(f"step {step.name!r} takes the name of another recipe section")
        for other in before.values():
            if _inside(step.folder, other.folder) or _inside(other.folder, step.folder):
                problems.append(f"folders of {other.name!r} and {step.name!r} overlap")
            if _inside(step.name, other.name) or _inside(other.name, step.name):
                problems.append(f"{other.name!r} and {step.name!r}: a stage with steps has no settings of its own")
        for name, source in step.reads.items():
            if isinstance(source, Output) and source.step not in before:
                problems.append(f"{step.name!r} reads {name!r} from {source.step!r}, which does not come before it")
            elif isinstance(source, Output) and source.name not in before[source.step].writes:
                problems.append(f"{step.name!r} reads {source.name!r}, which {source.step!r} does not write")
        problems += [f"{step.name!r} shares unknown section {name!r}" for name in step.shares if name not in pipeline.shared]
        problems += [f"{step.name!r} writes {name!r}, which is the runner's" for name in step.writes if name in RESERVED_OUTPUTS]
        before[step.name] = step
    problems += [f"shared section {name!r} is reserved" for name in pipeline.shared if name in RESERVED_SECTIONS]
    return problems


def _inside(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer + "/")
