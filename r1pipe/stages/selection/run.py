"""The selection of stage 3 from beginning to end: read and judge, choose, write, account.

Texts pass through twice, a batch at a time, shared out among processes; in between, the choice is made on narrow lines. Peak
memory does not grow with the length or number of texts, but for some 300 bytes a usable row.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r1pipe.data.overlap import OverlapIndex, build_index, item_texts
from r1pipe.data.tables import part_path, part_rows, read_table
from r1pipe.errors import ArtifactError, DataError, Stopped
from r1pipe.manifest import to_json, write_atomic
from r1pipe.metrics import write_progress
from r1pipe.stage import StepContext
from r1pipe.stages.selection import card as report_of
from r1pipe.stages.selection import work as workers
from r1pipe.stages.selection.choosing import Choice, choose, connect
from r1pipe.stages.selection.judging import Verdicts, judge
from r1pipe.stages.selection.reading import ATTEMPTS, GENERAL, Reader, is_read
from r1pipe.stages.selection.settings import SelectConfig
from r1pipe.stages.selection.writing import Layout, Source, gather, scatter
from r1pipe.stall import finished, still_moving

TABLES = {ATTEMPTS: "attempts", GENERAL: "general_traces"}
"""Kind of rows -> the step's input."""
EVALUATION = ("evaluation", "general_evaluation")


def select(context: StepContext) -> dict[str, Any]:
    """Keep right, readable attempts that are nobody's copy, at most some per problem; add general rows; say for every row of both
    tables why it was kept or dropped. Returns the report."""
    config: SelectConfig = context.config
    parts = {kind: _parts(context.inputs[name]) for kind, name in TABLES.items()}
    work = _work_folder(context)
    verdicts = judge(context, config.judge, parts[ATTEMPTS])
    index = evaluation_index(context, config.overlap_words) if config.overlap_words else None
    reader = Reader(config, index, verdicts.known)
    size = sum(path.stat().st_size for paths in parts.values() for path in paths)
    processes = workers.processes_for(size, context.launch.threads)
    with workers.team(processes, reader, work) as pool, connect(work, max(1, processes)) as connection:
        _read(context, pool, parts, work)
        choice = choose(connection, work, config, context.seed)
        if not choice.kept:
            report_of.write_ledger(connection, work, work / "ledger.parquet")
            found = report_of.counts(connection, work / "ledger.parquet")
            raise DataError(
                f"select: nothing is left of {found['attempts']} attempts: {found['reasons']}",
                "loosen [rejection-sft.select], or train stage 2 longer",
            )
        _write(context, pool, parts, work, choice, verdicts)
        ledger = _write_ledger(context, connection, work)
        found = report_of.counts(connection, ledger)
    finished()
    report = _report(config, choice, found, index, verdicts)
    write_atomic(context.output("report"), json.dumps(report, indent=1, ensure_ascii=False).encode())
    write_atomic(context.output("selection") / "README.md", report_of.card(report).encode())
    shutil.rmtree(work)
    print(f"select: kept {choice.kept} of {report['attempts']} attempts, {choice.rows} rows with general data", flush=True)
    return report


def evaluation_index(context: StepContext, words: int) -> OverlapIndex:
    """The questions of all evaluation sets that the step reads, and answers that are long enough to be solutions."""

    def texts() -> Iterator[str]:
        for name in EVALUATION:
            for row in read_table(context.inputs[name]) if name in context.inputs else ():
                yield from item_texts(row, words)

    return build_index(texts(), words)


def _parts(folder: Path) -> list[Path]:
    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise ArtifactError(f"the table {folder.name} has no parts", "redo the step that writes it")
    return parts


def _work_folder(context: StepContext) -> Path:
    """Where the passes leave what they hand on; what an attempt with other settings or inputs left is removed."""
    work = context.folder / "work"
    made_from = to_json(
        {"settings": context.config.model_dump(mode="json"), "inputs": dict(context.input_digests), "seed": context.seed}
    )
    mark = work / "made-from.json"
    if not mark.is_file() or mark.read_bytes() != made_from:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        write_atomic(mark, made_from)
    return work


