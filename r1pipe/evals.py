"""`r1pipe eval`: any checkpoints on any file of problems, with the sampling and scoring of the evaluation step.

Everything is kept in one folder: what was asked (`settings.json`), each checkpoint's attempts as a table in parts, and the
results in the form that the evaluation step writes, and in that of EleutherAI's lm-evaluation-harness. A stopped evaluation goes
on at the next part; a folder that was begun with other settings is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from r1pipe import console
from r1pipe.artifact import base_files, digest_of, file_record
from r1pipe.checkpoints import Checkpoint, folder_to_ask
from r1pipe.data.rows import Problem
from r1pipe.engines.base import Engine, Sampling
from r1pipe.errors import StateError
from r1pipe.estimators import compare
from r1pipe.harness import FOLDER, write_harness
from r1pipe.manifest import changes, to_json, write_atomic
from r1pipe.rewards import Mix
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.rewards.benchmarks import read_benchmark
from r1pipe.rewards.mix import Part
from r1pipe.stages.evaluate import Config, pass_rates, summarise
from r1pipe.stages.sampling import sample_attempts, shard_seed, whole_part, write_scored
from r1pipe.stages.sections import ChatSection, RewardsSection
from r1pipe.stages.tallies import at_k, tallies
from r1pipe.views.results import results_view

PART = 64
"""Problems of one part: a stopped evaluation owes at most so many again."""
SAMPLED = ("samples", "temperature", "top_p", "max_tokens", "seed")
"""What is asked of sampling, and written down."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to evaluate with.

    Attributes:
        file: the problems; domain, gold, limit: see `benchmarks.read_benchmark`.
        engine: name of an engine; batch, dtype: of its generation.
    """

    file: Path
    sampling: Sampling
    domain: str = ""
    gold: str = ""
    limit: int = 0
    engine: str = "transformers"
    batch: int | None = None
    dtype: str = "auto"


def usual_sampling(checkpoints: Sequence[Checkpoint]) -> Sampling:
    """How the run of the first checkpoint evaluates; without a run as the paper does (D.1), with the step's number of samples."""
    opened = next((one.opened for one in checkpoints if one.opened is not None), None)
    configs = opened.recipe.configs.values() if opened is not None else ()
    config = next((config for config in configs if isinstance(config, Config)), Config())
    seed = opened.recipe.seed if opened is not None else 0
    return Sampling(config.samples, config.temperature, config.top_p, config.max_tokens, seed)


