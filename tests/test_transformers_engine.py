"""The embedded engine: what a row becomes does not depend on the batch around it, and ends where training ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_train_numbers import SIZES, trained
from tiny import TEMPLATE, make_tiny_model

from r1pipe.engines.base import Sampling, open_engine

pytestmark = pytest.mark.slow

QUESTIONS = [f"{'a' * (7 * n % 23)} {n}+1=" for n in range(30)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def windowed(folder: Path) -> Path:
    """A model whose attention sees the last 16 tokens only: its cache is of another kind, which rows leave but do not join."""
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM

    make_tiny_model(folder)
    words = len(AutoTokenizer.from_pretrained(folder))
    config = MistralConfig(
        vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=16, sliding_window=16, max_position_embeddings=512, eos_token_id=1, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(folder)
    return folder


def completions(model: Path, batch: int, sampling: Sampling, questions: list[str] = QUESTIONS) -> list[Any]:
    engine = open_engine("transformers", model, system="", batch=batch, dtype="float32")
    found = [one for several in engine.generate(questions, sampling) for one in several]
    engine.close()
    return found


def test_what_is_generated_beside_a_completion_changes_nothing_of_it(tiny: Path) -> None:
    """Batches of 3, in which rows leave and join all the time, against one batch for everything; ends are frequent."""
    settings = json.loads((tiny / "generation_config.json").read_bytes())
    (tiny / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [1, *range(200, 215)]}))
    sampling = Sampling(2, max_tokens=40, seed=5, log_probs=True)
    few, many = completions(tiny, 3, sampling), completions(tiny, 64, sampling)
    assert len({one.tokens for one in few}) > 10
    same = sum(one.ids == other.ids for one, other in zip(few, many, strict=True))
    assert same >= len(few) - 1  # the last bits of the arithmetic may differ with the shape of the batch
    for one, other in zip(few, many, strict=True):
        if one.ids == other.ids:
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


@pytest.mark.parametrize("kind", ["full", "windowed"])
def test_greedy_completions_are_those_of_generate_for_every_kind_of_cache(kind: str, tiny: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny if kind == "full" else windowed(tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = completions(folder, 4, Sampling(1, 0.0, max_tokens=40))
    ends = model.generation_config.eos_token_id
    for question, one in zip(QUESTIONS, found, strict=True):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        row = model.generate(**prompt, do_sample=False, max_new_tokens=40, eos_token_id=ends)[0, prompt["input_ids"].shape[1] :]
        assert one.ids == tuple(row.tolist())


@pytest.mark.parametrize(("top_p", "kept"), [(1.0, [0, 1, 2, 3]), (0.8, [0, 1, 3]), (0.4, [1]), (0.6, [1, 3])])
def test_a_number_picks_the_token_in_whose_stretch_it_falls(top_p: float, kept: list[int]) -> None:
    import numpy
    import torch

    from r1pipe.engines.decoding import draw

    probabilities = numpy.array([0.15, 0.5, 0.1, 0.25])
    count = 4000
    numbers = (numpy.arange(count) + 0.5) / count  # evenly spread: counts are the probabilities, with no chance in them
    chosen = draw(torch.tensor(numpy.log(probabilities)).float().repeat(count, 1), top_p, torch.tensor(numbers)).numpy()
    wanted = numpy.array([share if token in kept else 0.0 for token, share in enumerate(probabilities)])
    assert numpy.bincount(chosen, minlength=4) == pytest.approx(count * wanted / wanted.sum(), abs=1.01)


def test_the_ends_of_the_numbers_pick_tokens_that_can_be() -> None:
    import torch

    from r1pipe.engines.decoding import draw

    logits = torch.tensor([[float("-inf"), 0.0, 1.0, float("-inf")]]).repeat(2, 1)
    assert draw(logits, 1.0, torch.tensor([0.0, 1.0 - 2.0**-32], dtype=torch.float64)).tolist() == [1, 2]


def test_training_and_sampling_end_answers_at_the_same_tokens(tmp_path: Path) -> None:
    from r1pipe.engines.text import end_tokens, load_tokenizer
    from r1pipe.train.settings import GrpoSettings

    model = make_tiny_model(tmp_path / "model", template=TEMPLATE)
    extra = list(range(100, 160))
    settings = json.loads((model / "generation_config.json").read_bytes())
    (model / "generation_config.json").write_text(
        json.dumps({**settings, "eos_token_id": extra})
    )  # the tokenizer's own is missing
    ends = {1, *extra}
    assert set(end_tokens(load_tokenizer(model), model)) == ends
    (model / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [1, *extra]}))
    run = trained(model, tmp_path / "rl", GrpoSettings.model_validate({**SIZES, "steps": 2, "refresh_reference": 0, "kl": 0}))
    rows = run.rollout(0)
    assert {row["finish"] for row in rows} == {"stop", "length"}
    answers = [answer for rollout in run.seen.rollouts for answer in rollout.answers]
    sampled = [list(one.ids) for one in completions(model, 8, Sampling(1, max_tokens=12))]
    for ids in [*answers, *sampled]:
        assert not ends & set(ids[:-1])
        assert ids[-1] in ends or len(ids) == 12


def test_a_trainer_that_ends_answers_elsewhere_is_an_error_that_names_both() -> None:
    from types import SimpleNamespace

    from r1pipe.errors import TrainingError
    from r1pipe.train.agreement import agreed_ends

    assert agreed_ends(SimpleNamespace(eos_token_ids=[7, 1]), (1, 7)) == {1, 7}
    with pytest.raises(TrainingError, match=r"\[1\] and sampling at \[1, 7\]"):
        agreed_ends(SimpleNamespace(eos_token_ids=[1]), (1, 7))
