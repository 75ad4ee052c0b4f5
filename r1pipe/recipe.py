"""The recipe: one TOML file that says everything about a run, checked in full before anything starts.

Settings say what to make and go into the record of each step. `[launch]` says where and how; it never enters a record that is
compared, so changing it never invalidates anything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from r1pipe.errors import RecipeError
from r1pipe.graph import Pipeline, reads_base, section_of
from r1pipe.guards import GuardSettings, HackingSettings
from r1pipe.recipe_check import Mistake, as_error, filled_in, find_nonfinite, not_a_table, shown, unknown_key, validate
from r1pipe.recipe_text import KeyPath, dotted, duplicates, key_lines, read_set, set_value
from r1pipe.stage import Step, StepConfig

DEFAULT_PIPELINE = "r1"


class Head(StepConfig):
    """The keys at the top of a recipe."""

    name: str = ""
    """The recipe's name, for people."""
    pipeline: str = DEFAULT_PIPELINE
    """The chain of steps that the recipe is for."""
    seed: int = Field(default=0, ge=0, lt=2**32)  # what the number generators of the trainers take
    """Every random choice of the run follows from it."""


class BaseModelSection(StepConfig):
    """`[base]`: the model that the chain starts from."""

    model: str = ""
    """A name that the pipeline knows (e.g. "nano"), or a local folder."""
    digest: str = ""
    """When given, the weights must have this digest."""


class Launch(BaseModel):
    """`[launch]`: where and how a step runs. Nothing here changes what is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

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
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of training: auto is bfloat16 on a GPU that has it and float32 elsewhere."""
    checkpoint_every: PositiveInt | None = None
    """Optimizer steps between checkpoints, rounded up to a rollout's end; by default a tenth of the steps."""
    keep_checkpoints: PositiveInt = 2
    """Whole checkpoints that are kept; older ones are deleted."""
    keep_attempts: int = Field(default=64, ge=0)
    """Attempts of each rollout that are kept for `inspect`, in whole groups."""
    gradient_checkpointing: bool = False
    """Trade time for memory in the backward pass."""
    generation_batch: PositiveInt | None = None
    """Sequences that an engine generates at once; by default the engine decides."""
    stall_minutes: float = Field(default=90.0, ge=0)
    """A step that reports no progress for so long shows its stacks and fails; 0 never. The paper's rollouts took 18 minutes."""
    report_to: tuple[str, ...] = ()
    """Experiment trackers besides the run's own files: "tensorboard", "wandb", "trackio", "mlflow"."""
    guards: GuardSettings = GuardSettings()
    """When a run of reinforcement learning that is lost stops by itself."""
    hacking: HackingSettings = HackingSettings()
    """How often the policy is held against unseen problems while preference rewards are on, and what follows from it."""
    collective_minutes: PositiveFloat = 30.0
    """How long one training process waits for another before it gives up."""


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
        settings: dict[str, Any] = {"seed": self.seed, "revision": step.revision}
        if reads_base(step):
            settings["base"] = {"digest": base_digest}
        for name in step.shares:
            settings[name] = self.shared[name].model_dump(mode="json")
        here = settings
        *outer, last = section_of(step)
        for part in outer:
            here = here.setdefault(part, {})
        here[last] = self.configs[step.name].model_dump(mode="json")
        return settings


def pipeline_name(source: Path | str) -> str:
    """The name of the pipeline that a recipe is for, before it is checked; "r1" when it says nothing.

    Raises:
        RecipeError: the file cannot be read or is not TOML.
    """
    text, where = _read(source, "")
    name = _parse(text, where).get("pipeline", DEFAULT_PIPELINE)
    return name if isinstance(name, str) else DEFAULT_PIPELINE


