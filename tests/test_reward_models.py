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
    from r1pipe.train.scorer import loaded, score_ids

    model, tokenizer = loaded(str(trained[0]))
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


def answered(summary: str, kind: Any = "helpfulness", question: str = "q1") -> Attempt:
    problem = Problem(id="1", question=question, kind=kind, checker="none")
    return Attempt(problem, f"<think>\nI think.\n</think>\n\n{summary}", tokens=10)


def test_a_saved_model_with_tied_embeddings_scores_as_it_did_in_memory(base: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    from r1pipe.engines.text import load_tokenizer
    from r1pipe.train.scorer import score_ids

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1, dtype=torch.float32)
    assert model.config.tie_word_embeddings
    rows = [row.better for row in pairs(base)[:6]]
    pad = load_tokenizer(base).pad_token_id
    model.config.pad_token_id = pad
    before = score_ids(model, pad, rows)
    model.save_pretrained(str(tmp_path))
    again = AutoModelForSequenceClassification.from_pretrained(str(tmp_path), dtype=torch.float32)
    assert score_ids(again, pad, rows) == before


def test_the_measured_scale_makes_held_out_scores_mean_zero_and_spread_one(
    trained: tuple[Path, dict[str, Any]], base: Path
) -> None:
    import numpy
    from transformers import AutoConfig

    from r1pipe.train.reward_model import split_by_question
    from r1pipe.train.scorer import loaded, score_ids

    scale = AutoConfig.from_pretrained(str(trained[0])).r1pipe_scale
    _, held_out = split_by_question(pairs(base), SETTINGS.held_out_share, 3)
    model, tokenizer = loaded(str(trained[0]))
    every = [ids for row in held_out for ids in (row.better, row.worse or [])]
    scores = numpy.array(score_ids(model, tokenizer.pad_token_id, every))
    standard = (scores - scale["mean"]) / scale["spread"]
    assert standard.mean() == pytest.approx(0, abs=1e-4)
    assert standard.std() == pytest.approx(1, abs=1e-4)


def test_a_model_whose_scores_follow_length_is_said_aloud(base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from r1pipe.engines.text import judged_ids, load_tokenizer
    from r1pipe.train.reward_model import Judged, train_reward_model

    tokenizer = load_tokenizer(base)
    rows = [
        Judged(f"q{n}", *(judged_ids(tokenizer, f"q{n}", "", "yes" * (1 + n % 3 + longer)) for longer in (4, 0)))
        for n in range(120)
    ]
    summary = train_reward_model(context(tmp_path, outputs=("rm",)), SETTINGS, base=base, rows=rows, output="rm", what="toy")
    assert summary["longer_wins_share"] == 1
    assert summary["length_correlation"] > 0.7
    assert "toy: its scores follow length (correlation 0." in capfd.readouterr().out


def test_a_text_longer_than_the_model_reads_is_cut_said_and_counted(trained: tuple[Path, dict[str, Any]]) -> None:
    from r1pipe.rewards import Mix
    from r1pipe.rewards.mix import Part
    from r1pipe.train.rollouts import rollout_numbers
    from r1pipe.train.scorer import PreferenceReward

    attempts = [answered("yes"), answered("yes" * 30), answered("yes" * 30 + "no" * 90)]
    mix = Mix((Part("helpfulness", PreferenceReward(str(trained[0]), "helpfulness", max_tokens=60), 1.0),))
    rows = mix.score(attempts)
    notes = [row.parts["helpfulness"].note for row in rows if row.parts["helpfulness"]]
    assert ["cut at 60 tokens" in note for note in notes] == [False, True, True]
    assert rows[1].total == rows[2].total, "what follows the cut is not read"
    assert rollout_numbers(attempts, rows, 3, mix.weights)["cut"] == 2
    # the model has 1,024 positions: a limit beyond them is the model's
    note = PreferenceReward(str(trained[0]), "helpfulness").score([answered("yes" * 2000)])[0]
    assert note is not None
    assert note.note.endswith("cut at 1024 tokens")


def test_mean_and_spread_are_recorded_for_each_reward_and_a_loud_model_cannot_drown_the_rules(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    import shutil

    import numpy
    import torch
    from transformers import AutoModelForSequenceClassification

    from r1pipe.rewards import Mix
    from r1pipe.rewards.mix import Part, RewardSpec
    from r1pipe.train.rollouts import rollout_numbers
    from r1pipe.train.scorer import LIMIT, PreferenceReward

    # the same model, a thousand times louder, with the scale that was measured on it
    loud = tmp_path / "loud"
    shutil.copytree(trained[0], loud)
    model = AutoModelForSequenceClassification.from_pretrained(str(loud), dtype=torch.float32)
    model.score.weight.data *= 1000
    scale = model.config.r1pipe_scale
    model.config.r1pipe_scale = {"mean": 1000 * scale["mean"], "spread": 1000 * scale["spread"]}
    model.save_pretrained(str(loud))

    attempts = [answered("yes" * (1 + n % 3)) if n % 2 else answered("no" * (1 + n % 4)) for n in range(8)]
    rules = Mix.build([RewardSpec(name="format")]).parts
    numbers = []
    for folder in (trained[0], loud):
        mix = Mix((*rules, Part("helpfulness", PreferenceReward(str(folder), "helpfulness"), 1.0)))
        rows = mix.score(attempts)
        values = numpy.array([row.parts["helpfulness"].value for row in rows if row.parts["helpfulness"]], dtype=float)
        assert abs(values).max() <= LIMIT
        record = rollout_numbers(attempts, rows, 4, mix.weights)
        assert record["rewards"]["helpfulness"] == pytest.approx(values.mean())
        assert record["reward_spreads"]["helpfulness"] == pytest.approx(values.std())
        assert record["reward_spreads"]["format"] == 0
        numbers.append(values)
    assert numbers[0] == pytest.approx(numbers[1], abs=1 / 64)


def test_labels_of_one_kind_only_are_refused_before_anything_trains(base: Path, tmp_path: Path) -> None:
    from r1pipe.train.reward_model import Judged, train_reward_model

    rows = [Judged(f"q{n}", [1, 2, 3 + n % 5], None, 1.0, 1, "en") for n in range(60)]
    with pytest.raises(TrainingError, match="are all labelled safe"):
        train_reward_model(context(tmp_path, outputs=("rm",)), SETTINGS, base=base, rows=rows, output="rm", what="safety")


def test_always_saying_the_same_is_chance_where_most_labels_are_the_same() -> None:
    from r1pipe.train.measuring import label_numbers
    from r1pipe.train.reward_model import judge_numbers

    numbers = label_numbers([1.0] * 100, [True] * 95 + [False] * 5, [5] * 100, ["en"] * 100)
    assert numbers["always"] == 0.95
    with pytest.raises(TrainingError, match=r"is not above 0\.95, which always saying the same would reach"):
        judge_numbers(numbers, RewardModelSettings(), "safety reward model")
    right = label_numbers([1.0] * 95 + [-1.0] * 5, [True] * 95 + [False] * 5, [5] * 100, ["en"] * 100)
    judge_numbers(right, RewardModelSettings(), "safety reward model")


def test_scores_that_are_not_finite_are_said_and_not_measured(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from r1pipe.train import reward_model
    from r1pipe.train.reward_model import Judged, measure

    monkeypatch.setattr(reward_model, "score_ids", lambda *arguments, **named: [1.0, float("nan")])
    with pytest.raises(TrainingError, match="1 of 2 held-out rows a score that is not finite"):
        measure(None, 0, [Judged("a", [1, 2], None, 1.0, 1), Judged("b", [1, 3], None, 0.0, 1)], pairs=False)
