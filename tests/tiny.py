"""A random model small enough for tests that train: two layers, 32 wide, a byte-level tokenizer, a chat template."""

from __future__ import annotations

import json
from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def make_tiny_model(folder: Path, seed: int = 0, template: str = TEMPLATE) -> Path:
    """Write config, weights, tokenizer and chat template to a folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    vocabulary = {token: index for index, token in enumerate([*specials, *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(specials)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<|pad|>", eos_token="<|end|>", chat_template=template)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, max_position_embeddings=1024,
        eos_token_id=1, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    assert json.loads((folder / "tokenizer_config.json").read_text())
    return folder


def weights_digest(folder: Path) -> str:
    """SHA-256 of a model's weights."""
    import hashlib

    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
