"""Data out: the selection of stage 3 is a data set as it stands."""

from __future__ import annotations

from pathlib import Path

from test_stages import GOOD, attempt, run_select

from r1pipe.data.tables import read_table


def test_the_selection_loads_with_datasets_as_it_stands(tmp_path: Path) -> None:
    import datasets

    answers = ["007", "2024-01-02", "null", "1e5", "3.10"]
    rows = [attempt(GOOD.replace("First", f"Line {n}"), name=f"p{n}", answer=answer) for n, answer in enumerate(answers)]
    run_select(tmp_path, rows, general_share=0.0)
    loaded = datasets.load_dataset(str(tmp_path / "selection"), split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(loaded["answer"]) == sorted(answers)
    assert list(loaded) == list(read_table(tmp_path / "selection"))
