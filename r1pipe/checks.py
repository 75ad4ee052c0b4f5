"""Everything that can be known to be wrong before a model is loaded: of a recipe, and of a run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from r1pipe.artifact import check_model, digest_base
from r1pipe.data.chat import CLOSE, OPEN
from r1pipe.data.rows import Problem
from r1pipe.data.tables import problem_of
from r1pipe.engines.needs import check_engine
from r1pipe.errors import ArtifactError, R1PipeError, RecipeError
from r1pipe.fork import damaged, sharers
from r1pipe.graph import Pipeline, reads_base
from r1pipe.lock import describe_lock, is_live
from r1pipe.machine import Fact
from r1pipe.opening import DEFAULT_RECIPE, Opened, named, open_recipe, open_run
from r1pipe.recipe import Recipe
from r1pipe.rewards import Mix, RewardSpec
from r1pipe.rewards.mix import load_reward
from r1pipe.rewards.preference import KINDS
from r1pipe.rewards.trial import STAND_IN, is_own, trial_attempts, try_reward, verdict_of
from r1pipe.rundir import free_name, list_runs
from r1pipe.runner import plan
from r1pipe.stage import Step
from r1pipe.stages.base_model import template_text
from r1pipe.stages.iterating import FreshConfig, unlabelled_hint
from r1pipe.stages.mixed_rl import Config as MixedConfig
from r1pipe.stages.prepare import FullConfig
from r1pipe.stages.prepare import ZeroConfig as PrepareConfig
from r1pipe.stages.schema import SourceSpec, check_mapping, normalised, raw_rows
from r1pipe.stages.sections import ChatSection, RewardsSection
from r1pipe.stages.zero import Config as ZeroConfig
from r1pipe.trackers import check_trackers
from r1pipe.train.scoring_time import check_scoring_time
from r1pipe.train.settings import GrpoSettings
from r1pipe.views.amounts import amounts, engines_of


def check_named(what: str | None, contents: bool) -> Iterator[Fact]:
    """Every check of a recipe (by name or file) or a run (by name or path; None: the one worked on last, else "nano").

    Raises:
        RecipeError: the recipe's own keys and values are not right. StateError, RecipeError: there is no such thing.
    """
    runs = {run.name for run in list_runs()}
    named = what or (DEFAULT_RECIPE if not runs else None)
    if named is None or named in runs or (Path(named) / "recipe.toml").is_file():
        opened = open_run(named)
        yield from check_recipe(opened.pipeline, opened.recipe)
        yield from check_run(opened, contents)
    else:
        yield from check_recipe(*open_recipe(named))


def check_recipe(
    pipeline: Pipeline, recipe: Recipe, steps: Sequence[Step] | None = None, generate: bool = True
) -> Iterator[Fact]:
    """Every check of every stage that needs no weights. The recipe itself has passed its own checks already.

    Args:
        steps: only what these steps need; by default all.
        generate: also ask generators of problems for a first row, which loads their libraries.
    """
    chosen = pipeline.steps if steps is None else steps
    yield Fact("recipe", "recipe", f"every key and value of {len(pipeline.steps)} steps is right")
    if any(reads_base(step) for step in chosen):
        yield _fact("recipe", "base model", lambda: _base(pipeline, recipe))
    for name, section in recipe.shared.items():
        if isinstance(section, RewardsSection) and any(name in step.shares for step in chosen):
            yield _fact("recipe", name, partial(_rewards, section.rules, recipe, generate))
    for step in chosen:
        yield _fact("steps", step.name, partial(_step, pipeline, step, recipe, generate))


def refuse_mistakes(pipeline: Pipeline, recipe: Recipe, steps: Sequence[Step]) -> None:
    """Do the quick checks of the steps that are about to run.

    Raises:
        RecipeError: everything that is not right, before anything starts.
    """
    bad = [fact for fact in check_recipe(pipeline, recipe, steps, generate=False) if fact.state == "missing"]
    if bad:
        problem = "\n".join(f"{fact.name}: {fact.found}" for fact in bad)
        same = len({fact.hint for fact in bad}) == 1
        raise RecipeError(problem, bad[0].hint if same else "r1pipe check says what to do about each")


def check_run(opened: Opened, contents: bool) -> Iterator[Fact]:
    """The states of a run's steps, and whether what they wrote is still what their manifests promise.

    Args:
        contents: read every byte; otherwise presence and sizes.
    """
    run = opened.run
    if is_live(run.lock_path):
        yield Fact("run", "lock", f"being worked on: {describe_lock(run.lock_path)}")
    for place in plan(run, opened.pipeline, opened.recipe):
        blocked = place.state in ("changed", "stale")
        hint = f"r1pipe plan --run {run.name}" if blocked else ""
        yield Fact("run", place.step.name, f"{place.state}: {place.why}", "missing" if blocked else "ok", hint=hint)
    found = damaged(run, opened.pipeline, contents)
    how = "by content" if contents else "by size; --contents reads every byte"
    if not found:
        yield Fact("run", "files", f"all outputs of finished steps are as their manifests say ({how})")
    for step, problem in found:
        yield Fact("run", "files", problem, "missing", hint=_mend(opened, step))


def _mend(opened: Opened, step: Step) -> str:
    """What to type about a finished step whose files are not what they were."""
    run = opened.run
    if others := sharers(run, step):
        again = f"r1pipe fork {named(run)} {free_name(run.name, run.root.parent)} --before {step.name}"
        return f"{again}   makes it anew beside this one, which {', '.join(others)} shares; or put the files back"
    also = [below.name for below in opened.pipeline.readers(step.name) if run.manifest_path(below).exists()]
    with_them = f" and what was made from it: {', '.join(also)}" if also else ""
    return f"r1pipe run-all --run {named(run)} --redo {step.name}   makes it again{with_them}; or put the files back"


def _fact(group: str, name: str, check: Callable[[], str]) -> Fact:
    """A check's outcome: what it returns, or what it raises."""
    try:
        return Fact(group, name, check())
    except R1PipeError as error:
        return Fact(group, name, error.problem, "missing", hint=error.hint)
    except ValueError as error:
        return Fact(group, name, str(error), "missing", hint="change the recipe")


