"""Every method of an RL stage from the same Dev1: what each does to pass@1, and its time beside GRPO's.

    python benchmarks/methods.py --run runs/nano [--seeds 1 2 3] [--methods grpo rft online-rft ...]

The run's cold start must be finished. Its reasoning-rl settings are taken for all methods (sizes, learning rate, lengths,
reference), and each method fills in its own. A training runs in a process of its own on one thread; its time is the CPU time of
the step, without imports and evaluation, so another program on the machine matters little. Checkpoints after a third, two thirds
and all of the steps are sampled on the run's held-out problems, `--samples` answers each, with the recipe's temperature; so is
Dev1. Intervals are over problems; a gain's interval is of the paired differences. "ppo-0.95" is PPO with that λ.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from common import save

METHODS = ("grpo", "rft", "online-rft", "grpo-process", "reinforce-loo", "ppo", "ppo-0.95")
KEPT = ("questions_per_step", "group", "minibatches", "learning_rate", "schedule", "temperature", "max_completion_tokens",
        "refresh_reference", "optimizer")  # fmt: skip
PARTS = 3


def settings_for(found: Any, method: str, steps: int) -> Any:
    """The stage's settings for a method, from those of the run."""
    name, _, lam = method.partition("-0.")
    kept = {key: value for key, value in found.model_dump().items() if key in KEPT}
    if name in ("rft", "online-rft"):
        kept["refresh_reference"] = 0
    ppo = {"ppo": {"gae_lambda": float(f"0.{lam}")}} if lam else {}
    return type(found).model_validate({**kept, **ppo, "method": name, "steps": steps})


def sampled(folder: Path, run: Path, samples: int, problems: int, seed: int) -> dict[str, list[float]]:
    """Problem id -> 1.0 or 0.0 for each of its judged answers, on the run's held-out problems."""
    from r1pipe.data.tables import read_problems
    from r1pipe.engines.base import Sampling, open_engine
    from r1pipe.opening import open_run
    from r1pipe.rewards import Mix
    from r1pipe.stages.sampling import sample_attempts, scored_rows

    recipe = open_run(str(run)).recipe
    config = recipe.configs["evaluate"]
    questions = read_problems(run / "0-prepare" / "evaluation")[:problems]
    engine = open_engine("transformers", folder, system=recipe.shared["chat"].system, batch=None, dtype="auto")
    sampling = Sampling(samples, config.temperature, config.top_p, config.max_tokens, seed=seed)
    made = sample_attempts(engine, questions, sampling)
    engine.close()
    found: dict[str, list[float]] = {}
    for row in scored_rows(Mix.build(recipe.shared["rewards"].rules), made):
        if row["verdict"] in ("right", "wrong"):
            found.setdefault(row["id"], []).append(float(row["verdict"] == "right"))
    return found


def one(arguments: argparse.Namespace) -> None:
    """A training, or only a look at Dev1, in this process; prints its outcome as the last line."""
    import torch

    from r1pipe.opening import open_run
    from r1pipe.recipe import Launch
    from r1pipe.stage import StepContext

    torch.set_num_threads(1)
    method, seed, run = arguments.one, arguments.seeds[0], arguments.run
    dev1 = run / "1-cold-start" / "model"
    evaluation = {"run": run, "samples": arguments.samples, "problems": arguments.problems, "seed": seed}
    if method == "dev1":
        print(json.dumps({"rates": {"0": sampled(dev1, **evaluation)}}))
        return
    opened = open_run(str(run))
    step, found = opened.pipeline.step("reasoning-rl"), opened.recipe.configs["reasoning-rl"]
    steps = arguments.steps or found.steps
    every = steps // PARTS // found.minibatches * found.minibatches
    with tempfile.TemporaryDirectory() as scratch:
        launch = Launch(threads=1, checkpoint_every=every or steps, keep_checkpoints=PARTS, keep_attempts=0)
        context = StepContext(
            step, settings_for(found, method, steps), {name: opened.recipe.shared[name] for name in step.shares}, launch,
            {"policy": dev1, "problems": run / "0-prepare" / "problems"}, {}, Path(scratch), seed,
        )  # fmt: skip
        wall, cpu = time.monotonic(), time.process_time()
        summary = step.run(context)
        seconds = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
        folders = {int(path.name.rsplit("-", 1)[1]): path for path in Path(scratch).glob("checkpoints/checkpoint-*")}
        folders[steps] = Path(scratch) / "model"
        rates = {str(number): sampled(folder, **evaluation) for number, folder in sorted(folders.items())}
    print(json.dumps({"seconds": seconds, "rates": rates, "objective": summary["objective"]}))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of the mean of independent differences (Student's t)."""
    from r1pipe.intervals import student_quantile

    middle = fmean(values)
    spread = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))
    half = student_quantile(0.975, len(values) - 1) * spread
    return middle - half, middle + half


