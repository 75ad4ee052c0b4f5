"""Logic: Reasoning Gym's own scorers in a scoring process, what is corrected, what is never evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from r1pipe.rewards.gym import refused
from r1pipe.rewards.logic import Request, answer_of, check
from r1pipe.rewards.service import Pool


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(size=1)
    yield made
    made.close()


def item(dataset: str, index: int = 0) -> dict[str, Any]:
    """An item as it comes back from a file: tuples have become lists."""
    import reasoning_gym

    entry = reasoning_gym.create_dataset(dataset, size=index + 1, seed=3)[index]
    kept: dict[str, Any] = json.loads(json.dumps(entry, default=str))
    return {"dataset": dataset, "entry": kept}


QUICK = [
    "chain_sum",
    "knights_knaves",
    "countdown",
    "leg_counting",
    "mini_sudoku",
    "rearc",
    "polynomial_multiplication",
    "basic_arithmetic",
    "coin_flip",
]


def test_the_gold_answer_of_a_data_set_is_right_and_another_text_is_wrong(pool: Pool) -> None:
    checks = [item(name) for name in QUICK]
    golds = check([Request("", f"<answer>{c['entry']['answer']}</answer>", c) for c in checks], pool)
    assert [score.verdict for score in golds] == ["right"] * len(QUICK)
    others = check([Request("", "<answer>nothing of the kind</answer>", c) for c in checks], pool)
    assert [score.verdict for score in others] == ["wrong"] * len(QUICK)


@pytest.mark.heavy
def test_every_gold_answer_of_every_data_set_is_right(pool: Pool) -> None:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    odd: list[str] = []
    for name in sorted(set(DATASETS) - {"composite"}):
        entries = [json.loads(json.dumps(entry, default=str)) for entry in reasoning_gym.create_dataset(name, size=20, seed=11)]
        golds = [entry for entry in entries if entry["answer"]]  # None: any valid answer counts; empty: nothing to judge by
        requests = [Request("", f"<answer>{e['answer']}</answer>", {"dataset": name, "entry": e}) for e in golds]
        odd += [f"{name}: {score.note}" for score in check(requests, pool) if score.verdict != "right"]
    assert odd == []


def test_another_right_answer_than_the_gold_one_is_right_by_the_scorer(pool: Pool) -> None:
    puzzle = item("knights_knaves")
    parts = puzzle["entry"]["answer"].rstrip(".").split(", and ")
    swapped = f"{parts[1]}, and {parts[0]}."
    assert check([Request("", f"<answer>{swapped}</answer>", puzzle)], pool)[0].verdict == "right"


@pytest.mark.parametrize(
    "answer", ["7", "7.0", "+7", "007", "1,007", "7.", "8", "seven", "", "nan", "sNaN", "1e1", "7 ", "-7", "7,0"]
)
@pytest.mark.parametrize("dataset", ["chain_sum", "products"])
def test_sums_and_products_are_judged_as_their_scorers_judge_them(dataset: str, answer: str, pool: Pool) -> None:
    entry = {"question": "q", "answer": "7", "metadata": {}}
    (outcome,) = pool.map("r1pipe.rewards.gym:score", [(dataset, entry, answer)])
    ours = check([Request("", f"<answer>{answer}</answer>", {"dataset": dataset, "entry": entry})])[0]
    assert (ours.value == 1.0) == (outcome.value >= 1.0)


def test_scorers_that_give_full_marks_for_nothing_are_corrected(pool: Pool) -> None:
    halting = {"dataset": "game_of_life_halting", "entry": {"answer": "True", "metadata": {}}}
    flip = {"dataset": "coin_flip", "entry": {"answer": "0.109375", "metadata": {}}}
    numbers = {"dataset": "puzzle24", "entry": {"answer": "1*9*3 - 3", "metadata": {"numbers": [1, 3, 3, 9]}}}
    requests = [
        Request("", "<answer>nonsense</answer>", halting), Request("", "<answer>True</answer>", halting),
        Request("", "<answer>0</answer>", flip), Request("", "<answer>7/64</answer>", flip),
        Request("", "<answer>4/1 + 10 + 10</answer>", numbers), Request("", "<answer>1*9*3 - 3</answer>", numbers),
    ]  # fmt: skip
    assert [score.verdict for score in check(requests, pool)] == ["wrong", "right"] * 3


@pytest.mark.parametrize("dataset", ["countdown", "polynomial_multiplication", "string_insertion", "n_queens"])
@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch marker')",
        "open('marker', 'w')",
        "(lambda: 1)()",
        "x.__class__",
        "9**9**9**9",
        "[1 for _ in range(9)]",
        "exit()",
    ],
)
def test_an_answer_that_would_be_evaluated_is_refused_unless_it_is_harmless(dataset: str, text: str) -> None:
    assert refused(dataset, text)


def test_harmless_answers_are_let_through() -> None:
    assert refused("countdown", "93*(63 - 92 + 36) - 5 - 56") == ""
    assert refused("polynomial_multiplication", "-3212*z**6 + 5329*z**5 - 4230*z") == ""
    assert refused("simple_integration", "8*x**9/9 - x**8/2 + C") == ""
    assert refused("n_queens", "_ Q _\n_ _ Q") == ""


def test_an_unknown_data_set_or_a_missing_entry_is_unjudged(pool: Pool) -> None:
    odd, bare = check(
        [Request("", "x", {"dataset": "chain_summ", "entry": {}}), Request("", "x", {"dataset": "chain_sum"})], pool
    )
    assert odd.verdict == bare.verdict == "unjudged"
    assert "chain_summ" in odd.note
    assert "entry" in bare.note


def test_an_empty_answer_is_wrong(pool: Pool) -> None:
    sums = item("chain_sum")
    assert [
        score.verdict for score in check([Request("", text, sums) for text in ("", "<answer></answer>", "\\boxed{}", "  ")], pool)
    ] == ["wrong"] * 4


def test_the_answer_is_taken_from_tags_box_fence_or_announcement() -> None:
    assert answer_of("so <answer>a b</answer>") == "a b"
    assert answer_of("so \\boxed{a b}") == "a b"
    assert answer_of("Here:\n```\n1 2\n3 4\n```\nDone.", lines=2) == "1 2\n3 4"
    assert answer_of("The answer is yes.") == "yes"
    assert answer_of("Answer:\n1 2\n3 4", lines=2) == "1 2\n3 4"
    assert answer_of("-3212*z**6 + 5329*z**5") == "-3212*z**6 + 5329*z**5"


def test_without_a_data_set_the_structure_must_be_the_same() -> None:
    assert check([Request("b a", "<answer>b, a</answer>"), Request("b a", "a b"), Request("", "a")])[0].verdict == "right"
    assert [s.verdict for s in check([Request("b a", "a b"), Request("", "a")])] == ["wrong", "unjudged"]
