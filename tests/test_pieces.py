"""Texts as arrays of hashes: the same pieces as a regular expression finds, in every script."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r1pipe.data.pieces import CHARACTER_RANGES, runs_of, split, split_folded, whole_hash

CHARACTERS = "".join(f"{chr(low)}-{chr(high)}" for ranges in CHARACTER_RANGES.values() for low, high in ranges)
BY_HAND = re.compile(rf"[{CHARACTERS}]|[^\W_{CHARACTERS}]{{1,24}}|[^\w\s]")
TEXTS = st.text(alphabet=st.one_of(st.sampled_from("ab9 .,+-_\n中文のé，１İΣ²\u2028\u0300"), st.characters()), max_size=200)


@given(TEXTS)
@settings(max_examples=300, deadline=None)
def test_pieces_are_those_of_the_regular_expression(text: str) -> None:
    pieces = split(text)
    found = [pieces.text(place, place) for place in range(len(pieces.hashes))]
    assert found == BY_HAND.findall(text)


@given(TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_pieces_have_equal_hashes_exactly_when_they_are_equal(one: str, other: str) -> None:
    both = split(one + " " + other)
    names = [both.text(place, place) for place in range(len(both.hashes))]
    by_name: dict[str, int] = {}
    for name, number in zip(names, both.hashes.tolist(), strict=True):
        assert by_name.setdefault(name, number) == number
    assert len(set(by_name.values())) == len(by_name)


def test_hashes_do_not_depend_on_where_a_piece_stands_or_on_the_encoding_of_its_text() -> None:
    assert split("word").hashes[0] == split("x " * 50 + "word").hashes[-1] == split("中文 word").hashes[-1]


def test_a_hash_is_the_polynomial_that_it_is_said_to_be() -> None:
    def by_hand(piece: str) -> int:
        number = sum((ord(sign) + 1) * 0x9E3779B97F4A7C15**place for place, sign in enumerate(piece)) % 2**64
        for shift, factor in ((31, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            number = (number ^ number >> shift) * factor % 2**64
        return number ^ number >> 31

    assert split("one 1 中 é?").hashes.tolist() == [by_hand(piece) for piece in ("one", "1", "中", "é", "?")]


@given(TEXTS, st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_runs_have_equal_hashes_exactly_when_their_pieces_are_equal(text: str, size: int) -> None:
    pieces = split(text)
    names = [pieces.text(place, place) for place in range(len(pieces.hashes))]
    windows = [tuple(names[place : place + size]) for place in range(len(names) - size + 1)]
    hashes = runs_of(pieces.hashes, size).tolist()
    assert len(hashes) == len(windows)
    assert len(set(hashes)) == len(set(windows))
    assert len(set(zip(windows, hashes, strict=True))) == len(set(windows))


def test_a_long_run_is_cut_every_24_characters() -> None:
    pieces = split("a" * 50 + " b")
    assert (pieces.ends - pieces.starts).tolist() == [24, 24, 2, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Add 1,000 and 2", "add 1000 AND 2"), ("Ｘ＝３，求Ｘ", "x=3,求x"), ("5 − 3 × 2", "5 - 3 * 2"), ("Straße", "STRASSE"),
        ("1,234,567 apples", "1234567 apples"),
    ],
)  # fmt: skip
def test_folding_takes_away_case_width_and_spelling(one: str, other: str) -> None:
    assert np.array_equal(split_folded(one).hashes, split_folded(other).hashes)


@pytest.mark.parametrize(
    ("one", "other"), [("1,2,3", "123"), ("1,0000", "10000"), ("a,bcd", "abcd"), ("3 + 5", "3 - 5"), ("", "a")]
)
def test_folding_keeps_what_differs(one: str, other: str) -> None:
    assert whole_hash(split_folded(one).hashes) != whole_hash(split_folded(other).hashes)