def shares(rates: dict[str, list[float]]) -> dict[str, float]:
    """Problem -> pass@1."""
    return {name: fmean(marks) for name, marks in rates.items()}


def compared(start: dict[str, list[float]], outcome: dict[str, Any]) -> dict[str, Any]:
    """One training: pass@1 with its interval at each checkpoint, and the gain over Dev1."""
    from r1pipe.intervals import share_interval

    before, table = shares(start), {}
    for number, rates in outcome["rates"].items():
        after = shares(rates)
        gains = [after[name] - before[name] for name in before if name in after]
        table[number] = {
            "pass_at_1": fmean(after.values()), "interval": share_interval(list(after.values())),
            "gain": fmean(gains), "gain_interval": interval(gains),
        }  # fmt: skip
    return {**{key: value for key, value in outcome.items() if key != "rates"}, "checkpoints": table}


def main() -> None:
    """Train, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a run whose cold start is finished")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=int, default=0, help="optimizer steps; 0 takes the run's own number")
    parser.add_argument("--samples", type=int, default=4, help="answers per held-out problem")
    parser.add_argument("--problems", type=int, default=256, help="held-out problems")
    parser.add_argument("--name", default="methods", help="of the file of results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.run = arguments.run.resolve()
    if arguments.one:
        one(arguments)
        return
    report: dict[str, Any] = {"samples": arguments.samples, "problems": arguments.problems, "runs": []}
    for seed in arguments.seeds:
        passed = ["--run", str(arguments.run), "--seeds", str(seed), "--steps", str(arguments.steps)]
        passed += ["--samples", str(arguments.samples), "--problems", str(arguments.problems)]
        outcomes: dict[str, Any] = {}
        for method in ("dev1", *arguments.methods):
            command = [sys.executable, __file__, *passed, "--one", method]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{method} with seed {seed} failed:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
            outcomes[method] = json.loads(done.stdout.splitlines()[-1])
            start = outcomes["dev1"]["rates"]["0"]
            if method == "dev1":
                print(f"seed {seed}: dev1 pass@1 {fmean(shares(start).values()):.3f}", flush=True)
                continue
            row = {"seed": seed, "method": method, "dev1": fmean(shares(start).values()), **compared(start, outcomes[method])}
            report["runs"].append(row)
            tell(row, outcomes.get("grpo"))
            save(arguments.name, {**report, "summary": summed(report["runs"])})
    for method, line in summed(report["runs"]).items():
        print(f"{method:14} {json.dumps(line)}")


def tell(row: dict[str, Any], grpo: dict[str, Any] | None) -> None:
    """One line for a person."""
    curve = " → ".join(f"{found['pass_at_1']:.3f}" for found in row["checkpoints"].values())
    last = list(row["checkpoints"].values())[-1]
    low, high = last["gain_interval"]
    ratio = f", {row['seconds']['cpu'] / grpo['seconds']['cpu']:.2f} × GRPO" if grpo else ""
    print(
        f"  {row['method']:14} {curve}, gain {last['gain']:+.3f} [{low:+.3f}, {high:+.3f}], "
        f"{row['seconds']['cpu']:.0f} s CPU{ratio}",
        flush=True,
    )


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Method -> means over its seeds, the range of its gains, and its time over that of GRPO with the same seed."""
    grpo = {row["seed"]: row["seconds"]["cpu"] for row in rows if row["method"] == "grpo"}
    result: dict[str, Any] = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        last = [list(row["checkpoints"].values())[-1] for row in mine]
        numbers = list(mine[0]["checkpoints"])
        ratios = [row["seconds"]["cpu"] / grpo[row["seed"]] for row in mine if row["seed"] in grpo]
        gains = [found["gain"] for found in last]
        result[method] = {
            "seeds": len(mine),
            "pass_at_1": {number: round(fmean(row["checkpoints"][number]["pass_at_1"] for row in mine), 4) for number in numbers},
            "gain": round(fmean(gains), 4),
            "gain_over_seeds": [round(value, 4) for value in interval(gains)] if len(gains) > 1 else None,
            "gain_above_interval": sum(found["gain_interval"][0] > 0 for found in last),
            "time_over_grpo": round(fmean(ratios), 3) if ratios else None,
        }
    return result


if __name__ == "__main__":
    main()
