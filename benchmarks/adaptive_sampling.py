"""Rounds with early stop against a fixed number of samples: problems and traces kept, and tokens, on the same problems.

    python benchmarks/adaptive_sampling.py --policy runs/nano/2-reasoning-rl/model

Both go through the sampling step as it is (real engine, real rewards, shards on disk) and through the selection's own rules.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import save

from r1pipe.data.tables import PROBLEM_COLUMNS, problem_row, read_table, write_table
from r1pipe.pipeline import load, locate_base
from r1pipe.recipe import Launch
from r1pipe.stage import StepContext
from r1pipe.stages.keeping import KeepSection, pick_best, why_dropped
from r1pipe.stages.sampling import SampleConfig, sample
from r1pipe.stages.sections import ChatSection, RewardsSection


def kept(folder: Path, keep: int) -> tuple[int, int]:
    """(problems, traces) that the selection would keep."""
    usable: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_table(folder):
        if not why_dropped(row, KeepSection(keep_per_problem=keep)):
            usable[row["id"]].append(row)
    return len(usable), sum(sum(not reason for _, reason in pick_best(rows, keep)) for rows in usable.values())


def measure(folder: Path, policy: Path, problems: Path, seed: int, keep: int, **settings: Any) -> dict[str, Any]:
    """One sampling step, and what it keeps."""
    config = SampleConfig.model_validate({"max_tokens": 96, "problems_per_shard": 256, **settings})
    step = load("r1").step("rejection-sft/sample")
    shared = {"chat": ChatSection(), "rewards": RewardsSection()}
    inputs = {"problems": problems, "policy": policy}
    summary = sample(StepContext(step, config, shared, Launch(), inputs, {}, folder, seed))
    found, traces = kept(folder / "attempts", keep)
    return {
        **settings, "keep": keep, "problems_kept": found, "traces": traces, "tokens": summary["tokens"],
        "attempts": summary["attempts"], "ended": summary["problems_ended"],
    }  # fmt: skip


def told(found: dict[str, Any]) -> str:
    return f"{found['problems_kept']} problems, {found['traces']} traces, {found['tokens']:,} tokens"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, default=None, help="model folder; by default the embedded base")
    parser.add_argument("--problems", type=int, default=512)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--keep", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    policy = arguments.policy or locate_base("nano")
    results = []
    with tempfile.TemporaryDirectory() as work:
        for seed in arguments.seeds:
            from r1pipe.data.nano.problems import problems as nano_problems

            table = Path(work) / f"problems-{seed}"
            write_table(table, map(problem_row, nano_problems(arguments.problems, seed)), PROBLEM_COLUMNS)
            fixed_folder = Path(work) / f"fixed-{seed}"
            for keep in arguments.keep:
                fixed = measure(fixed_folder, policy, table, seed, keep, samples=arguments.samples)
                most = arguments.samples + arguments.samples // 2
                rounds = measure(
                    Path(work) / f"rounds-{seed}-{keep}", policy, table, seed, keep, samples=most,
                    adaptive={"enough": keep, "hopeless_after": most},
                )  # fmt: skip
                ratio = rounds["tokens"] / fixed["tokens"]
                results.append({"seed": seed, "fixed": fixed, "rounds": rounds, "token_ratio": round(ratio, 4)})
                print(
                    f"seed {seed}, keep {keep}: fixed {arguments.samples}: {told(fixed)}; "
                    f"rounds, at most {most}: {told(rounds)}; ratio {ratio:.3f}",
                    flush=True,
                )
    save("adaptive_sampling", {"policy": policy.name, "problems": arguments.problems, "results": results})


if __name__ == "__main__":
    main()
