"""An evaluation in the form that EleutherAI's lm-evaluation-harness writes, so that what reads its results reads these too.

A folder for each checkpoint holds `results_DATE.json` (the aggregated numbers) and `samples_TASK_DATE.jsonl` (a line for each
problem), with the harness's keys and its names of files. The numbers are r1pipe's own: pass@1, the mean over problems of the
share of right samples, stands as `exact_match`; pass@k and maj@k beside it; a standard error is that of a mean over problems.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import stdev
from typing import Any

from r1pipe import __version__
from r1pipe.checkpoints import Checkpoint, folder_to_ask
from r1pipe.data.tables import attempt_of
from r1pipe.engines.base import Sampling
from r1pipe.estimators import Tally, curve
from r1pipe.intervals import mean
from r1pipe.manifest import to_json, write_atomic
from r1pipe.rewards.accuracy import VERDICT_VERSION
from r1pipe.stages.tallies import tallies

FOLDER = "lm-eval"
"""Where an evaluation keeps these files, in its own folder."""

FILTER = "none"
"""The harness names each number by metric and filter; there is one filter here."""


def write_harness(
    checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]], sampling: Sampling, benchmark: Path, engine: str, folder: Path
) -> Path:
    """Write one checkpoint's files and return that of the results; those of an earlier evaluation of it are replaced.

    Args:
        rows: all scored attempts.
        benchmark: the file of problems, whose name is the task's.
        folder: where the checkpoint's own folder goes.
    """
    now = datetime.now(UTC)
    date = now.strftime("%Y-%m-%dT%H-%M-%S.%f")
    task = re.sub(r"\W", "_", benchmark.stem)
    place = folder / re.sub(r"[\"<>:/|\\?*\[\]]+", "__", checkpoint.name)
    place.mkdir(parents=True, exist_ok=True)
    for old in (*place.glob("results_*.json"), *place.glob("samples_*.jsonl")):
        old.unlink()
    samples = samples_of(rows, sampling)
    results = results_of(checkpoint, rows, sampling, benchmark, task, engine)
    hashes = "".join(line["doc_hash"] + line["prompt_hash"] + line["target_hash"] for line in samples)
    results |= {"date": now.timestamp(), "task_hashes": {task: _hash(hashes)}}
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in samples)
    write_atomic(place / f"samples_{task}_{date}.jsonl", lines.encode())
    path = place / f"results_{date}.json"
    write_atomic(path, to_json(results))
    return path


def results_of(
    checkpoint: Checkpoint,
    rows: Sequence[Mapping[str, Any]],
    sampling: Sampling,
    benchmark: Path,
    task: str,
    engine: str,
) -> dict[str, Any]:
    """The aggregated results of one checkpoint on one task."""
    found = list(tallies(rows).values())
    metrics = metrics_of(found)
    names = [name for name in metrics if not name.endswith("_stderr")]
    problems = len({row["id"] for row in rows})
    template = folder_to_ask(checkpoint) / "chat_template.jinja"
    chat = template.read_text(encoding="utf-8") if template.is_file() else None
    config = {
        "task": task,
        "dataset_path": benchmark.name,
        "output_type": "generate_until",
        "num_fewshot": 0,
        "repeats": sampling.samples,
        "generation_kwargs": _generation(sampling),
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in names],
        "should_decontaminate": False,
        "metadata": {"version": VERDICT_VERSION},
    }
    return {
        "results": {task: {"alias": task, **{_named(name): value for name, value in metrics.items()}}},
        "group_subtasks": {task: []},
        "configs": {task: config},
        "versions": {task: VERDICT_VERSION},
        "n-shot": {task: 0},
        "higher_is_better": {task: dict.fromkeys(names, True)},
        "n-samples": {task: {"original": problems, "effective": len(found)}},
        "config": {
            "model": engine,
            "model_args": f"pretrained={checkpoint.name}",
            "batch_size": None,
            "device": None,
            "use_cache": None,
            "limit": None,
            "bootstrap_iters": 0,
            "gen_kwargs": _generation(sampling),
            "random_seed": sampling.seed,
            "numpy_seed": sampling.seed,
            "torch_seed": sampling.seed,
            "fewshot_seed": sampling.seed,
        },
        "git_hash": None,
        "pretty_env_info": f"r1pipe {__version__}",
        "model_source": engine,
        "model_name": checkpoint.name,
        "model_name_sanitized": re.sub(r"[\"<>:/|\\?*\[\]]+", "__", checkpoint.name),
        "system_instruction": None,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": False,
        "chat_template": chat,
        "chat_template_sha": _hash(chat) if chat is not None else None,
    }


def metrics_of(found: Sequence[Tally]) -> dict[str, float | str]:
    """Metric -> mean over problems, and its standard error under NAME_stderr ("N/A" for a single problem)."""
    values: dict[str, list[float]] = {"exact_match": [tally.pass_at_1 for tally in found]}
    for kind, name in (("pass", "pass"), ("majority", "maj")):
        values |= {f"{name}@{k}": shares for k, shares in curve(found, kind).items() if k > 1}
    metrics: dict[str, float | str] = {}
    for name, shares in values.items():
        if shares:
            metrics[name] = mean(shares) or 0.0
            metrics[f"{name}_stderr"] = stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else "N/A"
    return metrics


def samples_of(rows: Sequence[Mapping[str, Any]], sampling: Sampling) -> list[dict[str, Any]]:
    """A line for each problem, with all its responses; `exact_match` is the share of right ones among those judged."""
    by_problem: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_problem.setdefault(row["id"], []).append(row)
    lines = []
    for number, members in enumerate(by_problem.values()):
        first = members[0]
        texts = [attempt_of(dict(row)).text for row in members]
        judged = [float(row["verdict"] == "right") for row in members if row["verdict"] in ("right", "wrong")]
        doc = {name: first[name] for name in ("id", "question", "answer", "domain", "level", "language")}
        lines.append({
            "doc_id": number, "doc": doc, "target": str(first["answer"]),
            "arguments": {"gen_args_0": {"arg_0": first["question"], "arg_1": _generation(sampling)}},
            "resps": [texts], "filtered_resps": texts, "filter": FILTER, "metrics": ["exact_match"],
            "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)), "prompt_hash": _hash(first["question"]),
            "target_hash": _hash(str(first["answer"])), "exact_match": mean(judged),
        })  # fmt: skip
    return lines


def _generation(sampling: Sampling) -> dict[str, Any]:
    asked = asdict(sampling)
    return {"do_sample": sampling.temperature > 0, "temperature": asked["temperature"], "top_p": asked["top_p"],
            "max_gen_toks": asked["max_tokens"], "until": []}  # fmt: skip


def _named(metric: str) -> str:
    return f"{metric},{FILTER}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
