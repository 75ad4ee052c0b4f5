"""Tables, prompt order, and the preparation of rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r1pipe.data.overlap import find_overlap
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import (
    ATTEMPT_COLUMNS,
    PROBLEM_COLUMNS,
    attempt_of,
    attempt_row,
    problem_row,
    read_problems,
    read_table,
    scores_of,
    write_part,
    write_table,
)
from r1pipe.errors import ArtifactError, DataError
from r1pipe.stages import prepare
from r1pipe.stages.prepare import question_key
from r1pipe.stages.schema import check_mapping, normalised
from r1pipe.stages.selection.run import evaluation_index


def test_answers_keep_their_text_through_a_table(tmp_path: Path) -> None:
    answers = ["007", "2024-01-02", "null", "1e5", "3.50", "true", "", "∅"]
    problems = [
        Problem(id=str(n), question="q", answer=answer, check={"options": ["1", "007"]}) for n, answer in enumerate(answers)
    ]
    write_table(tmp_path, map(problem_row, problems), PROBLEM_COLUMNS, rows_per_part=3)
    assert read_problems(tmp_path) == problems
    assert len(list(tmp_path.glob("part-*.parquet"))) == 3


def test_an_attempt_keeps_its_scores_and_notes(tmp_path: Path) -> None:
    attempt = Attempt(Problem(id="1", question="q"), "text\u2028more", "<think>\n", "length", 7)
    parts = {"accuracy": Score(None, "no gold"), "format": Score(1.0, ""), "preference": None}
    write_part(tmp_path, 0, [attempt_row(attempt, 2, parts, None, "unjudged")], ATTEMPT_COLUMNS)
    row = next(read_table(tmp_path))
    assert attempt_of(row) == attempt
    assert scores_of(row) == parts
    assert (row["total"], row["verdict"], row["sample"]) == (None, "unjudged", 2)


def test_a_torn_part_is_named(tmp_path: Path) -> None:
    path = write_part(tmp_path / "attempts", 0, [problem_row(Problem(id="1", question="q"))], PROBLEM_COLUMNS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArtifactError, match=r"attempts/part-00000\.parquet cannot be read"):
        list(read_table(tmp_path / "attempts"))


def test_a_row_with_another_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="other columns than its table: extra"):
        write_part(tmp_path, 0, [{**problem_row(Problem(id="1", question="q")), "extra": 1}], PROBLEM_COLUMNS)


def test_the_prompt_order_goes_through_every_problem_before_it_repeats_one() -> None:
    order = prompt_order(
        verifiable=list(range(10)), general=[], rollouts=4, questions=5, general_from=0, general_share=0.0, seed=1
    )
    first, second = order.rollouts[0] + order.rollouts[1], order.rollouts[2] + order.rollouts[3]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert order.epochs == 2.0


def test_general_prompts_join_at_their_rollout_in_their_share() -> None:
    order = prompt_order(
        verifiable=list(range(100)),
        general=list(range(100, 120)),
        rollouts=6,
        questions=10,
        general_from=4,
        general_share=0.3,
        seed=1,
    )
    assert [sum(row >= 100 for row in rollout) for rollout in order.rollouts] == [0, 0, 0, 0, 3, 3]


def test_the_prompt_order_depends_on_the_seed_alone() -> None:
    arguments: dict[str, Any] = {
        "verifiable": list(range(30)), "general": [], "rollouts": 3, "questions": 7, "general_from": 0, "general_share": 0.0,
    }  # fmt: skip
    assert prompt_order(**arguments, seed=1) == prompt_order(**arguments, seed=1)
    assert prompt_order(**arguments, seed=1) != prompt_order(**arguments, seed=2)


def prepare_config(folder: Path, **changes: Any) -> prepare.Config:
    rows = {
        "problems": [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, 9)],
        "evaluation": [{"question": "What is 3 + 3?", "answer": "6"}, {"question": "what is  4 + 4 ?", "answer": "8"}],
        "general": [{"question": "Hello", "kind": "helpfulness", "checker": "none"}],
        "general_evaluation": [{"question": "Good day", "kind": "helpfulness", "checker": "none"}],
        "traces": [{"question": "What is 9 + 1?", "thinking": "9 and 1", "summary": "\\boxed{10}"}],
        "general_traces": [{"question": "Hi", "response": "<think>\nA greeting.\n</think>\n\nHello!"}],
        "pairs": [{"question": "Hi", "chosen": "Hello!", "rejected": "no"}],
        "labels": [{"question": "Hi", "response": "Hello!", "safe": 1}],
    }
    rows.update(changes)
    folder.mkdir(exist_ok=True)
    specs = {}
    for name, several in rows.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in several))
        specs[name] = prepare.SourceSpec(source=str(path))
    return prepare.Config(**specs)


def run_prepare(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    config = prepare_config(tmp_path / "in", **changes)
    out = tmp_path / "out"
    context = SimpleNamespace(config=config, seed=1, folder=out, output=lambda name: out / name)
    return prepare.run(context)["tables"]  # type: ignore[arg-type]


def test_prepare_drops_what_overlaps_an_evaluation_question_and_counts_it(tmp_path: Path) -> None:
    tables = run_prepare(tmp_path)
    assert tables["problems"]["rows"] == 6
    assert tables["problems"]["dropped"] == {"overlaps an evaluation item": 2}
    questions = {problem.question for problem in read_problems(tmp_path / "out" / "problems")}
    assert questions == {f"What is {n} + {n}?" for n in (1, 2, 5, 6, 7, 8)}


def test_prepare_takes_a_response_apart(tmp_path: Path) -> None:
    run_prepare(tmp_path)
    row = next(read_table(tmp_path / "out" / "general_traces"))
    assert (row["thinking"], row["summary"]) == ("A greeting.", "Hello!")


def test_prepare_names_file_line_and_column_of_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"problems\.jsonl, line 2: column 'answer' is missing or empty; the row has") as caught:
        run_prepare(tmp_path, problems=[{"question": "a", "answer": "1"}, {"question": "b", "gold": "1"}])
    assert caught.value.problem.endswith('the row has gold, question: {"question": "b", "gold": "1"}')
    assert "fields" in caught.value.hint


def test_prepare_drops_exact_duplicates_and_gold_answers_that_cannot_be_judged(tmp_path: Path) -> None:
    rows = [{"question": "one?", "answer": "1"}, {"question": "one?", "answer": "1"}, {"question": "two?", "answer": ""}]
    tables = run_prepare(tmp_path, problems=rows)
    assert tables["problems"]["rows"] == 1
    assert tables["problems"]["dropped"]["exact duplicate"] == 1
    assert sum(count for reason, count in tables["problems"]["dropped"].items() if reason.startswith("gold answer")) == 1


def test_prepare_stops_when_a_table_ends_up_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no rows are left for problems from .*: 1 × overlaps an evaluation item"):
        run_prepare(tmp_path, problems=[{"question": "What is 3 + 3?", "answer": "6"}])


COWS = "A farmer sells 12 of his 40 cows and buys 7 new ones at the market on Monday. How many cows has he now?"
PENS = "小明有3个苹果，吃了2个，又买了5个，现在有几个？"
ASKED = [{"question": COWS, "answer": "35"}, {"question": PENS, "answer": "6"}]


def test_prepare_keeps_a_problem_that_shares_only_its_wording_with_an_evaluation_question(tmp_path: Path) -> None:
    problems = [
        {"question": COWS.replace("12", "13").replace("40", "50").replace("7", "8"), "answer": "45"},
        {"question": PENS.replace("3", "7").replace("2", "4").replace("5", "6"), "answer": "9"},
        {"question": f"Think.  {COWS.upper()}", "answer": "35"},
        {"question": PENS.replace("，", " "), "answer": "6"},
    ]
    tables = run_prepare(tmp_path, problems=problems, evaluation=ASKED)
    assert tables["problems"]["dropped"] == {"overlaps an evaluation item": 2}
    assert [problem.answer for problem in read_problems(tmp_path / "out" / "problems")] == ["45", "9"]


def test_what_overlaps_is_kept_with_its_place_and_the_passage(tmp_path: Path) -> None:
    traces = [
        {"question": "What is 9 + 1?", "thinking": "9 and 1", "summary": "\\boxed{10}"},
        {"question": "A tale?", "thinking": f"I know one like it. {COWS} So 35.", "summary": "\\boxed{35}"},
    ]
    tables = run_prepare(tmp_path, traces=traces, evaluation=ASKED)
    assert tables["traces"] == {
        "rows": 1, "dropped": {"overlaps an evaluation item": 1}, "source": str(tmp_path / "in" / "traces.jsonl"),
    }  # fmt: skip
    (noted,) = read_table(tmp_path / "out" / "skipped")
    assert (noted["table"], noted["where"].rpartition(", ")[2]) == ("traces", "line 2")
    assert "a farmer sells 12 of his 40 cows and buys" in noted["reason"]
    assert "A tale?" in noted["row"]


WORKED = "He sells 12, so 40 minus 12 is 28 cows; after the market he has 28 plus 7, which makes 35 cows in the end."


@pytest.mark.parametrize("given", [WORKED, ["Just count them.", WORKED]])
def test_a_worked_solution_of_an_evaluation_problem_is_kept_and_found_in_what_is_trained_on(tmp_path: Path, given: Any) -> None:
    config = prepare_config(
        tmp_path / "in",
        evaluation=[
            {"question": COWS, "answer": "35", "worked": given},
            {"question": "What is 3 + 3?", "answer": "6", "worked": None},
        ],
        problems=[{"question": "What is 2 + 2?", "answer": "4", "solution": "Two and two"}],
        traces=[
            {"question": "How many?", "thinking": f"I have seen that. {WORKED.upper()}", "summary": "\\boxed{35}"},
            {"question": "How many more?", "thinking": WORKED.replace("12", "13").replace("28", "27"), "summary": "\\boxed{34}"},
        ],
    )  # fmt: skip
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"fields": {"solution": "worked"}})})
    out = tmp_path / "out"
    context = SimpleNamespace(config=config, seed=1, folder=out, output=lambda name: out / name)
    tables = prepare.run(context)["tables"]  # type: ignore[arg-type]
    assert tables["traces"]["dropped"] == {"overlaps an evaluation item": 1}
    assert [row["question"] for row in read_table(out / "traces")] == ["How many more?"]
    kept = [row["solution"] for row in read_table(out / "evaluation")]
    assert kept == ["\n\n".join(given) if isinstance(given, list) else given, ""]
    assert "solution" not in next(read_table(out / "problems"))
    step = SimpleNamespace(inputs={"evaluation": out / "evaluation"})
    index = evaluation_index(step, 10)  # type: ignore[arg-type]
    assert find_overlap(index, f"So: {WORKED}", question=False) is not None


def test_a_solution_is_a_column_of_evaluation_sets_alone() -> None:
    spec = prepare.SourceSpec(source="some.csv", fields={"solution": "worked"})
    check_mapping(spec, "general-evaluation")
    with pytest.raises(DataError, match=r"\[prepare.problems\]: 'solution' is no column of ours"):
        check_mapping(spec, "problems")


def test_problems_that_differ_in_their_solutions_alone_are_one_and_both_solutions_count(tmp_path: Path) -> None:
    other = "Seven bought minus twelve sold is five fewer than the forty that he had before the market began."
    rows = [{"question": COWS, "answer": "35", "solution": text} for text in (WORKED, other)]
    traces = [
        {"question": "How many?", "thinking": other, "summary": "\\boxed{35}"},
        {"question": "What is 9 + 1?", "thinking": "9 and 1", "summary": "\\boxed{10}"},
    ]
    tables = run_prepare(tmp_path, evaluation=rows, traces=traces)
    assert tables["evaluation"]["dropped"] == {"exact duplicate": 1}
    assert tables["traces"]["dropped"] == {"overlaps an evaluation item": 1}


@pytest.mark.parametrize(
    ("question", "language"),
    [("小明有3个苹果，又买了4个，一共有几个？", "zh"), ("How many apples?", "en"), ("Wie viele Äpfel sind das?", "en"),
     ("Сколько всего яблок?", "ru"), ("Is 苹果 a word for an apple or not?", "en"), ("12 + 7 = ?", "en")],
)  # fmt: skip
def test_a_row_that_names_no_language_has_that_of_its_questions_script(question: str, language: str) -> None:
    assert normalised({"question": question, "answer": "7"}, "problems", {})["language"] == language
    assert normalised({"question": question, "answer": "7"}, "problems", {}, {"language": "fr"})["language"] == "fr"


def test_questions_that_differ_in_case_and_in_the_spaces_around_signs_are_the_same() -> None:
    assert question_key("What is 2+2?") == question_key("what is 2 + 2 ?") == question_key("What is  2 +2")
    assert question_key("What is 2+2?") != question_key("What is 2-2?")
    assert question_key("Is 12 3 or 4?") != question_key("Is 123 or 4?")