def load_recipe(source: Path | str, pipeline: Pipeline, where: str = "") -> Recipe:
    """Read a recipe and check all of it: every key, type and value of every step.

    Args:
        source: a file (Path) or the TOML itself (str).
        where: what to call it in messages; by default the file's path.

    Raises:
        RecipeError: one line for each mistake, with file, line, section and the nearest known key.
    """
    text, name = _read(source, where)
    return _check(text, name, pipeline, {})


def apply_sets(text: str, sets: Sequence[str], pipeline: Pipeline, where: str = "recipe") -> str:
    """The recipe with `--set key=value` applied, comments kept, checked as a whole.

    The key is a dotted recipe key ("reasoning-rl.steps", "rejection-sft.sample.attempts", "seed"); "/" may stand for the dot
    between stage and step. The value follows the first "=", in TOML's syntax; a bare word is text.

    Raises:
        RecipeError: as `load_recipe`; mistakes in a `--set` name it instead of a line.
    """
    origins: dict[KeyPath, str] = {}
    written = text
    if infinite := list(find_nonfinite(_parse(text, where))):
        raise as_error(infinite, key_lines(text), where, origins)
    for item in sets:
        path, value = read_set(item)
        if infinite := list(find_nonfinite(value, path)):
            raise as_error(infinite, key_lines(text), where, {path: f"--set {item}"})
        try:
            text = set_value(text, path, value)
        except ValueError as error:
            raise RecipeError(
                f"--set {item}: {error} is a single value, not a section", "set it as a whole, or edit the recipe"
            ) from error
        origins[path] = f"--set {item}"
    _check(text, where, pipeline, origins, written)
    return text


def file_text(path: Path, where: str = "") -> str:
    """What a recipe's file says; editors may have put a mark of byte order in front.

    Raises:
        RecipeError: it cannot be read, or is no text.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(
            f"{where or path}: {error.strerror}", "r1pipe recipes lists the recipes that come with r1pipe"
        ) from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where or path} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from error


def _read(source: Path | str, where: str) -> tuple[str, str]:
    """Text of a recipe, and what to call it."""
    return (source, where or "recipe") if isinstance(source, str) else (file_text(source, where), where or str(source))


def _parse(text: str, where: str) -> dict[str, Any]:
    """The TOML as data; duplicates are named with both lines."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        for path, first, second in duplicates(text):
            section = f" in [{dotted(path[:-1])}]" if len(path) > 1 else ""
            raise RecipeError(
                f"{where}: {path[-1]}{section} is given twice, on lines {first} and {second}", "remove one of them"
            ) from error
        raise RecipeError(f"{where} is not TOML: {error}", "text needs quotes; see https://toml.io for the syntax") from error


