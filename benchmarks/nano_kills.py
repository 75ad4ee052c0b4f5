"""Kill the main job at random moments, resume, and compare R1's weights with an unbroken run of the same seed, bit for bit.

    python benchmarks/nano_kills.py --kills 20 --against runs/nano

Each kill hits, by turns, the worker alone or the whole process tree, with SIGKILL, at a moment drawn evenly over the unbroken
run's time. No finished step may run again: every step's build id must survive all later kills.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
from common import R1PIPE, manifests, save, weights


def tree(pid: int) -> list[psutil.Process]:
    """A process's descendants."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def main() -> None:
    """Run, kill, resume, compare, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--against", type=Path, required=True, help="the unbroken run's folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    unbroken = manifests(arguments.against)
    length = sum(step["wall_seconds"] for step in unbroken.values())
    moments = sorted(rng.uniform(0.01, 0.99) * length for _ in range(arguments.kills))
    gaps = [after - before for before, after in zip([0.0, *moments], moments, strict=False)]
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="r1pipe-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(arguments.against / "recipe.toml", folder / "recipe.toml")
    run_folder = folder / "runs" / "killed"
    environment = {**os.environ}
    builds: dict[str, str] = {}
    kills = []
    command = [*R1PIPE, "run-all", "--recipe", str(folder / "recipe.toml"), "--run", "killed"]
    for number, gap in enumerate([*gaps, None]):
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        command = [*R1PIPE, "resume", "killed"]
        if gap is None:
            if process.wait():
                raise RuntimeError("the last resume failed")
        else:
            # a resumed process first starts again and repeats what lay after its checkpoint; give it that time on top
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(gap, 1.0) + (12 if number else 0))
            victims = tree(process.pid)
            whole = number % 2 == 1
            for victim in victims if not whole else [psutil.Process(process.pid), *victims]:
                try:
                    victim.kill()
                except psutil.Error:
                    continue
            time.sleep(0.2)
            if whole or process.poll() is None:
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            found = manifests(run_folder)
            kills.append({"kill": number + 1, "whole_tree": whole, "done": list(found)})
            print(f"kill {number + 1}: {'whole tree' if whole else 'worker'}; {len(found)} steps done", flush=True)
        for step, manifest in manifests(run_folder).items():
            if builds.setdefault(step, manifest["build"]) != manifest["build"]:
                raise AssertionError(f"{step} was done and ran again")
    same = weights(run_folder) == weights(arguments.against)
    print(f"R1 after {arguments.kills} kills {'is bit-identical to' if same else 'DIFFERS from'} the unbroken run")
    attempts = {name: manifest.get("attempts") for name, manifest in manifests(run_folder).items()}
    save("nano_kills", {"kills": kills, "attempts": attempts, "bit_identical": same, "weights_sha256": weights(run_folder)})
    print(json.dumps(attempts))
    if arguments.keep is None:
        shutil.rmtree(folder)
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
