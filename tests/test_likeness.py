"""Near copies: recall and precision on planted ones, in several scripts."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest

from r1pipe.data.likeness import bands_of, marks_of, near_pairs, runs_to_compare, signatures, similarity
from r1pipe.data.overlap import Words, words_of
from r1pipe.data.pieces import split_folded

ENGLISH = "the sum of all that we have found so far is more than what was asked for in this part of the task and then some"
CHINESE = "我们先把这两个数加起来然后再减去剩下的部分得到最后的结果并且检查一遍"


def words_in(text: str) -> Words:
    return words_of(split_folded(text))


def english(rng: random.Random, words: int = 300) -> str:
    return " ".join(rng.choice(ENGLISH.split()) if rng.random() < 0.8 else str(rng.randint(1, 999)) for _ in range(words)) + "."


def chinese(rng: random.Random, characters: int = 400) -> str:
    return "".join(rng.choice(CHINESE) if rng.random() < 0.9 else str(rng.randint(1, 99)) for _ in range(characters)) + "。"


def jaccard(one: str, other: str) -> float:
    first, second = (set(runs_to_compare(words_in(text)).tolist()) for text in (one, other))
    return len(first & second) / len(first | second)


def found_pairs(texts: list[str], least: float = 0.8) -> set[tuple[int, int]]:
    found = signatures([runs_to_compare(words_in(text)) for text in texts])
    bands = bands_of(found)
    later, earlier = near_pairs(lambda number: np.ascontiguousarray(bands[:, number]), marks_of(found), least)
    return set(zip(later.tolist(), earlier.tolist(), strict=True))


def words_changed(text: str, rng: random.Random, share: float = 0.02) -> str:
    return " ".join("changed" if rng.random() < share else word for word in text.split(" "))


LIGHT: dict[str, Callable[[str], str]] = {
    "exact": lambda text: text,
    "spacing": lambda text: re.sub(r"(?<=[a-z。，]) ?", "\n ", text) if "。" in text else text.replace(" ", "\n\n"),
    "case and punctuation": lambda text: text.upper().replace(".", " !").replace("。", " ！"),
    "one sentence more": lambda text: text + " That is all there is to it.",
    "one number": lambda text: re.sub(r"[0-9]+", "5", text, count=1),
}


@pytest.mark.parametrize("edit", LIGHT)
@pytest.mark.parametrize("make", [english, chinese])
def test_light_edits_are_found(make: Callable[[random.Random], str], edit: str) -> None:
    rng = random.Random(1)
    texts = [make(rng) for _ in range(60)]
    copies = [LIGHT[edit](text) for text in texts]
    pairs = found_pairs(texts + copies)
    recall = sum((60 + place, place) in pairs for place in range(60)) / 60
    assert recall >= 0.95
    assert all(later - earlier == 60 for later, earlier in pairs)


def test_different_texts_of_the_same_words_are_not_copies() -> None:
    rng = random.Random(2)
    assert found_pairs([english(rng) for _ in range(300)] + [chinese(rng) for _ in range(300)]) == set()


def test_marks_estimate_the_similarity() -> None:
    rng = random.Random(3)
    errors = []
    for share in (0.0, 0.01, 0.03, 0.1):
        for _ in range(25):
            text = english(rng)
            other = words_changed(text, rng, share)
            marks = marks_of(signatures([runs_to_compare(words_in(one)) for one in (text, other)]))
            errors.append(float(similarity(marks[0], marks[1])) - jaccard(text, other))
    assert abs(np.mean(errors)) < 0.02
    assert np.abs(errors).max() < 0.2


def test_every_copy_of_a_text_is_paired_with_the_first_and_pairs_stay_few() -> None:
    rng = random.Random(4)
    texts = [english(rng)] * 50 + [english(rng) for _ in range(50)]
    pairs = found_pairs(texts)
    assert {(place, 0) for place in range(1, 50)} <= pairs
    assert len(pairs) < 100


def test_signatures_are_the_same_whatever_else_is_signed_with_them() -> None:
    one, other = np.arange(100, dtype=np.uint64), np.arange(7, dtype=np.uint64)
    assert np.array_equal(signatures([one, other])[:1], signatures([one]))
    assert signatures([one]).shape == (1, 128)
    assert signatures([]).shape == (0, 128)