def _read(context: StepContext, pool: Any, parts: dict[str, list[Path]], work: Path) -> None:
    """The first pass over both tables; parts that were read before are not read again."""
    tasks = [
        (path, kind, number, work / kind)
        for kind, paths in parts.items()
        for number, path in enumerate(paths)
        if not is_read(work / kind, number, part_rows(path))
    ]
    total = sum(map(len, parts.values()))
    done = total - len(tasks)
    for _ in workers.each(pool, workers.read, tasks, context.stop_requested):
        done += 1
        _still(context, done, 2 * total)
    if done < total:
        raise Stopped(f"select stopped after reading {done} of {total} parts", "r1pipe resume")


def _write(context: StepContext, pool: Any, parts: dict[str, list[Path]], work: Path, choice: Choice, verdicts: Verdicts) -> None:
    """The last pass: rows to the buckets of their places, then each bucket in order."""
    config: SelectConfig = context.config
    layout = Layout.of(choice.rows, choice.size)
    target, spill = context.output("selection"), work / "spill-rows"
    shutil.rmtree(spill, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    sources = list(_sources(parts, choice, verdicts))
    shares = max(1, min(len(sources), getattr(pool, "_max_workers", 1)))
    with_thinking = config.general_thinking == "given"
    tasks = [(sources[share::shares], layout, spill, str(share), config.judge.model, with_thinking) for share in range(shares)]
    written = sum(_moving(context, workers.each(pool, scatter, tasks, lambda: False)))
    buckets = [(number, layout, spill, target) for number in range(layout.parts)]
    gathered = sum(_moving(context, workers.each(pool, gather, buckets, lambda: False)))
    if not written == gathered == choice.rows:
        raise ArtifactError(
            f"select: {choice.rows} rows were chosen, {written} were found again and {gathered} written",
            "r1pipe run rejection-sft/select --redo",
        )


def _sources(parts: dict[str, list[Path]], choice: Choice, verdicts: Verdicts) -> Iterator[Source]:
    """Each part that has chosen rows, with them."""
    import numpy as np

    judged: dict[int, set[int]] = {}
    for part, row in verdicts.known:
        judged.setdefault(part, set()).add(row)
    for kind, paths in parts.items():
        places, positions = choice.kinds[kind]
        bounds = np.searchsorted(places, np.arange(len(paths) + 1) << 32)
        for number, path in enumerate(paths):
            low, high = int(bounds[number]), int(bounds[number + 1])
            if high > low:
                rows = places[low:high] & 0xFFFFFFFF
                models = frozenset(judged.get(number, ()) if kind == ATTEMPTS else ())
                yield Source(path, kind, rows, positions[low:high], models)


def _write_ledger(context: StepContext, connection: Any, work: Path) -> Path:
    target = context.output("ledger")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    report_of.write_ledger(connection, work, work / "ledger.parquet")
    return (work / "ledger.parquet").rename(part_path(target, 0))


def _report(
    config: SelectConfig, choice: Choice, found: dict[str, Any], index: OverlapIndex | None, verdicts: Verdicts
) -> dict[str, Any]:
    judged = found.pop("judged_by_model")
    report = {
        "attempts": found.pop("attempts"), "reasons": found.pop("reasons"),
        "kept": choice.kept, "general": choice.general, "rows": choice.rows, **found,
        "evaluation_items": index.items if index is not None else 0,
    }  # fmt: skip
    if choice.mix:
        report["mix"] = choice.mix
    if config.licences:
        report["licences"] = config.licences
    if config.judge.engine:
        asked = verdicts.counts
        report["judge"] = {
            "model": config.judge.model, "asked": asked.total(), **{name: asked[name] for name in ("right", "wrong", "unjudged")},
            "kept": judged["kept"], "share_of_kept": judged["kept"] / choice.kept,
            **({"why_unjudged": dict(verdicts.notes)} if verdicts.notes else {}),
        }  # fmt: skip
    return report


def _moving(context: StepContext, results: Iterator[int]) -> Iterator[int]:
    """The same results; each says that the step moves."""
    for result in results:
        still_moving(context.launch.stall_minutes)
        yield result


def _still(context: StepContext, done: int, total: int) -> None:
    still_moving(context.launch.stall_minutes)
    write_progress(context.folder / "progress.json", {"done": done, "total": total, "unit": "part", "note": "select"})


__all__ = ["evaluation_index", "select"]
