"""Pre-train the embedded default base model, `nano`, and write it to `r1pipe/models/nano`.

    python scripts/pretrain_nano.py                       reproduces the shipped weights (same machine type, two threads)
    python scripts/pretrain_nano.py --tokens 2e6 --out x  a short trial

A Qwen3-type model of under a million parameters learns a generated corpus (`r1pipe.data.nano.corpus`) of English and Chinese problems
with responses of mixed quality. The tokenizer is a byte-level BPE learned from the same corpus: single digits are never merged, the
thinking tags and the opening of a box are ordinary tokens, and merges may cross spaces, so that fixed phrases are few tokens.

Documents are batched by length, one document a row, so that nothing attends across documents and positions are those of use.
Everything is fp32 on the CPU. The record of the run (`pretraining.json`) is written next to the weights.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from r1pipe.data.nano.corpus import SCHOOL, WORLD, corpus

HERE = Path(__file__).resolve().parent.parent / "r1pipe" / "models" / "nano"
PAD, END, ROLES = "<|pad|>", "<|end|>", ["<|system|>", "<|user|>", "<|assistant|>"]
CONTEXT = 512


def make_tokenizer(texts: list[str], vocabulary: int, template: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE over the texts; only the end, padding and role markers are special."""
    core = Tokenizer(models.BPE())
    apart = Regex(r"</?think>|\\boxed\{|[0-9]")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(apart, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=30,
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=ROLES,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = template
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, width: int, layers: int, hidden: int) -> Qwen3ForCausalLM:
    """The untrained model."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        initializer_range=0.02,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True, temperature=1.0, top_k=0, top_p=1.0
    )
    return model


def documents(seed: int, count: int, school: float) -> list[list[tuple[str, str]]]:
    """The two parts of the corpus as (prompt, response) texts, rendered as the chat template does, the end marker included."""
    first = int(count * school)
    parts = [corpus(f"{seed} school", first, SCHOOL), corpus(f"{seed} world", count - first, WORLD)]
    return [[(f"<|user|>{q}<|assistant|>" if q else "", f"{a}{END}") for q, a in part] for part in parts]


def encode(tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]]) -> list[tuple[list[int], int]]:
    """Token ids of each document and the length of its prompt."""
    prompts = tokenizer([p for p, _ in pairs], add_special_tokens=False)["input_ids"]
    responses = tokenizer([r for _, r in pairs], add_special_tokens=False)["input_ids"]
    return [(p + r, len(p)) for p, r in zip(prompts, responses, strict=True)]


def batches(rows: list[tuple[list[int], int]], tokens: int, seed: int) -> list[list[tuple[list[int], int]]]:
    """Rows in batches of about so many tokens: similar lengths together, batches in random order."""
    order = random.Random(seed)
    order.shuffle(rows)
    made: list[list[tuple[list[int], int]]] = []
    for start in range(0, len(rows), 4096):
        batch: list[tuple[list[int], int]] = []
        pool = []
        for row in sorted(rows[start : start + 4096], key=lambda r: len(r[0])):
            if batch and (len(batch) + 1) * len(row[0]) > tokens:
                pool.append(batch)
                batch = []
            batch.append(row)
        pool.append(batch)
        order.shuffle(pool)
        made += pool
    return made


def tensors(batch: list[tuple[list[int], int]], pad: int, prompt_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids padded on the right, and the weight of each position's prediction of the next token."""
    length = max(len(ids) for ids, _ in batch)
    ids = torch.full((len(batch), length), pad)
    weights = torch.zeros(len(batch), length - 1)
    for i, (row, prompt) in enumerate(batch):
        ids[i, : len(row)] = torch.tensor(row)
        weights[i, : len(row) - 1] = 1.0
        weights[i, : max(0, prompt - 1)] = prompt_weight
    return ids, weights


def train(model: Qwen3ForCausalLM, plan: list[list[tuple[list[int], int]]], args: argparse.Namespace, pad: int) -> dict[str, float]:
    """One pass over the batches; AdamW, cosine to a tenth of a percent."""
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate, betas=(0.9, 0.98))
    warm = min(150, len(plan) // 10 + 1)
    begun, seen, recent = time.time(), 0, []
    model.train()
    for step, batch in enumerate(plan):
        share = step / len(plan)
        scale = min(1.0, (step + 1) / warm) * (0.5 * (1 + math.cos(math.pi * share)) * 0.99 + 0.01)
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * scale
        ids, weights = tensors(batch, pad, args.prompt_weight)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        flat = weights.flatten()
        loss = (losses * flat).sum() / flat.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        answered = (flat == 1.0).float()
        recent.append(float((losses.detach() * answered).sum() / answered.sum()))
        seen += sum(len(r) for r, _ in batch)
        if step % 50 == 49 or step + 1 == len(plan):
            spent = time.time() - begun
            left = spent / (step + 1) * (len(plan) - step - 1)
            mean = sum(recent[-200:]) / len(recent[-200:])
            print(f"step {step + 1}/{len(plan)} loss {mean:.4f} tokens {seen / 1e6:.2f}M {seen / spent:.0f}/s left {left:.0f}s", flush=True)
    return {"tokens": seen, "steps": len(plan), "final_loss": round(sum(recent[-200:]) / len(recent[-200:]), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=lambda s: int(float(s)), default=250_000)
    parser.add_argument("--school", type=float, default=0.65)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=768)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch-tokens", type=int, default=1536)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--prompt-weight", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    begun = time.time()
    parts = documents(args.seed, args.documents, args.school)
    sample = [p + r for part in parts for p, r in part[:15_000]]
    tokenizer = make_tokenizer(sample, args.vocabulary, (HERE / "chat_template.jinja").read_text())
    rows = [encode(tokenizer, part) for part in parts]
    lengths = [(len(ids), prompt) for part in rows for ids, prompt in part]
    mean, asked = (sum(column) / len(lengths) for column in zip(*lengths, strict=True))
    print(f"{len(lengths)} documents, {mean:.1f} tokens each, {asked:.1f} of them the prompt, {time.time() - begun:.0f}s", flush=True)
    plan = [batch for part in rows for batch in batches(part, args.batch_tokens, args.seed)]
    model = make_model(tokenizer, args.width, args.layers, args.hidden)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    result = train(model, plan, args, tokenizer.pad_token_id)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    settings = {k: v for k, v in vars(args).items() if k != "out"}
    record = {"settings": settings, "parameters": sum(p.numel() for p in model.parameters()), **result}
    (args.out / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"done in {time.time() - begun:.0f}s", flush=True)


if __name__ == "__main__":
    main()
