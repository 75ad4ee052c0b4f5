"""Data in: every kind of file and source, values as they are written, bad rows named or skipped with a record."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import os
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r1pipe.data.jsonl import read_jsonl
from r1pipe.data.readers import read_rows
from r1pipe.data.sources import open_source
from r1pipe.data.tables import read_problems, read_table
from r1pipe.errors import DataError, RecipeError
from r1pipe.stages import prepare
from r1pipe.stages.previewing import preview
from r1pipe.stages.schema import SourceSpec, normalised, raw_rows

ANSWERS = [
    "007",
    "2024-01-02",
    "null",
    "1e5",
    "3.10",
    "true",
    "12:30",
    "1_000",
    " 5",
    "123456789012345678901234567890",
    "∅",
    "-0",
]
"""Answers that guessing readers turn into something else."""


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in the format that the file's ending names."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    elif path.suffix == ".parquet":
        write_parquet(path, {name: [row[name] for row in rows] for name in rows[0]})
    else:
        write_csv(path, rows)
    return path


KINDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_text_answers_stay_the_text_they_are_in_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    rows = [{"question": f'q{n}, "quoted"\nand\u2028more', "answer": answer} for n, answer in enumerate(ANSWERS)]
    path = write(tmp_path / f"rows{kind}", rows)
    assert [row for _, row in read_rows(path)] == rows
    taken = [normalised(row, "problems", {}) for row in open_source(str(path), "problems", 0, 1)]
    assert [row["answer"] for row in taken] == ANSWERS


@pytest.mark.parametrize("kind", [".jsonl", ".json"])
def test_numbers_in_json_become_the_text_they_were_written_as(tmp_path: Path, kind: str) -> None:
    written = ["3.10", "1e5", "1E-3", "7", "-0.50", "123456789012345678901234567890", "0.1000000000000000055511151231257827"]
    lines = [f'{{"question": "q", "answer": {number}, "check": {{"tolerance": 0.50}}}}' for number in written]
    path = tmp_path / f"rows{kind}"
    path.write_text("\n".join(lines) if kind == ".jsonl" else f"[{', '.join(lines)}]")
    taken = [normalised(row, "problems", {}) for row in open_source(str(path), "problems", 0, 1)]
    assert [row["answer"] for row in taken] == written
    assert {row["check"] for row in taken} == {'{"tolerance": 0.5}'}


def test_typed_columns_of_parquet_become_the_text_of_their_values(tmp_path: Path) -> None:
    import pyarrow

    columns = {
        "date": pyarrow.array([datetime.date(2024, 1, 2)]), "exact": pyarrow.array([decimal.Decimal("3.10")]),
        "short": pyarrow.array([0.1], pyarrow.float32()), "long": pyarrow.array([0.1]), "count": pyarrow.array([2**60]),
        "word": pyarrow.array(["007"]).dictionary_encode(), "none": pyarrow.array([None], pyarrow.string()),
    }  # fmt: skip
    path = write_parquet(tmp_path / "rows.parquet", {"question": ["q"], **columns})
    (row,) = open_source(str(path), "problems", 0, 1)
    expected = {"date": "2024-01-02", "exact": "3.10", "short": "0.1", "long": "0.1", "count": str(2**60), "word": "007"}
    assert {name: normalised(row, "problems", {"answer": name})["answer"] for name in expected} == expected
    with pytest.raises(DataError, match=r"rows\.parquet, row 1: column 'answer' \(here 'none'\) is missing or empty"):
        normalised(row, "problems", {"answer": "none"})


@pytest.mark.parametrize("kind", KINDS)
def test_answers_keep_their_text_through_prepare_and_its_tables(tmp_path: Path, kind: str) -> None:
    answers = ["007", "1e5", "3.10", "12345678901234567890123"]
    rows = [{"question": f"How much is number {n}?", "answer": answer} for n, answer in enumerate(answers)]
    summary = run_prepare(tmp_path, write(tmp_path / f"rows{kind}", rows))
    assert summary["tables"]["problems"]["rows"] == len(answers)
    assert [problem.answer for problem in read_problems(tmp_path / "out" / "problems")] == answers


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("torn.jsonl", '{"a": 1}\n{"a": ', r"torn\.jsonl, line 2: not JSON.*cut off while it was written"),
        ("glued.jsonl", '{"a": 1}\n{"a": 2}{"a": 3}\n', r"glued\.jsonl, line 2: not JSON: two rows stand .*from character 9"),
        ("huge.jsonl", '{"a": 1e999}\n', r"huge\.jsonl, line 1: 1e999 is too large"),
        ("torn.json", '[\n{"a": 1},\n{"a": ', r"torn\.json, line 3: the row that begins here is not JSON.*cut off"),
        ("open.json", '[{"a": 1}', r"open\.json, line 1: the array has no end"),
        ("glued.json", '[\n{"a": 1}\n{"a": 2}]', r"glued\.json, line 2: .* glued together, without a comma"),
        ("more.json", '[{"a": 1}] 2', r"more\.json: there is something behind the end of the array"),
        ("odd.json", '[{"a": 1},\n 7]', r"odd\.json, line 2: a number where a JSON object is wanted"),
        ("short.csv", "a,b\n1,2\n3\n", r"short\.csv, line 3: 1 cells, where the header has 2 columns; the row: 3"),
        ("long.csv", 'a,b\n"1\n2",2\n3,4,5\n', r"long\.csv, line 4: 3 cells"),
        ("torn.csv", 'a,b\n1,"2\n', r"torn\.csv, line 2: a quote is opened and never closed"),
        ("twice.csv", "a,a\n1,2\n", r"twice\.csv, line 1: the column name 'a' is empty or stands twice"),
        ("quote.csv", 'a,b\n1,"2"3\n', r"quote\.csv, line 2: not CSV"),
        ("latin.csv", "a\ncaf\xe9\n", r"latin\.csv, line \d+ or below: not UTF-8"),
        ("latin.json", '[{"a": "caf\xe9"}]', r"latin\.json: not UTF-8 at byte 11"),
        ("torn.parquet", "PAR1 and no more", r"torn\.parquet is no Parquet file, or was cut off after row 0"),
        ("rows.xlsx", "a", r"only \.jsonl, \.json, \.csv, \.tsv, \.parquet files can be read, not \.xlsx"),
    ],
)  # fmt: skip
def test_a_file_that_is_torn_glued_or_odd_is_named_with_the_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=words):
        list(read_rows(tmp_path / name))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv"])
def test_an_empty_file_stops_prepare_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"no rows are left for problems from .*{name}: the source is empty"):
        run_prepare(tmp_path, tmp_path / name)


def test_a_byte_order_mark_crlf_and_blank_lines_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4\r\n")
    assert [row for _, row in read_rows(tmp_path / "rows.csv")] == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    (tmp_path / "rows.json").write_bytes(b'\xef\xbb\xbf {"a": 1}\n{"a": 2}\n')  # lines under the name of an array
    assert [where.rpartition(", ")[2] for where, _ in read_rows(tmp_path / "rows.json")] == ["line 1", "line 2"]


# --- mapping


def test_columns_are_mapped_and_constants_fill_what_rows_do_not_say() -> None:
    row = {"problem": "Pick one.", "solution": "B", "level": 5, "_where": "x.jsonl, line 1"}
    fields, values = {"question": "problem", "answer": "solution"}, {"checker": "choice", "language": "de", "level": "?"}
    taken = normalised(row, "problems", fields, values)
    assert [taken[name] for name in ("question", "answer", "checker", "language", "level")] == [
        "Pick one.",
        "B",
        "choice",
        "de",
        "5",
    ]


@pytest.mark.parametrize(
    ("row", "fields", "words"),
    [
        ({"q": "a"}, {"question": "problem"}, "there is no column 'problem', which is to be our 'question'"),
        ({"question": "a"}, {}, "column 'answer' is missing or empty"),
        ({"question": "a", "answer": None}, {}, "column 'answer' is missing or empty"),
        ({"question": " ", "answer": "1"}, {}, "column 'question' is missing or empty"),
        ({"question": 7, "answer": "1"}, {}, "column 'question' must be text, not int: '7'"),
        ({"question": "a", "answer": True}, {}, "column 'answer' must be text, not bool: 'True'"),
        ({"question": "a", "answer": ["1"]}, {}, "column 'answer' must be text, not list"),
        ({"question": "a", "answer": "1", "check": "{"}, {}, "column 'check' is not JSON"),
        ({"question": "a", "answer": "1", "check": [1]}, {}, "column 'check' must be an object, not list"),
    ],
)
def test_a_row_that_cannot_be_used_is_shown_with_file_line_and_column(
    row: dict[str, Any], fields: dict[str, str], words: str
) -> None:
    with pytest.raises(DataError) as caught:
        normalised({**row, "_where": "my.jsonl, line 7"}, "problems", fields)
    assert caught.value.problem.startswith(f"my.jsonl, line 7: {words}")
    assert caught.value.problem.endswith(json.dumps(row))
    assert caught.value.hint == "map it with [prepare.problems] fields"


def test_a_mapping_to_a_column_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [{"question": "a", "answer": "1"}])
    with pytest.raises(DataError, match=r"\[prepare.problems\]: 'anwser' is no column of ours"):
        run_prepare(tmp_path, path, fields={"anwser": "x"})


# --- bad rows


def run_prepare(tmp_path: Path, problems: Path | str, **spec: Any) -> dict[str, Any]:
    evaluation = write(tmp_path / "evaluation.jsonl", [{"question": "Which year is it on Mars now?", "answer": "37"}])
    config = prepare.ZeroConfig(problems=SourceSpec(source=str(problems), **spec), evaluation=SourceSpec(source=str(evaluation)))
    out = tmp_path / "out"
    context = SimpleNamespace(config=config, seed=1, folder=out, output=lambda name: out / name)
    return prepare.run(context)  # type: ignore[arg-type]


BAD = '{"question": "one?", "answer": "1"}\n{"question": "two?"}\n{"question": "th\n{"question": "four?", "answer": 4}{"a": 1}\n'


def test_bad_rows_stop_prepare_unless_they_are_to_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(BAD)
    with pytest.raises(DataError, match="line 2: column 'answer' is missing"):
        run_prepare(tmp_path, tmp_path / "rows.jsonl")


def test_skipped_rows_are_counted_and_kept_with_place_and_reason(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(BAD)
    tables = run_prepare(tmp_path, tmp_path / "rows.jsonl", bad_rows="skip")["tables"]
    assert tables["problems"]["rows"] == 1
    assert sum(tables["problems"]["dropped"].values()) == 3
    skipped = list(read_table(tmp_path / "out" / "skipped"))
    assert [row["where"].rpartition(", ")[2] for row in skipped] == ["line 2", "line 3", "line 4"]
    assert [row["table"] for row in skipped] == ["problems"] * 3
    assert skipped[0]["reason"] == "column 'answer' is missing or empty"
    assert skipped[0]["row"] == '{"question": "two?"}'
    assert "two rows stand in one line" in skipped[2]["reason"]


def test_bad_rows_of_csv_and_arrays_are_skipped_too(tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []

    def bad(where: str, why: str, row: str) -> None:
        told.append((where.rpartition(", ")[2], why, row))

    (tmp_path / "rows.csv").write_text('a,b\n1\n3,4\n5,"6"7\n8,9\n')
    assert [row["a"] for _, row in read_rows(tmp_path / "rows.csv", bad)] == ["3", "8"]
    (tmp_path / "rows.json").write_text('[{"a": 1},\n3,\n{"a": 2}]')
    assert [row["a"] for _, row in read_rows(tmp_path / "rows.json", bad)] == [1, 2]
    assert [place for place, _, _ in told] == ["line 2", "line 4", "line 2"]


def test_words_that_stand_for_a_missing_answer_are_no_gold_answers(tmp_path: Path) -> None:
    rows = [{"question": f"Prove number {n}.", "answer": word} for n, word in enumerate(["proof", "Not found.", "N/A", "12"])]
    tables = run_prepare(tmp_path, write(tmp_path / "rows.jsonl", rows))["tables"]
    assert tables["problems"]["rows"] == 1
    assert tables["problems"]["dropped"] == {
        f"gold answer is no answer ({word!r})": 1 for word in ("proof", "Not found.", "N/A")
    }  # fmt: skip


def test_problems_that_differ_in_their_options_alone_have_ids_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"question": "Which is prime?", "answer": "A", "checker": "choice", "check": {"options": options}}
        for options in (["2", "4"], ["3", "6"], ["2", "4"])
    ]
    run_prepare(tmp_path, write(tmp_path / "rows.jsonl", rows))
    problems = read_problems(tmp_path / "out" / "problems")
    assert len(problems) == len({problem.id for problem in problems}) == 2


# --- other sources


def test_a_function_of_the_users_is_a_source_and_its_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_source.py").write_text(
        "def rows(table, count, seed):\n    yield {'question': 'q', 'answer': '1'}\n\ndef odd(table, count, seed):\n    yield 7\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (row,) = open_source("mine_source:rows", "problems", 1, 1)
    assert row == {"_where": "mine_source:rows, row 1", "question": "q", "answer": "1"}
    with pytest.raises(DataError, match="mine_source:odd, row 1: a int, where a dict is wanted"):
        list(open_source("mine_source:odd", "problems", 1, 1))
    with pytest.raises(RecipeError, match="mine_source has no function 'rwos'"):
        list(open_source("mine_source:rwos", "problems", 1, 1))
    with pytest.raises(RecipeError, match="hf:OWNER/NAME"):
        list(open_source("nanoo", "problems", 1, 1))


def test_reasoning_gym_is_a_source_by_name() -> None:
    rows = list(open_source("reasoning-gym:basic_arithmetic", "problems", 3, 1))
    assert len(rows) == 3
    assert all(normalised(row, "problems", {})["checker"] == "logic" for row in rows)
    with pytest.raises(RecipeError, match="did you mean 'basic_arithmetic'"):
        list(open_source("reasoning-gym:basic_arithmetics", "problems", 3, 1))


def hub_folder(folder: Path, kind: str = ".jsonl") -> Path:
    (folder / "data").mkdir(parents=True)
    for part, answers in enumerate((ANSWERS[:6], ANSWERS[6:])):
        rows = [{"question": f"q{part} {n}", "answer": answer} for n, answer in enumerate(answers)]
        write(folder / "data" / f"train-0000{part}-of-00002{kind}", rows)
    write(folder / "data" / f"test-00000-of-00001{kind}", [{"question": "held out", "answer": "1"}])
    return folder


@pytest.mark.parametrize("kind", [".jsonl", ".parquet", ".csv"])
def test_a_data_set_in_the_form_of_the_hub_keeps_its_answers(tmp_path: Path, kind: str) -> None:
    folder = hub_folder(tmp_path / "set", kind)
    rows = list(open_source(f"hf:{folder}", "problems", 0, 1))
    assert [row["answer"] for row in rows] == ANSWERS
    assert rows[7]["_where"].startswith(f"hf:{folder} data/train-00001-of-00002{kind}, ")
    assert [row["question"] for row in open_source(f"hf:{folder}", "problems", 0, 1, split="test")] == ["held out"]
    assert len(list(open_source(f"hf:{folder}", "problems", 2, 1))) == 2


def test_a_split_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no split 'validation'") as caught:
        list(open_source(f"hf:{hub_folder(tmp_path / 'set')}", "problems", 0, 1, split="validation"))
    assert "train, test" in caught.value.hint


@pytest.mark.parametrize("revision", ["", "main", "v1.0", "abc123"])
def test_a_data_set_of_the_hub_needs_a_commit(revision: str) -> None:
    with pytest.raises(DataError, match="hf:owner/name needs a commit") as caught:
        list(open_source("hf:owner/name", "problems", 0, 1, revision=revision))
    assert "r1pipe data preview hf:owner/name" in caught.value.hint


def test_without_a_network_a_data_set_of_the_hub_is_an_error_of_ours() -> None:
    with pytest.raises(DataError, match=r"hf:owner/none-such at 0000000.* cannot be fetched") as caught:
        list(open_source("hf:owner/none-such", "problems", 0, 1, revision="0" * 40))
    assert "offline = false" in caught.value.hint


def test_reading_a_source_loads_no_library_that_it_does_not_need(tmp_path: Path) -> None:
    import subprocess

    path = write(tmp_path / "rows.csv", [{"question": "q", "answer": "1"}])
    program = (
        "import sys; from r1pipe.data.sources import open_source; "
        f"list(open_source({str(path)!r}, 'problems', 0, 1)); print('datasets' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_reading_ten_times_the_rows_takes_no_more_memory(tmp_path: Path, kind: str) -> None:
    peaks = []
    for count in (3_000, 30_000):
        rows = [{"question": f"question {n} " + "x" * 200, "answer": str(n)} for n in range(count)]
        path = write(tmp_path / f"rows{count}{kind}", rows)
        del rows
        tracemalloc.start()
        assert sum(1 for _ in read_rows(path)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 100_000


def test_blank_lines_are_skipped_and_count_as_lines(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('\n{"a": 1}\n\n\n{"a": 2}\n')
    assert [number for number, _ in read_jsonl(tmp_path / "rows.jsonl")] == [2, 5]


def test_a_question_that_is_only_written_otherwise_is_the_same_question(tmp_path: Path) -> None:
    asked = ["What is $x$ + 1?", "what is x  + 1", "What is ｘ + 1?", "What is x + 2?"]
    rows = [{"question": question, "answer": str(n)} for n, question in enumerate(asked)]
    tables = run_prepare(tmp_path, write(tmp_path / "rows.jsonl", rows))["tables"]
    assert tables["problems"]["dropped"] == {"asks what an earlier row asks": 2}
    assert [problem.answer for problem in read_problems(tmp_path / "out" / "problems")] == ["0", "3"]


@pytest.mark.parametrize("kind", [".jsonl", ".json"])
def test_nulls_in_front_and_keys_that_only_some_rows_have_lock_no_column(tmp_path: Path, kind: str) -> None:
    rows: list[dict[str, Any]] = [{"question": f"q{n}?", "answer": str(n), "level": None} for n in range(3000)]
    rows += [
        {"question": "late?", "answer": "1", "level": "hard", "extra": {"deep": [1, "2"]}},
        {"question": "q?", "answer": "2"},
    ]
    path = tmp_path / f"rows{kind}"
    path.write_text("\n".join(map(json.dumps, rows)) if kind == ".jsonl" else json.dumps(rows))
    taken = [normalised(row, "problems", {}) for row in open_source(str(path), "problems", 0, 1)]
    assert [row["level"] for row in taken] == [""] * 3000 + ["hard", ""]


@pytest.mark.parametrize("source", ["rows.jsonl", "hf:set"])
def test_an_edited_file_is_read_anew_even_with_its_old_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "rows.jsonl", [{"question": "q", "answer": "1"}])
    if source.startswith("hf:"):
        path = write(hub_folder(tmp_path / "set") / "data" / "train-00000-of-00002.jsonl", [{"question": "q", "answer": "1"}])
    before, then = next(open_source(source, "problems", 1, 1)), path.stat()
    path.write_text(path.read_text().replace("1", "2"))
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert path.stat().st_size == then.st_size
    assert (before["answer"], next(open_source(source, "problems", 1, 1))["answer"]) == ("1", "2")


def test_rows_of_the_hub_are_those_of_the_commit_and_carry_their_name_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    commit, asked = "0123456789abcdef0123456789abcdef01234567", []
    copy = tmp_path / "5f70bf18"  # what is fetched has no name of its own
    write(tmp_path / "rows.jsonl", [{"question": "q", "answer": "007"}]).rename(copy)

    def builder(name: str, subset: str | None, revision: str | None) -> Any:
        asked.append((name, subset, revision))
        files = {"train": [f"hf://datasets/owner/name@{commit}/data/train.jsonl.gz"]}
        return SimpleNamespace(config=SimpleNamespace(data_files=files), dataset_name="name")

    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets.DownloadManager, "download_and_extract", lambda self, names: [str(copy)] * len(names))
    (row,) = open_source("hf:owner/name", "problems", 0, 1, revision=commit, subset="main")
    assert row == {"question": "q", "answer": "007", "_where": "hf:owner/name data/train.jsonl.gz, line 1"}
    found = preview(SourceSpec(source="hf:owner/name"), "problems", 1, [], 1)
    assert found["commit"] == commit
    assert asked[0] == ("owner/name", "main", commit)
    assert asked[1:] == [("owner/name", None, None), ("owner/name", None, commit)]


def test_half_a_character_is_a_bad_row_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"question": "ok?", "answer": "1"}\n{"question": "odd \\ud800?", "answer": "2"}\n')
    spec = SourceSpec(source=str(tmp_path / "s.jsonl"))
    good, odd = raw_rows(spec, "problems", 1, None)
    assert normalised(good, "problems", {})["answer"] == "1"
    with pytest.raises(DataError, match=r"s\.jsonl, line 2: column 'question' is no Unicode text") as raised:
        normalised(odd, "problems", {})
    raised.value.problem.encode()  # can be printed


def test_an_open_quote_in_a_csv_file_names_all_lines_that_it_takes(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text('question,answer\n"open,1\nb?,2\nc?,3\n"d?",4\ne?,5\n')
    told: list[tuple[str, str, str]] = []
    rows = [row for _, row in read_rows(tmp_path / "m.csv", lambda *what: told.append(what))]
    assert [row["question"] for row in rows] == ["e?"]
    ((where, what, shown),) = told
    assert where.endswith("lines 2 to 5")
    assert "takes 3 more lines" in what
    assert "b?,2" in shown


def test_parquet_values_that_are_none_are_named_by_row_and_column(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    far = pyarrow.array([0, 1 << 30], pyarrow.int32()).cast(pyarrow.date32())
    pyarrow.parquet.write_table(pyarrow.table({"question": ["a?", "b?"], "answer": far}), tmp_path / "far.parquet")
    with pytest.raises(DataError, match=r"far\.parquet, row 2: column 'answer' holds what cannot be read"):
        list(read_rows(tmp_path / "far.parquet"))
    twice = pyarrow.Table.from_arrays([pyarrow.array(["1"]), pyarrow.array(["2"])], names=["answer", "answer"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="'answer' stands twice"):
        list(read_rows(tmp_path / "twice.parquet"))
    numbers = pyarrow.table({"question": ["a?", "b?"], "answer": [decimal.Decimal("1E-9"), decimal.Decimal("0E-9")]})
    pyarrow.parquet.write_table(numbers, tmp_path / "small.parquet")
    spec = SourceSpec(source=str(tmp_path / "small.parquet"))
    found = [normalised(row, "problems", {})["answer"] for row in raw_rows(spec, "problems", 1, None)]
    assert found == ["0.000000001", "0.000000000"]
    with pytest.raises(DataError, match="is nan, which is no number"):
        normalised({"question": "a?", "answer": float("nan")}, "problems", {})