def _base(pipeline: Pipeline, recipe: Recipe) -> str:
    """Folder, weights, tokenizer, chat template, thinking tags, pinned digest."""
    folder = pipeline.locate_base(recipe.base.model)
    chat = recipe.shared.get("chat")
    given = chat.template if isinstance(chat, ChatSection) else ""
    if given:
        assert isinstance(chat, ChatSection)
        template_text(chat)
    check_model(folder, chat_template=not given)
    if special := _special_tags(folder):
        raise ArtifactError(
            f"{folder}/tokenizer.json has {' and '.join(special)} as special tokens, which are stripped before rewards see them",
            "register them as ordinary tokens ('special': false)",
        )
    _stop_token(folder)
    digest, pinned = digest_base(folder), recipe.base.digest.removeprefix("sha256:")
    if pinned and not digest.startswith(pinned):
        raise ArtifactError(
            f"{folder} has digest {digest[:16]}, the recipe pins {pinned[:16]}",
            "take the pinned weights, or change [base] digest",
        )
    asked = f", asked with the chat template {given}" if given else ""
    return f"{recipe.base.model}, digest {digest[:12]}{', as pinned' if pinned else ''}{asked}"


def _start(folder: Path) -> None:
    """A model that a step is to start from is whole."""
    if (folder / "adapter_config.json").is_file():
        raise ArtifactError(
            f"{folder} holds adapters and no whole model, so no step can start from it", "merge them into the model first"
        )
    check_model(folder)


def _stop_token(folder: Path) -> None:
    """The model's own settings stop at the tokenizer's end token, as far as the files say without loading them."""
    ends = _read_json(folder / "tokenizer_config.json").get("eos_token")
    name = ends.get("content") if isinstance(ends, dict) else ends
    ids = {token.get("content"): token.get("id") for token in _read_json(folder / "tokenizer.json").get("added_tokens", [])}
    settings = next(
        (found for found in ("generation_config.json", "config.json") if "eos_token_id" in _read_json(folder / found)), ""
    )
    stops = _read_json(folder / settings).get("eos_token_id") if settings else None
    if name in ids and stops is not None and ids[name] not in (stops if isinstance(stops, list) else [stops]):
        raise ArtifactError(
            f"{folder}: {settings} stops at token {stops}, the tokenizer at {name!r}, token {ids[name]}: no answer would end",
            f"set eos_token_id to {ids[name]} in {settings}, or make the other token the tokenizer's eos_token",
        )


def _room(folder: Path, config: GrpoSettings) -> None:
    """A completion of the longest length leaves room for a prompt."""
    positions = _read_json(folder / "config.json").get("max_position_embeddings")
    if isinstance(positions, int) and config.longest_answer >= positions:
        raise RecipeError(
            f"an answer of {config.longest_answer:,} tokens leaves a prompt no room in {positions:,} positions",
            f"set max_completion_tokens (and raised_completion_tokens) below {positions}",
        )


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON file of the model; empty when it is not there."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ArtifactError(f"{path} is not JSON: {error}", "copy the model again") from error
    return found if isinstance(found, dict) else {}


def _special_tags(folder: Path) -> list[str]:
    """Thinking tags that the tokenizer drops on decoding."""
    added = _read_json(folder / "tokenizer.json").get("added_tokens", [])
    return [token["content"] for token in added if token.get("special") and token.get("content") in (OPEN, CLOSE)]


