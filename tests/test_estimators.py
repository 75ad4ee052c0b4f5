"""Estimators against exact enumeration, a second library, and simulation."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import attempt_row
from r1pipe.estimators import Tally, compare, curve, majority_at_k, pass_at_k
from r1pipe.intervals import bootstrap_mean, mid_p, share_interval, student_quantile, student_tail, wilson
from r1pipe.rewards.votes import normalised, vote
from r1pipe.stages.tallies import at_k, shares_by, tallies

EXACT = 1e-12


def enumerated(right: int, votes: tuple[int, ...], silent: int, k: int) -> tuple[float, float]:
    """(pass@k, maj@k) over every subset of k samples, as fractions."""
    samples = ["right"] * right + [None] * silent
    samples += [f"wrong {number}" for number, count in enumerate(votes) for _ in range(count)]
    passed, major, subsets = Fraction(0), Fraction(0), list(combinations(samples, k))
    for subset in subsets:
        passed += "right" in subset
        counts = {answer: subset.count(answer) for answer in subset if answer is not None}
        first = [answer for answer, count in counts.items() if count == max(counts.values())]
        if "right" in first:
            major += Fraction(1, len(first))
    return float(passed / len(subsets)), float(major / len(subsets))


@settings(max_examples=60, deadline=None)
@given(right=st.integers(0, 4), votes=st.lists(st.integers(1, 3), max_size=3), silent=st.integers(0, 2), k=st.integers(1, 9))
def test_pass_and_majority_are_those_of_all_subsets(right: int, votes: list[int], silent: int, k: int) -> None:
    tally = Tally(right, sum(votes) + silent, tuple(votes))
    if not 1 <= k <= tally.samples:
        return
    passed, major = enumerated(right, tuple(votes), silent, k)
    assert pass_at_k(right, tally.samples, k) == pytest.approx(passed, abs=EXACT)
    assert majority_at_k(tally, k) == pytest.approx(major, abs=EXACT)


def test_a_tie_for_the_first_place_is_a_fair_draw() -> None:
    assert majority_at_k(Tally(2, 4, (2, 2)), 6) == pytest.approx(1 / 3)
    assert majority_at_k(Tally(2, 4, (3, 1)), 6) == 0.0
    assert majority_at_k(Tally(1, 5, ()), 6) == 1.0  # the only vote
    assert majority_at_k(Tally(0, 3, ()), 3) == 0.0  # nobody votes: wrong


@pytest.mark.parametrize(
    ("samples", "right", "k"), [(64, 3, 1), (64, 3, 16), (64, 60, 32), (200, 1, 100), (16, 0, 4), (16, 16, 4)]
)
def test_pass_at_k_is_the_hypergeometric_chance_of_a_second_library(samples: int, right: int, k: int) -> None:
    assert pass_at_k(right, samples, k) == pytest.approx(float(scipy.stats.hypergeom.sf(0, samples, right, k)), abs=EXACT)


@pytest.mark.parametrize(("samples", "right"), [(8, 0), (8, 3), (64, 5), (64, 63), (200, 17)])
def test_pass_at_k_is_that_of_the_product_form_in_numpy(samples: int, right: int) -> None:
    """The product form that the authors of the estimator gave, over floating-point ratios instead of whole numbers."""
    for k in (1, 2, 4, 8):
        wrong = samples - right
        expected = 1.0 if wrong < k else 1.0 - float(np.prod(1.0 - k / np.arange(wrong + 1, samples + 1)))
        assert pass_at_k(right, samples, k) == pytest.approx(expected, abs=EXACT)


def test_pass_at_1_and_majority_at_1_are_the_share_of_right_samples() -> None:
    tally = Tally(3, 5, (2, 1))
    assert pass_at_k(3, 8, 1) == pytest.approx(tally.pass_at_1, abs=EXACT)
    assert majority_at_k(tally, 1) == pytest.approx(tally.pass_at_1, abs=EXACT)


def test_pass_at_k_does_not_depend_on_how_many_samples_were_drawn() -> None:
    rng, skill, k = random.Random(3), 0.3, 4
    truth = 1 - (1 - skill) ** k
    for samples in (4, 8, 64):
        drawn = [pass_at_k(sum(rng.random() < skill for _ in range(samples)), samples, k) for _ in range(4000)]
        assert fmean(drawn) == pytest.approx(truth, abs=0.025)


@pytest.mark.parametrize("k", [0, 9])
def test_a_k_that_the_samples_do_not_allow_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=rf"k is {k}, with 8 samples"):
        pass_at_k(1, 8, k)
    with pytest.raises(ValueError, match="with 8 samples"):
        majority_at_k(Tally(1, 7), k)


def test_curves_stop_at_the_fewest_samples_of_a_problem() -> None:
    found = [Tally(3, 5, (5,)), Tally(2, 2, (1, 1))]
    assert list(curve(found, "pass")) == [1, 2, 4]
    assert curve(found, "majority")[4] == [majority_at_k(tally, 4) for tally in found]
    assert curve([], "pass") == {}


def test_a_majority_of_many_samples_takes_no_long_time() -> None:
    tally = Tally(20, 44, tuple([1] * 20 + [2] * 8))
    assert majority_at_k(tally, 32) > 0.99


# --- intervals


@pytest.mark.parametrize("freedom", [1, 2, 5, 29, 255, 4000])
def test_students_t_is_that_of_a_second_library(freedom: int) -> None:
    for value in (0.0, 0.3, 1.0, 2.5, 7.0):
        assert student_tail(value, freedom) == pytest.approx(float(scipy.stats.t.sf(value, freedom)), abs=EXACT)
    assert student_quantile(0.975, freedom) == pytest.approx(float(scipy.stats.t.ppf(0.975, freedom)), abs=EXACT)


@pytest.mark.parametrize(("right", "trials"), [(0, 10), (3, 10), (10, 10), (140, 256)])
def test_wilsons_interval_is_that_of_a_second_library(right: int, trials: int) -> None:
    expected = scipy.stats.binomtest(right, trials).proportion_ci(method="wilson")
    assert wilson(right, trials) == pytest.approx((float(expected.low), float(expected.high)), abs=EXACT)


def test_the_bootstrap_interval_is_near_that_of_a_second_library() -> None:
    rng = random.Random(5)
    values = [rng.betavariate(2, 1) for _ in range(120)]
    expected = scipy.stats.bootstrap(
        (values,), lambda v, axis: v.mean(axis=axis), method="percentile", n_resamples=4000, random_state=1
    )
    low, high = expected.confidence_interval
    assert bootstrap_mean(values) == pytest.approx((float(low), float(high)), abs=0.006)


@pytest.mark.parametrize(("right", "trials"), [(0, 10), (3, 10), (10, 10), (27, 30), (140, 256), (1, 1)])
def test_the_mid_p_interval_leaves_a_fortieth_on_either_side_by_a_second_library(right: int, trials: int) -> None:
    low, high = mid_p(right, trials)
    seen = scipy.stats.binom
    if right:
        assert seen.sf(right, trials, low) + seen.pmf(right, trials, low) / 2 == pytest.approx(0.025, abs=EXACT)
    if right < trials:
        assert seen.cdf(right - 1, trials, high) + seen.pmf(right, trials, high) / 2 == pytest.approx(0.025, abs=EXACT)
    assert (low == 0.0) == (right == 0)
    assert (high == 1.0) == (right == trials)


def test_one_sample_a_problem_has_the_mid_p_interval_and_several_have_wilsons() -> None:
    assert share_interval([1.0] * 30 + [0.0] * 10) == mid_p(30, 40)
    shares = [1.0] * 20 + [0.5] * 12 + [0.0] * 8
    centre = fmean(shares)
    trials = max(40, centre * (1 - centre) / fmean((share - centre) ** 2 for share in shares) * 40)
    quantile = float(scipy.stats.t.ppf(0.975, 39))
    assert share_interval(shares) == pytest.approx(wilson(centre * trials, trials, quantile), abs=EXACT)


def test_mid_p_holds_the_truth_near_95_times_of_100_whatever_the_share() -> None:
    """Exactly, without drawing: the mean over shares lies at 95%, and no share falls far below."""
    found = []
    for number in range(5, 96):
        share = number / 100
        held = [right for right in range(31) if mid_p(right, 30)[0] <= share <= mid_p(right, 30)[1]]
        found.append(sum(float(scipy.stats.binom.pmf(right, 30, share)) for right in held))
    assert 0.945 <= fmean(found) <= 0.965
    assert min(found) > 0.92
    for share in (1 / 2, 2 / 3, 9 / 10):  # one sample of each of 30 problems, whose skills have these means
        held = [right for right in range(31) if mid_p(right, 30)[0] <= share <= mid_p(right, 30)[1]]
        assert 0.93 <= sum(float(scipy.stats.binom.pmf(right, 30, share)) for right in held) <= 0.97


def test_problems_that_are_all_right_still_leave_room_for_doubt() -> None:
    low, high = share_interval([1.0] * 20)
    assert 0.8 < low < 0.9
    assert high == pytest.approx(1.0)
    assert all(math.isnan(end) for end in share_interval([]))


def expected_at_k(skills: tuple[float, float], k: int) -> float:
    """The chance that one of k samples is right, over skills drawn from a beta distribution."""
    alpha, beta = skills
    missed = math.lgamma(beta + k) - math.lgamma(alpha + beta + k) + math.lgamma(alpha + beta) - math.lgamma(beta)
    return 1 - math.exp(missed)


def coverage(interval: str, problems: int, samples: int, skills: tuple[float, float], trials: int) -> float:
    """How often the interval holds the mean over the whole population: problems are drawn anew, then samples of each."""
    rng = random.Random(f"{interval} {problems} {samples} {skills}")
    alpha, beta = skills
    truth, hits = (expected_at_k(skills, 4) if interval == "pass@4" else alpha / (alpha + beta)), 0
    for trial in range(trials):
        shares = []
        for _ in range(problems):
            skill = rng.betavariate(alpha, beta)
            right = sum(rng.random() < skill for _ in range(samples))
            shares.append(pass_at_k(right, samples, 4) if interval == "pass@4" else right / samples)
        if interval == "paired":  # two checkpoints of the same skill on the same problems
            other = {str(n): rng.betavariate(alpha, beta) for n in range(problems)}
            one = {name: sum(rng.random() < skill for _ in range(samples)) / samples for name, skill in other.items()}
            two = {name: sum(rng.random() < skill for _ in range(samples)) / samples for name, skill in other.items()}
            found = compare(one, two)
            assert found is not None
            hits += found.low <= 0 <= found.high
            continue
        low, high = share_interval(shares) if interval != "bootstrap" else bootstrap_mean(shares, seed=trial, draws=300)
        hits += low <= truth <= high
    return hits / trials


@pytest.mark.parametrize(
    ("interval", "problems", "samples", "skills", "trials"),
    [
        ("share", 30, 64, (1.0, 1.0), 1000),  # as AIME: few problems, many samples
        ("share", 30, 1, (1.0, 1.0), 1000),
        ("share", 15, 16, (1.0, 1.0), 1000),
        ("pass@4", 60, 8, (1.0, 2.0), 700),
        ("paired", 60, 4, (1.0, 1.0), 700),
        ("share", 30, 4, (4.0, 0.5), 1000),  # near 1
        ("share", 256, 2, (1.0, 1.0), 600),  # as nano
        ("share", 100, 8, (0.3, 0.5), 700),  # problems that are easy or hopeless
        ("bootstrap", 96, 2, (1.0, 1.0), 500),
    ],
)
def test_95_percent_intervals_hold_the_truth_95_times_of_100(
    interval: str, problems: int, samples: int, skills: tuple[float, float], trials: int
) -> None:
    assert 0.93 <= coverage(interval, problems, samples, skills, trials) <= 0.97


# --- two checkpoints


def test_the_paired_comparison_is_the_t_test_of_a_second_library() -> None:
    rng = random.Random(7)
    first = {f"p{number}": rng.randint(0, 8) / 8 for number in range(60)}
    second = {name: min(1.0, max(0.0, share + rng.choice((-0.125, 0, 0.125, 0.25)))) for name, share in first.items()}
    found = compare(first, second | {"only here": 1.0})
    assert found is not None
    expected = scipy.stats.ttest_rel(list(second.values()), list(first.values()))
    interval = expected.confidence_interval(0.95)
    assert found.problems == 60
    assert found.p_value == pytest.approx(float(expected.pvalue), abs=EXACT)
    assert (found.low, found.high) == pytest.approx((float(interval.low), float(interval.high)), abs=EXACT)
    assert found.better == sum(second[name] > first[name] for name in first)
    assert found.worse == sum(second[name] < first[name] for name in first)


def test_equal_checkpoints_do_not_differ() -> None:
    same = {"a": 0.5, "b": 1.0}
    found = compare(same, dict(same))
    assert found is not None
    assert (found.difference, found.p_value, found.better, found.worse) == (0.0, 1.0, 0, 0)
    assert compare(same, {"a": 1.0}) is None


# --- votes


@pytest.mark.parametrize(
    "several",
    [
        ("0.5", "1/2", "\\frac{1}{2}", "$\\dfrac{1}{2}$", " .5 ", "2/4"),
        ("1,234", "1234", "1234.0", "\\text{1234}", "１２３４", "1234."),
        ("-\\frac{3}{4}", "-3/4", "\\frac{-3}{4}", "−0.75"),
        ("Monday", " monday", "\\text{Monday}.", "**Monday**"),
    ],
)
def test_an_answer_has_one_normal_form(several: tuple[str, ...]) -> None:
    assert len({normalised(answer) for answer in several}) == 1


def test_other_answers_stay_apart_and_odd_ones_do_no_harm() -> None:
    assert len({normalised(answer) for answer in ("12", "21", "x=2", "2", "-2", "1/0", "1/3", "0.33")}) == 8
    assert normalised("9" * 5000)
    assert vote("I do not know.") == "" or vote("I do not know.") == normalised("I do not know")
    assert vote("So it is 7.\n\nThe answer is \\boxed{0.50}.") == "1/2"


# --- from attempts


def attempt(name: str, verdict: str, answer: str, level: str = "1") -> dict[str, object]:
    asked = Problem(name, "q", "1", domain="sums", level=level)
    tried = Attempt(asked, f"<think>\nx\n</think>\n\n\\boxed{{{answer}}}", tokens=3)
    return attempt_row(tried, 0, {}, None, verdict)


def test_attempts_become_tallies_and_unjudged_ones_are_in_no_count() -> None:
    rows = [
        attempt("a", "right", "1"), attempt("a", "wrong", "2"), attempt("a", "wrong", "2.0"), attempt("a", "unjudged", "?"),
        attempt("b", "unjudged", "?"),
        attempt("c", "right", "1", "2"), attempt("c", "wrong", "3", "2"), attempt("c", "wrong", "4", "2"),
    ]  # fmt: skip
    found = tallies(rows)
    assert found == {"a": Tally(1, 2, (2,)), "c": Tally(1, 2, (1, 1))}
    assert [line["mean"] for line in at_k(list(found.values()))["pass"]] == pytest.approx([1 / 3, 2 / 3])
    assert shares_by(rows, lambda row: str(row["level"]))["2"][0] == pytest.approx(1 / 3)
