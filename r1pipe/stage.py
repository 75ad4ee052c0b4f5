"""What a step is, and what a running step may look at.

A step is data, not a base class: a name, a folder, a run function, the pydantic model of its settings, what it reads and what it
writes. Steps meet only in `r1pipe.pipeline`. The runner commits a step's outputs; the step itself only writes into its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class StepConfig(BaseModel):
    """Settings of a step: what to make. Frozen; unknown keys and non-finite numbers are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False, defer_build=True)


ArtifactKind = Literal["model", "table", "json", "folder"]
"""What an output is, and so how it is checked before a commit (see `r1pipe.artifact`).

model: folder with config, weights, tokenizer and chat template. table: folder of Parquet parts with at least one row.
json: one JSON file. folder: any non-empty folder.
"""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an earlier step, as an input."""

    step: str
    name: str


@dataclass(frozen=True, slots=True)
class Base:
    """The recipe's base model, as an input: always the untouched weights, identified by their digest."""


def no_files(config: Any, shared: Mapping[str, Any]) -> Mapping[str, Path]:
    """The files of a step that reads none."""
    return {}


def no_code(config: Any, shared: Mapping[str, Any]) -> tuple[str, ...]:
    """The code of a step that runs none of the user's."""
    return ()


@dataclass(frozen=True, slots=True)
class Step:
    """One unit of resuming.

    Attributes:
        name: "stage" or "stage/step", e.g. "rejection-sft/sample"; what the user types.
        folder: where it lives inside the run, e.g. "3-rejection-sft/sample".
        run: called inside the step's own process; returns the summary that goes into the manifest.
        config: pydantic model of its settings, found in the recipe under its name.
        reads: input name -> where it comes from.
        writes: output name -> kind; the output lives at `folder/<output name>` (json outputs at `<name>.json`).
        shares: top-level recipe sections whose values are part of this step's settings (e.g. "chat").
        launcher: "accelerate" when the step trains on as many processes as the launch says, else "python".
        makes: the checkpoint's name in the paper ("Dev1"), for lineage; empty when the step makes no checkpoint.
        revision: raised when the same settings would now give something else.
        looked_at: names of inputs that are only looked at on the way: nothing of what is made depends on them, so that a step
            made without them need not be made again.
        files: from its settings and shared sections to the files of the user's that it reads, by a name that no input has; when
            one of them changes, the step is stale.
        code: from the same to the import paths of the user's code that it runs; when a file of that code changes, the step is
            stale.
        inherits: from the settings of the sections before it, by dotted name ("mixed-rl.train"), to what its own section leaves
            out.
        repeats: name of the step that it is a later round of; where and how it runs is that step's, unless the launch says more.
    """

    name: str
    folder: str
    run: Callable[[StepContext], dict[str, Any]]
    config: type[StepConfig]
    reads: Mapping[str, Output | Base] = field(default_factory=dict)
    writes: Mapping[str, ArtifactKind] = field(default_factory=dict)
    shares: tuple[str, ...] = ()
    launcher: Literal["python", "accelerate"] = "python"
    makes: str = ""
    revision: int = 1
    looked_at: tuple[str, ...] = ()
    files: Callable[[Any, Mapping[str, Any]], Mapping[str, Path]] = no_files
    code: Callable[[Any, Mapping[str, Any]], tuple[str, ...]] = no_code
    inherits: Callable[[Mapping[str, StepConfig]], Mapping[str, Any]] | None = None
    repeats: str = ""

    @property
    def stage(self) -> str:
        """The stage that the step belongs to."""
        return self.name.split("/")[0]


@dataclass(frozen=True, slots=True)
class StepContext:
    """Everything that a running step may look at.

    Attributes:
        step: the step itself.
        config: its settings, validated.
        shared: the shared recipe sections named in `step.shares`, validated, by name.
        launch: where and how: processes, micro batch, threads; never part of what is made.
        inputs: input name -> path (a model folder, a table folder, a file).
        input_digests: input name -> digest, as the runner recorded it when the step began.
        folder: the step's own folder; everything it writes goes below it.
        seed: the run's seed.
        stop_requested: True once the user asked to stop; look at it at every safe point, save, then raise `Stopped`.
    """

    step: Step
    config: Any
    shared: Mapping[str, Any]
    launch: Any
    inputs: Mapping[str, Path]
    input_digests: Mapping[str, str]
    folder: Path
    seed: int
    stop_requested: Callable[[], bool] = lambda: False

    @property
    def made_from(self) -> dict[str, str]:
        """Digests of the inputs that decide what is made."""
        return {name: digest for name, digest in self.input_digests.items() if name not in self.step.looked_at}

    def output(self, name: str) -> Path:
        """Path of a promised output; an error of ours when it was not promised."""
        kind = self.step.writes[name]
        return self.folder / (f"{name}.json" if kind == "json" else name)
