"""The files of the embedded base model: what the rest of the project relies on, read without torch."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

import jinja2
import pytest
from tokenizers import Tokenizer

from r1pipe.data.chat import join_response, messages, split_response

FOLDER = Path(__file__).resolve().parent.parent / "r1pipe" / "models" / "nano"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def read_json(name: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((FOLDER / name).read_text())
    return loaded


def test_the_weights_are_fp32_and_small() -> None:
    path = FOLDER / "model.safetensors"
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    assert {entry["dtype"] for entry in tensors.values()} == {"F32"}
    assert sum(prod(entry["shape"]) for entry in tensors.values()) == read_json("pretraining.json")["parameters"]
    assert sum(prod(entry["shape"]) for entry in tensors.values()) < 2_000_000
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 8 * 2**20


@pytest.mark.parametrize("text", ["<think>", "</think>", "\\boxed{"])
def test_tags_and_boxes_are_one_ordinary_token_each(tokenizer: Tokenizer, text: str) -> None:
    assert len(tokenizer.encode(text).ids) == 1
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True) == text


def test_a_response_survives_decoding_without_special_tokens(tokenizer: Tokenizer) -> None:
    response = join_response("先算加法：23+45=68。Wait, let me check.", "The answer is \\boxed{68}.")
    ids = tokenizer.encode(response + "<|end|>").ids
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert decoded == response
    assert split_response(decoded).faults == ()


def test_digits_are_never_merged(tokenizer: Tokenizer) -> None:
    assert not [token for token in tokenizer.get_vocab() if len(token) > 1 and set(token) & set("0123456789")]
    assert len(tokenizer.encode("1234567890").ids) == 10


@pytest.mark.parametrize("text", ["naïve café", "日本語テスト", "🙂 tabs\tand\nlines", "  spaces  ", "x² ≤ 3/4"])
def test_any_text_survives_the_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_end_token_is_the_same_everywhere_and_is_not_the_padding(tokenizer: Tokenizer) -> None:
    end, padding = tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|pad|>")
    assert end != padding
    for name in ("config.json", "generation_config.json"):
        assert (read_json(name)["eos_token_id"], read_json(name)["pad_token_id"]) == (end, padding)
    settings = read_json("tokenizer_config.json")
    assert (settings["eos_token"], settings["pad_token"]) == ("<|end|>", "<|pad|>")


def test_the_template_renders_turns_as_in_pre_training_and_opens_no_thinking() -> None:
    template = jinja2.Environment().from_string((FOLDER / "chat_template.jinja").read_text())
    prompt = template.render(messages=messages("1 + 1 = ?"), add_generation_prompt=True)
    assert prompt == "<|user|>1 + 1 = ?<|assistant|>"
    turns = [*messages("1 + 1 = ?"), {"role": "assistant", "content": "2"}]
    assert template.render(messages=turns) == prompt + "2<|end|>"


def test_the_record_of_pre_training_names_no_place() -> None:
    text = (FOLDER / "pretraining.json").read_text()
    assert "/" not in text
    assert {"settings", "parameters", "tokens", "final_loss"} <= set(json.loads(text))
