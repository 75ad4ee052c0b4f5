"""The numbers by which a reward model is taken or refused, against NumPy's."""

from __future__ import annotations

import numpy
import pytest

from r1pipe.intervals import wilson
from r1pipe.train.measuring import calibration, label_numbers, pair_numbers

GENERATOR = numpy.random.default_rng(7)
COUNT = 400
LENGTHS = GENERATOR.integers(5, 40, size=(2, COUNT))
SCORES = GENERATOR.normal(size=(2, COUNT)) + numpy.array([[0.8], [0.0]]) + 0.03 * LENGTHS
GROUPS = ["en" if n % 3 else "zh" for n in range(COUNT)]


def numbers() -> dict:  # type: ignore[type-arg]
    return pair_numbers(SCORES[0].tolist(), SCORES[1].tolist(), LENGTHS[0].tolist(), LENGTHS[1].tolist(), GROUPS)


def test_accuracy_and_its_parts_are_shares_of_the_pairs_in_the_right_order() -> None:
    found, right = numbers(), SCORES[0] > SCORES[1]
    assert found["accuracy"] == pytest.approx(right.mean())
    assert found["accuracy_interval"] == pytest.approx(wilson(int(right.sum()), COUNT))
    longer = LENGTHS[0] > LENGTHS[1]
    assert (found["longer_better"]["rows"], found["longer_better"]["accuracy"]) == (
        longer.sum(),
        pytest.approx(right[longer].mean()),
    )
    shorter = LENGTHS[0] < LENGTHS[1]
    assert found["longer_worse"]["accuracy"] == pytest.approx(right[shorter].mean())
    assert found["longer_better"]["accuracy"] > found["longer_worse"]["accuracy"] + 0.1, "these scores follow length"
    chinese = numpy.array([group == "zh" for group in GROUPS])
    assert found["by_group"]["zh"]["accuracy"] == pytest.approx(right[chinese].mean())
    assert found["longer_wins_share"] == pytest.approx(longer.mean())


def test_pairs_of_matched_length_differ_by_at_most_a_tenth_or_one_token() -> None:
    gap, most = abs(LENGTHS[0] - LENGTHS[1]), LENGTHS.max(axis=0)
    alike = gap <= numpy.maximum(1, 0.1 * most)
    found = numbers()["length_matched"]
    assert found["rows"] == alike.sum() > 20
    assert found["accuracy"] == pytest.approx((SCORES[0] > SCORES[1])[alike].mean())


def test_the_correlation_of_score_and_length_and_the_scale_are_over_all_answers() -> None:
    found = numbers()
    assert found["length_correlation"] == pytest.approx(numpy.corrcoef(SCORES.ravel(), LENGTHS.ravel())[0, 1])
    assert found["score_mean"] == pytest.approx(SCORES.mean())
    assert found["score_spread"] == pytest.approx(SCORES.std())


def test_chances_that_come_true_as_often_as_they_say_are_calibrated_and_others_are_not() -> None:
    chances = GENERATOR.uniform(0.5, 1.0, size=20_000)
    true = GENERATOR.uniform(size=20_000) < chances
    honest = calibration(chances.tolist(), true.tolist(), 0.5)
    assert honest["error"] < 0.02
    assert honest["brier"] == pytest.approx(((chances - true) ** 2).mean())
    assert [count for _, _, count in honest["bins"]] == numpy.histogram(chances, bins=10, range=(0.5, 1.0))[0].tolist()
    boastful = calibration([0.99] * 1000, [n % 2 == 0 for n in range(1000)], 0.5)
    assert boastful["error"] == pytest.approx(0.49)


def test_labels_are_right_by_the_sign_of_the_score_and_length_is_told_within_each_label() -> None:
    labels = numpy.arange(COUNT) % 2 == 0
    lengths = numpy.where(labels, 30, 10) + numpy.arange(COUNT) % 5  # safe answers are longer, the score does not care
    scores = numpy.where(labels, 2.0, -2.0) + GENERATOR.normal(size=COUNT)
    found = label_numbers(scores.tolist(), labels.tolist(), lengths.tolist(), [""] * COUNT)
    assert found["accuracy"] == pytest.approx(((scores > 0) == labels).mean())
    assert found["safe"]["accuracy"] == pytest.approx((scores[labels] > 0).mean())
    assert found["length_correlation"] > 0.8
    assert abs(found["length_correlation_within"]) < 0.15


def test_a_part_without_rows_has_no_accuracy() -> None:
    found = pair_numbers([1.0], [0.0], [5], [50], [""])
    assert found["length_matched"] == {"rows": 0, "accuracy": None, "accuracy_interval": [0.0, 1.0]}
