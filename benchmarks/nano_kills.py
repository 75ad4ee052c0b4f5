"""Kill the main job at random moments, resume, and compare R1's weights with an unbroken run of the same seed, bit for bit.

    python benchmarks/nano_kills.py --kills 20 --against runs/nano

Each kill hits, by turns, the worker alone or the whole process tree, with SIGKILL, at a position drawn evenly over the unbroken
run's time: finished steps count with the time they took there, the step at work with the share of it that is done, so that the
kills are spread over the whole run however busy the machine is. No finished step may run again: every step's build id must
survive all later kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from common import R1PIPE, manifests, save, weights


def tree(pid: int) -> list[psutil.Process]:
    """A process's descendants."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def position(run_folder: Path, unbroken: dict[str, dict[str, Any]], begun: float) -> float:
    """Where a run is, in seconds of the unbroken run; `begun` is when the process at work was started."""
    found = manifests(run_folder)
    seconds = 0.0
    for name, manifest in sorted(unbroken.items(), key=lambda item: str(item[1]["started"])):
        wall = float(manifest["wall_seconds"])
        if name in found:
            seconds += wall
            continue
        try:
            progress = json.loads((run_folder / name / "progress.json").read_text())
            share = progress["done"] / progress["total"]
        except (OSError, ValueError, KeyError, ZeroDivisionError):
            share = 0.0
        # within a step's unit, and where a step says nothing, time itself moves on
        return seconds + wall * min(0.99, share) + min(0.1 * wall, time.monotonic() - begun)
    return seconds


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
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="r1pipe-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(arguments.against / "recipe.toml", folder / "recipe.toml")
    run_folder = folder / "runs" / "killed"
    environment = {**os.environ}
    builds: dict[str, str] = {}
    kills = []
    command = [*R1PIPE, "run-all", "--recipe", str(folder / "recipe.toml"), "--run", "killed"]
    for number, moment in enumerate([*moments, None]):
        begun = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        command = [*R1PIPE, "resume", "killed"]
        if moment is None:
            if process.wait():
                raise RuntimeError("the last resume failed")
        else:
            time.sleep(rng.uniform(0.5, 2.0))
            while position(run_folder, unbroken, begun) < moment:
                if process.poll() is not None:
                    raise RuntimeError(f"the run ended with {process.returncode} before it was killed")
                time.sleep(0.2)
            at = position(run_folder, unbroken, begun)
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
            kills.append({"kill": number + 1, "whole_tree": whole, "at": round(at / length, 3), "done": list(found)})
            hit = "whole tree" if whole else "worker"
            print(f"kill {number + 1}: {hit} at {at / length:.0%} of the run; {len(found)} steps done", flush=True)
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
