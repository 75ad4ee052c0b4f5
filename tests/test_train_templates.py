"""Templates, tokens and lengths: what the model is trained on is what was meant, in every stage, to the last token."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from test_train_numbers import SIZES, EvenBytes, trained
from test_train_resume import context
from tiny import TEMPLATE, make_tiny_model, weights_digest

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.errors import ArtifactError, TrainingError
from r1pipe.metrics import MetricsWriter
from r1pipe.recipe import Launch
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.train.settings import GrpoSettings, LoraSettings, SftSettings

pytestmark = pytest.mark.slow

RESPONSE = "<think>\nOne and one.\n</think>\n\nIt is \\boxed{2}."
DISTILL = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if '</think>' in m['content'] %}"
    "{{ m['content'].split('</think>')[-1] }}{% else %}{{ m['content'] }}{% endif %}"
    "{% if m['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)
"""A template as distilled reasoning models have it: it drops the thinking of assistant turns, and opens it for the model."""
VENDOR = "{% if messages[0]['role'] != 'system' %}{{ '<|system|>I am a product.' }}{% endif %}" + TEMPLATE
DATED = "{{ '<|system|>Today is ' + strftime_now('%d %b %Y') }}" + TEMPLATE


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


def sft(folder: Path, model: Path, examples: list[tuple[str, str]], **settings: Any) -> dict[str, Any]:
    from r1pipe.train.sft import train_sft

    chosen = SftSettings.model_validate({"epochs": 1, "batch": 4, "learning_rate": 1e-2, "max_tokens": 256, **settings})
    return train_sft(context(folder), chosen, model=model, examples=examples, system="", what="toy")


# --- labels


@pytest.mark.parametrize("template", [TEMPLATE, DISTILL, VENDOR])
def test_labels_hold_the_whole_response_and_the_end_of_the_turn_whatever_the_template_does(template: str, tmp_path: Path) -> None:
    from r1pipe.engines.text import load_tokenizer, prompt_ids, prompt_prefix, training_row

    tokenizer = load_tokenizer(make_tiny_model(tmp_path, template=template))
    row = training_row(tokenizer, "1+1=", "", RESPONSE)
    labels = [label for label in row.labels if label != -100]
    assert prompt_prefix(tokenizer, "") + tokenizer.decode(labels[:-1]) == RESPONSE
    assert labels[-1] == tokenizer.eos_token_id
    assert row.input_ids == [*prompt_ids(tokenizer, "1+1=", ""), *labels]
    assert row.input_ids.count(tokenizer.eos_token_id) == 1
    assert tokenizer.decode(row.input_ids).count("<think>") == 1


def test_a_row_that_is_too_long_is_left_out_and_counted_and_no_row_is_cut(base: Path, tmp_path: Path) -> None:
    from r1pipe.engines.text import fitting_rows, load_tokenizer, training_row

    long = RESPONSE.replace("One and one.", "One and one. " * 30)
    summary = sft(tmp_path, base, [("1+1=", RESPONSE)] * 5 + [("1+1=", long)] * 3)
    assert (summary["rows"], summary["rows_too_long"]) == (5, 3)
    tokenizer = load_tokenizer(base)
    kept, left_out = fitting_rows([training_row(tokenizer, "1+1=", "", text) for text in (RESPONSE, long)], 256)
    assert left_out == 1
    assert all("</think>" in tokenizer.decode([label for label in row.labels if label != -100]) for row in kept)


# --- ends


def test_a_template_that_ends_turns_with_another_token_is_refused_naming_both(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", template=TEMPLATE.replace("<|end|>", "<|system|>"))
    with pytest.raises(ArtifactError, match=r"ends a turn with '<\|system\|>' and the tokenizer ends at '<\|end\|>'"):
        sft(tmp_path / "run", model, [("1+1=", RESPONSE)] * 4)
    settings = GrpoSettings.model_validate({**SIZES, "steps": 2, "refresh_reference": 0})
    with pytest.raises(ArtifactError, match="ends a turn with"):
        trained(model, tmp_path / "rl", settings)


def scorer(base: Path, folder: Path, ends: frozenset[int] = frozenset()) -> Any:
    from r1pipe.engines.text import load_tokenizer
    from r1pipe.train.rollouts import RolloutScorer

    return RolloutScorer(
        problems=[Problem(id="1", question="q", answer="1")], mix=Mix((Part("rule", EvenBytes(), 1.0),)),
        tokenizer=load_tokenizer(base), prefix="", group=2, minibatches=1, folder=folder, keep=0,
        metrics=MetricsWriter(folder / "metrics.jsonl"), live={}, main_process=True, ends=ends,
    )  # fmt: skip


def test_an_answer_that_ends_its_turn_is_never_cut_off(base: Path, tmp_path: Path) -> None:
    for ends, share in ((frozenset[int](), 0.5), (frozenset({1, 77}), 0.0)):
        made = scorer(base, tmp_path, ends)
        made(completion_ids=[[40, 41, 1], [40, 41, 77]], row=[0, 0], trainer_state=SimpleNamespace(global_step=0))
        assert made.live["truncated"] == share


def test_an_empty_answer_is_one_that_was_cut_off_and_ends_no_run(base: Path, tmp_path: Path) -> None:
    made = scorer(base, tmp_path)
    assert made(completion_ids=[[], [40, 1]], row=[0, 0], trainer_state=SimpleNamespace(global_step=0)) == [0.0, 1.0]
    assert made.live["truncated"] == 0.5


def test_when_every_answer_is_cut_off_and_masked_the_loss_is_zero_and_nothing_moves(base: Path, tmp_path: Path) -> None:
    settings = GrpoSettings.model_validate({**SIZES, "steps": 2, "max_completion_tokens": 2, "preset": "dapo"})

    class Different:
        def score(self, attempts: list[Attempt]) -> list[Score | None]:
            return [Score(index % 2) for index in range(len(attempts))]

    run = trained(base, tmp_path, settings, Mix((Part("rule", Different(), 1.0),)))
    assert run.metrics("rollout")[0]["truncated_share"] == 1.0
    assert run.metrics("rollout")[0]["flat_share"] == 0.0
    assert [seen.loss for seen in run.seen.passes] == [0.0] * 4
    assert [line["gradient_norm"] for line in run.metrics("step")] == [0.0, 0.0]
    assert weights_digest(tmp_path / "model") == weights_digest(base)


# --- prompts


@pytest.mark.parametrize("template", [TEMPLATE, VENDOR, DISTILL])
def test_a_prompt_is_the_same_in_every_stage(template: str, tmp_path: Path) -> None:
    from r1pipe.engines.text import load_tokenizer, prompt_ids, training_row
    from r1pipe.engines.transformers_engine import open_engine

    model = make_tiny_model(tmp_path / "model", template=template)
    run = trained(model, tmp_path / "rl", GrpoSettings.model_validate({**SIZES, "steps": 2, "refresh_reference": 0, "kl": 0}))
    tokenizer = load_tokenizer(model)
    asked = {f"{n}+1=": tuple(prompt_ids(tokenizer, f"{n}+1=", "")) for n in range(40)}
    seen = {tuple(prompt) for prompt in run.seen.rollouts[0].prompts}
    assert len(seen) == 4
    assert seen <= set(asked.values())
    assert run.summary["prompt"] in {tokenizer.decode(ids) for ids in asked.values()}
    row = training_row(tokenizer, "7+1=", "", RESPONSE)
    assert tuple(row.input_ids[: len(asked["7+1="])]) == asked["7+1="]
    engine = open_engine(model, system="", batch=1, dtype="float32")
    given: list[Any] = []
    engine.model.register_forward_pre_hook(lambda model, _, given_now: given.append(given_now["input_ids"]), with_kwargs=True)
    from r1pipe.engines.base import Sampling

    list(engine.generate(["7+1="], Sampling(samples=1, temperature=1.0, top_p=1.0, max_tokens=2, seed=0)))
    assert tuple(given[0][0].tolist()) == asked["7+1="]


def test_a_template_that_prints_the_date_is_refused(tmp_path: Path) -> None:
    from r1pipe.engines.text import load_tokenizer

    with pytest.raises(ArtifactError, match=r"prints today's date"):
        load_tokenizer(make_tiny_model(tmp_path / "dated", template=DATED))
    fixed = DATED.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'")
    assert load_tokenizer(make_tiny_model(tmp_path / "fixed", template=fixed)).chat_template == fixed


def test_a_prompt_that_leaves_no_room_for_an_answer_is_left_out_and_listed(base: Path, capsys: Any) -> None:
    from r1pipe.train.prompts import fitting_problems

    problems = [Problem(id="short", question="1+1="), Problem(id="long", question="9" * 1000)]
    kept, left_out = fitting_problems(base, problems, "", 96, "toy")
    assert ([problem.id for problem in kept], left_out) == (["short"], ["long"])
    assert "1 of 2 prompts leave no room for an answer of 96 tokens within the model's 1024 positions" in capsys.readouterr().out
    with pytest.raises(TrainingError, match=r"6 \+ 1020 > 1024"):
        fitting_problems(base, problems, "", 1020, "toy")


def test_a_limit_that_would_cut_off_what_the_model_was_taught_is_said(base: Path, tmp_path: Path) -> None:
    from r1pipe.train.prompts import percentile_90, short_limit

    summary = sft(tmp_path / "sft", base, [("1+1=", RESPONSE)] * 8)
    tokens = len(RESPONSE) + 1  # one a byte, and the end of the turn
    assert summary["answer_tokens_p90"] == tokens
    assert percentile_90([*range(1, 11)]) == 9
    assert short_limit(tmp_path / "sft" / "model", tokens) == ""
    assert short_limit(base, 1) == ""
    run = trained(
        tmp_path / "sft" / "model", tmp_path / "rl", GrpoSettings.model_validate({**SIZES, "steps": 2, "refresh_reference": 0})
    )
    assert len(run.summary["notices"]) == 1
    assert f"have {tokens} tokens or more and the limit is 12" in run.summary["notices"][0]


# --- arithmetic


def test_half_precision_that_overflows_is_no_choice() -> None:
    with pytest.raises(ValidationError, match="'auto', 'float32' or 'bfloat16'"):
        Launch.model_validate({"dtype": "float16"})


def test_dropout_of_a_model_is_off_in_training_by_rewards(base: Path, tmp_path: Path) -> None:
    import json

    import numpy as np

    model = tmp_path / "model"
    shutil.copytree(base, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    run = trained(model, tmp_path / "rl", GrpoSettings.model_validate({**SIZES, "steps": 2, "refresh_reference": 0}))
    for seen in run.seen.passes[:2]:
        np.testing.assert_allclose(seen.log_probs[seen.mask], seen.old[seen.mask], atol=1e-5)
    assert run.summary["dtype"] == "float32"


# --- what a stage hands on


@pytest.fixture(scope="module")
def adapted(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A stage trained with adapters, its folder moved since; and the logits that its trainer had, adapters active."""
    import r1pipe.train.run as run_module

    kept: list[Any] = []
    original = run_module.save_final

    def looking(trainer: Any, tokenizer: Any, folder: Path, merge: bool) -> None:
        kept.append(logits(trainer.model))
        original(trainer, tokenizer, folder, merge)

    folder = tmp_path_factory.mktemp("adapted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("r1pipe.train.sft.save_final", looking)
        sft(folder / "run", base, [("1+1=", RESPONSE)] * 8, lora=LoraSettings(rank=4, alpha=8.0))
    (folder / "run" / "model").rename(folder / "moved")
    return folder / "moved", kept[0]


def logits(model: Any) -> Any:
    import torch

    model.eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 40, 41, 42, 3]])).logits


