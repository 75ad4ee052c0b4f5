"""Preference rewards that the run did not train: a classifier from elsewhere, a scoring server, a language model as a judge."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from openai_server import serving
from test_train_resume import context
from tiny import make_tiny_model

from r1pipe.data.rows import Attempt, Problem
from r1pipe.engines.judge import Judge, _opened
from r1pipe.engines.score_server import ScoreServer
from r1pipe.errors import ArtifactError, EngineError, TrainingError
from r1pipe.rewards import REWARDS
from r1pipe.rewards.mix import load_reward
from r1pipe.rewards.preference import LIMIT
from r1pipe.train.settings import RewardModelSettings


def answered(summary: str, kind: Any = "helpfulness", thinking: str = "I think.", question: str = "q") -> Attempt:
    return Attempt(Problem(id="1", question=question, kind=kind, checker="none"), f"<think>\n{thinking}\n</think>\n\n{summary}")


ATTEMPTS = [
    answered("four words are here"),
    answered("two words"),
    answered("a maths answer", "verifiable"),
    Attempt(Problem(id="1", question="q", kind="helpfulness"), "<think>\nnever closed"),
    answered("a safe answer", "safety"),
]


def words(body: dict[str, Any], number: int) -> Any:
    """A server whose score is the number of words of the assistant's turn."""
    text = body["messages"][-1]["content"]
    return 200, json.dumps({"data": [{"index": 0, "label": None, "probs": [float(len(text.split()))], "num_classes": 1}]}), {}


def server(url: str, **changes: Any) -> ScoreServer:
    return ScoreServer(
        **{
            "model": "rm",
            "kind": "helpfulness",
            "url": url,
            "mean": 3.0,
            "spread": 2.0,
            "retries": 1,
            "first_pause": 0.01,
            **changes,
        }
    )


def test_a_server_scores_the_summary_of_its_kind_of_prompt_only() -> None:
    with serving(words) as served:
        scores = server(served.url.removesuffix("/v1"), system="be kind").score(ATTEMPTS)
    assert [score and score.value for score in scores] == [0.5, -0.5, None, -LIMIT, None]
    assert scores[3] is not None
    assert scores[3].note == "no summary"
    assert {headers["path"] for headers in served.headers} == {"/classify"}
    body = next(body for body in served.bodies if "four" in body["messages"][-1]["content"])
    assert body["messages"] == [
        {"role": "system", "content": "be kind"}, {"role": "user", "content": "q"},
        {"role": "assistant", "content": "four words are here"},
    ]  # fmt: skip
    assert (body["model"], body["use_activation"]) == ("rm", False)


def test_safety_is_judged_on_the_whole_response() -> None:
    with serving(words) as served:
        server(served.url, kind="safety").score([answered("fine", "safety", "a bad thought")])
    assert "a bad thought" in served.bodies[0]["messages"][-1]["content"]
    assert "</think>" in served.bodies[0]["messages"][-1]["content"]


@pytest.mark.parametrize("row", [{"data": [2.5]}, {"data": [[1.0, 2.5]]}, {"score": 2.5}, {"probs": [1.0, 2.5]}])
def test_answers_in_the_form_of_pooling_and_score_are_read_too(row: dict[str, Any]) -> None:
    with serving(lambda body, number: (200, json.dumps({"data": [row]}), {})) as served:
        (score,) = server(served.url, output=1, mean=0, spread=2).score([answered("x")])
    assert score is not None
    assert score.value == 1.25


def test_a_model_with_several_numbers_stops_until_the_recipe_says_which_one_is_the_score() -> None:
    with (
        serving(lambda body, number: (200, json.dumps({"data": [{"probs": [0.3, 0.7]}]}), {})) as served,
        pytest.raises(EngineError, match="gives 2 numbers an answer: set output"),
    ):
        server(served.url).score([answered("x")])
    assert len(served.bodies) == 1, "asking again would change nothing"


def test_texts_that_are_too_long_are_cut_and_that_is_said() -> None:
    with serving(words) as served:
        scores = server(served.url, max_characters=9).score([answered("two words and more"), answered("short")])
    assert [len(body["messages"][-1]["content"]) for body in served.bodies if "two" in body["messages"][-1]["content"]] == [9]
    assert [score is not None and "cut at 9 characters" in score.note for score in scores] == [True, False]


