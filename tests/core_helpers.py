"""Runs of the toy pipelines for the tests of the core."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import toy_pipeline

from r1pipe.graph import Pipeline
from r1pipe.manifest import Manifest
from r1pipe.observer import Observer
from r1pipe.recipe import Recipe, apply_sets, load_recipe
from r1pipe.rundir import RunDir
from r1pipe.runner import StepPlan, create_run, execute, plan

LOADER = "toy_pipeline:load"


def write_safetensors(path: Path, content: bytes = b"abcd") -> None:
    """A weights file with one tensor of bytes."""
    header = json.dumps({"weight": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)


def write_model(folder: Path, content: bytes = b"abcd") -> Path:
    """A folder that passes for a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    write_safetensors(folder / "model.safetensors", content)
    return folder


@dataclass
class Toy:
    """A run of a toy pipeline."""

    run: RunDir
    pipeline: Pipeline
    tally_path: Path
    notices: list[str] = field(default_factory=list)

    @property
    def recipe(self) -> Recipe:
        return load_recipe(self.run.recipe_path, self.pipeline)

    def set(self, *sets: str) -> None:
        """Edit the run's recipe."""
        self.run.recipe_path.write_text(apply_sets(self.run.recipe_path.read_text(), sets, self.pipeline))

    def execute(self, **options: Any) -> list[Manifest]:
        return execute(
            self.run, self.pipeline, self.recipe, loader=LOADER, observer=Observer(notice=self.notices.append), **options
        )

    def plan(self, pipeline: Pipeline | None = None) -> list[StepPlan]:
        chosen = pipeline or self.pipeline
        return plan(self.run, chosen, load_recipe(self.run.recipe_path, chosen))

    def states(self) -> dict[str, str]:
        return {place.step.name: place.state for place in self.plan()}

    def tally(self) -> Counter[str]:
        """How often each step was run, over all processes."""
        return Counter(self.tally_path.read_text().split()) if self.tally_path.exists() else Counter()

    def path(self, step: str, name: str = "") -> Path:
        return self.run.step_dir(self.pipeline.step(step)) / name


def make_toy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline = toy_pipeline.TOY, sets: Sequence[str] = ()
) -> Toy:
    """A fresh run called "demo" in `tmp_path/runs`; the base model lies in `tmp_path/base`."""
    write_model(tmp_path / "base")
    text = f'name = "demo"\npipeline = "{pipeline.name}"\nseed = 3\n\n[base]\nmodel = "base"  # a folder here\n'
    create_run("demo", apply_sets(text, sets, pipeline), tmp_path / "runs")
    return open_toy(tmp_path, monkeypatch, pipeline)


def open_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline = toy_pipeline.TOY) -> Toy:
    """The run called "demo" in `tmp_path/runs`, with `tmp_path` as the current folder."""
    here = Path(__file__).parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here.parent), str(here)]))
    monkeypatch.setenv(toy_pipeline.TALLY, str(tmp_path / "tally"))
    return Toy(RunDir(Path("runs/demo")), pipeline, tmp_path / "tally")


def drive(pipeline: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a runner in a process (and process group) of its own, in the current folder; see core_driver.py."""
    driver = Path(__file__).parent / "core_driver.py"
    return subprocess.Popen(
        [sys.executable, str(driver), pipeline, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
