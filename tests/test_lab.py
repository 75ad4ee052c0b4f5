"""Claims put to the test: the rules that decide, what is measured, runs that go on, and pages that say what came out."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from cli_helpers import r1pipe
from test_report import Page

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import attempt_row
from r1pipe.estimators import Tally, majority_at_k, pass_at_k
from r1pipe.lab.arms import arms_in_order, last_step, settings_of
from r1pipe.lab.claims import ARMS, CLAIMS, Arm, Check, Claim, Place
from r1pipe.lab.measure import BY_PROBLEM, OF_ROLLOUTS, ROLLOUTS, by_problem
from r1pipe.lab.rules import Estimate, Rule, decide, estimate, overall
from r1pipe.opening import load, recipe_text
from r1pipe.pipeline import load as load_pipeline

# --- the rules


def found(low: float, high: float, seeds: int = 3) -> Estimate:
    return Estimate((low + high) / 2, low, high, dict.fromkeys(range(seeds), 0.0), 100)


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (Rule(more_than=0.0), 0.01, 0.20, "reproduced"),
        (Rule(more_than=0.0), -0.20, -0.01, "not reproduced"),
        (Rule(more_than=0.0), -0.01, 0.20, "inconclusive"),
        (Rule(more_than=-0.03), -0.02, 0.05, "reproduced"),
        (Rule(more_than=-0.03), -0.09, -0.04, "not reproduced"),
        (Rule(more_than=-0.03), -0.04, 0.05, "inconclusive"),
        (Rule(less_than=0.0), -0.20, -0.01, "reproduced"),
        (Rule(less_than=0.0), 0.01, 0.20, "not reproduced"),
        (Rule(less_than=0.03), -0.01, 0.04, "inconclusive"),
        (Rule(more_than=0.0), 0.0, 0.0, "inconclusive"),  # exactly on the bound
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(rule: Rule, low: float, high: float, verdict: str) -> None:
    assert decide(rule, found(low, high)) == verdict


def test_one_seed_decides_nothing() -> None:
    assert decide(Rule(more_than=0.0), found(0.5, 0.6, seeds=1)) == "inconclusive"


def test_a_claim_is_reproduced_when_all_of_its_parts_are() -> None:
    assert overall(["reproduced", "reproduced"]) == "reproduced"
    assert overall(["reproduced", "inconclusive"]) == "inconclusive"
    assert overall(["inconclusive", "not reproduced", "reproduced"]) == "not reproduced"
    assert overall([]) == "inconclusive"


def test_a_rule_has_one_bound() -> None:
    with pytest.raises(ValueError, match="one bound"):
        Rule()
    with pytest.raises(ValueError, match="one bound"):
        Rule(more_than=0.0, less_than=1.0)


def test_the_interval_over_seeds_is_that_of_a_second_library() -> None:
    values = {1: [0.0, 0.5, 0.25], 2: [0.5, 0.0], 3: [1.0, 0.0, 0.0, 0.2]}
    means = [sum(one) / len(one) for one in values.values()]
    expected = scipy.stats.t.interval(0.95, 2, loc=sum(means) / 3, scale=scipy.stats.sem(means))
    got = estimate(values)
    assert (got.low, got.high) == pytest.approx(expected, abs=1e-12)
    assert (got.units, got.by_seed[2]) == (9, 0.25)


def test_one_seed_has_the_interval_of_its_problems_and_one_number_alone_has_none() -> None:
    values = [0.0, 0.5, 0.25, -0.5]
    got = estimate({7: values})
    expected = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (got.low, got.high) == pytest.approx((float(expected.low), float(expected.high)), abs=1e-12)
    assert estimate({7: [0.5]}).low == float("-inf")
    with pytest.raises(ValueError, match="every seed needs"):
        estimate({1: [], 2: [0.5]})


@pytest.mark.parametrize("training", [0.0, 0.05])
def test_95_percent_intervals_over_three_seeds_hold_the_truth_95_times_of_100(training: float) -> None:
    rng, truth, hits, trials = random.Random(f"lab {training}"), 0.1, 0, 2000
    for _ in range(trials):
        values = {}
        for seed in range(3):
            moved = rng.gauss(truth, training)
            values[seed] = [(rng.random() < 0.3 + moved) - (rng.random() < 0.3) for _ in range(40)]
        got = estimate(values)
        hits += got.low <= truth <= got.high
    assert 0.93 <= hits / trials <= 0.97


# --- the claims


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=list(CLAIMS))
def test_every_claim_stands_on_settings_and_checkpoints_that_exist(claim: Claim) -> None:
    assert any(check.rule for check in claim.checks)
    assert len(claim.seeds) >= 3
    for arm in arms_in_order(claim):
        named, settings = settings_of(arm, claim.seeds[0], ())
        pipeline, recipe = load(*recipe_text(named), settings)
        last = last_step(claim, arm, pipeline)
        assert recipe.seed == claim.seeds[0]
        assert last is not None
        before = pipeline.steps[: pipeline.steps.index(last) + 1]
        makes = {"Base", *(step.makes for step in before)}
        assert {place.checkpoint for place in claim.places if place.arm == arm.name} <= makes
        if arm.before:
            assert pipeline.select(arm.before)[0] in before
            assert any(change.startswith(arm.before.replace("/", ".")) for change in arm.settings)
    for check in claim.checks:
        name, at, _ = check.quantity.partition("@")
        known = check.quantity in BY_PROBLEM or (at and name in ("maj", "pass"))
        assert known or check.quantity.removeprefix(ROLLOUTS) in OF_ROLLOUTS
        assert "rollouts" not in check.quantity or check.first == check.second


def test_arms_that_differ_in_one_thing_share_everything_else() -> None:
    text, where = recipe_text("nano")
    wide, narrow = (load(text, where, settings_of(ARMS[name], 2, ())[1])[1] for name in ("clip-wide", "clip-narrow"))
    pipeline = load_pipeline("r1")
    differ = [
        step.name for step in pipeline.steps if wide.settings(step) != narrow.settings(step)
    ]  # the settings of the steps, as their records hold them
    assert differ == ["reasoning-rl"]
    assert (wide.configs["reasoning-rl"].clip, narrow.configs["reasoning-rl"].clip) == (10.0, 0.2)  # type: ignore[attr-defined]


# --- what is measured


def attempt(
    name: str, verdict: str, said: str = "1", tokens: int = 3, kind: str = "verifiable", **scores: float
) -> dict[str, Any]:
    asked = Problem(name, "q", "1", kind=kind)  # type: ignore[arg-type]
    tried = Attempt(asked, f"<think>\nx\n</think>\n\n\\boxed{{{said}}}", tokens=tokens)
    return attempt_row(tried, 0, {key: Score(value) for key, value in scores.items()}, None, verdict)


ROWS = [
    attempt("a", "right", tokens=4, format=1.0, language=0.5), attempt("a", "wrong", "2", tokens=8, format=0.0, language=0.25),
    attempt("a", "wrong", "2", tokens=6, format=1.0), attempt("a", "unjudged", tokens=2, format=1.0),
    attempt("b", "right", format=1.0, language=1.0), attempt("b", "right", format=1.0, language=1.0),
    attempt("b", "right", format=1.0, language=1.0),
    attempt("g", "none", kind="helpfulness", helpfulness=0.5), attempt("g", "none", kind="helpfulness", helpfulness=-1.0),
    attempt("s", "none", kind="safety", safety=1.5),
]  # fmt: skip


def test_quantities_are_means_by_problem() -> None:
    assert by_problem("pass@1", ROWS) == pytest.approx({"a": 1 / 3, "b": 1.0})
    assert by_problem("format", ROWS) == pytest.approx({"a": 0.75, "b": 1.0})
    assert by_problem("language", ROWS) == pytest.approx({"a": 0.375, "b": 1.0})
    assert by_problem("tokens", ROWS) == pytest.approx({"a": 5.0, "b": 3.0})
    assert by_problem("preference", ROWS) == pytest.approx({"g": -0.25, "s": 1.5})
    assert by_problem("pass@2", ROWS) == pytest.approx({"a": pass_at_k(1, 3, 2), "b": 1.0})
    assert by_problem("maj@3", ROWS) == pytest.approx({"a": majority_at_k(Tally(1, 2, (2,)), 3), "b": 1.0})


def test_numbers_of_the_rollouts() -> None:
    lines = [
        {"rewards": {"accuracy": share}, "tokens_mean": tokens, "thinking_characters": tokens * 2}
        for share, tokens in ((0.1, 10), (0.2, 20), (0.3, 30), (0.4, 45), (None, 50), (0.6, 60))
    ]
    known = [line for line in lines if line["rewards"]["accuracy"] is not None]  # type: ignore[index]
    pairs = [(line["rewards"]["accuracy"], line["tokens_mean"]) for line in known]  # type: ignore[index]
    expected = scipy.stats.pearsonr(*zip(*pairs, strict=True)).statistic
    assert OF_ROLLOUTS["accuracy with tokens"](lines) == pytest.approx(expected, abs=1e-12)
    assert OF_ROLLOUTS["growth of thinking"](lines) == pytest.approx(110 - 30)


# --- the commands


def test_the_list_names_every_claim_and_says_what_is_not_tested(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, "lab", "list")
    assert done.code == 0, done.err
    for claim in CLAIMS.values():
        assert claim.name in done.out
    assert "not tested" in done.out
    listed = json.loads(r1pipe(tmp_path, "lab", "list", "--json").out)
    assert [one["claim"] for one in listed] == list(CLAIMS)
    assert all(one["verdict"] is None and one["checks"] for one in listed)
    unknown = r1pipe(tmp_path, "lab", "run", "clop")
    assert unknown.code == 2
    assert "did you mean 'clip'?" in unknown.err


TESTED = Claim(
    "tested", "Tested <b>claim</b>", "nowhere", "everywhere",
    (
        Check("the second is not below the first", "pass@1", Place("one", "Zero"), Place("two", "Zero"), Rule(more_than=-0.03)),
        Check("it is above the first | by a lot", "pass@1", Place("one", "Zero"), Place("two", "Zero"), Rule(more_than=0.5)),
        Check("they move together", "rollouts: accuracy with tokens", Place("two", "Zero"), Place("two", "Zero")),
    ),
    minutes=1, measure=None, seeds=(1, 2),
)  # fmt: skip


@pytest.fixture
def two_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLAIMS, "tested", TESTED)
    monkeypatch.setitem(ARMS, "one", Arm("one", "nano-zero", ("zero.train.steps=12",)))
    monkeypatch.setitem(ARMS, "two", Arm("two", settings=("zero.train.clip=0.2",), fork_of="one", before="zero/train"))


@pytest.mark.usefixtures("two_arms")
def test_a_claim_makes_its_runs_decides_and_goes_on_without_making_anything_again(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, "lab", "run", "tested", "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert results["verdict"] == "not reproduced"  # equal answers: never more than a half
    assert [check["verdict"] for check in results["checks"]] == ["reproduced", "not reproduced", None]
    assert results["checks"][0]["by_seed"] == {"1": 0.0, "2": 0.0}
    folder = tmp_path / "lab"
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["one-1", "one-2", "two-1", "two-2"]
    assert (folder / "runs/two-1/0-prepare").is_symlink()  # shared with the arm that it was forked from
    assert not (folder / "runs/two-1/0-zero/train").is_symlink()
    assert "clip = 0.2" in (folder / "runs/two-2/recipe.toml").read_text()
    fixed = json.loads((folder / "tested/claim.json").read_bytes())
    assert fixed["checks"][1]["rule"] == {"more_than": 0.5, "less_than": None}
    assert fixed["fixed"] <= min(
        json.loads(path.read_bytes())["started"].replace("T", " ") for path in (folder / "runs").glob("*/*/**/manifest.json")
    )
    page = (folder / "tested/page.md").read_text()
    assert "**Verdict: not reproduced.**" in page
    assert "by a lot" in page
    assert "\\| by a lot" in page
    assert "two: forked from one before zero/train; zero.train.steps=12, zero.train.clip=0.2" in page
    html = Page((folder / "tested/page.html").read_text(encoding="utf-8"))
    assert html.open == []
    assert "Tested <b>claim</b>" in html.text  # text, and no element
    builds = {path: path.read_bytes() for path in (folder / "runs").glob("*/*/**/manifest.json")}
    again = r1pipe(tmp_path, "lab", "run", "tested", "--set", "launch.threads=1", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["checks"] == results["checks"]
    assert {path: path.read_bytes() for path in (folder / "runs").glob("*/*/**/manifest.json")} == builds
    shown = r1pipe(tmp_path, "lab", "list").out
    assert "not reproduced" in shown


@pytest.mark.usefixtures("two_arms")
def test_a_bound_that_moved_after_the_first_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from r1pipe.lab.experiment import definition, fix

    fix(tmp_path / "tested", definition(TESTED, (), ()))
    moved = replace(TESTED.checks[1], rule=Rule(more_than=-0.5))
    monkeypatch.setitem(CLAIMS, "tested", replace(TESTED, checks=(TESTED.checks[0], moved, TESTED.checks[2])))
    done = r1pipe(tmp_path, "lab", "run", "tested", "--out", str(tmp_path))
    assert done.code == 1
    assert "another definition of the claim" in done.err
    assert "0.5" in done.err
    other = r1pipe(tmp_path, "lab", "run", "tested", "--out", str(tmp_path), "--set", "zero.train.steps=24")
    assert other.code == 1
    assert not (tmp_path / "runs").exists()


def test_finished_runs_stand_for_the_seeds_of_a_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero = Place("one", "Zero")
    checks = (
        Check("they move together", "rollouts: accuracy with tokens", zero, zero, Rule(more_than=0.0)),
        Check("no difference", "pass@1", zero, zero),
    )
    monkeypatch.setitem(ARMS, "one", Arm("one", "nano-zero"))
    monkeypatch.setitem(CLAIMS, "given", Claim("given", "Given", "nowhere", "everywhere", checks, minutes=1, measure=None))
    for seed in ("1", "2"):
        sets = ("--set", f"seed={seed}", "--set", "zero.train.steps=12")
        assert r1pipe(tmp_path, "run-all", "--recipe", "nano-zero", "--run", f"zero-{seed}", *sets).code == 0
    done = r1pipe(tmp_path, "lab", "run", "given", "--from", "zero-1", "--from", "zero-2", "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert (results["given"], results["seeds"]) == (["zero-1", "zero-2"], [1, 2])
    assert results["verdict"] == "not reproduced"  # in the scripted rollouts length falls a little while accuracy rises
    assert (tmp_path / "lab/given-of-zero-1+zero-2/page.html").is_file()
    assert not (tmp_path / "lab/runs").exists()
    same = r1pipe(tmp_path, "lab", "run", "given", "--from", "zero-1", "--from", "zero-1")
    assert same.code == 1
    assert "have the same seed, 1" in same.err
    several = r1pipe(tmp_path, "lab", "run", "clip", "--from", "zero-1")
    assert several.code == 1
    assert "compares runs of different settings" in several.err
    lacks = r1pipe(tmp_path, "lab", "run", "shape", "--from", "zero-1")
    assert lacks.code == 1
    assert "run zero-1 makes no Dev1" in lacks.err
    assert r1pipe(tmp_path, "fork", "zero-2", "other", "--before", "zero", "--set", "zero.train.steps=24").code == 0
    differs = r1pipe(tmp_path, "lab", "run", "given", "--from", "zero-1", "--from", "other")
    assert differs.code == 1
    assert "zero.train.steps: 12, 24" in differs.err


SHRUNK = (
    "prepare.problems.count=200", "prepare.evaluation.count=16", "prepare.general.count=24", "prepare.general_traces.count=24",
    "prepare.pairs.count=60", "prepare.labels.count=60", "prepare.general_evaluation.count=8", "zero.train.steps=6",
    "zero.train.questions_per_step=2", "zero.train.group=4", "launch.threads=1",
)  # fmt: skip


@pytest.mark.heavy
def test_a_claim_of_the_paper_on_a_shrunken_recipe_with_real_training(tmp_path: Path) -> None:
    sets = [word for one in SHRUNK for word in ("--set", one)]
    done = r1pipe(tmp_path, "lab", "run", "growth", *sets, "--json", R1PIPE_PIPELINES="r1pipe.pipeline:load")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    assert results["verdict"] in ("reproduced", "not reproduced", "inconclusive")
    assert results["checks"][0]["problems"] == 3 * 16
    assert set(results["checks"][2]["by_seed"]) == {"1", "2", "3"}
    assert results["cost"]["step_seconds"] > 0
    assert results["settings"] == list(SHRUNK)
    part = tmp_path / "lab/growth/measured/whole-2-Zero/attempts/part-00000.parquet"
    before = part.read_bytes()
    again = r1pipe(tmp_path, "lab", "run", "growth", *sets, "--json", R1PIPE_PIPELINES="r1pipe.pipeline:load")
    assert json.loads(again.out)["checks"] == results["checks"]
    assert part.read_bytes() == before