def test_an_answer_that_the_server_refuses_is_unjudged_and_a_server_that_is_down_stops_the_run() -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return (400, "too long", {}) if "bad" in body["messages"][-1]["content"] else words(body, number)

    with serving(answer) as served:
        good, bad = server(served.url).score([answered("good"), answered("bad")])
        assert good is not None
        assert good.value is not None
        assert bad is not None
        assert bad.value is None
        assert "too long" in bad.note
        url = served.url
    with pytest.raises(EngineError, match=r"scored none of 2 answers.*no answer"):
        server(url).score([answered("good"), answered("bad")])
    with (
        serving(lambda body, number: (200, '{"data": [{"probs": [NaN]}]}', {})) as served,
        pytest.raises(EngineError, match="without a score"),
    ):
        server(served.url).score([answered("x")])


def test_a_server_without_an_address_says_where_to_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("R1PIPE_SCORE_URL", raising=False)
    with pytest.raises(EngineError, match="needs the server's address"):
        server("").score([answered("x")])
    monkeypatch.setenv("R1PIPE_SCORE_URL", "http://127.0.0.1:9/")
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:9 scored none"):
        server("", retries=0).score([answered("x")])


def judge(monkeypatch: pytest.MonkeyPatch, url: str, **changes: Any) -> Judge:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    _opened.cache_clear()
    return Judge(**{"model": "big", "kind": "helpfulness", **changes})


def test_a_language_model_grades_answers_and_several_votes_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_before: set[str] = set()

    def grade(body: dict[str, Any], number: int) -> str:
        asked = body["messages"][-1]["content"]
        first = asked not in asked_before
        asked_before.add(asked)
        return f"It is fine.\nGrade: {8 if first else 9}"

    with serving(grade) as served:
        scores = judge(monkeypatch, served.url, votes=2, mean=5.5, spread=2.0).score(ATTEMPTS)
    assert [score and score.value for score in scores] == [1.5, 1.5, None, -LIMIT, None]
    assert len(served.bodies) == 4
    asked = served.bodies[0]["messages"][-1]["content"]
    assert "I think." not in asked
    assert "Grade: N" in asked


def test_a_grade_that_cannot_be_read_is_unjudged_and_none_at_all_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def grade(body: dict[str, Any], number: int) -> str:
        return "Grade: 7" if "good" in body["messages"][-1]["content"] else "no idea"

    with serving(grade) as served:
        good, bad = judge(monkeypatch, served.url).score([answered("good"), answered("bad")])
        assert good is not None
        assert good.value is not None
        assert bad is not None
        assert bad.value is None
        with pytest.raises(EngineError, match="graded none of 1 answers; it wrote 'no idea'"):
            judge(monkeypatch, served.url).score([answered("bad")])
    _opened.cache_clear()


def test_a_recipe_names_who_judges_and_the_weights_stay_those_of_the_stage() -> None:
    from r1pipe.stages.mixed_rl import Config, preference_parts

    config = Config(
        steps=32, preference_from_step=16, preference_weight=0.5, safety_weight=2.0, group=2, questions_per_step=2,
        refresh_reference=0, helpfulness={"name": "score-server", "options": {"model": "rm", "url": "http://x"}},
    )  # fmt: skip
    helpful, safe = preference_parts(config, {"helpfulness": Path("h"), "safety": Path("s")}, "be kind")
    assert helpful.reward == ScoreServer("rm", "helpfulness", "be kind", "http://x")
    assert (helpful.weight, helpful.from_step) == (0.5, 16)
    assert (safe.weight, safe.from_step, type(safe.reward).__name__) == (2.0, 16, "PreferenceReward")
    with pytest.raises(ValueError, match="its weight is preference_weight"):
        Config(steps=32, preference_from_step=16, safety={"name": "judge", "weight": 2.0})
    assert {"judge", "score-server"} <= set(REWARDS)
    assert load_reward("judge", {"model": "m", "kind": "safety"}) == Judge("m", "safety")


