"""`r1pipe data preview`: what prepare will make of a source, said before anything is prepared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import r1pipe
from test_data_in import hub_folder, run_prepare, write

from r1pipe.data.overlap import OVERLAP, build_index, find_overlap
from r1pipe.data.sources import nano_rows
from r1pipe.data.tables import read_problems
from r1pipe.stages.prepare import Taken
from r1pipe.stages.previewing import preview
from r1pipe.stages.schema import SourceSpec

QUESTION = "A farmer sells 12 of his 40 cows and buys 7 new ones at the market. How many cows has he now?"
ROWS = [
    {"problem": "What is 1 + 1?", "solution": "2", "level": 1},
    {"problem": "What is 1 + 1?", "solution": "2", "level": 1},
    {"problem": "what is  1 + 1", "solution": "2.0", "level": 1},
    {"problem": QUESTION.replace("A farmer", "One day a farmer"), "solution": "35", "level": 2},
    {"problem": "Prove it.", "solution": "proof", "level": 5},
    {"problem": "Which day?", "solution": "Thursday, as everybody who can read a calendar will easily see", "level": 5},
    {"problem": "Nothing", "level": 2},
    {"problem": "007?", "solution": "007", "level": None},
]
FIELDS = ["--field", "question=problem", "--field", "answer=solution"]


def rows_file(folder: Path) -> Path:
    path = write(folder / "mine.jsonl", ROWS)
    with path.open("a") as stream:
        stream.write('{"problem": "torn')
    return path


def recipe(folder: Path) -> Path:
    write(folder / "eval.jsonl", [{"question": QUESTION, "answer": "35"}])
    path = folder / "own.toml"
    path.write_text(
        'name = "own"\npipeline = "r1-zero"\n[base]\nmodel = "nano"\n[prepare]\n'
        'problems = { source = "mine.jsonl", fields = { question = "problem", answer = "solution" }, bad_rows = "skip" }\n'
        'evaluation = { source = "eval.jsonl" }\n'
    )
    return path


def test_a_preview_counts_what_prepare_would_take_and_why_not_the_rest(tmp_path: Path) -> None:
    rows_file(tmp_path)
    recipe(tmp_path)
    done = r1pipe(tmp_path, "data", "preview", "problems", "--recipe", "own.toml", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["rows"], found["usable"], found["table"]) == (9, 7, "problems")
    assert found["bad"]["rows"] == 2
    assert [example["where"].rpartition(", ")[2] for example in found["bad"]["examples"]] == ["line 7", "line 9"]
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["problem"] == {"name": "problem", "becomes": "question", "types": {"text": 8}}
    assert columns["solution"]["types"] == {"text": 7, "missing": 1}
    assert columns["level"]["types"] == {"integer": 7, "missing": 1}
    assert found["duplicates"]["exact"] == 1
    assert found["duplicates"]["same_question"] == 1
    assert found["gold"]["judged"] == 6
    assert found["gold"]["unusable"] == {"is no answer ('proof')": 1}
    assert sum(found["gold"]["remarks"].values()) == 1
    assert found["overlap"]["rows"] == 1
    assert "line 4" in found["overlap"]["examples"][0]["where"]
    assert found["first"][0]["question"] == "What is 1 + 1?"


def test_a_preview_without_a_recipe_takes_its_mapping_from_the_command_line(tmp_path: Path) -> None:
    path = rows_file(tmp_path)
    done = r1pipe(tmp_path, "data", "preview", path.name, *FIELDS, "--value", "language=de", "--limit", "1")
    assert done.code == 0, done.err
    assert "7 of 9" in done.out
    assert "proof" in done.out
    assert "not looked for: --recipe names the evaluation sets" in done.out
    assert "de" in done.out
    assert done.out.count("What is 1 + 1?") >= 1
    wrong = r1pipe(tmp_path, "data", "preview", path.name, "--field", "question")
    assert wrong.code == 2
    assert "OURS=VALUE" in wrong.err
    missing = r1pipe(tmp_path, "data", "preview", "none.csv")
    assert missing.code != 0
    assert "there is no file none.csv" in missing.err


def test_what_a_preview_says_is_what_prepare_does(tmp_path: Path) -> None:
    path = rows_file(tmp_path)
    fields = {"question": "problem", "answer": "solution"}
    spec = SourceSpec(source=str(path), fields=fields)
    found = preview(spec, "problems", 1, [], 4)
    tables = run_prepare(tmp_path, path, fields=fields, bad_rows="skip")["tables"]
    dropped = tables["problems"]["dropped"]
    assert dropped["exact duplicate"] == found["duplicates"]["exact"]
    assert {key.removeprefix("gold answer "): n for key, n in dropped.items() if key.startswith("gold")} == found["gold"][
        "unusable"
    ]
    assert sum(n for key, n in dropped.items() if key.startswith("bad row")) == found["bad"]["rows"]
    assert dropped["asks what an earlier row asks"] == found["duplicates"]["same_question"] == 1
    kept = read_problems(tmp_path / "out" / "problems")
    assert len(kept) == found["usable"] - 2 - sum(found["gold"]["unusable"].values())
    assert [problem.question for problem in kept[:2]] == [found["first"][0]["question"], found["first"][3]["question"]]


def test_generated_and_hub_shaped_sources_are_previewed(tmp_path: Path) -> None:
    nano = preview(SourceSpec(source="nano", count=50), "problems", 1, [(SourceSpec(source="nano", count=30), "evaluation")], 2)
    assert (nano["rows"], nano["usable"], nano["gold"]["right"]) == (50, 50, 50)
    hub = preview(SourceSpec(source=f"hf:{hub_folder(tmp_path / 'set')}"), "problems", 1, [], 2)
    assert (hub["rows"], hub["first"][0]["answer"]) == (12, "007")
    traces = preview(SourceSpec(source="nano", count=5), "traces", 1, [], 1)
    assert traces["gold"] is None
    assert set(traces["first"][0]) >= {"thinking", "summary"}


@pytest.mark.parametrize("word", ["\x1b[31mred", "[/red]", "\u202eright to left"])
def test_text_in_a_preview_steers_nothing(tmp_path: Path, word: str) -> None:
    write(tmp_path / "rows.jsonl", [{"question": f"{word}?", "answer": "1", f"odd {word}": word}])
    done = r1pipe(tmp_path, "data", "preview", "rows.jsonl")
    assert done.code == 0, done.err
    assert "\x1b[31m" not in done.out
    assert "\u202e" not in done.out


def test_a_preview_and_prepare_and_the_index_of_overlap_agree_about_every_generated_problem(tmp_path: Path) -> None:
    asked, given = SourceSpec(source="nano", count=60), SourceSpec(source="nano", count=300)
    found = preview(given, "problems", 1, [(asked, "evaluation")], 0)
    index = build_index(row["question"] for row in nano_rows("evaluation", 60, 1))
    overlaps = [row["question"] for row in nano_rows("problems", 300, 1) if find_overlap(index, row["question"])]
    assert found["overlap"]["rows"] == len(overlaps) > 0
    items, against = list[str](), None
    for spec, table in ((asked, "evaluation"), (given, "problems")):
        taken = Taken(spec, table, 1, against, items)  # type: ignore[arg-type]
        assert len(list(taken.rows())) + taken.dropped.total() == spec.count
        against = build_index(items)
    assert taken.dropped == {OVERLAP: len(overlaps)}
    assert len(overlaps) < 0.03 * given.count


def test_a_source_without_a_usable_row_is_no_success_and_the_next_command_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"problem": "What is 1 + 1?", "solution": 3.10}\n')
    done = r1pipe(tmp_path, "data", "preview", "mine.jsonl")
    assert done.code == 1
    assert "--field OURS=THEIRS" in done.err
    assert "3.10" in done.out, "a number is shown as it was written"


def test_a_language_that_nobody_counts_is_remarked(tmp_path: Path) -> None:
    write(tmp_path / "mine.jsonl", [{"question": "What is 3 + 1?", "answer": "4", "language": "klingon"}])
    done = r1pipe(tmp_path, "data", "preview", "mine.jsonl", "--json")
    assert any("klingon" in remark for remark in json.loads(done.out)["gold"]["remarks"])