def _rewards(rules: Sequence[RewardSpec], recipe: Recipe, generate: bool) -> str:
    """Every reward exists and accepts its options, and those of the user's own score what a model may write."""
    mix = Mix.build(rules)
    said = [", ".join(f"{part.name} × {part.weight:g}" for part in mix.parts)]
    if own := [part for part in mix.parts if is_own(part.reward)]:
        attempts = trial_attempts(_first_problem(recipe, generate))
        said += [verdict_of(part, try_reward(part, attempts)) for part in own]
    return "; ".join(said)


def _first_problem(recipe: Recipe, generate: bool) -> Problem:
    """The first problem that the run will train on; a made-up one where none can be had here."""
    config = next((config for config in recipe.configs.values() if isinstance(config, PrepareConfig)), None)
    with contextlib.suppress(R1PipeError):  # a source that cannot be read is a fact of its own
        if config is not None and (row := _first_row(config.problems, "problems", recipe.seed, generate)) is not None:
            return problem_of(normalised(row, "problems", config.problems.fields, config.problems.values))
    return STAND_IN


def _step(pipeline: Pipeline, step: Step, recipe: Recipe, generate: bool) -> str:
    """Sources give rows with the columns that are needed, engines exist, batches can be split."""
    config = recipe.configs[step.name]
    if isinstance(config, PrepareConfig):
        return _sources(config, recipe.seed, generate)
    launch = recipe.launches[step.name]
    for engine in engines_of(config):
        check_engine(engine, {**os.environ, **launch.env})
    if isinstance(config, ZeroConfig):
        _rewards(config.rules, recipe, generate)
    if step.launcher == "accelerate":
        check_trackers(launch.report_to)
    if isinstance(config, MixedConfig):
        for kind in KINDS:
            if (judge := getattr(config, kind)) is not None:
                load_reward(judge.name, {**judge.options, "kind": kind, "system": ""})
    if isinstance(config, FreshConfig):
        _labellers(config, recipe)
    if isinstance(config, GrpoSettings):
        if config.start_from:
            _start(Path(config.start_from).expanduser())
        with contextlib.suppress(ArtifactError):  # a base that is not here is a fact of its own
            _room(pipeline.locate_base(recipe.base.model), config)
        answers = {"maths": config.questions_per_rollout * config.group}  # other checkers: once the problems are known
        check_scoring_time(step.name, answers, launch.processes, launch.collective_minutes)
    return "; ".join(amounts(step, config, launch)[:2]) or "nothing to check"


def _labellers(config: FreshConfig, recipe: Recipe) -> None:
    """Somebody can label the fresh answers between two rounds."""
    from r1pipe.data.sources import is_generated

    prepare = recipe.configs.get("prepare")
    general = prepare.general.source if isinstance(prepare, FullConfig) else ""
    for kind in KINDS:
        labels = getattr(config, f"{kind}_labels")
        if labels == "rule" and not is_generated(general):
            raise RecipeError(f"no rule can label answers to {kind} prompts from {general or 'there'}", unlabelled_hint(kind))
        if isinstance(labels, RewardSpec):
            load_reward(labels.name, {**labels.options, "kind": kind, "system": ""})


def _sources(config: PrepareConfig, seed: int, generate: bool) -> str:
    """The first row of every source (of files only, unless `generate`), read as `prepare` will read it."""
    from r1pipe.data.hub import Hub, refuse_unpinned
    from r1pipe.data.sources import HUB

    names = []
    for name in type(config).model_fields:
        spec, table = getattr(config, name), name.replace("_", "-")
        check_mapping(spec, table)  # type: ignore[arg-type]
        if spec.source.startswith(HUB):
            refuse_unpinned(Hub(spec.source.removeprefix(HUB), spec.revision))
        row = _first_row(spec, table, seed, generate)
        if row is None:
            continue
        if spec.bad_rows != "skip":
            normalised(row, table, spec.fields, spec.values)  # type: ignore[arg-type]
        names.append(spec.source)
    return f"the first row of each of {len(names)} tables is right ({', '.join(dict.fromkeys(names))})"


def _first_row(spec: SourceSpec, table: str, seed: int, generate: bool) -> dict[str, Any] | None:
    """The first row of a source, read as `prepare` will read it; None where asking would load a library or need a network.

    Raises:
        RecipeError: there is none, or what makes the rows cannot be imported. DataError: it cannot be read.
    """
    from r1pipe.data.sources import HUB, is_generated

    if not generate and (is_generated(spec.source) or spec.source.startswith(HUB)):
        return None
    skip = (lambda where, why, row: None) if spec.bad_rows == "skip" else None
    try:
        row = next(iter(raw_rows(spec.model_copy(update={"count": 1}), table, seed, skip)), None)  # type: ignore[arg-type]
    except ImportError as error:
        name = table.replace("-", "_")
        raise RecipeError(f"[prepare.{name}] source {spec.source!r}: {error}", "install it, or check PYTHONPATH") from error
    if row is None:
        raise RecipeError(f"[prepare.{table.replace('-', '_')}] source {spec.source!r} gives no rows", "check the file")
    return row
