"""Text on the terminal: nothing that a model writes is obeyed, nothing of it is lost; numbers and times read well."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from scripted_chain import HOSTILE

from r1pipe import console
from r1pipe.views.plots import braille, plot, spark, squeeze


def shown(item: object, width: int = 60) -> str:
    """What a terminal would be sent, styles included."""
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, color_system="truecolor", width=width, markup=False, highlight=False).print(
        Group(item)
    )
    return stream.getvalue()


def without_styles(text: str) -> str:
    """The same without the styles that rich itself adds (ESC [ numbers m)."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_control_character_of_a_model_reaches_the_terminal(text: str) -> None:
    sent = without_styles(shown(console.plain(text, "red")))
    assert not [character for character in sent if ord(character) < 32 and character != "\n"]
    assert not any(mark in sent for mark in ("\x7f", "\x9b", "\u202e", "\u202c"))


def test_markup_of_a_model_is_shown_as_written() -> None:
    sent = without_styles(shown(console.plain("[/red] [bold]x[/bold] [1, 2] \\[a]")))
    assert sent.strip() == "[/red] [bold]x[/bold] [1, 2] \\[a]"


def test_escapes_name_the_character() -> None:
    assert (
        console.escaped("\x1b[31m \x9b \u202e \u2028 \ud800 \U000e0041") == "\\x1b[31m \\x9b \\u202e \\u2028 \\ud800 \\U000e0041"
    )


def test_writing_of_all_languages_stays_as_it_is() -> None:
    text = "漢字 かな 한국어 العربية עברית हिन्दी می‌خواهم 👩‍👩‍👧 é 1️⃣"
    assert console.escaped(text) == text


@given(st.text())
def test_any_text_can_be_shown_and_steers_nothing(text: str) -> None:
    sent = without_styles(shown(console.plain(text)))
    assert not [character for character in sent if (ord(character) < 32 and character != "\n") or 127 <= ord(character) < 160]


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_ordinary_text_loses_nothing(text: str) -> None:
    assert console.plain(text).plain == text


def test_long_text_says_how_much_is_left_out() -> None:
    assert console.plain("x" * 3000, most=100).plain == "x" * 100 + " … (2,900 more characters)"


def test_one_line_is_one_line() -> None:
    assert console.one_line("a\n\n b\nc").plain == "a ⏎ b ⏎ c"
    assert "\n" not in shown(console.one_line("y" * 500), width=40).rstrip("\n")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"), (0.44, "0.4 s"), (9.96, "10 s"), (43.4, "43 s"), (59.7, "1 min 00 s"), (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"), (3725, "1 h 02 min"), (86400 * 3 + 4 * 3600, "3 d 04 h"), (None, "–"),
    ],
)  # fmt: skip
def test_times_are_words(seconds: float | None, words: str) -> None:
    assert console.duration(seconds) == words


def test_an_estimate_has_no_tenths() -> None:
    assert console.duration(6.04, whole=True) == "6 s"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "–"),
        (7680, "7,680"),
        (0.5, "0.500"),
        (31.5, "31.5"),
        (8.3e-4, "8.30e-04"),
        (0.0, "0.000"),
        (True, "true"),
        ([1], "[1]"),
    ],
)
def test_numbers_are_short(number: object, text: str) -> None:
    assert console.value(number) == text


def test_a_setting_can_be_typed_again() -> None:
    assert [console.setting(value) for value in (5e-4, 10.0, 6000, True, "grpo", "", None, [1, 2])] == [
        "0.0005", "10.0", "6000", "true", "grpo", '""', "(none)", "[1, 2]",
    ]  # fmt: skip


def test_sizes_are_decimal() -> None:
    assert [console.size(count) for count in (14, 1500, 2_500_000, 3e12)] == ["14 B", "1.5 kB", "2.5 MB", "3.0 TB"]


def test_a_sparkline_rises_with_its_values_and_keeps_gaps() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert spark([0, None, float("nan"), 7], 8) == "▁  █"
    assert spark([], 8) == "" == spark([None], 8)
    assert len(set(spark([2, 2, 2], 8))) == 1


def test_squeezing_takes_means_of_neighbours() -> None:
    assert squeeze([1, 3, 5, 7], 2) == [2, 6]
    assert squeeze([1, None, None, None], 2) == [1, None]


def test_braille_starts_low_and_ends_high_for_a_rising_line() -> None:
    rows = braille([0, 1, 2, 3], 4, 2, 0, 3)
    assert [len(row) for row in rows] == [4, 4]
    assert rows[0][0] == "\u2800" == rows[1][-1]
    assert rows[0][-1] != "\u2800" != rows[1][0]


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True)), min_size=1, max_size=300), st.integers(14, 80))
def test_a_plot_is_never_wider_than_it_should_be(values: list[float | None], width: int) -> None:
    steps = list(range(len(values)))
    for line in plot("reward", steps, values, width).plain.split("\n"):
        assert len(line) <= max(width, 20)
