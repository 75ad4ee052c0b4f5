"""`r1pipe export`: a checkpoint as a folder that other programs load as it is, with a card that says where it comes from.

Weights (adapters were merged when the step ended), tokenizer, chat template and generation settings are copied; the card holds
lineage, data and results, and `lineage.json` the records of every step that the checkpoint descends from, without names of
machines.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r1pipe import __version__, console
from r1pipe.artifact import base_files, check_artifact, check_files
from r1pipe.checkpoints import Checkpoint
from r1pipe.errors import ArtifactError
from r1pipe.manifest import read_manifest, to_json, write_atomic
from r1pipe.opening import Opened
from r1pipe.stage import Output, Step
from r1pipe.views.results import NAMES, read_results

CARD = "README.md"
LINEAGE = "lineage.json"
PRIVATE = ("host", "launch")
"""What a record says of the machine stays here."""


def export(checkpoint: Checkpoint, target: Path) -> dict[str, int]:
    """Write a checkpoint into a new folder; returns the size of each file.

    Raises:
        ArtifactError: the folder exists and is not empty, or the checkpoint is not whole or was altered.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ArtifactError(f"{target} exists already and is not empty", "name another folder; nothing is overwritten")
    check_artifact(checkpoint.folder, "model")
    if (checkpoint.folder / "adapter_config.json").is_file():
        raise ArtifactError(f"{checkpoint.folder} holds adapters and no merged weights", "merge them into the model first")
    if checkpoint.manifest is not None and "model" in checkpoint.manifest.outputs:
        check_files(checkpoint.folder, checkpoint.manifest.outputs["model"], contents=True)
    staged = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    staged.mkdir(parents=True)
    try:
        for file in base_files(checkpoint.folder):
            shutil.copyfile(file, staged / file.name)
        write_atomic(staged / "generation_config.json", to_json(generation_settings(checkpoint)))
        records = lineage(checkpoint)
        write_atomic(staged / LINEAGE, to_json({"checkpoint": checkpoint.name, "r1pipe": __version__, "steps": records}))
        write_atomic(staged / CARD, card(checkpoint, records).encode())
        check_artifact(staged, "model")
        if target.exists():
            target.rmdir()
        os.replace(staged, target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return {file.name: file.stat().st_size for file in sorted(target.iterdir())}


def generation_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """The checkpoint's generation_config.json, with the sampling that it was evaluated with."""
    path = checkpoint.folder / "generation_config.json"
    settings: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    sampling = (_results(checkpoint) or {}).get("sampling") or {}
    if sampling.get("temperature"):
        settings |= {"do_sample": True, "temperature": sampling["temperature"], "top_p": sampling["top_p"]}
    return settings


def ancestors(opened: Opened, step: Step) -> list[Step]:
    """The step and every step that it descends from, in order of execution."""
    wanted = {step.name}
    for one in reversed(opened.pipeline.steps):
        if one.name in wanted:
            wanted |= {source.step for source in one.reads.values() if isinstance(source, Output)}
    return [one for one in opened.pipeline.steps if one.name in wanted]


def lineage(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The records of every step that the checkpoint descends from; empty for a model without a run."""
    if checkpoint.opened is None or checkpoint.step is None:
        return []
    opened = checkpoint.opened
    records = []
    for step in ancestors(opened, checkpoint.step):
        path = opened.run.manifest_path(step)
        if path.exists():
            record = read_manifest(path, step).model_dump(mode="json")
            records.append({key: found for key, found in record.items() if key not in PRIVATE})
    return records


def _results(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    opened = checkpoint.opened
    return read_results(opened.run, opened.pipeline) if opened is not None else None


def _result(checkpoint: Checkpoint) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """(the checkpoint's line of the results, all results)."""
    results = _results(checkpoint)
    if results is None:
        return None
    name = checkpoint.name.rpartition("/")[2]
    row = next((row for key, row in results["checkpoints"].items() if NAMES.get(key, key).lower() == name.lower()), None)
    return (row, results) if row is not None else None


def card(checkpoint: Checkpoint, records: list[dict[str, Any]]) -> str:
    """The model card: front matter in the form that model hubs read, then lineage, data and results."""
    title = checkpoint.name.rpartition("/")[2]
    base = checkpoint.opened.recipe.base.model if checkpoint.opened is not None else ""
    lines = [*_front_matter(checkpoint, title), "", f"# {title}", ""]
    if checkpoint.opened is not None:
        made = (
            f"made by step `{checkpoint.step.name}` from the base model `{base}`"
            if checkpoint.step
            else f"the base model `{base}`"
        )
        lines += [f"{title}, {made}, in run `{checkpoint.opened.run.name}` (recipe `{checkpoint.opened.recipe.name}`, "
                  f"seed {checkpoint.opened.recipe.seed}), with r1pipe {__version__}.", ""]  # fmt: skip
    lines += _results_lines(checkpoint)
    if records:
        lines += ["## Lineage", "", "| step | makes | build | seed | reads |", "|---|---|---|---|---|"]
        for record in records:
            reads = ", ".join(
                f"{name} ({source['step']} {(source['build'] or source['digest'])[:8]})"
                for name, source in record["inputs"].items()
            )
            lines.append(f"| {record['step']} | {record['makes']} | `{record['build'][:8]}` | {record['seed']} | {reads} |")
        lines += ["", f"`{LINEAGE}` holds the whole records: settings, versions, digests of what was read and written.", ""]
    return "\n".join([*lines, *_data_lines(records)])


MEASURES = (("pass_at_1", "pass@1"), ("format", "format"), ("language", "language consistency"))
"""Key of the results, name of the metric in the card's index: what hubs show beside a model."""


def _front_matter(checkpoint: Checkpoint, title: str) -> list[str]:
    """The part that hubs read: library, task, tags, and the results as a model index."""
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation", "tags:", "- r1pipe"]
    found = _result(checkpoint)
    measured = [(key, name) for key, name in MEASURES if found is not None and isinstance(found[0].get(key), int | float)]
    if found is not None and measured:
        sampling = found[1].get("sampling") or {}
        how = ", ".join(f"{key} {sampling[key]}" for key in ("samples", "temperature", "top_p") if key in sampling)
        lines += ["model-index:", f"- name: {json.dumps(title)}", "  results:", "  - task:", "      type: text-generation",
                  "    dataset:", "      name: held-out problems of the run", "      type: r1pipe",
                  f"      args: {json.dumps(how)}", "    metrics:"]  # fmt: skip
        for key, name in measured:
            lines += [f"    - name: {name}", f"      type: {key}", f"      value: {found[0][key]:.4f}"]
    return [*lines, "---"]


def _results_lines(checkpoint: Checkpoint) -> list[str]:
    found = _result(checkpoint)
    if found is None:
        return []
    row, results = found
    sampling = results.get("sampling") or {}
    lines = ["## Results", "", "On held-out problems of the run, "
             f"{sampling.get('samples')} samples a problem at temperature {sampling.get('temperature')}, "
             f"top-p {sampling.get('top_p')}, "
             f"at most {sampling.get('max_tokens')} tokens.", "", "| measure | value |", "|---|---|"]  # fmt: skip
    for key, value in row.items():
        if isinstance(value, int | float):
            lines.append(f"| {key} | {value:.4g} |")
        elif key == "pass_at_1_interval" and value:
            lines.append(f"| 95% interval of pass_at_1 | {value[0]:.3f} to {value[1]:.3f} |")
    return [*lines, ""]


def _data_lines(records: list[dict[str, Any]]) -> list[str]:
    """The data card: what every table was made from, and what a selection kept."""
    lines: list[str] = []
    for record in records:
        summary = record["summary"]
        if isinstance(tables := summary.get("tables"), dict):
            lines += ["## Data", "", "| table | rows | source | dropped |", "|---|---|---|---|"]
            for name, table in tables.items():
                dropped = ", ".join(f"{count} {reason}" for reason, count in (table.get("dropped") or {}).items()) or "none"
                source = os.path.basename(str(table.get("source")))  # a path on this machine is nobody else's business
                lines.append(f"| {name} | {table.get('rows')} | {_cell(source)} | {_cell(dropped)} |")
            lines.append("")
        if isinstance(reasons := summary.get("reasons"), dict):
            lines += [f"## What {record['step']} kept", "", "| attempts | number |", "|---|---|"]
            lines += [f"| {_cell(reason)} | {count} |" for reason, count in reasons.items()] + [""]
    return lines


def _cell(text: str) -> str:
    """Text that stays inside its cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def export_view(checkpoint: Checkpoint, folder: Path, files: Mapping[str, int]) -> RenderableType:
    """What was written, for people."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for name, size in files.items():
        table.add_row(console.plain(name), Text(console.size(size), style="dim"))
    where = console.escaped(os.fspath(folder))
    return Group(
        console.heading(f"{checkpoint.name} exported", os.fspath(folder)), table, Text(f"next  vllm serve {where}", style="dim")
    )
