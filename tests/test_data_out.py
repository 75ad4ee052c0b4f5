"""Data out: answers stay what they are in everything that is written, writing takes no memory, and the selection of stage 3 is a
data set as it stands.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from test_data_in import ANSWERS, KINDS, run_prepare, write
from test_stages import GOOD, attempt, run_select

from r1pipe.data.jsonl import read_jsonl, write_jsonl
from r1pipe.data.rows import Attempt, Score
from r1pipe.data.tables import attempt_row, read_problems, read_table, write_table


def test_the_selection_loads_with_datasets_as_it_stands(tmp_path: Path) -> None:
    import datasets

    answers = ["007", "2024-01-02", "null", "1e5", "3.10"]
    rows = [attempt(GOOD.replace("First", f"Line {n}"), name=f"p{n}", answer=answer) for n, answer in enumerate(answers)]
    run_select(tmp_path, rows, general_share=0.0)
    loaded = datasets.load_dataset(str(tmp_path / "selection"), split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(loaded["answer"]) == sorted(answers)
    assert list(loaded) == list(read_table(tmp_path / "selection"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_same_text_from_every_kind_of_file_to_what_is_trained_on(tmp_path: Path, kind: str) -> None:
    """File, problems, attempts, selection, and the selection as others read it."""
    asked = [{"question": f"What stands on card {n}?", "answer": answer} for n, answer in enumerate(ANSWERS)]
    run_prepare(tmp_path, write(tmp_path / f"cards{kind}", asked), values={"checker": "none"})
    problems = read_problems(tmp_path / "out" / "problems")
    assert [problem.answer for problem in problems] == ANSWERS
    rows = [
        attempt_row(
            Attempt(problem, GOOD.replace("First", f"Card {n}").replace("{2}", f"{{{problem.answer}}}"), tokens=9),
            0, {"accuracy": Score(1.0), "language": Score(1.0)}, 1.0, "right",
        )
        for n, problem in enumerate(problems)
    ]  # fmt: skip
    run_select(tmp_path, rows, general_share=0.0, near_duplicate=0)
    chosen = {row["question"]: row for row in read_table(tmp_path / "selection")}
    assert [chosen[row["question"]]["answer"] for row in asked] == ANSWERS
    assert all(f"\\boxed{{{row['answer']}}}" in row["summary"] for row in chosen.values())
    plain = pyarrow.parquet.read_table(tmp_path / "selection" / "part-00000.parquet")
    assert plain.schema.field("answer").type == pyarrow.string()
    assert set(plain.column("answer").to_pylist()) == set(ANSWERS)


def test_lines_that_are_written_are_read_back_as_they_were(tmp_path: Path) -> None:
    rows = [{"answer": answer, "text": f'"{answer}"\n\u2028\u0085\r, {answer}'} for answer in ANSWERS]
    assert write_jsonl(tmp_path / "rows.jsonl", rows) == len(rows)
    assert [row for _, row in read_jsonl(tmp_path / "rows.jsonl")] == rows
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_jsonl(tmp_path / "rows.jsonl", [{"answer": float("nan")}])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    assert [row for _, row in read_jsonl(tmp_path / "rows.jsonl")] == rows


@pytest.mark.parametrize("kind", ["table", "lines"])
def test_writing_ten_times_the_rows_takes_no_more_memory(tmp_path: Path, kind: str) -> None:
    def rows(count: int) -> Iterator[dict[str, Any]]:
        return ({"id": str(n), "text": f"{n} " + "x" * 300} for n in range(count))

    usual, peaks = pyarrow.default_memory_pool(), []
    try:
        for count in (2_000, 20_000):
            pool = pyarrow.proxy_memory_pool(usual)
            pyarrow.set_memory_pool(pool)
            tracemalloc.start()
            if kind == "table":
                write_table(tmp_path / str(count), rows(count), {"id": "string", "text": "string"}, rows_per_part=500)
            else:
                write_jsonl(tmp_path / f"{count}.jsonl", rows(count))
            peaks.append(tracemalloc.get_traced_memory()[1] + pool.max_memory())
            tracemalloc.stop()
    finally:
        pyarrow.set_memory_pool(usual)
    assert peaks[1] < 1.2 * peaks[0] + 100_000