def test_a_model_made_with_adapters_is_whole_and_gives_what_it_gave_in_training(adapted: tuple[Path, Any], base: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    moved, trained_logits = adapted
    assert not [path.name for path in moved.iterdir() if "adapter" in path.name]
    loaded = AutoModelForCausalLM.from_pretrained(str(moved))
    assert torch.allclose(logits(loaded), trained_logits, atol=1e-5)
    before = AutoModelForCausalLM.from_pretrained(str(base))
    assert not torch.allclose(logits(before), trained_logits, atol=1e-2)
    assert loaded.config.tie_word_embeddings  # the base's tied head stays tied
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


def test_no_token_is_added_to_a_model(adapted: tuple[Path, Any], base: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    moved, _ = adapted
    assert AutoTokenizer.from_pretrained(str(moved)).get_vocab() == AutoTokenizer.from_pretrained(str(base)).get_vocab()
    rows = [AutoModelForCausalLM.from_pretrained(str(folder)).get_input_embeddings().weight for folder in (moved, base)]
    assert torch.equal(*rows)  # adapters of linear layers leave the embedding alone


def test_a_stages_output_alone_renders_what_it_was_trained_on(base: Path, tmp_path: Path) -> None:
    from r1pipe.engines.text import load_tokenizer, prompt_ids

    model = make_tiny_model(tmp_path / "model", template=DISTILL)
    summary = sft(tmp_path / "run", model, [("1+1=", RESPONSE)] * 4)
    (tmp_path / "run" / "model").rename(tmp_path / "moved")
    shutil.rmtree(model)
    tokenizer = load_tokenizer(tmp_path / "moved")
    assert tokenizer.decode(prompt_ids(tokenizer, "1+1=", "")) == summary["prompt"] == "<|user|>1+1=<|assistant|><think>\n"
