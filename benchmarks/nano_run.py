"""The main job, several seeds: wall time, peak memory, and the checkpoint table; how much of it is orchestration.

    python benchmarks/nano_run.py --seeds 1 2 3
    python benchmarks/nano_run.py --recipe nano-full --seeds 1      # R1-Zero first, cold-start traces made from it

Goals of the main job: at most 15 minutes on two idle cores, at most 4 GB; pass@1 of R1 at least 0.75 and three times the
base's, format and language consistency at least 0.97 at Dev2 and R1. Orchestration, which is the time of the run that no
step's own process spent, under 5%. Goal of nano-full: at most 30 minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import manifests, run, save

IMPORTS = "import torch, transformers, trl"


def import_seconds() -> float:
    """What importing torch, transformers and trl's trainers costs one process here."""
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "from trl import GRPOTrainer, SFTTrainer, RewardTrainer"], check=True, capture_output=True
    )
    return time.monotonic() - begun


def main() -> None:
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--recipe", default="nano")
    parser.add_argument("--no-network", action="store_true", help="run in an empty network namespace (needs root)")
    parser.add_argument("--set", dest="sets", nargs="*", default=[], help="further settings, e.g. launch.threads=1")
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="r1pipe-nano-"))
    folder.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        name = f"{arguments.recipe}-{seed}"
        imports = import_seconds()
        settings = [word for value in [f"seed={seed}", *arguments.sets] for word in ("--set", value)]
        prefix = ("unshare", "--net", "--") if arguments.no_network else ()
        wall, peak, _ = run(["run-all", "--recipe", arguments.recipe, "--run", name, *settings], folder, prefix)
        run_folder = folder / "runs" / name
        steps = manifests(run_folder)
        again, _, _ = run(["run-all", "--run", name], folder)
        table = json.loads(next(run_folder.glob("*-evaluate/results.json")).read_text())["checkpoints"]
        inside = sum(step["wall_seconds"] for step in steps.values())
        result: dict[str, Any] = {
            "seed": seed, "recipe": arguments.recipe, "no_network": arguments.no_network, "sets": arguments.sets,
            "wall_seconds": round(wall, 1), "peak_bytes": peak, "second_run_all_seconds": round(again, 2),
            "import_seconds": round(imports, 1),
            "step_seconds": {name: round(step["wall_seconds"], 1) for name, step in steps.items()},
            "outside_steps_share": round((wall - inside) / wall, 4), "table": table,
        }  # fmt: skip
        results.append(result)
        print(f"seed {seed}: {wall / 60:.1f} min, peak {peak / 1e9:.2f} GB, outside steps {result['outside_steps_share']:.1%}")
        for checkpoint, row in table.items():
            low, high = row["pass_at_1_interval"]
            rules = f"format {row['format']:.3f} language {row['language']:.3f}"
            print(f"  {checkpoint:5} pass@1 {row['pass_at_1']:.3f} [{low:.3f}, {high:.3f}] {rules}")
        save("-".join(["nano_run", arguments.recipe, *map(str, arguments.seeds)]), {"runs": results})
    if arguments.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
