"""Verify and audit: files of rows as data sets have them, judged and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r1pipe.data.jsonl import read_jsonl, write_jsonl
from r1pipe.errors import DataError, RecipeError
from r1pipe.rewards.audit import audit_file, gold_fault, hostile_responses
from r1pipe.rewards.verify import problem_of, verify_file


def rows_file(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    write_jsonl(folder / name, rows)
    return folder / name


def test_a_file_with_expected_verdicts_is_judged_and_counted(tmp_path: Path) -> None:
    path = rows_file(tmp_path, [
        {"id": "a", "gold": "1/2", "text": "\\boxed{0.5}", "sound": True},
        {"id": "b", "gold": "1/2", "text": "\\boxed{0.6}", "sound": False},
        {"id": "c", "gold": "1/2", "text": "\\boxed{0.6}", "sound": True},
        {"id": "d", "gold": "1/2", "text": "\\boxed{0.5}", "sound": False},
        {"id": "e", "gold": "", "text": "\\boxed{0.5}", "sound": True},
        {"id": "f", "gold": "007", "text": "<think>8</think>\\boxed{7}", "sound": None},
    ])  # fmt: skip
    report = verify_file(path, "maths", "gold", "text", "sound")
    assert report["summary"] == {
        "rows": 6, "right": 3, "wrong": 2, "unjudged": 1, "agreement": 0.4, "false_accepts": 1, "false_rejects": 1,
    }  # fmt: skip
    assert [row["id"] for row in report["rows"]] == list("abcdef")
    assert report["rows"][4] == {"id": "e", "verdict": "unjudged", "note": "the gold answer is empty"}
    json.dumps(report, allow_nan=False)


def test_without_expected_verdicts_there_is_no_agreement(tmp_path: Path) -> None:
    report = verify_file(rows_file(tmp_path, [{"answer": 4, "completion": "4"}]), "maths")
    assert report["summary"]["agreement"] is None
    assert report["rows"] == [{"id": "1", "verdict": "right", "note": "answered 4, wanted 4"}]


def test_parquet_is_read_as_jsonl_is(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([{"answer": "B", "completion": "(B)", "options": ["x", "y"]}]), tmp_path / "rows.parquet"
    )
    assert verify_file(tmp_path / "rows.parquet", "choice")["summary"]["right"] == 1


def test_values_of_tables_become_answers(tmp_path: Path) -> None:
    import datetime
    import decimal

    import pyarrow
    import pyarrow.parquet

    columns: list[tuple[list[Any], list[str]]] = [
        ([decimal.Decimal("7.50")], ["\\boxed{7.5}"]),
        ([b"7"], ["\\boxed{7}"]),
        ([datetime.date(2020, 1, 1)], ["\\boxed{2020-01-01}"]),
        ([["$2$"], ["1", "2"]], ["\\boxed{2}", "\\boxed{2, 1}"]),
        ([7.0], ["\\boxed{7}"]),
    ]
    for golds, completions in columns:
        pyarrow.parquet.write_table(pyarrow.table({"answer": golds, "completion": completions}), tmp_path / "rows.parquet")
        assert verify_file(tmp_path / "rows.parquet", "maths")["summary"]["right"] == len(golds), golds
    pyarrow.parquet.write_table(pyarrow.table({"answer": [float("nan")], "completion": ["1"]}), tmp_path / "rows.parquet")
    assert verify_file(tmp_path / "rows.parquet", "maths")["rows"][0]["note"] == "the gold answer is empty"


def test_a_response_may_be_the_messages_of_a_conversation_and_nothing_else_that_is_no_text(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "\\boxed{1}"}]
    assert verify_file(rows_file(tmp_path, [{"answer": "1", "completion": chat}]), "maths")["summary"]["right"] == 1
    for odd, words in ((None, "nothing"), (5, "a int"), (["\\boxed{1}"], "a list")):
        with pytest.raises(DataError, match=f"'completion' holds {words} where text is wanted"):
            verify_file(rows_file(tmp_path, [{"answer": "1", "completion": odd}]), "maths")


def test_an_empty_or_torn_file_is_an_error_and_no_report_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n\n")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 torn")
    for judged in (verify_file, audit_file):
        with pytest.raises(DataError, match="holds no rows"):
            judged(tmp_path / "rows.jsonl", "maths")
        with pytest.raises(DataError, match=r"rows\.parquet is no Parquet file, or was cut off"):
            judged(tmp_path / "rows.parquet", "maths")


def test_missing_columns_kinds_and_domains_are_named_with_what_there_is(tmp_path: Path) -> None:
    path = rows_file(tmp_path, [{"answer": "4", "completion": "4"}])
    with pytest.raises(DataError, match=r"line 1: there is no column 'complet'.*\n.*'completion'"):
        verify_file(path, "maths", completion_field="complet")
    with pytest.raises(RecipeError, match="did you mean 'maths'"):
        verify_file(path, "math")
    with pytest.raises(DataError, match=r"only \.jsonl, \.json, \.csv, \.tsv, \.parquet files can be read, not \.xlsx"):
        verify_file(tmp_path / "rows.xlsx", "maths")
    with pytest.raises(DataError, match="there is no file"):
        verify_file(tmp_path / "none.jsonl", "maths")


def test_the_audit_sorts_gold_answers_into_usable_and_not(tmp_path: Path) -> None:
    report = audit_file(rows_file(tmp_path, [
        {"id": "a", "problem": "q", "answer": "\\frac{1}{2}"},
        {"id": "b", "problem": "q", "answer": ""},
        {"id": "c", "problem": "q", "answer": "These are not legitimate row operations. They do not preserve the solution set."},
        {"id": "d", "problem": "q", "answer": {"1": "x", "2": "y"}},
        {"id": "e", "problem": "q", "answer": 7},
    ]), "maths")  # fmt: skip
    assert report["summary"] == {"rows": 5, "gold_right": 2, "gold_wrong": 0, "unjudgeable": 3}
    assert {row["id"]: row["verdict"] for row in report["rows"]} == {
        "a": "right",
        "b": "unjudged",
        "c": "unjudged",
        "d": "unjudged",
        "e": "right",
    }
    assert all(row["note"] for row in report["rows"])
    assert report["hostile"]["accepted"] == 0
    assert report["hostile"]["tried"] > 20


def test_a_choice_whose_gold_names_no_option_is_found(tmp_path: Path) -> None:
    report = audit_file(
        rows_file(
            tmp_path,
            [{"question": "q", "answer": "E", "options": ["x", "y"]}, {"question": "q", "answer": "A", "options": ["x", "y"]}],
        ),
        "choice",
    )
    assert [row["verdict"] for row in report["rows"]] == ["unjudged", "right"]
    assert report["hostile"]["accepted"] == 0


def test_no_hostile_response_is_right_for_any_kind_of_gold_answer(tmp_path: Path) -> None:
    golds = [
        "5",
        "1,2,3",
        "\\frac{2}{3}",
        "x=5",
        "(1,2)",
        "[0,1)",
        "\\text{(C)}",
        "east",
        "No. It is odd.",
        "10 cm",
        "20\\%",
        "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
    ]
    report = audit_file(rows_file(tmp_path, [{"id": gold, "answer": gold} for gold in golds]), "maths")
    assert report["hostile"]["rows"] == []
    assert report["summary"]["gold_right"] == len(golds)


def test_rows_of_public_data_sets_become_problems() -> None:
    gym = problem_of(
        {"id": 1, "dataset": "chain_sum", "question": "1+1", "answer": "2", "metadata": {"x": 1}}, "logic", "answer", 1
    )
    assert gym.check == {"dataset": "chain_sum", "entry": {"question": "1+1", "answer": "2", "metadata": {"x": 1}}}
    mbpp = problem_of({"task_id": 7, "prompt": "Write f.", "test_list": ["assert f(1)"], "test_imports": []}, "code", "answer", 1)
    assert (mbpp.id, mbpp.question, mbpp.check["test_list"]) == ("7", "Write f.", ["assert f(1)"])
    assert problem_of({"answer": 3.5, "language": "de"}, "maths", "answer", 9).answer == "3.5"
    assert gold_fault(problem_of({"answer": "$t(0,4]$"}, "maths", "answer", 1))
    assert dict(hostile_responses(gym, "<answer>2</answer>"))["empty"] == ""


def test_values_of_jsonl_keep_their_types_and_lines_end_at_newlines_only(tmp_path: Path) -> None:
    rows = [{"a": "007", "b": 7, "c": "2024-01-01", "d": None, "e": "one\u2028two\u0085three"}, {"a": "null"}]
    assert [row for _, row in read_jsonl(rows_file(tmp_path, rows))] == rows


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1}\n{"a": ', r"line 2: not JSON.*cut off while it was written"),
        (b'{"a": 1}\n\n[1]\n', "line 3: an array where a JSON object"),
        (b'{"a": 1, "a": 2}\n', "'a' stands twice"),
        (b'{"a": NaN}\n', "NaN is not JSON"),
        (b'{"a": "\xff"}\n', "line 1: not UTF-8"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "line 1: not JSON"),
    ],
)
def test_a_torn_or_odd_line_is_named_by_file_and_number(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=words):
        list(read_jsonl(tmp_path / "rows.jsonl"))


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}')
    assert list(read_jsonl(tmp_path / "rows.jsonl")) == [(1, {"a": 1}), (3, {"a": 2})]
