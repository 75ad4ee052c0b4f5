"""Reward models: what they are trained on, how they score, and when they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_train_resume import context
from tiny import make_tiny_model

from r1pipe.data.rows import Attempt, Problem
from r1pipe.errors import ArtifactError, TrainingError
from r1pipe.train.settings import RewardModelSettings

pytestmark = pytest.mark.slow

SETTINGS = RewardModelSettings(epochs=2, batch=16, learning_rate=5e-3, max_tokens=64, held_out_share=0.3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


def pairs(base: Path, swapped: bool = False) -> list[Any]:
    from r1pipe.engines.text import judged_ids, load_tokenizer
    from r1pipe.train.reward_model import Judged

    tokenizer = load_tokenizer(base)
    rows = []
    for n in range(120):
        good, bad = (
            judged_ids(tokenizer, f"q{n}", "", "yes" * (1 + n % 3)),
            judged_ids(tokenizer, f"q{n}", "", "no" * (1 + n % 4)),
        )
        # a held-out row is right or wrong by its own order, so only the held-out half is swapped to make the model look wrong
        rows.append(Judged(f"q{n}", bad, good) if swapped else Judged(f"q{n}", good, bad))
    return rows


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    from r1pipe.train.reward_model import Judged, train_reward_model

    folder = tmp_path_factory.mktemp("rm")
    rows = pairs(base)
    same = [Judged("same", rows[0].better, rows[0].better)] * 5
    summary = train_reward_model(
        context(folder, outputs=("rm",)), SETTINGS, base=base, rows=[*rows, *same], output="rm", what="toy"
    )
    return folder / "rm", summary


def test_identical_pairs_are_dropped_and_counted(trained: tuple[Path, dict[str, Any]]) -> None:
    assert trained[1]["rows_identical"] == 5
    assert trained[1]["rows"] + trained[1]["held_out"] == 120


def test_a_model_that_ranks_the_worse_above_the_better_is_refused_and_a_swap_is_suggested(base: Path, tmp_path: Path) -> None:
    from r1pipe.train.reward_model import split_by_question, train_reward_model

    rows = pairs(base)
    _, held_out = split_by_question(rows, SETTINGS.held_out_share, 3)
    turned = {row.question for row in held_out}
    mixed = [swap if row.question in turned else row for row, swap in zip(rows, pairs(base, swapped=True), strict=True)]
    with pytest.raises(TrainingError, match=r"is not above 0\.5: chosen and rejected may be swapped"):
        train_reward_model(context(tmp_path, outputs=("rm",)), SETTINGS, base=base, rows=mixed, output="rm", what="toy")


def test_a_text_scores_the_same_alone_and_in_a_padded_batch(trained: tuple[Path, dict[str, Any]], base: Path) -> None:
    from r1pipe.train.scorer import _loaded, score_ids

    model, tokenizer = _loaded(str(trained[0]))
    rows = [row.better for row in pairs(base)[:9]] + [row.worse for row in pairs(base)[:9]]
    together = score_ids(model, tokenizer.pad_token_id, rows)
    alone = [score_ids(model, tokenizer.pad_token_id, [row])[0] for row in rows]
    assert together == pytest.approx(alone, abs=1e-5)


def test_a_reward_model_scores_its_kind_of_prompt_on_a_scale_and_a_missing_summary_lowest(
    trained: tuple[Path, dict[str, Any]],
) -> None:
    from r1pipe.train.scorer import LIMIT, PreferenceReward

    def attempt(text: str, kind: Any = "helpfulness") -> Attempt:
        return Attempt(Problem(id="1", question="q1", kind=kind, checker="none"), text)

    good, bad = "<think>\nI think.\n</think>\n\nyesyes", "<think>\nI think.\n</think>\n\nnono"
    scores = PreferenceReward(str(trained[0]), "helpfulness").score(
        [attempt(good), attempt(bad), attempt("<think>\nnever closed"), attempt(good, "verifiable"), attempt(good, "safety")]
    )
    assert scores[3] is None
    assert scores[4] is None
    values = [score.value for score in scores[:3] if score is not None and score.value is not None]
    assert values[0] > values[1] >= values[2] == -LIMIT
    assert all(value == round(value * 64) / 64 for value in values)


def test_the_helpfulness_model_reads_the_summary_and_not_the_thinking(trained: tuple[Path, dict[str, Any]]) -> None:
    from r1pipe.train.scorer import PreferenceReward

    def attempt(thinking: str) -> Attempt:
        return Attempt(Problem(id="1", question="q1", kind="helpfulness"), f"<think>\n{thinking}\n</think>\n\nyes")

    one, other = PreferenceReward(str(trained[0]), "helpfulness").score([attempt("nonono"), attempt("yesyesyes")])
    assert one == other


def test_a_language_model_without_a_scalar_head_is_refused(base: Path) -> None:
    from r1pipe.train.scorer import PreferenceReward

    with pytest.raises(ArtifactError, match=r"is not a reward model: score\.weight is not among its weights"):
        PreferenceReward(str(base), "safety").score([Attempt(Problem(id="1", question="q", kind="safety"), "text")])
