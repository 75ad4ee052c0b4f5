"""The problems, solutions and corpus of the embedded default."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from dataclasses import asdict
from fractions import Fraction

import pytest

from r1pipe.data.chat import join_response, split_response
from r1pipe.data.nano import problems as problems_module
from r1pipe.data.nano.corpus import SCHOOL, WORLD, corpus
from r1pipe.data.nano.general import collected_general, general_prompts, preference_pairs, safety_rows
from r1pipe.data.nano.gym import chain_plan, equation_plan
from r1pipe.data.nano.plans import Draft, run_plan
from r1pipe.data.nano.problems import DOMAINS, problems, split_of
from r1pipe.data.nano.solutions import work, worked_trace
from r1pipe.data.rows import Problem
from r1pipe.errors import DataError

HAN = re.compile(r"[\u4e00-\u9fff]")
LATIN = re.compile(r"[A-Za-z]{2,}")


@pytest.fixture(scope="module")
def rows() -> list[Problem]:
    return problems(400, seed=11)


def test_equal_seeds_give_equal_problems_and_other_seeds_others() -> None:
    assert problems(40, seed=1) == problems(40, seed=1)
    assert {row.id for row in problems(40, seed=1)} != {row.id for row in problems(40, seed=2)}


def test_every_domain_and_both_languages_appear_in_the_shares_asked_for(rows: list[Problem]) -> None:
    assert Counter(row.language for row in rows) == {"en": 200, "zh": 200}
    counts = Counter(row.domain for row in rows)
    assert all(abs(counts[domain] / 400 - share) < 0.08 for domain, share in DOMAINS.items())


def test_no_question_appears_twice_nor_in_both_splits(rows: list[Problem]) -> None:
    held_out = problems(200, seed=11, split="held-out")
    assert len({row.question for row in rows}) == len({row.id for row in rows}) == 400
    assert not {row.question for row in rows} & {row.question for row in held_out}


def test_the_corpus_never_contains_a_held_out_question() -> None:
    for habits in (SCHOOL, WORLD):
        asked = [question for question, _ in corpus(5, 600, habits) if question]
        assert {split_of(question) for question in asked} == {"train"}


def test_rows_survive_json(rows: list[Problem]) -> None:
    assert all(Problem(**json.loads(json.dumps(asdict(row), ensure_ascii=False))) == row for row in rows)


def test_gold_answers_agree_with_arithmetic_read_from_the_question(rows: list[Problem]) -> None:
    """The chains and equations are evaluated from the question's own text, not from the plan."""
    checked = 0
    for row in rows:
        if row.domain == "arithmetic":
            expression = re.search(r"\d[\d +*-]*\d", row.question) or re.search(r"\d", row.question)
            assert expression is not None
            assert eval(expression.group()) == int(row.answer), row.question
            checked += 1
        elif row.domain == "equations":
            text = re.sub(r"^.*(?:equation|satisfies|Solve for \w): |^解方程：|^已知 |，.*$", "", row.question)
            left, right = re.sub(r"(\d)([a-z])", r"\1*\2", text).split("=")
            letter = (re.search(r"[a-z]", left) or pytest.fail(row.question)).group()
            assert eval(left, {letter: Fraction(row.answer)}) == eval(right), row.question
            checked += 1
    assert checked > 150


def test_choices_have_exactly_one_right_option(rows: list[Problem]) -> None:
    for row in (row for row in rows if row.domain == "choice"):
        plan, options = row.check["plan"], row.check["options"]
        values = [eval(option) for option in options]
        tests = {
            "largest": [v == max(values) for v in values],
            "smallest": [v == min(values) for v in values],
            "even": [v % 2 == 0 for v in values],
            "odd": [v % 2 == 1 for v in values],
            "sum": [v == plan.get("target") for v in values],
        }[plan["ask"]]
        assert tests.count(True) == 1
        assert "ABCD"[tests.index(True)] == row.answer


def test_reasoning_gyms_own_scorer_accepts_every_gold_answer(rows: list[Problem]) -> None:
    import reasoning_gym

    kept = [row for row in rows if row.checker == "logic"]
    assert {row.check["dataset"] for row in kept} == {"chain_sum", "basic_arithmetic", "simple_equations"}
    for row in kept:
        scorer = reasoning_gym.get_score_answer_fn(row.check["dataset"])
        assert scorer(row.answer, row.check["entry"]) == 1.0
        assert row.question == row.check["entry"]["question"]


def test_worked_traces_are_right_in_the_problems_language_and_well_formed(rows: list[Problem]) -> None:
    rng = random.Random(0)
    for row in rows:
        thinking, summary = worked_trace(row, rng, reflect=True)
        assert split_response(join_response(thinking, summary)).faults == ()
        assert summary.rstrip(".。").endswith("\\boxed{" + row.answer + "}")
        wrong_script = LATIN if row.language == "zh" else HAN
        assert not wrong_script.search(thinking), thinking
        assert (HAN if row.language == "zh" else LATIN).search(thinking), thinking


