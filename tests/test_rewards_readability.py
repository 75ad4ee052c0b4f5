"""Readability and length: one measurement at a time, then the rewards."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r1pipe.data.rows import Attempt, Problem
from r1pipe.rewards.base import Score
from r1pipe.rewards.length import CosineLength, OverlongPenalty, cosine_value, overlong_penalty
from r1pipe.rewards.readability import Readability, code_blocks, longest_paragraph, loop_pieces, repetition_share

PROSE = (
    "We want the number of ways to choose two of five books. The first can be any of five and the "
    "second any of the four that are left."
    " Since the order does not matter, each pair was counted twice.\n\nSo there are ten ways."
)


def attempt(text: str, tokens: int = 0, finish: str = "stop") -> Attempt:
    return Attempt(Problem("p", "q", "2"), text, finish=finish, tokens=tokens)


def test_prose_does_not_repeat_and_a_passage_said_again_does() -> None:
    assert repetition_share(PROSE) == 0.0
    assert 0.4 < repetition_share(PROSE + " " + PROSE) < 0.6
    assert repetition_share("short") == 0.0


def test_the_same_steps_with_new_numbers_are_no_repetition() -> None:
    table = " ".join(f"For n = {n} the value is {n * n}." for n in range(30))
    assert repetition_share(table) == 0.0
    assert loop_pieces(table) == 0


@pytest.mark.parametrize("loop", ["Wait, let me check again. ", "所以答案是五。", "a b ", "\n\n- "])
def test_a_loop_at_the_end_is_found_in_any_script(loop: str) -> None:
    assert loop_pieces(PROSE + loop * 60) >= 12
    assert loop_pieces(loop * 60 + PROSE) == 0
    assert "ends in a loop" in Readability().reasons(PROSE + loop * 400, "en")[0]


def test_a_number_that_does_not_end_is_a_loop() -> None:
    assert loop_pieces(PROSE + "9" * 2000) > 12


def test_three_times_is_no_loop() -> None:
    assert loop_pieces("very very very") == 0
    assert loop_pieces("ha ha ha ha") == 0


def test_the_longest_paragraph_is_counted_in_words_of_any_script() -> None:
    assert longest_paragraph("one two three\n\nfour five") == 3
    assert longest_paragraph("我们先加\n \n再减") == 4
    assert longest_paragraph("") == 0


def test_fenced_blocks_are_counted_open_ones_too() -> None:
    assert code_blocks("a ```b``` c") == 0
    assert code_blocks("```python\nx\n```\ntext\n~~~\ny\n~~~\n```\nopen") == 3


@pytest.mark.parametrize(
    ("thinking", "reason"),
    [
        (PROSE, "readable"),
        ("", "empty thinking"),
        (PROSE + "\n```python\nprint(1)\n```", "1 code blocks"),
        ("So we go on and on. " * 5 + "word another " * 400, "a paragraph of"),
        (PROSE + "然后我们把它们加起来得到最后的结果", "mixed languages"),
    ],
)
def test_the_reward_names_what_is_unreadable(thinking: str, reason: str) -> None:
    (score,) = Readability().score([attempt(f"<think>{thinking}</think>2")])
    assert score is not None
    assert score.value == (1.0 if reason == "readable" else 0.0)
    assert reason in score.note


def test_thresholds_can_be_moved() -> None:
    text = f"<think>{PROSE}\n```\nx\n```</think>2"
    assert Readability(most_code_blocks=-1).score([attempt(text)]) == [Score(1.0, "readable")]
    assert Readability().score([attempt("2"), attempt("", finish="error")]) == [
        Score(0.0, "no thinking"),
        Score(None, "generation failed"),
    ]


@given(st.text())
def test_any_text_is_measured(text: str) -> None:
    assert 0.0 <= repetition_share(text) <= 1.0
    assert loop_pieces(text) >= 0
    assert longest_paragraph(text) >= 0
    Readability().reasons(text, "en")


def test_the_overlong_penalty_is_the_line_of_dapo() -> None:
    # DAPO: limit 20480, buffer 4096: nothing up to 16384, half way down at 18432, -1 at and beyond the limit
    assert [overlong_penalty(tokens, 20480, 4096) for tokens in (1, 16384, 18432, 20480, 30000)] == [0.0, 0.0, -0.5, -1.0, -1.0]
    penalty = OverlongPenalty(100, 20)
    values = [score and score.value for score in penalty.score([attempt("x", 90), attempt("x", 50, "length"), attempt("x")])]
    assert values == [-0.5, -1.0, None]
    with pytest.raises(ValueError, match="buffer_tokens 0"):
        OverlongPenalty(100, 0)


def test_the_cosine_goes_from_its_first_value_to_its_last() -> None:
    assert cosine_value(0, 100, 1.0, 0.5) == 1.0
    assert cosine_value(50, 100, 1.0, 0.5) == pytest.approx(0.75)
    assert cosine_value(100, 100, 1.0, 0.5) == 0.5
    assert cosine_value(999, 100, 1.0, 0.5) == 0.5


def test_short_right_answers_and_long_wrong_ones_are_worth_more() -> None:
    right, wrong = "<think>a</think>\\boxed{2}", "<think>a</think>\\boxed{3}"
    scores = CosineLength(100).score(
        [attempt(right, 10), attempt(right, 90), attempt(wrong, 10), attempt(wrong, 90), attempt(right)]
    )
    values = [score.value for score in scores if score is not None]
    assert values[0] > values[1] > values[3] > values[2]  # type: ignore[operator]
    assert values[4] is None
    with pytest.raises(ValueError, match="limit_tokens 0"):
        CosineLength(0)


@given(
    st.lists(
        st.sampled_from(
            ["word", "it's", "well-known", "a", "x2", "中文", "ไทยภาษา", "12", "1,000", "…", "\n", "\n\n", " ", "ﬁne"]
        ),
        max_size=60,
    )
)
@settings(max_examples=200, deadline=None)
def test_a_long_paragraph_is_seen_exactly_when_it_is_there(parts: list[str]) -> None:
    from r1pipe.data.pieces import split_folded
    from r1pipe.rewards.readability import has_long_paragraph

    text = " ".join(parts)
    for most in (1, 4, 9):
        assert has_long_paragraph(text, most, split_folded(text)) == (longest_paragraph(text) > most)
        assert has_long_paragraph(text, most) == (longest_paragraph(text) > most)
