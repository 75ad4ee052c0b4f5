"""The format reward: a table of texts and scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r1pipe.data.chat import join_response, split_response
from r1pipe.data.rows import Attempt, Problem
from r1pipe.rewards.base import Score
from r1pipe.rewards.format import FormatReward, format_faults

PROBLEM = Problem("p", "1 + 1?")


def score(text: str, style: str = "think", prefix: str = "", finish: str = "stop") -> Score:
    (result,) = FormatReward(style).score([Attempt(PROBLEM, text, prefix, finish)])  # type: ignore[arg-type]
    assert result is not None
    return result


# Texts of the test suites of open-r1 (Apache-2.0), TRL (Apache-2.0), verifiers (MIT) and NeMo RL (Apache-2.0), with our verdicts:
# the same as theirs, but for empty thinking, which TRL's pattern lets pass.
THINK = [
    ("<think>This is my reasoning.</think>This is my answer.", 1.0),
    ("<think>\nThis is\nmy reasoning.\n</think>\nThis is my answer.", 1.0),
    ("<think>\nThis is <some tag> my reasoning.</think>\nThis is my answer.", 1.0),
    ("<think></think>\nThis is my answer.", 0.0),
    ("<think>\nThis is my reasoning.\nThis is my answer.", 0.0),
    ("This is my reasoning.</think>\nThis is my answer.", 0.0),
    ("This<think>is my reasoning.</think>\nThis is my answer.", 0.0),
    ("<think>This is<think>my reasoning.</think></think>This is my answer.", 0.0),
    ("Just an answer without thinking", 0.0),
]
THINK_ANSWER = [
    ("<think>\nSome reasoning\n</think>\n<answer>\nThe answer\n</answer>", 1.0),
    ("<think>Missing closing</think><answer>Missing closing", 0.0),
    ("<think>Wrong order</answer><answer>Wrong order</think>", 0.0),
    ("<think>a</think>b", 0.0),
    ("<think>a</think><answer> </answer>", 0.0),
    ("<think>a</think><answer>1</answer><answer>2</answer>", 0.0),
    ("<think>a</think><answer>1</answer> and more", 0.0),
    ("<think>a</think></answer>1<answer>", 0.0),
    ("<think>I shall put it in <answer> tags.</think>\n<answer>4</answer>", 1.0),
]
GAMES = [
    ("<think></think>", "empty thinking; empty summary"),
    ("<think> \n</think> \n", "empty thinking; empty summary"),
    ("<think>a</think>", "empty summary"),
    ("<think>a</think></think>b", "2 closing tags"),
    ("<think><think>a</think>b", "2 opening tags"),
    ("<think>a</think>b<think>c</think>d", "2 opening tags; 2 closing tags"),
    ("</think><think>a", "closing tag without opening tag"),
    ("b<think>a</think>c", "text before the thinking"),
]


@pytest.mark.parametrize(("text", "expected"), THINK)
def test_thinking_then_a_summary_is_the_format(text: str, expected: float) -> None:
    assert score(text).value == expected


@pytest.mark.parametrize(("text", "expected"), THINK_ANSWER)
def test_the_template_of_r1_zero_wants_one_answer_block_and_nothing_beside_it(text: str, expected: float) -> None:
    assert score(text, "think-answer").value == expected


@pytest.mark.parametrize(("text", "reason"), GAMES)
def test_counting_tags_does_not_pay(text: str, reason: str) -> None:
    result = score(text)
    assert result.value == 0.0
    assert reason in result.note


def test_a_template_that_opened_the_thinking_costs_nothing() -> None:
    assert score("I add.\n</think>\n\n2", prefix="<think>\n").value == 1.0
    assert score("<think>I add.\n</think>\n\n2", prefix="<think>\n").note == "2 opening tags"


def test_a_response_cut_off_scores_nothing_even_when_its_tags_are_right() -> None:
    assert score("<think>a</think>b", finish="length") == Score(0.0, "cut off at the length limit")


def test_a_response_that_was_never_made_is_unjudged() -> None:
    assert score("", finish="error").value is None


def test_a_stage_without_a_format_rule_scores_nobody() -> None:
    assert FormatReward("none").score([Attempt(PROBLEM, "x")] * 2) == [None, None]


def test_an_unknown_style_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="think-answer"):
        FormatReward("tags")  # type: ignore[arg-type]


pieces = st.lists(
    st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", " ", "a", "\n", "<", ">", "\0", "想"]), max_size=12
)


@given(pieces.map("".join), st.sampled_from(["think", "think-answer"]))
def test_any_text_scores_0_or_1_and_the_note_says_why(text: str, style: str) -> None:
    result = score(text, style)
    assert result.value in (0.0, 1.0)
    assert result.note
    assert (result.value == 1.0) == (not format_faults(text, style))  # type: ignore[arg-type]


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_a_joined_response_is_well_formed_and_comes_apart_again(thinking: str, summary: str) -> None:
    if any(tag in thinking + summary for tag in ("<think>", "</think>")):
        return
    text = join_response(thinking, summary)
    assert score(text).value == 1.0
    assert split_response(text).thinking == thinking.strip()
    assert split_response(text).summary == summary.strip()
