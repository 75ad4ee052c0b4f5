"""Selection at scale: rows and megabytes a second and peak memory at each size, beside the same filters over `datasets`.

    python benchmarks/selection_scale.py traces.jsonl --work DIR [--sizes 10000,100000] [--characters 18000] [--baseline 10000]

`traces.jsonl` has real reasoning traces in `completion` (`<think>` tags inside). Rows are made from their paragraphs: drawn at
random, numbers changed, joined to about `--characters` (18,000 are about 5,000 tokens), two attempts a problem, with wrong, cut
off, looping, code-writing, copied, lightly edited and contaminated rows planted at known rates. Each size is made, selected in a
process of its own, and deleted. The baseline (at `--baseline` rows; 0 leaves it out) writes the same filters as `map` and
`filter` in plain Python, with as many processes as there are cores, and is made twice: once with plain Python's own regular
expressions and sets, once with this project's functions. Writes benchmarks/results/selection_scale.json and prints it.

Disk: about 6 kB a row at full length for the input, as much again for the output and while it runs; 800,000 rows want 20 GB."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common import PeakMemory, save

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import ATTEMPT_COLUMNS, PROBLEM_COLUMNS, TRACE_COLUMNS, attempt_row, problem_row, write_part, write_table

ROWS_PER_PART = 2048
EVALUATION = 500
RATES = {
    "wrong": 0.25, "cut off": 0.03, "loop": 0.01, "code": 0.02, "mixed": 0.02, "copy": 0.02, "edited": 0.02, "contaminated": 0.01,
}  # fmt: skip


def paragraphs(path: Path, variants: int, rng: random.Random) -> list[str]:
    """Paragraphs of the traces, each several times with other numbers."""
    pool = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            text = json.loads(line)["completion"].replace("<think>", "").replace("</think>", "")
            pool += [part.strip() for part in re.split(r"\n\s*\n", text) if 20 < len(part.strip()) < 2500 and "```" not in part]
    change = re.compile(r"[0-9]+")
    return [change.sub(lambda found: str(rng.randint(2, 10 ** len(found[0]))), part) for part in pool for _ in range(variants)]


def make(folder: Path, pool: list[str], rows: int, characters: int, seed: int) -> dict[str, int]:
    """Write the tables that selection reads; returns how many rows of each kind were planted."""
    rng = random.Random(seed)
    words = sorted({word for part in pool[::50] for word in re.findall(r"[a-z]{4,9}", part)})

    def asked_about(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    asked = [f"{asked_about(18)} {rng.randint(10, 999)} {asked_about(12)}?" for _ in range(EVALUATION)]
    evaluation = [problem_row(Problem(id=f"e{n}", question=text, answer="1")) for n, text in enumerate(asked)]
    write_table(folder / "evaluation", evaluation, PROBLEM_COLUMNS)
    mean = sum(map(len, pool)) / len(pool) + 2
    planted = dict.fromkeys(RATES, 0)
    kinds, weights = [*RATES, ""], [*RATES.values(), 1 - sum(RATES.values())]
    buffer: list[dict[str, Any]] = []
    question, last = "", ""
    for number in range(rows):
        kind = rng.choices(kinds, weights)[0]
        if number % 2 == 0:
            question = f"{asked_about(25)} {rng.randint(2, 99999)}?"
        count = max(2, round(rng.lognormvariate(0, 0.5) * characters / mean / 1.133))
        thinking = "\n\n".join(rng.choices(pool, k=count))
        if kind == "copy" and last:
            thinking = last
        elif kind == "edited" and last:
            thinking = last.replace(". ", " . ").replace(" the ", " The ", 5).replace("  ", " ").replace("wait", "Wait")
        elif kind == "loop":
            thinking += "\n\nSo it is the same again. " * 40
        elif kind == "code":
            thinking += "\n\n```python\nprint(1)\n```\n\nThat is it."
        elif kind == "contaminated":
            thinking += "\n\n" + rng.choice(asked)
        if kind:
            planted[kind] += 1
        else:
            last = thinking
        problem = Problem(
            id=f"p{number // 2:08d}", question=question, answer="7", domain=rng.choice(("maths", "code", "stem")), source="traces"
        )
        text = f"<think>\n{thinking}\n</think>\n\nThe answer is \\boxed{{7}}."
        finish = "length" if kind == "cut off" else "stop"
        value = 0.0 if kind == "wrong" else 1.0
        parts: dict[str, Score | None] = {
            "accuracy": Score(value),
            "format": Score(1.0),
            "language": Score(0.5 if kind == "mixed" else 1.0),
        }
        verdict = "wrong" if kind == "wrong" else "right"
        one = Attempt(problem, text, "", finish, len(text) // 4)
        buffer.append(attempt_row(one, number % 2, parts, sum(part.value or 0 for part in parts.values() if part), verdict))
        if len(buffer) == ROWS_PER_PART or number == rows - 1:
            write_part(folder / "attempts", number // ROWS_PER_PART, buffer, ATTEMPT_COLUMNS)
            buffer = []
    general = [
        {**problem_row(Problem(id=f"g{n}", question=f"{asked_about(12)}?", domain="general", source="general")),
         "thinking": rng.choice(pool), "summary": rng.choice(pool), "origin": "given"}
        for n in range(max(10, rows // 20))
    ]  # fmt: skip
    write_table(folder / "general", general, TRACE_COLUMNS)
    return planted


def select_here(folder: Path) -> None:
    """Run the selection on the tables of a folder, in this process."""
    from r1pipe.recipe import Launch
    from r1pipe.stages.rejection_sft import SelectConfig, select

    context: Any = SimpleNamespace(
        config=SelectConfig(general_share=0.05), seed=1, folder=folder / "out", launch=Launch(), input_digests={},
        inputs={"attempts": folder / "attempts", "general_traces": folder / "general", "evaluation": folder / "evaluation"},
        stop_requested=lambda: False,
        output=lambda name: folder / "out" / ("report.json" if name == "report" else name),
    )  # fmt: skip
    (folder / "out").mkdir(exist_ok=True)
    select(context)


def timed(arguments: list[str]) -> dict[str, Any]:
    """Run this script in a process of its own: wall and CPU seconds, peak memory of the whole tree."""
    begun, before = time.monotonic(), os.times()
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    memory = PeakMemory(process.pid)
    if process.wait():
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    wall, after = time.monotonic() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": wall, "cpu_seconds": cpu, "peak_bytes": memory.stop()}


def text_bytes(folder: Path) -> int:
    """Bytes of text in the attempts, as they are uncompressed."""
    import pyarrow.parquet

    total = 0
    for path in folder.glob("attempts/part-*.parquet"):
        found = pyarrow.parquet.read_metadata(path)
        total += sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
    return total


def baseline(folder: Path, own: bool) -> None:
    """The same filters with `datasets`: every test a `filter`, every measure a `map`, in as many processes as there are cores."""
    import datasets
    from selection_baseline import OWN, PLAIN, deduplicate

    datasets.disable_progress_bars()
    cores = os.cpu_count() or 1
    tests = OWN if own else PLAIN
    cache = str(folder / "cache")
    rows = datasets.load_dataset("parquet", data_files=str(folder / "attempts/*.parquet"), split="train", cache_dir=cache)
    evaluation = datasets.load_dataset("parquet", data_files=str(folder / "evaluation/*.parquet"), split="train", cache_dir=cache)
    known = tests.index(list(evaluation["question"]))
    rows = rows.filter(lambda row: row["verdict"] == "right" and row["finish"] == "stop" and not row["error"], num_proc=cores)
    rows = rows.filter(lambda row: json.loads(row["scores"])["language"][0] >= 1.0, num_proc=cores)
    rows = rows.map(tests.split, num_proc=cores, remove_columns=["completion", "prefix"])
    for name, test in tests.filters.items():
        rows = rows.filter(test, num_proc=cores)
        print(f"  after {name}: {len(rows)}", flush=True)
    rows = rows.filter(lambda row: not tests.overlaps(known, row), num_proc=cores)
    print(f"  after overlap: {len(rows)}", flush=True)
    rows = rows.map(tests.signature)  # in one process: forked workers die in it
    rows = deduplicate(rows)
    general = datasets.load_dataset("parquet", data_files=str(folder / "general/*.parquet"), split="train", cache_dir=cache)
    general = general.shuffle(seed=1).select(range(min(len(general), round(len(rows) * 0.05 / 0.95))))
    shared = [name for name in TRACE_COLUMNS if name in rows.column_names and name in general.column_names]
    whole = datasets.concatenate_datasets([rows.select_columns(shared), general.select_columns(shared)])
    whole.shuffle(seed=1).to_parquet(str(folder / "baseline.parquet"))
    (folder / "baseline.json").write_text(json.dumps({"kept": len(rows)}))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rng = random.Random(1)
    work = Path(arguments.work)
    pool = paragraphs(Path(arguments.traces), 8, rng)
    result: dict[str, Any] = {"characters": arguments.characters, "paragraphs": len(pool), "sizes": {}}
    for rows in map(int, arguments.sizes.split(",")):
        folder = work / str(rows)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        planted = make(folder, pool, rows, arguments.characters, rows)
        size = text_bytes(folder)
        found = timed(["", "--work", str(folder), "--one", "select"])
        report = json.loads((folder / "out/report.json").read_text())
        entry = {
            "rows": rows, "text_bytes": size, **found, "rows_per_second": rows / found["seconds"],
            "megabytes_per_second": size / 1e6 / found["seconds"], "planted": planted, "reasons": report["reasons"],
            "kept": report["kept"],
        }  # fmt: skip
        if rows == arguments.baseline:
            for name in ("plain", "own"):
                times = timed(["", "--work", str(folder), "--one", name])
                kept = json.loads((folder / "baseline.json").read_text())["kept"]
                entry[f"datasets_{name}"] = {**times, "kept": kept, "times_as_long": times["seconds"] / found["seconds"]}
                shutil.rmtree(folder / "cache", ignore_errors=True)
        result["sizes"][str(rows)] = entry
        print(json.dumps(entry, indent=1), flush=True)
        shutil.rmtree(folder)
    rates = [entry["rows_per_second"] for entry in result["sizes"].values()]
    result["slowest_over_fastest"] = min(rates) / max(rates)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces")
    parser.add_argument("--work", required=True)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--characters", type=int, default=18_000)
    parser.add_argument("--baseline", type=int, default=10_000)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one == "select":
        select_here(Path(arguments.work))
    elif arguments.one:
        baseline(Path(arguments.work), own=arguments.one == "own")
    else:
        result = measure(arguments)
        save("selection_scale", result)


if __name__ == "__main__":
    main()
