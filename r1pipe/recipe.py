"""The recipe: one TOML file that says everything about a run, checked in full before anything starts.

Settings say what to make and go into the record of each step. `[launch]` says where and how; it never enters a record that is
compared, so changing it never invalidates anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from r1pipe.graph import Pipeline
from r1pipe.stage import Step, StepConfig


class BaseModelSection(StepConfig):
    """`[base]`: the model that the chain starts from."""

    model: str
    """A name that the pipeline knows (e.g. "nano"), or a local folder."""
    digest: str = ""
    """When given, the weights must have this digest."""


class Launch(BaseModel):
    """`[launch]`: where and how a step runs. Nothing here changes what is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    processes: PositiveInt = 1
    """Training processes on this machine; more than one are started by `accelerate launch`."""
    threads: PositiveInt | None = None
    """Threads of each process; by default the cores are shared out among the processes."""
    micro_batch: PositiveInt | None = None
    """Sequences that one process handles at once; by default the step decides."""
    launcher_args: tuple[str, ...] = ()
    """Further arguments of `accelerate launch`, e.g. ["--config_file", "fsdp.yaml"]."""
    env: dict[str, str] = {}
    """Environment variables of the step's process."""
    offline: bool = True
    """Forbid the Hugging Face libraries to use the network."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe that has passed every check.

    Attributes:
        name: the recipe's name, for people.
        pipeline: name of the pipeline it is for.
        seed: seed of the run.
        base: `[base]`.
        configs: step name -> its settings, defaults filled in.
        shared: shared section name -> its settings.
        launches: step name -> its launch, overrides applied.
        text: the TOML as written.
    """

    name: str
    pipeline: str
    seed: int
    base: BaseModelSection
    configs: Mapping[str, StepConfig]
    shared: Mapping[str, StepConfig]
    launches: Mapping[str, Launch]
    text: str

    def settings(self, step: Step, base_digest: str = "") -> dict[str, Any]:
        """The slice of the recipe that decides what a step makes, in full, as JSON values under its recipe keys.

        Args:
            base_digest: identity of the base model; goes in when the step reads the base.
        """
        raise NotImplementedError


def pipeline_name(source: Path | str) -> str:
    """The name of the pipeline that a recipe is for, before it is checked; "r1" when it says nothing."""
    raise NotImplementedError


def load_recipe(source: Path | str, pipeline: Pipeline, where: str = "") -> Recipe:
    """Read a recipe and check all of it: every key, type and value of every step.

    Args:
        source: a file (Path) or the TOML itself (str).
        where: what to call it in messages; by default the file's name.

    Raises:
        RecipeError: one line for each mistake, with file, line, section and the nearest known key.
    """
    raise NotImplementedError


def apply_sets(text: str, sets: Sequence[str], pipeline: Pipeline, where: str = "recipe") -> str:
    """The recipe with `--set key=value` applied, comments kept, checked as a whole.

    The key is a dotted recipe key ("reasoning-rl.steps", "rejection-sft.sample.attempts", "seed"); "/" may stand for the dot
    between stage and step. The value follows the first "=", in TOML's syntax; a bare word is text.

    Raises:
        RecipeError: as `load_recipe`; mistakes in a `--set` name it instead of a line.
    """
    raise NotImplementedError
