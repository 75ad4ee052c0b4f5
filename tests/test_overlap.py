"""Overlap with evaluation sets: recall and precision on planted copies, edits and look-alikes."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable

import pytest

from r1pipe.data.nano.problems import problems
from r1pipe.data.overlap import build_index, find_overlap

LONG = (
    "A farmer has 36 hens and sells every third one at the market for 4 dollars, then buys as many ducks as the money allows "
    "at 6 dollars each. How many birds does the farmer have in the end?"
)
CHINESE = "小明有三十六只母鸡，每三只卖掉一只，每只卖4元，然后用卖得的钱买鸭子，每只鸭子6元，问最后一共有多少只家禽？"
SHORT = "Compute 17 × 23."
FORMULA = "\\[ a^2 + b^2 + c^2 - ab - bc - ca = \\frac{1}{2}((a-b)^2 + (b-c)^2 + (c-a)^2) \\]"
VECTOR = "Find the length of the vector \\left(\\begin{array}{l}1 \\\\ 2 \\\\ 3\\end{array}\\right) and give it in full."
ITEMS = [LONG, CHINESE, SHORT, FORMULA, VECTOR, "求17加23。", "Solve for y: 2y + 3 = 11"]


def wide(text: str) -> str:
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)


EDITS: dict[str, Callable[[str], str]] = {
    "exact": lambda text: text,
    "case": str.upper,
    "spacing": lambda text: text.replace(" ", "\n  ").replace("，", " ， "),
    "punctuation": lambda text: re.sub(r"[.,?:，。？]", " ! ", text),
    "width": wide,
    "embedded": lambda text: f"Here is a question for you to think about carefully:\n\n**{text}**\n\nShow your work.",
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "dollars": lambda text: re.sub(r"([0-9]+)(?![0-9a-z])", r"$\1$", text),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("item", [LONG, CHINESE])
def test_a_long_item_is_found_after_every_light_edit(item: str, edit: str) -> None:
    found = find_overlap(build_index(ITEMS), EDITS[edit](item))
    assert found is not None
    assert found.item == ITEMS.index(item)
    assert found.passage


@pytest.mark.parametrize("edit", ["exact", "case", "spacing", "punctuation", "width", "decomposed", "dollars"])
@pytest.mark.parametrize("item", [SHORT, "求17加23。", "Solve for y: 2y + 3 = 11"])
def test_a_short_item_is_found_as_a_whole_question(item: str, edit: str) -> None:
    found = find_overlap(build_index(ITEMS), EDITS[edit](item))
    assert found is not None
    assert found.item == ITEMS.index(item)


def test_a_short_item_of_five_words_is_found_inside_a_question_and_not_inside_an_answer() -> None:
    index = build_index(ITEMS)
    text = "Please help me. Solve for y: 2y+3=11. Thanks!"
    assert find_overlap(index, text) is not None
    assert find_overlap(index, text, question=False) is None


@pytest.mark.parametrize(
    "text",
    [
        "Compute 17 + 23.", "Compute 17 × 32.", "Compute 17.", "求23加17。", "Solve for y: 2y - 3 = 11",
        LONG.replace("36", "48").replace("4 ", "5 ").replace("6 ", "7 "),  # the same wording with other numbers
        "a^2 + b^2 + c^2 - ab - bc - ca = 0, so the three are equal.",  # an identity
        "How many birds does the farmer have in the end?",
        "What is \\left(\\begin{array}{l}1 \\\\ 2 \\\\ 3\\end{array}\\right) times two?",  # a vector
        "", "17", "。",
    ],
)  # fmt: skip
def test_another_problem_is_no_overlap(text: str) -> None:
    assert find_overlap(build_index(ITEMS), text) is None


def test_the_wording_that_many_items_share_is_no_overlap() -> None:
    wording = "Read the following question with care and then write down the answer in a box:"
    index = build_index(f"{wording} what is the capital city of country {name}?" for name in "abcdefgh")
    assert find_overlap(index, f"{wording} who wrote this book?") is None
    assert find_overlap(index, "and then write down the answer in a box: what is the capital city of country c?") is not None


def test_copies_of_an_item_do_not_make_it_common() -> None:
    index = build_index([LONG] * 9)
    assert index.items == 9
    assert find_overlap(index, LONG) is not None


def test_an_empty_index_finds_nothing() -> None:
    assert find_overlap(build_index([]), LONG) is None
    assert find_overlap(build_index(["", "  "]), "") is None


def test_recall_on_planted_edits_of_generated_problems_and_precision_on_fresh_ones() -> None:
    held_out = [problem.question for problem in problems(100, 1, split="held-out")]
    index = build_index(held_out)
    rng = random.Random(5)
    planted = found = 0
    for question in held_out:
        for edit in rng.sample(["exact", "case", "spacing", "punctuation", "width"], 2):
            planted += 1
            found += find_overlap(index, EDITS[edit](question)) is not None
    assert found / planted >= 0.95
    others = [problem.question for problem in problems(300, 2, split="train")]
    known = {key(question) for question in held_out}
    fresh = [question for question in others if key(question) not in known]
    assert sum(find_overlap(index, question) is not None for question in fresh) <= 0.02 * len(fresh)


def key(question: str) -> str:
    return re.sub(r"\W+", " ", question.casefold()).strip()