def evaluate(checkpoints: Sequence[Checkpoint], asked: Asked, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate checkpoints; what is there already is not made again.

    Args:
        tell: told where it stands, in lines.

    Returns:
        The results, as `results.json` holds them: sampling, problems, checkpoints with all numbers of the evaluation step and
        pass@k and maj@k, and each checkpoint against the one before it.

    Raises:
        StateError: the folder holds an evaluation with other settings. DataError: see `read_benchmark`.
    """
    problems = read_benchmark(asked.file, asked.domain, asked.gold, asked.limit)
    agree(folder, _settings(checkpoints, asked, len(problems)))
    results: dict[str, Any] = {}
    rates: list[tuple[str, dict[str, float]]] = []
    for checkpoint in checkpoints:
        kept = folder / _folder_name(checkpoint) / "attempts"
        rows = attempts_of(checkpoint, problems, asked.sampling, kept, tell, asked.engine, asked.batch, asked.dtype)
        write_harness(checkpoint, rows, asked.sampling, asked.file, asked.engine, folder / FOLDER)
        judged = [row for row in rows if row["verdict"] in ("right", "wrong")]
        results[checkpoint.name] = {**summarise(rows), "at_k": at_k(list(tallies(rows).values()))}
        rates.append((checkpoint.name, pass_rates(judged)))
    comparisons = [
        {"first": first, "second": second, **asdict(found)}
        for (first, before), (second, after) in pairwise(rates)
        if (found := compare(before, after)) is not None
    ]
    table = {
        "verdict_version": VERDICT_VERSION,
        "benchmark": asked.file.name,
        "sampling": {name: getattr(asked.sampling, name) for name in SAMPLED if name != "seed"},
        "problems": len(problems),
        "checkpoints": results,
        "comparisons": comparisons,
    }
    write_atomic(folder / "results.json", to_json(table))
    return table


def attempts_of(
    checkpoint: Checkpoint,
    problems: Sequence[Problem],
    sampling: Sampling,
    folder: Path,
    tell: Callable[[str], None],
    engine_name: str = "transformers",
    batch: int | None = None,
    dtype: str = "auto",
    judges: tuple[Part, ...] = (),
) -> list[dict[str, Any]]:
    """All scored attempts of one checkpoint, those that are owed made now.

    Args:
        folder: the table of attempts, in parts.
        judges: further rewards besides those of the checkpoint's run.
    """
    from r1pipe.engines.base import open_engine

    shared = checkpoint.opened.recipe.shared if checkpoint.opened is not None else {}
    chat, rewards = shared.get("chat", ChatSection()), shared.get("rewards", RewardsSection())
    assert isinstance(chat, ChatSection)
    assert isinstance(rewards, RewardsSection)
    mix = Mix((*Mix.build(rewards.rules).parts, *judges))
    parts = [problems[start : start + PART] for start in range(0, len(problems), PART)]
    engine: Engine | None = None
    found: list[dict[str, Any]] = []
    try:
        for number, part in enumerate(parts):
            rows = whole_part(folder, number, len(part) * sampling.samples)
            if rows is None:
                if engine is None:
                    tell(f"{checkpoint.name}: {len(problems):,} problems × {sampling.samples} samples")
                    engine = open_engine(engine_name, folder_to_ask(checkpoint), system=chat.system, batch=batch, dtype=dtype)
                own = replace(sampling, seed=shard_seed(sampling.seed, number))
                rows = write_scored(mix, sample_attempts(engine, part, own), folder, number)
                tell(f"{checkpoint.name}: {min((number + 1) * PART, len(problems)):,} of {len(problems):,} problems answered")
            found += rows
    finally:
        if engine is not None:
            engine.close()
    return found


def _settings(checkpoints: Sequence[Checkpoint], asked: Asked, problems: int) -> dict[str, Any]:
    """What decides the answers: problems, sampling, engine, and each checkpoint's weights."""
    models = {
        one.name: digest_of({file.name: file_record(file) for file in base_files(folder_to_ask(one))}) for one in checkpoints
    }
    return {
        "file": {"name": asked.file.name, "sha256": file_record(asked.file).sha256, "problems": problems},
        "domain": asked.domain,
        "gold": asked.gold,
        "sampling": {name: getattr(asked.sampling, name) for name in SAMPLED},
        "engine": asked.engine,
        "verdict_version": VERDICT_VERSION,
        "checkpoints": models,
    }


def agree(folder: Path, settings: dict[str, Any]) -> None:
    """Begin a folder, or go on with one that was begun with these settings; further checkpoints may join it."""
    path = folder / "settings.json"
    folder.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        before = json.loads(path.read_bytes())
        known = before["checkpoints"]
        common = {name: known[name] for name in settings["checkpoints"] if name in known}
        now = {**settings, "checkpoints": {name: settings["checkpoints"][name] for name in common}}
        if found := changes({**before, "checkpoints": common}, now):
            lines = "\n".join(f"  {key}: {then} there, {wanted} now" for key, then, wanted in found)
            raise StateError(f"{folder} holds an evaluation with other settings:\n{lines}", "name another folder with --out")
        settings = {**settings, "checkpoints": {**known, **settings["checkpoints"]}}
    write_atomic(path, to_json(settings))


def _folder_name(checkpoint: Checkpoint) -> str:
    return checkpoint.name.replace("/", "-")


def evals_view(results: Mapping[str, Any], folder: Path) -> RenderableType:
    """The table, what changed from one checkpoint to the next, and where everything lies."""
    parts: list[RenderableType] = [console.heading(str(results["benchmark"]), f"{results['problems']:,} problems"), Text()]
    parts.append(results_view(results, domains=True))
    for found in results["comparisons"]:
        difference = f"{found['difference']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f}), p {found['p_value']:.4f}"
        parts.append(console.plain(f"{found['first']} → {found['second']}  pass@1 {difference}"))
    parts += [
        Text(),
        console.plain(f"results and attempts are in {folder}, in lm-evaluation-harness's form in {folder / FOLDER}", "dim"),
    ]
    return Group(*parts)
