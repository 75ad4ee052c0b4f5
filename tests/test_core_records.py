"""Files that are replaced in one go, metrics, manifests, run folders and pipelines."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core_helpers import Toy
from toy_pipeline import TOY

from r1pipe.errors import ArtifactError, StateError, StepFailed
from r1pipe.graph import Pipeline
from r1pipe.manifest import changes, read_manifest, write_atomic
from r1pipe.metrics import MetricsTail, MetricsWriter, read_metrics, read_progress, write_progress
from r1pipe.rundir import find_run, free_name, list_runs, newest_run
from r1pipe.runner import create_run
from r1pipe.stage import Output, Step

pytest_plugins = ("core_fixtures",)


def test_a_write_that_fails_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom r1pipe.manifest import write_atomic\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\nwrite_atomic(Path(sys.argv[1]), b'x' * 5000)\n"
    )
    path = tmp_path / "a.json"
    write_atomic(path, b"old")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert f"ArtifactError: {path} could not be written: no space left" in done.stderr
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_metrics_are_read_back_and_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    import numpy

    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({"step": 1, "loss": math.nan, "text": "a\u2028b", "parts": [1.0, math.inf]})
        writer.write({"step": 2, "loss": numpy.float32(0.5), "deep": {"x": -math.inf}})
    assert read_metrics(path) == [
        {"step": 1, "loss": None, "text": "a\u2028b", "parts": [1.0, None]},
        {"step": 2, "loss": 0.5, "deep": {"x": None}},
    ]
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_only_a_torn_last_line_is_forgiven(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert [line["step"] for line in read_metrics(path)] == [1, 2]
    with MetricsWriter(path) as writer:
        writer.write({"step": 2})
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 2]
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl line 2 is not JSON"):
        read_metrics(path)
    path.write_text('{"step": 1}\n3\n')
    with pytest.raises(ArtifactError, match="line 2 is not a JSON object"):
        read_metrics(path)


def test_lines_after_the_checkpoint_are_dropped_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        for step in range(1, 6):
            writer.write({"step": step})
    with MetricsWriter(path) as writer:
        writer.truncate_after(3)
        writer.write({"step": 4, "again": True})
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3}, {"step": 4, "again": True}]


def test_a_tail_gives_whole_lines_once_also_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert list(tail.new_lines()) == []
    path.write_text('{"step": 1}\n{"st')
    assert [line["step"] for line in tail.new_lines()] == [1]
    with path.open("a") as file:
        file.write('ep": 2}\n')
    assert [line["step"] for line in tail.new_lines()] == [2]
    with MetricsWriter(path) as writer:
        writer.truncate_after(1)
        assert list(tail.new_lines()) == []
        writer.write({"step": 2})
    assert [line["step"] for line in tail.new_lines()] == [2]


def test_what_a_killed_write_left_in_an_output_is_removed_before_the_step_goes_on(toy: Toy) -> None:
    toy.set("work.double.fail=ours")
    with pytest.raises(StepFailed):
        toy.execute()
    litter = toy.path("work/double", "model/.part-0.parquet.123.tmp")
    litter.parent.mkdir()
    litter.touch()
    with pytest.raises(StepFailed):
        toy.execute()
    assert not litter.exists()


def test_a_run_whose_making_was_killed_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / ".recipe.toml.1.tmp").touch()
    assert create_run("demo", "x = 1").recipe_path.read_text() == "x = 1"
    with pytest.raises(StateError, match="exists already"):
        create_run("demo", "")


def test_progress_is_replaced_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    assert read_progress(path) == {}
    write_progress(path, {"done": 1, "seconds_left": math.inf})
    assert read_progress(path) == {"done": 1, "seconds_left": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is torn or not ours"),
        (b'{"format": 1, "step": "numbers"', "is torn or not ours"),
        (b"[]", "not a record of this version of r1pipe"),
        (b'{"format": 2}', r"\(format 2, wanted 1\)"),
        (b'{"format": 1, "step": "numbers"}', "is damaged: stage: Field required"),
    ],
)
def test_a_manifest_that_is_not_one_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"manifest\.json {message}|{message}") as caught:
        read_manifest(path)
    assert "manifest.json" in caught.value.problem


def test_every_cut_of_a_manifest_is_noticed(finished: Toy) -> None:
    path = finished.path("numbers", "manifest.json")
    content = path.read_bytes()
    for size in range(0, len(content) - 2, 37):
        path.write_bytes(content[:size])
        with pytest.raises(ArtifactError):
            read_manifest(path)


@pytest.mark.parametrize(
    ("then", "now", "wanted"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 1.0}}, []),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": [1, 2]}, {"a": [2, 1]}, [("a", [1, 2], [2, 1])]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, [("a.b", 1, "(not set)"), ("a.c", 2, 3), ("a.d", "(not set)", 4)]),
        ({"a": {}}, {"a": {"b": 1}}, [("a", {}, "(not set)"), ("a.b", "(not set)", 1)]),
        ({"b": None, "a": "x"}, {"b": 0, "a": "y"}, [("a", "x", "y"), ("b", None, 0)]),
    ],
)
def test_changes_name_each_key_with_both_values(then: dict[str, Any], now: dict[str, Any], wanted: list[Any]) -> None:
    assert changes(then, now) == wanted


def test_runs_are_listed_with_the_last_worked_on_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match="there is no run in runs"):
        newest_run()
    for age, name in enumerate(["c", "a", "b"]):
        os.utime(create_run(name, "").root, (1000 - age, 1000 - age))
    (tmp_path / "runs" / "notes").mkdir()
    for run, when in zip(list_runs(), (900, 800, 700), strict=True):
        run.worked_path.touch()
        os.utime(run.worked_path, (when, when))
        os.utime(run.recipe_path, (when - 100, when - 100))
    (tmp_path / "runs" / "b" / "note.txt").write_text("a look at a run is no work on it")
    assert [run.name for run in list_runs()] == ["c", "a", "b"]
    assert newest_run().name == find_run().name == "c"
    os.utime(tmp_path / "runs" / "a" / "recipe.toml", (1000, 1000))
    assert newest_run().name == "a", "writing its recipe is"
    os.utime(tmp_path / "runs" / "a" / "recipe.toml", (700, 700))
    assert find_run("b").root == Path("runs/b")
    assert find_run(str(tmp_path / "runs" / "b")).name == "b"
    with pytest.raises(StateError, match="no run 'x'") as caught:
        find_run("x")
    assert "runs there: c, a, b" in caught.value.hint
    assert (free_name("x"), free_name("a")) == ("x", "a-2")
    monkeypatch.setenv("R1PIPE_RUNS", str(tmp_path / "elsewhere"))
    assert list_runs() == []


def test_reading_commands_need_neither_torch_nor_the_toml_editor() -> None:
    heavy = ("torch", "transformers", "tomlkit", "pyarrow", "psutil")
    code = f"import sys, r1pipe.runner, r1pipe.recipe; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_runner_knows_no_pipeline() -> None:
    code = "import sys, r1pipe.runner, r1pipe.worker; print('r1pipe.pipeline' in sys.modules, 'r1pipe.stages' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False False"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "work"}, "a stage with steps has no settings of its own"),
        ({"name": "numbers"}, "two steps are called 'numbers'"),
        ({"name": "chat"}, "takes the name of another recipe section"),
        ({"name": "seed"}, "takes the name of another recipe section"),
        ({"folder": "2-work/double/inner"}, "overlap"),
        ({"shares": ("nothing",)}, "shares unknown section 'nothing'"),
        ({"reads": {"x": Output("later", "y")}}, "which does not come before it"),
        ({"reads": {"x": Output("numbers", "y")}}, "which 'numbers' does not write"),
        ({"writes": {"manifest": "json"}}, "which is the runner's"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_when_it_is_made(change: dict[str, Any], problem: str) -> None:
    added: Step = replace(TOY.steps[3], **{"name": "added", "folder": "9-added", "reads": {}, **change})
    with pytest.raises(ValueError, match=problem):
        Pipeline("toy", (*TOY.steps, added), shared=TOY.shared)


def test_readers_are_found_through_other_steps() -> None:
    assert [step.name for step in TOY.readers("numbers")] == ["work/double", "work/total"]
    assert [step.name for step in TOY.readers("start", "work/double")] == ["work/total"]
    assert [step.name for step in TOY.select("work")] == ["work/double", "work/total"]


def test_a_record_is_plain_json_with_a_line_end(finished: Toy) -> None:
    content = finished.path("numbers", "manifest.json").read_text()
    assert content.endswith("}\n")
    assert json.loads(content)["format"] == 1
