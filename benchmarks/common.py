"""What the benchmark scripts share: the machine in words, process trees, results as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

R1PIPE = [sys.executable, "-m", "r1pipe"]
RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, memory and the versions that matter."""
    from importlib.metadata import version

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "trl", "r1pipe")},
    }


def save(name: str, result: dict[str, Any]) -> None:
    """Write benchmarks/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine(), **result}, indent=1, ensure_ascii=False) + "\n")


class PeakMemory:
    """Resident memory of a process and all its descendants, sampled every 0.2 s."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._root = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            total = 0
            try:
                for process in [self._root, *self._root.children(recursive=True)]:
                    try:
                        total += process.memory_full_info().pss
                    except psutil.Error:
                        continue
            except psutil.Error:
                return
            self.peak = max(self.peak, total)

    def stop(self) -> int:
        """Bytes at the peak."""
        self._stop.set()
        self._thread.join()
        return self.peak


def run(arguments: list[str], cwd: Path, prefix: tuple[str, ...] = (), **environment: str) -> tuple[float, int, str]:
    """Run r1pipe in a folder: (wall seconds, peak bytes of the whole tree, output); raises when it fails."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [*prefix, *R1PIPE, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    memory = PeakMemory(process.pid)
    output, _ = process.communicate()
    wall = time.monotonic() - begun
    peak = memory.stop()
    if process.returncode:
        raise RuntimeError(f"r1pipe {' '.join(arguments)} ended with {process.returncode}:\n{output[-3000:]}")
    return wall, peak, output


def manifests(run_folder: Path) -> dict[str, dict[str, Any]]:
    """Step folder -> its manifest."""
    return {
        str(path.parent.relative_to(run_folder)): json.loads(path.read_text())
        for path in sorted(run_folder.rglob("manifest.json"))
    }


def weights(run_folder: Path, step: str = "4-mixed-rl/train") -> str:
    """SHA-256 of a step's weights."""
    import hashlib

    return hashlib.sha256((run_folder / step / "model" / "model.safetensors").read_bytes()).hexdigest()
