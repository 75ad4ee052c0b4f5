"""The maths checker: a table of cases, texts of other suites, gold answers, hostile answers, and properties."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r1pipe.data.chat import split_response
from r1pipe.rewards.extract import final_answer, last_box
from r1pipe.rewards.maths.check import Request, check
from r1pipe.rewards.maths.compare import Rules
from r1pipe.rewards.maths.judge import decide, pair, prepare
from r1pipe.rewards.maths.symbolic import hazard
from r1pipe.rewards.service import Pool

DATA = Path(__file__).parent / "data"
MARKS = {"=": "right", "≠": "wrong", "?": "unjudged"}


def table() -> Iterator[tuple[str, str, str]]:
    for line in (DATA / "maths_cases.txt").read_text(encoding="utf-8").splitlines():
        if line[:1] in MARKS:
            gold, _, answer = line[2:].partition(" ||| ")
            yield gold, answer, MARKS[line[0]]


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(size=1)
    yield made
    made.close()


def verdict(gold: str, summary: str, language: str = "en") -> str:
    return decide(gold, summary, language).verdict


def test_the_table_of_answers_has_the_verdicts_written_beside_them() -> None:
    odd = [(gold, answer, wanted) for gold, answer, wanted in table() if verdict(gold, f"\\boxed{{{answer}}}") != wanted]
    assert odd == []


def test_a_case_that_is_right_is_right_the_other_way_round_too() -> None:
    pairs = [(gold, answer) for gold, answer, wanted in table() if wanted == "right"]
    leaning = {(gold, answer) for gold, answer in pairs if pair(answer, gold).verdict == "wrong"}
    letters = {("C", "C. 12"), ("A", "A) 12"), ("A", "(A) 12"), ("A", "A. The first option")}
    letters |= {("A", said) for said in ("Option A", "\\text{Option A}", "option (A)", "选项A")}
    assert leaning == letters  # a letter may have its text behind it; that text has no letter


def test_texts_of_other_suites_are_judged_as_their_authors_judge_them() -> None:
    odd = []
    for row in rows("peer_cases_sample.jsonl"):
        response = split_response(row["prediction"])
        right = "thinking never closed" not in response.faults and verdict(row["gold"], response.summary) == "right"
        if right != row["expected"]:
            odd.append(row["id"])
    assert odd == []


def test_every_gold_answer_is_right_against_itself_in_any_dress() -> None:
    for row in rows("gold_sample.jsonl"):
        gold = row["answer"]
        for dress in ("\\boxed{%s}", "The answer is $%s$.", "<answer>%s</answer>", "**Answer:** %s", "$$\n\\boxed{ %s }\n$$"):
            if (dress.startswith("The") and "$" in gold) or (prepare(gold).kind in ("prose", "unknown") and "box" not in dress):
                continue
            assert verdict(gold, dress % gold, row["language"]) == "right", (gold, dress)


@pytest.mark.parametrize(
    ("language", "gold", "summary"),
    [
        ("en", "1234", "So the final answer is $1,234."),
        ("es", "1234", "Por lo tanto, la respuesta final es 1.234 dólares."),
        ("fr", "1234", "Donc, la réponse finale est 1 234 €."),
        ("fr", "2.5", "La réponse est 2,5."),
        ("de", "1234", "Die Antwort lautet: 1.234 Euro"),
        ("de", "1234.5", "Die Antwort lautet 1.234,5"),
        ("ru", "1234", "Ответ: 1 234 рубля"),
        ("ru", "2.5", "Ответ: 2,5"),
        ("zh", "1234", "所以答案为：1,234元。"),
        ("zh", "12000", "\\boxed{1.2万元}"),
        ("ja", "1234", "したがって、答えは1,234円です。"),
        ("th", "42", "คำตอบคือ ๔๒"),
        ("sw", "1234", "Jibu la mwisho ni 1,234"),
        ("bn", "1234", "উত্তরটি ১,২৩৪ টাকা।"),
        ("bn", "123456", "সুতরাং উত্তর হলো ১,২৩,৪৫৬।"),
        ("te", "123456", "సమాధానం: 1,23,456 రూపాయలు"),
    ],
)
def test_answers_in_the_languages_of_mgsm_are_found_and_read(language: str, gold: str, summary: str) -> None:
    assert verdict(gold, summary, language) == "right"
    assert verdict(gold + "1", summary, language) == "wrong"


def test_a_dot_groups_thousands_only_where_the_language_does_so() -> None:
    assert verdict("1234", "\\boxed{1.234}", "de") == "right"
    assert verdict("1234", "\\boxed{1.234}", "en") == "wrong"


@pytest.mark.parametrize(
    ("summary", "found", "rule"),
    [
        ("first \\boxed{1}, wait, \\boxed{2}", "2", "box"),
        ("\\boxed{\\frac{1}{2}} and \\boxed{broken", "\\frac{1}{2}", "box"),
        ("\\boxed{a \\boxed{b}}", "b", "box"),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}", "box"),
        ("\\boxed5 is it", "5", "box"),
        ("\\fbox{7}", "7", "box"),
        ("<answer>3</answer> or <answer> 4 </answer>", "4", "tag"),
        ("<answer>so \\boxed{3}</answer>", "3", "box"),
        ("1+1=2\n#### 2", "2", "hash"),
        ("Final Answer: The volume of $ABC$ is 120. I hope it is correct.", "120", "phrase"),
        ("The train travels **150 kilometers**.", "150 kilometers", "bold"),
        ("", "", "none"),
        ("\\boxed{}", "", "box"),
    ],
)
def test_the_final_answer_is_found_by_the_documented_rule(summary: str, found: str, rule: str) -> None:
    answer = final_answer(summary)
    assert (answer.text, answer.rule) == (found, rule)


def test_the_last_of_several_boxes_counts_and_several_count_only_for_a_gold_answer_of_several() -> None:
    assert verdict("2", "\\boxed{1}, wait, \\boxed{2}") == "right"
    assert verdict("1", "\\boxed{1}, wait, \\boxed{2}") == "wrong"
    assert verdict("\\{1,2\\}", "\\boxed{1} and \\boxed{2}") == "right"
    assert verdict("\\{1,2\\}", "\\boxed{1}, wait, \\boxed{2}") == "wrong"
    assert verdict("\\{1,2\\}", "\\boxed{1}, \\boxed{2}, \\boxed{3}") == "wrong"


@pytest.mark.parametrize(
    "summary",
    [
        "The answer is not 6.",
        "The answer cannot be 6.",
        "It is not 6.",
        "The answer is either 5 or 6.",
        "The answer is one of 4, 5, 6.",
        "The answer is between 5 and 6.",
        "The answer is at most 6.",
        "So $x = 5$ or $x = 6$.",
        "The answer is either $5$ or $6$",
        "The answer is 5, not 6.",
        "The answer is 5 (not 6).",
        "答案不是6",
        "Die Antwort ist nicht 6.",
        "The answer is 6? No, it's 5.",
    ],
)
def test_a_number_that_a_sentence_denies_or_offers_among_others_is_no_answer(summary: str) -> None:
    assert verdict("6", summary) == "wrong"


def test_what_stands_beside_the_answer_does_not_hide_it() -> None:
    for summary in ("The answer is 5, not 6.", "The answer is 6? No, it's 5.", "It is not hard to see that we get 5."):
        assert verdict("5", summary) == "right", summary
    assert verdict("5,6", "So $x = 5$ or $x = 6$.") == "right"
    assert verdict("5", "<|im_start|>\\boxed{5}<|im_end|>\\boxed{6}") == "right"
    assert verdict("5", "\\boxed{5}<｜end▁of▁sentence｜>\\boxed{6}") == "right"


def test_program_text_is_never_searched_for_a_number() -> None:
    for text in ("open('marker', 'w').write('x') or 0", "__import__('os').system('true') or 0", "(lambda: print(1))() or 0"):
        assert verdict("0", text) == "wrong"


def test_percent_is_strict_when_asked() -> None:
    assert pair("20\\%", "20").verdict == "right"
    assert pair("20\\%", "20", rules=Rules(percent="strict")).verdict == "wrong"
    assert pair("20\\%", "0.2", rules=Rules(percent="strict")).verdict == "right"


def test_a_tolerance_that_the_problem_states_is_kept() -> None:
    assert pair("3.14", "3.15", rules=Rules(tolerance=0.02)).verdict == "right"
    assert pair("3.14", "3.2", rules=Rules(tolerance=0.001)).verdict == "wrong"


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "empty"),
        ("  $ $ ", "empty"),
        ("The columns are independent, so the matrix is invertible and its rows span the space.", "prose"),
        ("$t(0,4]$", "parsed"),
        ("9^{9^{9}}", "no value"),
    ],
)
def test_a_gold_answer_that_cannot_be_judged_by_leaves_the_row_unjudged_with_the_reason(gold: str, reason: str) -> None:
    decision = decide(gold, "\\boxed{3}")
    assert decision.verdict == "unjudged"
    assert reason in decision.note


def test_a_gold_sentence_is_taken_for_what_it_says() -> None:
    assert prepare("Solution is: $[x=2, y=4]$.").kind == "maths"
    assert verdict("It is the plane $2 x+3 y-z=0$.", "\\boxed{-2x-3y+z=0}") == "right"
    assert verdict("No. It is not closed under addition.", "\\boxed{No}") == "right"
    assert verdict("No. It is not closed under addition.", "\\boxed{Yes}") == "wrong"


HOSTILE = [
    "9**9**9", "9^{9^{9}}", "2^{2^{2^{49}}}", "((10!)!)!", "10000000!", "\\binom{10^9}{10^8}", "\\sin(10^{1000})",
    "e^{e^{e^{e^{10}}}}",
    "x" + "^x" * 500, "5" + "!" * 1000, "1+" * 1400 + "1", "(" * 2000 + "1" + ")" * 2000,
    "\\frac{1}{" * 900 + "2" + "}" * 900, "-" * 3000 + "1",
    "\\sqrt" * 1000 + "2", "|" * 1000, "1," * 1500 + "1", "\\{" + ",".join(f"\\sqrt{{{n}}}" for n in range(60)) + "\\}",
    "0." + "3" * 3000,
    "*".join(["99999999999999999999"] * 180), "(1+1/3)^{1000}(1+1/7)^{1000}(1+1/11)^{1000}", "1e9999*1e9999", "\ud800",
    "\x00\x01", "²³" * 500,
]  # fmt: skip
FLOODS = [
    "\\boxed{" * 100_000, "{" * 100_000 + "}" * 100_000, "\\boxed{" + "{" * 100_000 + "}" * 100_000 + "}", "7" * 1_000_000,
    "<answer>" * 50_000,
    "</answer>" + "<answer>" * 50_000, "\\[" * 50_000, "$" * 100_001, "answer is " * 20_000, "**" * 50_000, "\\" * 100_000,
    " " * 200_000, "И" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("gold", ["42", r"\{1,2,3\}", r"\sqrt{x^2+1}", "x<3", "east"])
def test_hostile_answers_are_wrong_at_once_and_never_raise(gold: str) -> None:
    for text in [f"\\boxed{{{answer}}}" for answer in HOSTILE] + FLOODS:
        before = time.process_time()
        assert verdict(gold, text) == "wrong", text[:60]
        assert time.process_time() - before < 2.0, text[:60]


def test_the_comparison_works_from_several_threads_at_once() -> None:
    odd: list[str] = []

    def work(number: int) -> None:
        for index in range(40):
            root = number * 100 + index + 2
            if verdict(f"\\sqrt{{{root}}}", f"\\boxed{{\\frac{{{root}}}{{\\sqrt{{{root}}}}}}}") != "right":
                odd.append(f"{number} {index}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert odd == []


def test_what_only_sympy_can_tell_is_told_by_a_scoring_process(pool: Pool) -> None:
    requests = [
        Request(r"\int_0^1 x\,dx", "\\boxed{1/2}"),
        Request("1/3", r"\boxed{\int_0^1 x^2\,dx}"),
        Request(r"\sum_{k=1}^{10} k", "\\boxed{54}"),
        Request(r"\int_0^1 x\,dx", "\\boxed{\\sum_{k=1}^{\\infty} 9^{9^{9^{9}}}}"),
        Request(r"1,2,\dots,\int x", "\\boxed{3}"),
    ]
    assert [score.verdict for score in check(requests, pool)] == ["right", "right", "wrong", "wrong", "unjudged"]


def test_one_parser_runtime_is_installed() -> None:
    from importlib.metadata import distributions

    found = [d.metadata["Name"] for d in distributions() if (d.metadata["Name"] or "").lower().startswith("antlr4")]
    assert found == ["antlr4-python3-runtime"]


def test_hazards_are_named_before_sympy_sees_them() -> None:
    assert hazard("9^{9^{9^{9}}}")
    assert hazard("1" * 100)
    assert hazard("100000!")
    assert hazard("1, 2, \\dots, n")
    assert hazard(r"\int_0^1 x^2 dx") == ""


def test_sympy_is_not_imported_for_what_cheap_paths_decide() -> None:
    import subprocess

    code = (
        "import sys; from r1pipe.rewards.maths.judge import decide\n"
        "assert decide(r'3\\sqrt{2}', r'\\boxed{\\sqrt{18}}').verdict == 'right'\n"
        "assert not {'sympy', 'math_verify', 'torch', 'reasoning_gym'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.decimals(-1000, 1000, places=3, allow_nan=False).map(str),
    st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda ab: f"\\frac{{{ab[0]}}}{{{ab[1]}}}"),
    st.tuples(st.integers(1, 50), st.integers(2, 50)).map(lambda ab: f"{ab[0]}\\sqrt{{{ab[1]}}}"),
)
FORMULAS = st.recursive(
    st.one_of(st.integers(0, 20).map(str), st.sampled_from(["x", "y", "\\pi", "n"])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda ab: f"({ab[0]}+{ab[1]})"),
        st.tuples(inner, inner).map(lambda ab: f"{ab[0]} \\cdot {ab[1]}"),
        st.tuples(inner, inner).map(lambda ab: f"\\frac{{{ab[0]}}}{{{ab[1]} + 7}}"),
        inner.map(lambda a: f"\\sqrt{{{a}}}"),
        inner.map(lambda a: f"({a})^{{2}}"),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(NUMBERS, NUMBERS)
def test_equality_of_numbers_is_symmetric_and_agrees_with_fractions(one: str, two: str) -> None:
    assert verdict(one, f"\\boxed{{{two}}}") == verdict(two, f"\\boxed{{{one}}}")


@settings(deadline=None, max_examples=100)
@given(FORMULAS, FORMULAS)
def test_equality_of_formulas_is_symmetric(one: str, two: str) -> None:
    assert pair(one, two).verdict == pair(two, one).verdict or "unjudged" in (pair(one, two).verdict, pair(two, one).verdict)


@settings(deadline=None, max_examples=100)
@given(FORMULAS)
def test_a_formula_equals_itself_written_otherwise_and_not_itself_plus_one(formula: str) -> None:
    assert pair(formula, f"0 + {formula}").verdict == "right"
    assert pair(formula, f"{formula} + 1").verdict == "wrong"


@settings(deadline=None, max_examples=150)
@given(NUMBERS, st.text(st.characters(exclude_characters="{}\\<", exclude_categories=["Cs"]), max_size=60))
def test_text_before_the_box_changes_nothing(number: str, before: str) -> None:
    assert verdict(number, f"{before} \\boxed{{{number}}}") == "right"


@settings(deadline=None, max_examples=150)
@given(FORMULAS, st.sampled_from([" ", "  ", "\n", "\\,", "\\;", "\\!", "\u00a0"]))
def test_spacing_changes_nothing(formula: str, space: str) -> None:
    spaced = formula.replace("+", f"{space}+{space}").replace("\\cdot", f"{space}\\cdot ")
    assert pair(formula, spaced).verdict in ("right", "unjudged")


@settings(deadline=None, max_examples=400)
@given(st.text(max_size=200), st.sampled_from(["42", "\\frac{1}{2}", "x<3", "(1,2)", "east", "B", "\\{1,2\\}", "10 cm", "20\\%"]))
def test_no_text_raises(text: str, gold: str) -> None:
    decide(gold, text)
    decide(gold, f"\\boxed{{{text}}}")
    decide(text, "\\boxed{42}")


LATEX = st.lists(
    st.sampled_from(
        ["\\frac", "\\sqrt", "{", "}", "(", ")", "[", "]", "^", "_", "1", "23", "x", "+", "-", "=", "<", "\\cup", ",", "\\pm",
         "\\text{or}", "|", "\\infty",
         "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "!", "%", "$", "\\in", "\\{", "\\}", ":", "\\log", "_2", "\\pi",
         ".", " ", "\\circ", "i", "e", "cm",
         "\\pmod{7}", "\\choose", "f(", "\\lfloor", "\\rfloor", "\\mathbb{R}", "\\mathrm{~m}", "\\dots",
         "am", "1:30", "'", "gcd", "max("]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(LATEX, LATEX)
def test_no_broken_latex_raises(one: str, two: str) -> None:
    pair(one, two)


@settings(deadline=None, max_examples=100)
@given(st.text(" \t\n.,;:!?${}\\", max_size=30), NUMBERS)
def test_an_answer_that_says_nothing_is_never_right(nothing: str, gold: str) -> None:
    assert verdict(gold, nothing) != "right"
    assert verdict(gold, f"\\boxed{{{nothing}}}") != "right"
    assert verdict(gold, f"<answer>{nothing}</answer>") != "right"


@settings(deadline=None, max_examples=100)
@given(st.text("{}ab\\", max_size=40))
def test_the_last_box_is_found_whatever_the_braces_before_it(before: str) -> None:
    assert last_box(before.replace("\\", "") + "}" * 3 + "\\boxed{7}") == "7"
