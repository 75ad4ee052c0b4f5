"""Pre-train the embedded default base model, `nano`, and write it to `r1pipe/models/nano`.

    python scripts/pretrain_nano.py                             reproduces the shipped weights
    python scripts/pretrain_nano.py --documents 2e4 --out FOLDER   a short trial

A Qwen3-type model of under a million parameters learns a generated corpus (`r1pipe.data.nano.corpus`) of English and Chinese
problems: first a part with mostly right work, where the arithmetic is learned, then a part of mixed quality, which sets the
habits. The tokenizer is a byte-level BPE learned from the same corpus: single digits are never merged, the thinking tags and the
opening of a box are ordinary tokens, and merges may cross spaces, so that fixed phrases are few tokens.

Documents are batched by length, one document a row, so that nothing attends across documents and positions are those of use.
Everything is fp32 on the CPU. The record of the run (`pretraining.json`) is written next to the weights.
"""

from __future__ import annotations

import argparse
import json
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
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
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


class Muon(torch.optim.Optimizer):
    """Momentum whose updates of matrices are orthogonalised; learns this corpus in under half of AdamW's tokens.

    torch.optim.Muon does the Newton-Schulz iteration in bf16, which a CPU without bf16 arithmetic does hundreds of times
    slower; this one does it in fp32, all matrices of one shape together.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update from the gradients."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[tuple[torch.Tensor, torch.Tensor]]] = {}
            for weight in group["params"]:
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - group["momentum"])
                update = weight.grad.lerp(momentum, group["momentum"])
                tall = update.shape[0] > update.shape[1]
                rows, columns = sorted(update.shape)
                by_shape.setdefault((rows, columns), []).append((weight, update.T if tall else update))
            for pairs in by_shape.values():
                updates = orthogonal(torch.stack([update for _, update in pairs]))
                for (weight, _), update in zip(pairs, updates, strict=True):
                    tall = weight.shape[0] > weight.shape[1]
                    scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                    weight.add_(update.T if tall else update, alpha=-group["lr"] * scale)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices with their singular values brought near one: five steps of the quintic Newton-Schulz iteration."""
    matrices = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = matrices @ matrices.mT
        matrices = 3.4445 * matrices + (-4.7750 * square + 2.0315 * square @ square) @ matrices
    return matrices


def make_optimizers(model: Qwen3ForCausalLM, learning_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    named = dict(model.named_parameters())
    inner = [p for name, p in named.items() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in named.items() if p.dim() != 2 or "embed" in name]
    return [Muon(inner, lr=learning_rate), torch.optim.AdamW(others, lr=learning_rate / 5, betas=(0.9, 0.98), weight_decay=0.0)]


def train(
    model: Qwen3ForCausalLM, plans: list[list[list[tuple[list[int], int]]]], args: argparse.Namespace, pad: int
) -> dict[str, float]:
    """One pass over the batches of both parts: steady learning rate in the first, linear to zero over the second."""
    optimizers = make_optimizers(model, args.learning_rate)
    base = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    plan = [batch for part in plans for batch in part]
    first, last = len(plans[0]), len(plans[1])
    begun, seen, recent = time.time(), 0, []
    start = 0
    if args.state is not None and args.state.exists():
        saved = torch.load(args.state)
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        start, seen = first, saved["seen"]
    model.train()
    for step in range(start, len(plan)):
        batch = plan[step]
        if step == first and start == 0 and args.state is not None:
            state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "seen": seen}
            torch.save(state, args.state)
        scale = min(1.0, (step + 1) / 60) if step < first else 1.0 - (step - first) / last
        for optimizer, rates in zip(optimizers, base, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * scale
        ids, weights = tensors(batch, pad, args.prompt_weight)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        flat = weights.flatten()
        ((losses * flat).sum() / flat.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        answered = (flat == 1.0).float()
        recent.append(float((losses.detach() * answered).sum() / answered.sum()))
        seen += sum(len(r) for r, _ in batch)
        if step % 50 == 49 or step + 1 == len(plan):
            spent = time.time() - begun
            left = spent / (step + 1 - start) * (len(plan) - step - 1)
            mean = sum(recent[-100:]) / len(recent[-100:])
            print(f"step {step + 1}/{len(plan)} loss {mean:.4f} tokens {seen / 1e6:.2f}M left {left:.0f}s", flush=True)
    return {"tokens": seen, "steps": len(plan), "final_loss": round(sum(recent[-200:]) / len(recent[-200:]), 4)}


def main() -> None:
    """Make the corpus, the tokenizer and the model; train; write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=lambda s: int(float(s)), default=90_000)
    parser.add_argument("--school", type=float, default=0.67)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=768)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch-tokens", type=int, default=1536)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--prompt-weight", type=float, default=0.1)
    parser.add_argument("--state", type=Path, help="file to keep the state after the first part in, and to go on from")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    begun = time.time()
    parts = documents(args.seed, args.documents, args.school)
    sample = [p + r for p, r in parts[0][:20_000]]
    tokenizer = make_tokenizer(sample, args.vocabulary, (HERE / "chat_template.jinja").read_text())
    rows = [encode(tokenizer, part) for part in parts]
    lengths = [(len(ids), prompt) for part in rows for ids, prompt in part]
    mean, asked = (sum(column) / len(lengths) for column in zip(*lengths, strict=True))
    print(
        f"{len(lengths)} documents, {mean:.1f} tokens each, {asked:.1f} of them the prompt, {time.time() - begun:.0f}s",
        flush=True,
    )
    plans = [batches(part, args.batch_tokens, args.seed) for part in rows]
    model = make_model(tokenizer, args.width, args.layers, args.hidden)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    result = train(model, plans, args, tokenizer.pad_token_id)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "state")}
    record = {"settings": settings, "parameters": sum(p.numel() for p in model.parameters()), **result}
    (args.out / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"done in {time.time() - begun:.0f}s", flush=True)


if __name__ == "__main__":
    main()
