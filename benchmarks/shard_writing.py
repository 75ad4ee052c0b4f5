"""Writing scored attempts: 10³, 10⁴ and 10⁵ rows in shards; the time must grow with the rows, and no part be touched twice.

python benchmarks/shard_writing.py
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from common import save

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import ATTEMPT_COLUMNS, attempt_row, write_part

ROWS_PER_SHARD = 1000


def rows(first: int, count: int, words: list[str], rng: random.Random) -> list[dict[str, Any]]:
    """Attempts of about 2 kB."""
    made = []
    for number in range(first, first + count):
        text = f"<think>\n{' '.join(rng.choices(words, k=300))}\n</think>\n\nIt is \\boxed{{{number}}}."
        attempt = Attempt(Problem(str(number), f"What is {number}?", str(number)), text, "", "stop", 400)
        scores: dict[str, Score | None] = {
            "accuracy": Score(1.0, "as the gold answer"),
            "format": Score(1.0),
            "language": Score(0.98),
        }
        made.append(attempt_row(attempt, 0, scores, 2.98, "right"))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decades", type=int, nargs="+", default=[3, 4, 5])
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    results = []
    for decade in parser.parse_args().decades:
        count, marks, wall, processor = 10**decade, {}, 0.0, 0.0
        with tempfile.TemporaryDirectory() as work:
            for number, start in enumerate(range(0, count, ROWS_PER_SHARD)):
                shard = rows(start, min(ROWS_PER_SHARD, count - start), words, rng)
                begin, used = time.monotonic(), time.process_time()
                path = write_part(Path(work) / "attempts", number, shard, ATTEMPT_COLUMNS)
                wall, processor = wall + time.monotonic() - begin, processor + time.process_time() - used
                marks[path] = path.stat()
            rewritten = sum(
                (now := path.stat()).st_ino != then.st_ino or now.st_mtime_ns != then.st_mtime_ns for path, then in marks.items()
            )
            megabytes = sum(path.stat().st_size for path in marks) / 1e6
        results.append(
            {"rows": count, "seconds": round(wall, 3), "processor_seconds": round(processor, 3), "megabytes": round(megabytes, 1),
             "rows_per_processor_second": round(count / processor), "parts": len(marks), "parts_rewritten": rewritten}
        )  # fmt: skip
        print(results[-1], flush=True)
    save("shard_writing", {"results": results})


if __name__ == "__main__":
    main()
