"""Rewards of the user's own beside the three of the paper, by a name of their own: in mix, metrics, table and page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_cli_text import shown, without_styles
from test_zero import context
from tiny import make_tiny_model

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import attempt_row, read_table, scores_of
from r1pipe.errors import RecipeError
from r1pipe.opening import packaged_recipes
from r1pipe.pipeline import load
from r1pipe.recipe import apply_sets, load_recipe
from r1pipe.report.evaluation import Checkpoint, Evaluation
from r1pipe.report.overview import checkpoints
from r1pipe.rewards import Mix
from r1pipe.stages.evaluate import summarise
from r1pipe.stages.sections import RewardsSection
from r1pipe.views.results import results_view

BREVITY = 'rewards.more.brevity={ name = "test_more_rewards:Short", weight = 0.25, from_step = 4, options = { limit = 30 } }'
PROBLEM = Problem(id="p", question="What is 40 + 2?", answer="42")
RIGHT = "<think>\nforty and two\n</think>\n\n42"


class Short:
    """1 for an answer of at most so many characters."""

    def __init__(self, limit: int = 20) -> None:
        self.limit = limit

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        return [Score(float(len(attempt.text) <= self.limit), f"{len(attempt.text)} characters") for attempt in attempts]


def mix_of(*sets: str) -> Mix:
    pipeline = load("r1")
    recipe = load_recipe(apply_sets(packaged_recipes()["nano"].read_text(), sets, pipeline), pipeline)
    section = recipe.shared["rewards"]
    assert isinstance(section, RewardsSection)
    return Mix.build(section.rules)


def test_a_further_reward_has_its_name_weight_options_and_first_step() -> None:
    mix = mix_of(BREVITY)
    assert mix.weights == {"accuracy": 1.0, "format": 1.0, "language": 1.0, "brevity": 0.25}
    assert mix.parts[3].reward.limit == 30  # type: ignore[attr-defined]
    before, after = (mix.score([Attempt(PROBLEM, RIGHT), Attempt(PROBLEM, "42")], step) for step in (3, 4))
    assert [row.total for row in before] == [3.0, 1.0]
    assert [row.total for row in after] == [3.0, 1.25]
    assert [row.parts["brevity"] for row in before] == [None, None]


@pytest.mark.parametrize(
    ("name", "words"),
    [("accuracy", "name of something else"), ("total", "name of something else"), ("safety", "name of something else"),
     ("'2short'", "letters, digits"), ("'a b'", "letters, digits")],
)  # fmt: skip
def test_names_that_mean_something_else_are_refused(name: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        mix_of(f'rewards.more.{name}={{ name = "test_more_rewards:Short" }}')


def test_code_in_the_place_of_accuracy_decides_what_is_right() -> None:
    mix = mix_of('rewards.accuracy={ name = "test_more_rewards:Short" }')
    rows = mix.score([Attempt(PROBLEM, "42"), Attempt(PROBLEM, RIGHT)])
    assert list(mix.weights) == ["accuracy", "format", "language"]
    assert [row.verdict for row in rows] == ["right", "wrong"]


def test_the_table_and_the_page_have_a_column_for_it_and_none_where_there_is_none() -> None:
    attempts = [Attempt(PROBLEM, RIGHT, tokens=9), Attempt(PROBLEM, "42", tokens=1)]
    for sets, columns in (((BREVITY,), ["brevity"]), ((), [])):
        scored = zip(attempts, mix_of(*sets).score(attempts), strict=True)
        rows = [attempt_row(one, at, row.parts, row.total, row.verdict) for at, (one, row) in enumerate(scored)]
        summary = summarise(rows)
        assert summary.get("rewards") == ({"brevity": 0.5} if sets else None)
        results = {"checkpoints": {"base": summary, "dev1": {**summary, "rewards": {}}}, "sampling": {}, "problems": 1}
        text = without_styles(shown(results_view(results), 140))
        page = str(
            checkpoints(Evaluation({}, (Checkpoint("base", "Base", summary, rows, {}, None, {}, {}, {}, None),), 1), None, "")
        )
        assert [name for name in ("brevity",) if name in text] == columns
        assert [name for name in ("brevity",) if name in page] == columns
        assert ("mean of the reward brevity" in page) == bool(columns)


@pytest.mark.slow
def test_training_records_its_values_and_its_share_of_the_signal(tmp_path: Path) -> None:
    from r1pipe.stages.zero import train

    more: dict[str, Any] = {
        "brevity": {"name": "test_more_rewards:Short", "weight": 0.5, "from_step": 2, "options": {"limit": 10}}
    }
    run = context(tmp_path, make_tiny_model(tmp_path / "base"), accuracy={"name": "test_zero:EvenBytes"}, more=more)
    train(run)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    first, second = [line for line in lines if line["kind"] == "rollout"]
    assert first["rewards"]["brevity"] is None, "it joins at step 2"
    assert 0 <= second["rewards"]["brevity"] <= 1
    assert set(second["signal"]) == {"accuracy", "format", "language", "brevity"}
    kept = [scores_of(row).get("brevity") for row in read_table(run.folder / "rollouts") if "brevity" in row["scores"]]
    values = [score.value for score in kept if score is not None and score.value is not None]
    assert sum(values) / len(values) == pytest.approx(second["rewards"]["brevity"])