def _check(text: str, where: str, pipeline: Pipeline, origins: Mapping[KeyPath, str], written: str = "") -> Recipe:
    """Check everything; `origins` says which keys came from the command line, `written` is the text without them."""
    data = _parse(text, where)
    pipeline = pipeline.shaped(data)
    lines = key_lines(written or text)
    mistakes = list(find_nonfinite(data))
    if mistakes:
        raise as_error(mistakes, lines, where, origins)
    models: dict[tuple[str, ...], type[StepConfig]] = {("base",): BaseModelSection}
    models |= {(name,): model for name, model in pipeline.shared.items()}
    models |= {tuple(name.split(".")): model for name, model in pipeline.sections.items()}
    models |= {section_of(step): step.config for step in pipeline.steps}
    inheriting = {section_of(step): step.inherits for step in pipeline.steps if step.inherits is not None}
    elsewhere = {key: f"[{dotted(path)}]" for path, model in models.items() for key in model.model_fields}
    elsewhere |= dict.fromkeys(Launch.model_fields, "[launch]")
    read: dict[tuple[str, ...], Any] = {}
    for path, model in models.items():
        raw: Any = data
        for depth, part in enumerate(path):
            raw = raw.get(part, {})
            if not isinstance(raw, dict):
                mistakes.append(not_a_table(path[: depth + 1], raw))
                break
        else:
            if path in inheriting:
                before = {dotted(known): config for known, config in read.items() if config is not None}
                raw = filled_in(raw, inheriting[path], before) if len(before) == len(read) else None
            if raw is not None:
                read[path], found = validate(model, raw, path, elsewhere)
                mistakes += found
    launches = _launches(data.get("launch", {}), pipeline, elsewhere, mistakes)
    _unknown_sections(data, list(models), elsewhere, mistakes)
    head, found = validate(Head, {key: value for key, value in data.items() if key in Head.model_fields}, (), elsewhere)
    mistakes += found
    if head is not None and head.pipeline != pipeline.name:
        mistakes.append(
            Mistake(
                ("pipeline",),
                f"pipeline is {shown(head.pipeline)}, but was read as {shown(pipeline.name)}: another one has other sections",
                "start a new run from a recipe that is for it: r1pipe recipes lists them",
            )
        )
    if pipeline.reads_base() and not data.get("base"):
        mistakes.append(
            Mistake(("base",), "the recipe names no base model", 'add a section [base] with model = "NAME or FOLDER"')
        )
    if mistakes or head is None:
        raise as_error(list(dict.fromkeys(mistakes)), lines, where, origins)
    return Recipe(
        name=head.name,
        pipeline=head.pipeline,
        seed=head.seed,
        base=read[("base",)],
        configs={step.name: read[section_of(step)] for step in pipeline.steps},
        shared={name: read[(name,)] for name in pipeline.shared},
        launches=launches,
        text=text,
    )


def _launches(raw: Any, pipeline: Pipeline, elsewhere: Mapping[str, str], mistakes: list[Mistake]) -> dict[str, Launch]:
    """Each step's launch: defaults of `[launch]`, then its stage's overrides, then its own."""
    at: KeyPath = ("launch",)
    if not isinstance(raw, dict):
        mistakes.append(not_a_table(at, raw))
        return {}
    defaults = {key: value for key, value in raw.items() if key != "steps"}
    overrides = raw.get("steps", {})
    if not isinstance(overrides, dict):
        mistakes.append(not_a_table((*at, "steps"), overrides))
        overrides = {}
    names = list(dict.fromkeys([step.name for step in pipeline.steps] + [step.stage for step in pipeline.steps]))
    base, found = validate(Launch, defaults, at, elsewhere)
    mistakes += found
    for name, override in overrides.items():
        if name not in names:
            mistakes.append(unknown_key((*at, "steps", name), names, {}))
        elif not isinstance(override, dict):
            mistakes.append(not_a_table((*at, "steps", name), override))
        else:
            mistakes += validate(Launch, override, (*at, "steps", name), elsewhere)[1]
    if mistakes or base is None:
        return {}
    launches = {}
    for step in pipeline.steps:
        merged = dict(defaults)
        for name in dict.fromkeys((step.stage, step.repeats or step.name, step.name)):
            override = overrides.get(name, {})
            inner = {key: merged.get(key, {}) | override.get(key, {}) for key in ("env", "guards", "hacking")}
            merged |= override | inner
        launches[step.name] = Launch.model_validate(merged)
    return launches


def _unknown_sections(
    data: Mapping[str, Any], known: list[tuple[str, ...]], elsewhere: Mapping[str, str], mistakes: list[Mistake]
) -> None:
    """Keys at the top, and below a stage of several steps, that belong to nothing."""
    top = list(dict.fromkeys([*Head.model_fields, *(path[0] for path in known), "launch"]))
    mistakes += [unknown_key((key,), top, elsewhere) for key in data if key not in top]
    for stage in dict.fromkeys(path[0] for path in known if len(path) == 2):
        steps = [path[1] for path in known if path[0] == stage and len(path) == 2]
        inner = data.get(stage, {})
        if isinstance(inner, dict):
            mistakes += [unknown_key((stage, key), steps, elsewhere) for key in inner if key not in steps]
