"""What every engine promises, held against each on the embedded base: order, seeds, samples, ends, counts, log-probabilities, and
one bad prompt.

The default run has transformers, and the OpenAI protocol over a small server with a model inside. `-m vllm` adds vLLM in this
process and vLLM's own server, `-m ray` a real Ray cluster of this machine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from model_server import small_server, vllm_server

from r1pipe.data.sources import open_source
from r1pipe.engines.base import Completion, Engine, Sampling, open_engine
from r1pipe.pipeline import locate_base

pytestmark = pytest.mark.slow

NANO = locate_base("nano")
NAME = "nano"
KINDS = [
    "transformers",
    "openai",
    pytest.param("vllm", marks=pytest.mark.vllm),
    pytest.param("openai-vllm", marks=pytest.mark.vllm),
    pytest.param("ray-transformers", marks=pytest.mark.ray),
    pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.vllm]),
]
GREEDY = Sampling(1, temperature=0.0, max_tokens=96)
TOLERANCE = 1e-4
"""Nats by which a token's log-probability may differ, in float32."""


@cache
def questions(count: int) -> list[str]:
    """Problems of the embedded source, in its languages and domains."""
    return [row["question"] for row in open_source("nano", "problems", count, 11)][:count]


def opened(kind: str, model: Path, stack: ExitStack, folder: Path) -> Engine:
    """An engine of that kind on a model; the stack closes it."""
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    if kind == "openai":
        patch.setenv("OPENAI_BASE_URL", stack.enter_context(small_server(model)))
    if kind == "openai-vllm":
        patch.setenv("OPENAI_BASE_URL", stack.enter_context(vllm_server(model, NAME, folder / "server.log")))
    name = kind.partition("-vllm")[0]
    named: Path | str = NAME if name == "openai" else model
    engine = open_engine(name, named, system="", batch=16, dtype="float32")
    stack.callback(engine.close)
    return engine


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with ExitStack() as stack:
        yield opened(kind, NANO, stack, tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def reference() -> Iterator[Engine]:
    with ExitStack() as stack:
        yield opened("transformers", NANO, stack, Path())


def made(engine: Engine, asked: list[str], sampling: Sampling) -> list[list[Completion]]:
    return list(engine.generate(asked, sampling))


def shown(found: list[list[Completion]]) -> list[list[tuple[str, int, str]]]:
    return [[(one.text, one.tokens, one.finish) for one in several] for several in found]


def test_greedy_answers_are_those_of_a_plain_generate(engine: Engine, kind: str) -> None:
    """The reference is the library's own `generate`, prompt by prompt; at least 99% of the prompts agree."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    asked = questions(200 if "vllm" in kind or kind == "ray" else 12)
    tokenizer, model = AutoTokenizer.from_pretrained(NANO), AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    wanted = []
    for question in asked:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        row = model.generate(**prompt, do_sample=False, max_new_tokens=GREEDY.max_tokens)[0, prompt["input_ids"].shape[1] :]
        wanted.append(tokenizer.decode(row, skip_special_tokens=True))
    found = [several[0].text for several in made(engine, asked, GREEDY)]
    agree = sum(one == other for one, other in zip(found, wanted, strict=True))
    print(f"\n{kind}: {agree} of {len(asked)} greedy answers are those of generate")
    assert agree >= 0.99 * len(asked)


def test_the_same_seed_gives_the_same_completions_and_another_one_others(engine: Engine) -> None:
    asked, sampling = questions(6), Sampling(2, max_tokens=48, seed=3)
    first = shown(made(engine, asked, sampling))
    assert first == shown(made(engine, asked, sampling))
    other = shown(made(engine, asked, Sampling(2, max_tokens=48, seed=4)))
    assert sum(one != two for one, two in zip(first, other, strict=True)) >= 4


def test_there_are_as_many_samples_as_asked_for_in_the_order_of_the_questions(engine: Engine) -> None:
    asked = questions(4)
    found = made(engine, asked, Sampling(3, max_tokens=32, seed=1))
    assert [len(several) for several in found] == [3, 3, 3, 3]
    assert sum(len({one.text for one in several}) > 1 for several in found) >= 3  # samples of a question are not copies
    alone = [made(engine, [question], Sampling(1, 0.0, max_tokens=32))[0][0].text for question in asked]
    together = [several[0].text for several in made(engine, asked, Sampling(1, 0.0, max_tokens=32))]
    assert together == alone


def test_a_question_that_is_asked_twice_gets_two_answers(engine: Engine) -> None:
    found = made(engine, [questions(1)[0]] * 6, Sampling(1, max_tokens=48, seed=1))
    assert len({several[0].text for several in found}) > 1


def test_a_part_of_a_longer_list_gives_what_the_whole_list_gives(engine: Engine) -> None:
    asked = questions(6)
    whole = shown(made(engine, asked, Sampling(2, max_tokens=32, seed=5)))
    part = shown(made(engine, asked[4:], Sampling(2, max_tokens=32, seed=5, first=4)))
    assert part == whole[4:]


def test_a_completion_ends_before_a_stop_text(engine: Engine) -> None:
    asked = questions(8)
    before = [several[0] for several in made(engine, asked, GREEDY)]
    stop = "\\boxed"
    after = [several[0] for several in made(engine, asked, Sampling(1, 0.0, max_tokens=96, stop=("\x00never", stop)))]
    assert sum(stop in one.text for one in before) >= 2
    for one, other in zip(before, after, strict=True):
        assert other.text == one.text.partition(stop)[0]
        assert other.finish == "stop" or stop not in one.text
        assert other.tokens < one.tokens or stop not in one.text


def test_an_ended_completion_ends_with_an_end_token_that_is_counted_and_not_shown(engine: Engine) -> None:
    found = [one for several in made(engine, questions(8), Sampling(1, 0.0, max_tokens=96, log_probs=True)) for one in several]
    ended = [one for one in found if one.finish == "stop"]
    assert len(ended) >= 6
    for one in ended:
        assert one.ids[-1] == 1
        assert 1 not in one.ids[:-1]
        assert len(one.ids) == one.tokens == len(one.log_probs)
        assert "<|end|>" not in one.text


def test_a_completion_that_is_cut_off_says_so(engine: Engine) -> None:
    found = [several[0] for several in made(engine, questions(4), Sampling(1, 0.0, max_tokens=3))]
    assert {(one.finish, one.tokens) for one in found} == {("length", 3)}


def test_log_probabilities_are_the_models_own_whatever_the_temperature(engine: Engine) -> None:
    """Held against one forward pass over prompt and completion."""
    import torch
    from transformers import AutoModelForCausalLM

    from r1pipe.engines.text import load_tokenizer, prompt_ids

    asked = questions(6)
    found = made(engine, asked, Sampling(2, temperature=0.7, top_p=0.9, max_tokens=40, seed=2, log_probs=True))
    tokenizer, model = load_tokenizer(NANO), AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    worst = 0.0
    for question, several in zip(asked, found, strict=True):
        prompt = prompt_ids(tokenizer, question, "")
        for one in several:
            assert len(one.ids) == len(one.log_probs) == one.tokens > 0
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *one.ids]])).logits[0, len(prompt) - 1 : -1]
            wanted = torch.log_softmax(logits, -1).gather(1, torch.tensor(one.ids).unsqueeze(1)).squeeze(1)
            worst = max(worst, float((wanted - torch.tensor(one.log_probs)).abs().max()))
    print(f"\nlargest difference {worst:.2g} nats")
    assert worst <= TOLERANCE
    assert not made(engine, asked[:1], Sampling(1, 0.0, max_tokens=4))[0][0].log_probs


def test_text_of_any_script_goes_in_and_comes_out(engine: Engine, reference: Engine) -> None:
    asked = ["小明有 3 个苹果，又买了 4 个。一共有几个？", "ποσό 🍎🍎 + 🍎?", "a\u0000b\tc\n\n", "e\u0301 = é, ﷺ", ""]
    found, wanted = made(engine, asked, GREEDY), made(reference, asked, GREEDY)
    assert shown(found) == shown(wanted)


def test_no_questions_give_no_completions(engine: Engine) -> None:
    assert made(engine, [], Sampling(2)) == []


def test_one_bad_prompt_is_a_row_with_its_reason_and_the_others_are_answered(engine: Engine, reference: Engine) -> None:
    good = questions(2)
    found = made(engine, [good[0], "long " * 600, "no text \ud800", good[1]], Sampling(2, 0.0, max_tokens=24))
    assert [[one.finish == "error" for one in several] for several in found] == [[False] * 2, [True] * 2, [True] * 2, [False] * 2]
    assert [found[0][0].text, found[3][0].text] == [
        several[0].text for several in made(reference, good, Sampling(1, 0.0, 1.0, 24))
    ]
    assert all(one.note and not one.text and not one.tokens for several in found[1:3] for one in several)


def test_tokens_are_drawn_with_the_models_probabilities(engine: Engine, kind: str) -> None:
    """First tokens of one question, against the softmax of the model: Pearson's test, rare tokens taken together."""
    import torch
    from scipy.stats import chisquare
    from transformers import AutoModelForCausalLM

    from r1pipe.engines.text import load_tokenizer, prompt_ids

    samples = 64 if kind.startswith("openai") else 1000
    question, model = questions(1)[0], AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt_ids(load_tokenizer(NANO), question, "")])).logits[0, -1]
    for temperature, top_p in ((1.0, 1.0), (2.0, 0.8)):
        wanted = torch.softmax(logits.double() / temperature, -1)
        ordered, order = wanted.sort(descending=True)
        kept = order[(ordered.cumsum(0) - ordered) < top_p]
        wanted = torch.zeros_like(wanted).scatter(0, kept, wanted[kept] / wanted[kept].sum())
        found = made(engine, [question], Sampling(samples, temperature, top_p, 1, seed=9, log_probs=True))[0]
        counts = torch.bincount(torch.tensor([one.ids[0] for one in found]), minlength=len(wanted)).double()
        assert not counts[wanted == 0].any()
        often = samples * wanted >= 5
        bins = [torch.cat([part[often], part[~often].sum().unsqueeze(0)]).numpy() for part in (counts, samples * wanted)]
        assert chisquare(bins[0], bins[1] * bins[0].sum() / bins[1].sum()).pvalue > 1e-5


@pytest.mark.parametrize("name", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_every_end_token_of_the_models_settings_ends_a_completion(name: str, tmp_path: Path) -> None:
    asked = questions(8)
    model = shutil.copytree(NANO, tmp_path / "model")
    with ExitStack() as stack:
        before = made(opened(name, NANO, stack, tmp_path), asked, GREEDY)
    extra = before[0][0].ids[1]
    settings: dict[str, Any] = json.loads((model / "generation_config.json").read_bytes())
    (model / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [1, extra]}))
    with ExitStack() as stack:
        after = made(opened(name, model, stack, tmp_path), asked, GREEDY)
    assert sum(extra in one[0].ids for one in before) >= 2
    for one, other in zip(before, after, strict=True):
        end = one[0].ids.index(extra) + 1 if extra in one[0].ids else len(one[0].ids)
        assert other[0].ids == one[0].ids[:end]
        assert other[0].finish == "stop"