def test_every_equation_in_a_worked_trace_is_true(rows: list[Problem]) -> None:
    rng = random.Random(0)
    for row in rows:
        thinking, _ = worked_trace(row, rng, reflect=True)
        for left, right in re.findall(r"(\d+[-+*/]\d+)=(\d+)", thinking):
            assert eval(left) == int(right), thinking


def test_reflection_adds_a_look_back_only_when_asked() -> None:
    row = next(row for row in problems(20, seed=1, languages=("en",)) if row.domain == "word-problems")
    plain, reflected = (worked_trace(row, random.Random(1), reflect=reflect)[0] for reflect in (False, True))
    assert "check" in reflected
    assert reflected.startswith(plain)


def test_a_slip_changes_the_answer_and_is_carried_through(rows: list[Problem]) -> None:
    """Of a choice whose right option comes early, a slip may fall behind it and not show."""
    rng = random.Random(0)
    wrong = {row.id: work(row, rng, ("en",), slip=True).answer != row.answer for row in rows}
    numbers = [wrong[row.id] for row in rows if row.domain != "choice"]
    assert sum(numbers) / len(numbers) > 0.9
    assert sum(wrong.values()) / len(wrong) > 0.8


def test_products_come_before_sums_whatever_the_order_written() -> None:
    assert run_plan(chain_plan("2 + 3 * 4"))[-1][3] == 14
    assert run_plan(chain_plan("2 * 3 + 4"))[-1][3] == 10
    assert run_plan(chain_plan("20 - 3 - 4"))[-1][3] == 13


@pytest.mark.parametrize(("equation", "value"), [("3*x + 4 = 19", 5), ("2*y - 4 = 6", 5), ("30 - 5*z = 5", 5), ("e + 4 = 9", 5)])
def test_equations_are_solved_in_each_form(equation: str, value: int) -> None:
    plan = equation_plan(equation)
    assert plan is not None
    assert run_plan(plan)[-1][3] == value


def test_an_equation_of_another_form_has_no_plan() -> None:
    assert equation_plan("3*x*y = 12") is None
    assert equation_plan("3*x = 12") is None


def test_the_corpus_is_deterministic_and_mixes_habits() -> None:
    first, again = list(corpus(3, 400, WORLD)), list(corpus(3, 400, WORLD))
    assert first == again
    formed = sum(not split_response(answer).faults for _, answer in first) / 400
    assert 0.05 < formed < 0.25
    assert any(HAN.search(answer) and LATIN.search(answer.replace("boxed", "")) for _, answer in first)


def test_preference_pairs_cannot_be_told_apart_by_length() -> None:
    pairs = preference_pairs(400, seed=1)
    longer = sum(len(pair.chosen) > len(pair.rejected) for pair in pairs) / len(pairs)
    assert 0.35 < longer < 0.65
    assert {pair.prompt.kind for pair in pairs} == {"helpfulness"}
    assert all(pair.chosen != pair.rejected for pair in pairs)


def test_safety_rows_are_balanced_and_unsafe_ones_answer_risky_requests() -> None:
    labels = safety_rows(200, seed=1)
    assert 0.4 < sum(label.safe for label in labels) / 200 < 0.6
    assert all(label.prompt.kind == "safety" for label in labels if not label.safe)
    assert all(not split_response(label.response).faults for label in labels)


def test_collected_general_data_hold_answers_of_every_worth_and_can_all_be_read() -> None:
    rng = random.Random(2)
    prompts = general_prompts(400, seed=1)
    answers = [(prompt, *collected_general(prompt, rng)) for prompt in prompts]
    polite = [prompt.language in summary_languages(summary) for prompt, _, summary in answers]
    assert all(polite), "an answer in the other language is for the language reward to find"
    refused = [any(word in summary for word in ("cannot help", "will not help", "不能帮", "不会帮")) for _, _, summary in answers]
    for kind, low, high in (("safety", 0.5, 0.7), ("helpfulness", 0.05, 0.25)):
        share = [said for said, (prompt, _, _) in zip(refused, answers, strict=True) if prompt.kind == kind]
        assert low < sum(share) / len(share) < high, kind


def summary_languages(text: str) -> set[str]:
    return {"zh"} if HAN.search(text) else {"en"}


def test_general_prompts_of_the_splits_are_disjoint_and_need_no_checker() -> None:
    train, held_out = general_prompts(200, seed=1), general_prompts(60, seed=1, split="held-out")
    assert not {row.question for row in train} & {row.question for row in held_out}
    assert {row.checker for row in train} == {"none"}
    assert {row.kind for row in train} == {"helpfulness", "safety"}


def test_asking_for_more_problems_than_there_are_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [Draft(f"What is {number}?", str(number), "maths", "test") for number in range(40)]
    monkeypatch.setitem(problems_module._SOURCES, ("arithmetic", "en"), lambda rng: itertools.cycle(few))
    with pytest.raises(DataError, match=r"no new arithmetic problem in 'en'.* of 60 were found"):
        problems(60, seed=1, domains={"arithmetic": 1.0}, languages=("en",))
