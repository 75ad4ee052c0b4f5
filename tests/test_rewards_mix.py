"""Mixes of rewards, the accuracy reward, and the bridge to TRL."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from r1pipe.data.rows import Attempt, Problem
from r1pipe.errors import RecipeError
from r1pipe.rewards import REWARDS, Accuracy, Mix, RewardSpec, Score, as_trl_reward, quantise
from r1pipe.rewards.mix import TOTAL_STEP, Part

PROBLEM = Problem("p", "1 + 1?", "2")


@dataclass(frozen=True)
class Fixed:
    """A reward that says the same of every attempt."""

    value: float | None = 1.0

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        return [Score(self.value, "fixed")] * len(attempts)


@dataclass(frozen=True)
class ByPosition:
    """A reward that says of each attempt what it was given; None for "does not apply"."""

    values: tuple[Score | None, ...]

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        return list(self.values)


@dataclass(frozen=True)
class TooFew:
    """A reward with a defect."""

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        return []


def attempt(text: str, problem: Problem = PROBLEM, prefix: str = "") -> Attempt:
    return Attempt(problem, text, prefix)


def test_importing_the_rewards_loads_nothing_heavy() -> None:
    code = (
        "import sys; import r1pipe.rewards\n"
        "heavy = {'torch', 'sympy', 'math_verify', 'mpmath', 'reasoning_gym', 'pydantic', 'transformers', 'trl'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "from r1pipe.rewards import Accuracy, FormatReward, LanguageConsistency, Mix, Readability, RewardSpec, as_trl_reward\n"
        "assert not (heavy - {'pydantic'}) & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_reward_of_the_list_loads_by_its_name() -> None:
    options = {
        "overlong": {"limit_tokens": 100, "buffer_tokens": 20}, "cosine_length": {"limit_tokens": 100},
        "judge": {"model": "one", "kind": "safety"}, "score-server": {"model": "one", "kind": "helpfulness"},
    }  # fmt: skip
    for name in REWARDS:
        assert Mix.build([RewardSpec(name=name, options=options.get(name, {}))]).parts[0].name == name


def test_a_total_is_the_weighted_sum_of_what_applies_and_was_judged() -> None:
    mix = Mix((Part("accuracy", Fixed(1.0), 1.0), Part("format", Fixed(0.5), 0.2), Part("language", Fixed(None), 5.0)))
    (row,) = mix.score([attempt("x")])
    assert row.total == pytest.approx(1.1, abs=TOTAL_STEP)
    assert row.parts["language"] == Score(None, "fixed")
    assert row.verdict == "right"


def test_an_unjudged_accuracy_leaves_the_row_without_a_total() -> None:
    mix = Mix((Part("accuracy", Fixed(None), 1.0), Part("format", Fixed(1.0), 1.0)))
    (row,) = mix.score([attempt("x")])
    assert row.total is None
    assert row.verdict == "unjudged"
    assert Mix((Part("cosine_length", Fixed(None), 1.0), Part("format", Fixed(1.0), 1.0))).score([attempt("x")])[0].total is None


def test_an_answer_that_is_right_by_any_reward_that_judges_it_has_that_verdict() -> None:
    mix = Mix.build([RewardSpec(name="format"), RewardSpec(name="cosine_length", options={"limit_tokens": 100})])
    texts = [("<think>a</think>2", 50), ("<think>a</think>3", 50), ("<think>a</think>2", 0)]
    rows = mix.score([Attempt(PROBLEM, text, tokens=tokens) for text, tokens in texts])
    assert [row.verdict for row in rows] == ["right", "wrong", "right"]
    assert [row.total is None for row in rows] == [False, False, True]  # its length is not known, its answer is


def test_a_reward_that_does_not_apply_does_not_lower_the_sum() -> None:
    judged = Score(1.0)
    mix = Mix((Part("accuracy", ByPosition((judged, None)), 1.0), Part("safety", ByPosition((None, judged)), 1.0)))
    assert [row.total for row in mix.score([attempt("x"), attempt("y")])] == [1.0, 1.0]
    assert Mix((Part("safety", ByPosition((None,)), 1.0),)).score([attempt("x")])[0].total is None


def test_a_late_reward_joins_at_its_step_and_always_counts_outside_training() -> None:
    mix = Mix((Part("accuracy", Fixed(1.0), 1.0), Part("preference", Fixed(1.0), 0.5, from_step=100)))
    assert [mix.score([attempt("x")], step=step)[0].total for step in (0, 99, 100, None)] == [1.0, 1.0, 1.5, 1.5]
    assert mix.score([attempt("x")], step=0)[0].parts["preference"] is None


def test_values_that_are_not_finite_or_of_another_number_are_a_defect_with_the_name_of_the_reward() -> None:
    with pytest.raises(RuntimeError, match="'loud' gave inf"):
        Mix((Part("loud", Fixed(float("inf")), 1.0),)).score([attempt("x")])
    with pytest.raises(RuntimeError, match="'short' returned 0 scores for 1"):
        Mix((Part("short", TooFew(), 1.0),)).score([attempt("x")])


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([RewardSpec(name="acuracy")], "did you mean 'accuracy'"),
        ([RewardSpec(name="no_such_pkg.mod:Reward")], "cannot import no_such_pkg.mod"),
        ([RewardSpec(name="r1pipe.rewards.accuracy:Acuracy")], "did you mean 'Accuracy'"),
        ([RewardSpec(name="accuracy", options={"percnt": "strict"})], "percnt"),
        ([RewardSpec(name="accuracy", options={"percent": "loose"})], "known: lenient, strict"),
        ([RewardSpec(name="accuracy"), RewardSpec(name="accuracy")], "stands twice"),
    ],
)
def test_a_mix_that_cannot_be_built_is_refused_in_words(specs: list[RewardSpec], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Mix.build(specs)
    assert words in str(caught.value)


def test_a_name_that_is_used_twice_is_refused_wherever_the_mix_is_made() -> None:
    with pytest.raises(RecipeError, match="'overlong' stands twice"):
        Mix((Part("overlong", Fixed(), 1.0), Part("overlong", Fixed(), 0.5)))


def test_a_weight_that_totals_are_too_coarse_for_is_refused() -> None:
    assert [RewardSpec(name="format", weight=weight).weight for weight in (0.0, TOTAL_STEP, -0.5)] == [0.0, TOTAL_STEP, -0.5]
    with pytest.raises(ValidationError, match="would be rounded away"):
        RewardSpec(name="format", weight=-0.0001)


def test_an_own_reward_is_named_by_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_rewards.py").write_text(
        "from dataclasses import dataclass\nfrom r1pipe.rewards import Score\n\n@dataclass(frozen=True)\nclass Brevity:\n"
        "    limit_chars: int = 10\n    def score(self, attempts):\n"
        "        return [Score(float(len(a.completion) <= self.limit_chars)) for a in attempts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mix = Mix.build([RewardSpec(name="mine_rewards:Brevity", options={"limit_chars": 3})])
    assert [row.total for row in mix.score([attempt("abc"), attempt("abcd")])] == [1.0, 0.0]
    assert mix.weights == {"Brevity": 1.0}


def test_the_own_reward_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "own-reward.md").read_text()
    (tmp_path / "documented_rewards.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    mix = Mix.build([RewardSpec(name="documented_rewards:Brevity", options={"limit": 3})])
    assert [row.total for row in mix.score([attempt("abc"), attempt("abcd")])] == [1.0, 0.0]


def test_a_reward_that_gives_bare_numbers_is_refused_with_its_name() -> None:
    with pytest.raises(RuntimeError, match=r"'bare' gave 1.0 for problem 'p', where a Score or None is expected"):
        Mix((Part("bare", ByPosition((1.0,)), 1.0),)).score([attempt("x")])  # type: ignore[arg-type]


def test_an_own_reward_that_is_a_function_is_told_what_a_reward_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "function_rewards.py").write_text("def brevity(attempts):\n    return []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RecipeError, match=r"a class with a method score\(attempts\)"):
        Mix.build([RewardSpec(name="function_rewards:brevity")])


def sum_in_order(values: np.ndarray) -> np.float32:
    """A sum in single precision, one after the other."""
    total = np.float32(0)
    for value in values:
        total = np.float32(total + value)
    return total


@given(st.floats(-8, 8), st.integers(2, 64))
def test_equal_quantised_rewards_have_exactly_zero_advantage_in_single_precision(value: float, group: int) -> None:
    rewards = np.full(group, quantise(value, TOTAL_STEP), dtype=np.float32)
    assert np.all(rewards - sum_in_order(rewards) / np.float32(group) == 0)
    assert np.all(rewards - rewards.mean(dtype=np.float32) == 0)


def test_without_quantising_the_mean_of_equal_rewards_leaves_a_residue() -> None:
    rewards = np.full(8, 0.7, dtype=np.float32)
    assert np.any(rewards - sum_in_order(rewards) / np.float32(8) != 0)


def test_quantising_rounds_to_the_nearest_step_and_refuses_what_is_no_number() -> None:
    assert quantise(0.7) == 45 / 64
    assert quantise(-0.7) == -45 / 64
    assert quantise(1.0) == 1.0
    with pytest.raises(ValueError, match="finite"):
        quantise(float("nan"))


def test_only_the_summary_counts_and_unfinished_thinking_is_wrong() -> None:
    texts = [
        "<think>\\boxed{2}</think>",
        "<think>\\boxed{2}",
        "<think>\\boxed{3}</think>\\boxed{2}",
        "<think>\\boxed{2}</think>\\boxed{3}",
        "\\boxed{2}",
    ]
    assert [score and score.value for score in Accuracy().score([attempt(text) for text in texts])] == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_the_prefix_of_the_template_is_part_of_the_response() -> None:
    (score,) = Accuracy().score([attempt("a</think>\n\\boxed{2}", prefix="<think>\n")])
    assert score is not None
    assert score.value == 1.0


def test_problems_without_a_checker_do_not_apply_and_unknown_checkers_are_unjudged() -> None:
    none, odd = Accuracy().score(
        [attempt("x", Problem("a", "q", checker="none")), attempt("x", Problem("b", "q", "1", checker="maths2"))]
    )
    assert none is None
    assert odd is not None
    assert odd.value is None
    assert "maths2" in odd.note


def test_checkers_mix_in_one_batch_and_keep_their_order() -> None:
    choice = Problem("c", "q", "B", checker="choice", check={"options": ["x", "y"]})
    logic = Problem("l", "q", "b a", checker="logic")
    scores = Accuracy().score(
        [attempt("\\boxed{2}"), attempt("B", choice), attempt("<answer>b, a</answer>", logic), attempt("\\boxed{1}")]
    )
    assert [score and score.value for score in scores] == [1.0, 1.0, 1.0, 0.0]


def test_an_accuracy_reward_is_a_trl_reward_function_in_one_line() -> None:
    function = as_trl_reward(Accuracy())
    values = function(["q", "q", "q"], ["\\boxed{2}", [{"role": "assistant", "content": "\\boxed{3}"}], "5"],
                      completion_ids=[[1], [1], [1]],
                      answer=["2", "2", ""])  # fmt: skip
    assert values == [1.0, 0.0, None]
    assert function.__name__ == "accuracy"
    assert pickle.loads(pickle.dumps(function)) == function


def test_columns_may_have_other_names_and_fixed_values() -> None:
    function = as_trl_reward(Accuracy(), prefix="<think>\n", rename={"answer": "solution"}, checker="choice")
    assert function(["q"], ["so</think> (B)"], solution=["B"]) == [1.0]
    with pytest.raises(TypeError, match="no field of Problem"):
        as_trl_reward(Accuracy(), chekcer="choice")


def test_a_problem_column_may_hold_problems_dicts_or_json_and_may_be_the_question() -> None:
    function = as_trl_reward(Accuracy())
    columns = {
        "problem": [
            PROBLEM,
            {"id": "x", "question": "q", "answer": "2"},
            '{"id": "y", "question": "q", "answer": "2", "check": "{}"}',
        ]
    }
    assert function(["q"] * 3, ["\\boxed{2}"] * 3, **columns) == [1.0, 1.0, 1.0]
    assert function(["q"], ["\\boxed{2}"], problem=["What is 1 + 1?"], answer=["2"]) == [1.0]


def test_nothing_said_is_wrong_and_a_missing_gold_answer_is_unjudged_whatever_is_said() -> None:
    problems = [PROBLEM, Problem("c", "q", "B", checker="choice"), Problem("l", "q", "b a", checker="logic")]
    for problem in problems:
        empty = Problem(problem.id, "q", "", checker=problem.checker)
        for text in ("", "<think>x</think>", "<think>x</think>\n \n", "\\boxed{}"):
            assert [score and score.value for score in Accuracy().score([attempt(text, problem), attempt(text, empty)])] == [
                0.0,
                None,
            ]
