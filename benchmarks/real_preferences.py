"""Reward models on real text: trained on real pairs from a small real language model, as stage 4 trains them, and measured.

    python benchmarks/real_preferences.py --model FOLDER --pairs hh.jsonl helpful.jsonl [--labels safety.jsonl]
    python benchmarks/real_preferences.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --pairs …

Files in any of the public forms that `prepare` reads (docs/stage-4.md). Rows longer than --max-tokens are left out, a share of
the questions is held out, and the model is trained with adapters; what is printed is the held-out accuracy with its 95% interval,
the same on pairs of matched length and by file, calibration, and how far scores follow length. Goal: above chance at 95%. A GGUF
file is unpacked to a float32 checkpoint first (needs the package gguf).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import save


def unpack(gguf: Path, folder: Path) -> Path:
    """A GGUF file as a model folder that can be trained."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(str(folder))
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    for name, value in (("hf_quantizer", None), ("quantization_method", None), ("is_quantized", False)):
        if hasattr(model, name):
            setattr(model, name, value)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(str(folder))
    return folder


def table(files: list[Path], kind: Any, target: Path, limit: int, safe: list[Path], response: str) -> dict[str, Any]:
    """The rows of the files as `prepare` would have them, the file's name in the place of the language; counts of what was left
    out."""
    from r1pipe.data.tables import LABEL_COLUMNS, PAIR_COLUMNS, write_table
    from r1pipe.stages.schema import SourceSpec, normalised, raw_rows

    columns = PAIR_COLUMNS if kind == "pairs" else LABEL_COLUMNS
    dropped: Counter[str] = Counter()
    rows = []
    for path in [*files, *safe]:
        spec = SourceSpec(source=str(path), count=limit, bad_rows="skip")
        if path in safe:
            spec = spec.model_copy(update={"values": {"safe": "1"}, "fields": {"response": response}})
        for row in raw_rows(spec, kind, 1, lambda where, why, row: dropped.update([why])):
            whole = normalised(row, kind, {}, spec.values)
            rows.append({**{name: whole[name] for name in columns}, "language": path.stem})
    write_table(target, rows, columns)
    return {"rows": len(rows), "dropped": dict(dropped)}


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a causal language model with a chat template")
    parser.add_argument("--gguf", type=Path, help="or a GGUF file")
    parser.add_argument("--pairs", type=Path, nargs="+", default=[])
    parser.add_argument("--labels", type=Path, nargs="+", default=[])
    parser.add_argument("--safe", type=Path, nargs="+", default=[], help="files of responses that are all safe, such as XSTest's")
    parser.add_argument("--response", default="response", help="their column with the response")
    parser.add_argument("--limit", type=int, default=0, help="rows of each file; 0: all")
    parser.add_argument("--max-tokens", type=int, default=192, help="of question and answer")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--rank", type=int, default=8, help="of the adapters; 0 trains all weights")
    parser.add_argument("--held-out", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    if not (chosen.model or chosen.gguf) or not (chosen.pairs or chosen.labels):
        parser.error("name a model (--model or --gguf) and files (--pairs or --labels)")
    import torch

    from r1pipe.pipeline import REWARD_MODELS
    from r1pipe.recipe import Launch
    from r1pipe.stage import StepContext
    from r1pipe.stages import mixed_rl
    from r1pipe.stages.mixed_rl import reward_model
    from r1pipe.stages.sections import ChatSection

    torch.set_num_threads(chosen.threads)
    report: dict[str, Any] = {"arguments": {key: str(value) for key, value in vars(chosen).items()}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        base = chosen.model or unpack(chosen.gguf, folder / "base")
        settings = {
            "epochs": chosen.epochs, "batch": chosen.batch, "max_tokens": chosen.max_tokens,
            "learning_rate": chosen.learning_rate,
            "held_out_share": chosen.held_out, "min_accuracy_above": 0.0,
            "lora": {"rank": chosen.rank, "alpha": 2.0 * chosen.rank} if chosen.rank else None,
        }  # fmt: skip
        config = mixed_rl.RewardModelsConfig(helpfulness=settings, safety=settings)
        launch = Launch(threads=chosen.threads, micro_batch=chosen.micro_batch, checkpoint_every=10_000)
        for kind, name, files in (("helpfulness", "pairs", chosen.pairs), ("safety", "labels", chosen.labels)):
            if not files:
                continue
            safe = chosen.safe if name == "labels" else []
            read = table(files, name, folder / name, chosen.limit, safe, chosen.response)
            inputs = {"base": base, name: folder / name}
            context = StepContext(
                REWARD_MODELS, config, {"chat": ChatSection()}, launch, inputs, dict.fromkeys(inputs, "d"), folder, chosen.seed
            )
            begun = time.monotonic()
            found = reward_model(context, getattr(config, kind), kind, folder / name)  # type: ignore[arg-type]
            found["seconds"] = time.monotonic() - begun
            report[name] = {"read": read, **found}
            low, high = found["accuracy_interval"]
            print(f"{name}: {json.dumps({key: value for key, value in report[name].items() if key != 'calibration'}, indent=1)}")
            print(
                f"{name}: held-out accuracy {found['accuracy']:.3f} ({low:.3f} to {high:.3f}), {found['held_out']} rows: "
                f"{'above' if low > 0.5 else 'not above'} chance at 95%",
                flush=True,
            )
    save("real_preferences", report)


if __name__ == "__main__":
    main()