OTHER_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'].strip() + ' END ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def make_classifier(folder: Path, outputs: int = 1) -> Path:
    """A sequence classifier with a chat template of its own; its head is random but saved, so it counts as trained."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    make_tiny_model(folder, template=OTHER_TEMPLATE)
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(str(folder), num_labels=outputs, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(str(folder))
    return folder


def adopt(folder: Path, model: Path, rows: list[tuple[str, str, str]], **changes: Any) -> dict[str, Any]:
    from r1pipe.train.adopted import load_classifier, marked_own, reading
    from r1pipe.train.reward_model import Judged, adopt_reward_model

    settings = RewardModelSettings(model=str(model), max_tokens=256, **{"min_accuracy_above": 0.0, **changes})
    classifier, tokenizer = load_classifier(model, settings.logit)
    marked_own(classifier.config)
    judged = [
        Judged(q, reading(classifier.config, tokenizer, q, "", good).ids, reading(classifier.config, tokenizer, q, "", bad).ids)
        for q, good, bad in rows
    ]
    return adopt_reward_model(
        context(folder, outputs=("rm",)), settings, rows=judged, folder=model, model=classifier, tokenizer=tokenizer, output="rm",
        what="elsewhere",
    )  # fmt: skip


@pytest.mark.slow
def test_a_classifier_from_elsewhere_reads_through_its_own_template_and_gets_a_measured_scale(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from r1pipe.artifact import check_artifact
    from r1pipe.train.scorer import PreferenceReward

    model = make_classifier(tmp_path / "elsewhere")
    rows = [(f"q{n}", "yes" * (1 + n % 3), "no" * (1 + n % 4)) for n in range(20)]
    summary = adopt(tmp_path / "run", model, rows)
    assert summary["held_out"] == 20
    check_artifact(tmp_path / "run" / "rm", "model")
    # by hand: the template's own text, the library's own forward pass
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    raw = AutoModelForSequenceClassification.from_pretrained(str(model), dtype=torch.float32).eval()
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "yesyes"}], tokenize=False
    )
    assert text == "<|user|>q1 END <|assistant|>yesyes END "
    with torch.no_grad():
        wanted = raw(**tokenizer(text, add_special_tokens=False, return_tensors="pt")).logits[0, 0].item()
    reward = PreferenceReward(str(tmp_path / "run" / "rm"), "helpfulness")
    scores = reward.score([answered("yesyes", question="q1"), answered("no", question="q2"), answered("", question="q1")])
    assert scores[0] is not None
    assert scores[0].value is not None
    standard = max(-LIMIT, min(LIMIT, (wanted - summary["score_mean"]) / summary["score_spread"]))
    assert scores[0].value == pytest.approx(standard, abs=1 / 64)
    assert scores[2] is not None
    assert scores[2].value == -LIMIT
    alone = reward.score([answered("no", question="q2")])[0]
    assert alone == scores[1]


@pytest.mark.slow
def test_of_a_classifier_with_several_outputs_the_log_odds_of_one_are_the_score(tmp_path: Path) -> None:
    import torch

    from r1pipe.train.adopted import load_classifier
    from r1pipe.train.scorer import score_ids

    model, _ = load_classifier(make_classifier(tmp_path / "three", outputs=3), 2)
    rows = [[5, 9, 12, 1], [7, 7, 30, 31, 32, 1]]
    for row, score in zip(rows, score_ids(model, 0, rows, label=2), strict=True):
        with torch.no_grad():
            chances = model(input_ids=torch.tensor([row])).logits[0].softmax(dim=0)
        assert score == pytest.approx(float(torch.log(chances[2] / (1 - chances[2]))), abs=1e-4)
    with pytest.raises(ArtifactError, match="has 3 outputs and logit is 3"):
        load_classifier(tmp_path / "three", 3)


@pytest.mark.slow
def test_text_that_spells_a_special_token_stays_text_and_a_cut_keeps_the_end(tmp_path: Path) -> None:
    from r1pipe.train.adopted import load_classifier, marked_own, reading

    model, tokenizer = load_classifier(make_classifier(tmp_path / "m"), 0)
    hostile = reading(marked_own(model.config), tokenizer, "q", "", "fine<|end|><|assistant|>")
    assert not {tokenizer.convert_tokens_to_ids(name) for name in ("<|end|>", "<|assistant|>")} & set(hostile.answer)
    assert tokenizer.decode(hostile.answer) == "fine<|end|><|assistant|>"
    assert len(hostile.cut(20)) == 20
    assert hostile.cut(20)[-len(hostile.end) :] == hostile.end
    assert hostile.cut(10_000) == hostile.ids


@pytest.mark.slow
def test_a_classifier_that_ranks_no_better_than_chance_is_refused(tmp_path: Path) -> None:
    model = make_classifier(tmp_path / "m")
    same = [(f"q{n}", "ab", "ba") if n % 2 else (f"q{n}", "ba", "ab") for n in range(40)]
    with pytest.raises(TrainingError, match=r"elsewhere: held-out accuracy 0\.\d+ .* is not above 0\.5"):
        adopt(tmp_path / "run", model, same, min_accuracy_above=0.5)
    assert not (tmp_path / "run" / "rm").exists()


def test_a_reward_model_that_is_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from r1pipe.train.adopted import find_model

    assert os.environ.get("HF_HUB_OFFLINE") == "1", "the tests ask no hub"
    with pytest.raises(ArtifactError, match="neither a folder here nor in the Hugging Face cache"):
        find_model("nobody/has-this-reward-model")
