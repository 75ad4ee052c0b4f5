"""How fast, how alike and how steady: our maths checker beside Math-Verify, both with their time limits on.

    python benchmarks/verifier_speed.py FOLDER [--hostile 100000]

FOLDER holds files of rollouts, `rollouts_*.jsonl`: rows with `answer` and `samples`, each with `response` and `correct`. Both
checkers judge every response, warm and without caches; rates are answers per second of processor time, so that a busy machine
changes them little. Then hostile and ordinary answers are shuffled together and scored, watching the clock and the memory.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from pathlib import Path
from typing import Any

from r1pipe.data.jsonl import read_jsonl
from r1pipe.rewards.maths import judge
from r1pipe.rewards.maths.check import Request, check

HOSTILE = [
    "9**9**9", "9^{9^{9}}", "2^{2^{2^{49}}}", "((10!)!)!", "10000000!", "\\binom{10^9}{10^8}", "\\sum_{k=1}^{10^9} k^{k^k}",
    "\\int_0^1 x^{x^{x^{x}}} dx", "e^{e^{e^{e^{10}}}}", "x" + "^x" * 300, "(" * 2000 + "1" + ")" * 2000, "\\sqrt" * 1000 + "2",
    "1," * 1500 + "1", "\\frac{1}{" * 900 + "2" + "}" * 900, "0." + "3" * 3000, "1e9999*1e9999", "\\sin(10^{1000})",
]  # fmt: skip
FLOODS = ["\\boxed{" * 10_000, "{" * 100_000, "7" * 1_000_000, "<answer>" * 20_000, "\\[" * 20_000, "answer is " * 10_000]


def samples(folder: Path) -> list[tuple[str, str, bool]]:
    """(gold answer, response, right by the source) of every sample."""
    files = sorted(folder.glob("rollouts_*.jsonl"))
    if not files:
        raise SystemExit(f"no rollouts_*.jsonl in {folder}")
    return [
        (row["answer"], s["response"], bool(s["correct"]))
        for file in files
        for _, row in read_jsonl(file)
        for s in row["samples"]
    ]


def ours(items: list[tuple[str, str, bool]]) -> tuple[list[bool], float]:
    """Verdicts and processor seconds."""
    judge._remembered.cache_clear()
    judge._prepared.cache_clear()
    begin = time.process_time()
    scores = check([Request(gold, response) for gold, response, _ in items])
    return [score.verdict == "right" for score in scores], time.process_time() - begin


def theirs(items: list[tuple[str, str, bool]]) -> tuple[list[bool], float]:
    """The same of Math-Verify, gold answers in math delimiters, default settings."""
    from math_verify import parse, verify

    begin = time.process_time()
    verdicts = [bool(verify(parse(f"${gold}$"), parse(response))) for gold, response, _ in items]
    return verdicts, time.process_time() - begin


def side_by_side(items: list[tuple[str, str, bool]]) -> dict[str, Any]:
    """Rates, their ratio, and where the two differ."""
    ours(items[:20])
    theirs(items[:20])
    mine, my_seconds = ours(items)
    other, other_seconds = theirs(items)
    differing = [
        {"gold": gold, "end": response[-120:], "ours": one, "math_verify": two, "source": correct}
        for (gold, response, correct), one, two in zip(items, mine, other, strict=True)
        if one != two
    ]
    return {
        "answers": len(items),
        "ours_per_second": round(len(items) / my_seconds),
        "math_verify_per_second": round(len(items) / other_seconds),
        "ratio": round(other_seconds / my_seconds, 1),
        "ours_agrees_with_source": round(sum(a == c for a, (_, _, c) in zip(mine, items, strict=True)) / len(items), 5),
        "math_verify_agrees_with_source": round(sum(b == c for b, (_, _, c) in zip(other, items, strict=True)) / len(items), 5),
        "differing": differing,
    }


def resident_mib() -> float:
    """Resident memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize() / (1 << 20)


def steady(items: list[tuple[str, str, bool]], count: int, seed: int = 0) -> dict[str, Any]:
    """Score hostile and ordinary answers, one in ten hostile, in batches; reports time and memory as it goes."""
    generator = random.Random(seed)
    memory: list[float] = []
    verdicts: dict[str, int] = {}
    slowest = 0.0
    begin, processor = time.monotonic(), time.process_time()
    for start in range(0, count, 1000):
        batch = []
        for number in range(min(1000, count - start)):
            gold, response, _ = generator.choice(items)
            if generator.random() < 0.1:
                hostile = generator.choice(HOSTILE) + (f"+{number}" if generator.random() < 0.5 else "")
                response = generator.choice(FLOODS) if generator.random() < 0.02 else f"so \\boxed{{{hostile}}}"
            batch.append(Request(gold, f"{generator.random()} {response}"))
        at = time.monotonic()
        for score in check(batch):
            verdicts[score.verdict] = verdicts.get(score.verdict, 0) + 1
        slowest = max(slowest, time.monotonic() - at)
        memory.append(resident_mib())
    return {
        "answers": count,
        "seconds": round(time.monotonic() - begin, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "slowest_batch_of_1000_seconds": round(slowest, 1),
        "verdicts": verdicts,
        "memory_mib": {"first": round(memory[0]), "middle": round(memory[len(memory) // 2]), "last": round(memory[-1])},
    }


def main() -> None:
    """Run both parts and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hostile", type=int, default=0, metavar="N", help="also score N shuffled answers, one in ten hostile")
    chosen = parser.parse_args()
    items = samples(chosen.folder)
    report: dict[str, Any] = {"side by side": side_by_side(items)}
    if chosen.hostile:
        report["steady"] = steady(items, chosen.hostile)
    print(json.dumps(report, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
