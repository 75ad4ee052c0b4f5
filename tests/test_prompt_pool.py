"""Prompts that were always right are asked no more, the same ones in a resumed run; prompts never solved are listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import make_tiny_model, weights_digest
from train_helpers import GRPO, PROBLEMS, Crash, Rule, context, grpo

from r1pipe.data.rows import Attempt, Score
from r1pipe.data.schedule import Order, prompt_order
from r1pipe.data.tables import read_part, read_table
from r1pipe.errors import TrainingError
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.train.pool import LAG, PromptPool


def order(verifiable: int = 10, general: int = 0, rollouts: int = 8, questions: int = 4) -> Order:
    return prompt_order(
        verifiable=list(range(verifiable)), general=list(range(verifiable, verifiable + general)), rollouts=rollouts,
        questions=questions, general_from=2, general_share=0.25, seed=5,
    )  # fmt: skip


def test_a_dropped_row_is_asked_up_to_its_rollout_and_not_after_and_every_other_one_still_is() -> None:
    before = order()
    after = before.dropping({3: 2, 7: 4})
    assert after.rollouts[:2] == before.rollouts[:2]
    for number, rollout in enumerate(after.rollouts):
        assert len(rollout) == 4
        assert not (number >= 2 and 3 in rollout)
        assert not (number >= 4 and 7 in rollout)
    assert {row for rollout in after.rollouts[4:] for row in rollout} == set(range(10)) - {3, 7}
    assert after.epochs == before.epochs


def test_what_was_drawn_up_to_a_rollout_does_not_depend_on_what_is_dropped_later() -> None:
    early, late = order().dropping({3: 2}), order().dropping({3: 2, 7: 5, 1: 6})
    assert early.rollouts[:5] == late.rollouts[:5]
    assert early.rollouts[5:] != late.rollouts[5:]


def test_general_prompts_stay_and_when_everything_is_solved_everything_is_asked_again() -> None:
    mixed = order(general=5).dropping(dict.fromkeys(range(10), 3))
    assert all(sum(row >= 10 for row in rollout) == 1 for rollout in mixed.rollouts[2:])
    assert {row for rollout in mixed.rollouts[3:] for row in rollout if row < 10} == set(range(10))


def test_a_prompt_is_dropped_from_the_rollout_after_next_once_all_its_answers_are_right() -> None:
    pool = PromptPool(PROBLEMS, order(), drop=True)
    first = pool.order.rollouts[0]
    pool.record(0, [(row, verdict) for row in first[:3] for verdict in ("right", "right" if row == first[0] else "wrong")])
    pool.record(0, [(first[3], "right"), (first[3], "unjudged"), (39, "none")])
    assert pool.dropped_from == {first[0]: LAG}
    assert 39 not in pool.answers
    assert first[0] not in [row for rollout in pool.order_now().rollouts[LAG:] for row in rollout]
    assert pool.row_at(0) == first[0]
    kept = PromptPool(PROBLEMS, order(), drop=False)
    kept.record(0, [(first[0], "right")])
    assert kept.order_now() == kept.order


def test_what_is_known_of_prompts_comes_back_from_a_checkpoint_and_its_absence_is_an_error(tmp_path: Path) -> None:
    pool = PromptPool(PROBLEMS, order(), drop=True)
    pool.record(0, [(4, "right"), (5, "wrong"), (6, "right")])
    pool.record(1, [(4, "right"), (6, "wrong")])
    pool.save(tmp_path)
    again = PromptPool(PROBLEMS, order(), drop=True)
    again.load(tmp_path)
    assert (again.answers, again.right, again.dropped_from) == ({4: 2, 5: 1, 6: 2}, {4: 2, 5: 0, 6: 1}, {4: 2, 6: 2})
    assert again.order_now() == pool.order_now()
    with pytest.raises(TrainingError, match=r"has no prompts\.json"):
        again.load(tmp_path / "other")


class Verdicts:
    """Problems 0 and 3 are always solved, problem 1 never, the others now and then."""

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        fixed = {"0": 1.0, "3": 1.0, "1": 0.0}
        return [Score(fixed.get(a.problem.id, float(len(a.completion) % 2 or a.completion < "M"))) for a in attempts]


SETTINGS = GRPO.model_copy(update={"steps": 12, "drop_always_right": True})


def run(folder: Path, base: Path, crash_at: int = -1) -> None:
    mix = Mix((Part("accuracy", Verdicts(), 1.0), Part("rule", Rule(crash_at), 1.0)))
    grpo(context(folder), base, SETTINGS, mix=mix, problems=8)


def asked(folder: Path) -> list[list[str]]:
    return [
        list(dict.fromkeys(row["id"] for row in read_part(path))) for path in sorted((folder / "rollouts").glob("part-*.parquet"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", [5])
def test_a_killed_run_drops_the_same_prompts_and_ends_with_the_same_weights(crash_at: int, tmp_path: Path) -> None:
    base = make_tiny_model(tmp_path / "base")
    run(tmp_path / "whole", base)
    order_of_ids = asked(tmp_path / "whole")
    first = {name: next(n for n, ids in enumerate(order_of_ids) if name in ids) for name in ("0", "3")}
    for name, number in first.items():
        assert not any(name in ids for ids in order_of_ids[number + LAG :])
    static = prompt_order(
        verifiable=list(range(8)), general=[], rollouts=6, questions=4, general_from=0, general_share=0.0, seed=3
    )
    assert order_of_ids != [[str(row) for row in rollout] for rollout in static.rollouts]
    with pytest.raises(Crash):
        run(tmp_path / "killed", base, crash_at)
    run(tmp_path / "killed", base)
    assert asked(tmp_path / "killed") == order_of_ids
    assert weights_digest(tmp_path / "killed" / "model") == weights_digest(tmp_path / "whole" / "model")
    assert [row["id"] for row in read_table(tmp_path / "killed" / "never_solved")] == ["1"]
    (never,) = read_table(tmp_path / "killed" / "never_solved")
    assert never["answers"] == 4 * sum("1" in ids for ids in order_of_ids)
    metrics = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if line["kind"] == "rollout"] == [0, 2, 4, 6, 8, 10]
