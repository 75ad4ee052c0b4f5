"""doctor, check, verify and audit: what is there, what is not right before a model is loaded, what a checker says."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from cli_helpers import copy_of_finished, finished_folder, r1pipe
from scripted_chain import HOSTILE, write_model

from r1pipe import machine
from r1pipe.engines import needs

NANO = Path(__file__).parents[1] / "r1pipe/recipes/nano.toml"

INTEL = "model name\t: Some CPU\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16\n"
ARM = "Features\t: fp asimd bf16\n"


# --- doctor


@pytest.mark.parametrize(("text", "flags"), [(INTEL, {"avx2", "avx512_bf16"}), (ARM, {"asimd", "bf16"}), ("", set())])
def test_vector_units_are_read_from_the_processor(text: str, flags: set[str]) -> None:
    assert flags <= machine.cpu_flags(text)
    assert machine.cpu_flags(text) <= set(text.split())


def driver(folder: Path, text: str, code: int = 0) -> str:
    """A PATH whose nvidia-smi prints that text."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    tool.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_gpu_with_bf16_decides_the_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", driver(tmp_path, "NVIDIA H100, 81559 MiB, 9.0, 550.1"))
    gpus = list(machine.gpu_facts())
    assert [fact.found for fact in gpus] == ["NVIDIA H100, 81559 MiB, 9.0, 550.1"]
    assert machine.dtype_fact(gpus).found.startswith("bfloat16")


def test_an_old_gpu_or_none_means_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", driver(tmp_path, "Tesla T4, 15360 MiB, 7.5, 550.1"))
    assert machine.dtype_fact(list(machine.gpu_facts())).found.startswith("float32")
    assert machine.dtype_fact([]).found.startswith("float32")


def test_several_gpus_and_one_process_are_worth_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", driver(tmp_path, "NVIDIA A100, 1 MiB, 8.0, 1\nNVIDIA A100, 1 MiB, 8.0, 1"))
    last = list(machine.gpu_facts())[-1]
    assert last.state == "warning"
    assert "processes = 2" in last.hint


def test_a_driver_that_fails_is_a_warning_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", driver(tmp_path, "Driver/library version mismatch", 18))
    (fact,) = machine.gpu_facts()
    assert fact.state == "warning"
    assert "mismatch" in fact.found


def test_supported_ranges_are_those_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((NANO.parents[2] / "pyproject.toml").read_text())["project"]
    wanted = machine.requirements()
    assert len([name for name, (_, optional) in wanted.items() if not optional]) == len(project["dependencies"])
    assert not wanted["torch"][1]
    assert wanted["vllm"][1]
    for line in project["dependencies"]:
        assert any(line.startswith(name) for name in wanted), line


@pytest.mark.parametrize(
    ("found", "specifier", "inside"),
    [("1.16.0", ">=1.16,<1.17", True), ("1.17.0", ">=1.16,<1.17", False), ("2.13.0+cpu", ">=2.11", True)],
)
def test_a_version_is_held_against_its_range(found: str, specifier: str, inside: bool) -> None:
    assert needs.inside(found, specifier) is inside


def test_doctor_ends_with_a_verdict_and_says_what_it_chose(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, "doctor")
    for words in ("python", "torch", "trl", "cores", "memory", "disk", "GPU", "bubblewrap", "dtype", "offline"):
        assert words in done.out
    data = json.loads(r1pipe(tmp_path, "doctor", "--json").out)
    assert done.code == int(not data["ok"]) == int(any(fact["state"] == "missing" for fact in data["facts"]))
    assert done.out.rstrip().splitlines()[-1].startswith("ok" if data["ok"] else "needed and missing")


def test_doctor_fails_where_runs_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = r1pipe(tmp_path, "doctor")
    assert done.code == 1
    assert "R1PIPE_RUNS" in done.out


# --- check


def check(folder: Path, text: str) -> tuple[int, str]:
    (folder / "my.toml").write_text(text)
    done = r1pipe(folder, "check", "my.toml", columns=200)
    return done.code, done.out + done.err


def test_a_right_recipe_passes(tmp_path: Path) -> None:
    code, out = check(tmp_path, NANO.read_text())
    assert code == 0
    assert out.rstrip().endswith("ok")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('model = "nano"', 'model = "nano"\ndigest = "0123456789abcdef"', "the recipe pins 0123456789abcdef"),
        ('model = "nano"', 'model = "models/none"', "none"),
        ("[rejection-sft.sample]", '[rejection-sft.sample]\nengine = "transformer"', "did you mean 'transformers'"),
        ('accuracy = { name = "accuracy" }', 'accuracy = { name = "acuracy" }', "did you mean 'accuracy'"),
        ("[reasoning-rl]", "[reasoning-rl]\ngroup = 4", "is given twice, on lines"),
        ('traces = { source = "nano"', 'traces = { source = "gone.jsonl"', "there is no file gone.jsonl"),
        ('traces = { source = "nano"', 'traces = { source = "nanu"', "did you mean 'nano'"),
        ('traces = { source = "nano"', 'traces = { source = "no_such_module:rows"', "no_such_module"),
    ],
)
def test_what_is_not_right_is_found_before_anything_is_loaded(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = NANO.read_text()
    assert old in text
    code, out = check(tmp_path, text.replace(old, new))
    assert code in (1, 2)
    assert words in out
    assert code == 1 or "my.toml" in out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", [["run-all"], ["run-all", "--until", "prepare"]])
def test_run_all_does_the_quick_checks_of_what_it_would_run_and_starts_nothing(tmp_path: Path, command: list[str]) -> None:
    text = NANO.read_text().replace('traces = { source = "nano"', 'traces = { source = "gone.jsonl"')
    (tmp_path / "my.toml").write_text(
        re.sub("questions_per_step = .*", "questions_per_step = 15", text).replace("[launch]", "[launch]\nprocesses = 7")
    )
    done = r1pipe(tmp_path, *command, "--recipe", "my.toml")
    assert done.code == 2
    assert "prepare: there is no file gone.jsonl" in done.err
    assert ("cannot be split over 7 processes" in done.err) == (len(command) == 1)
    assert not (tmp_path / "runs").exists()


def test_a_batch_that_cannot_be_split_is_found(tmp_path: Path) -> None:
    code, out = check(tmp_path, NANO.read_text().replace("[launch]", "[launch]\nprocesses = 7"))
    assert code == 1
    assert "cannot be split over 7 processes" in out


def test_a_file_without_a_needed_column_is_found_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text('{"question": "1+1?", "answer": "2", "solution": "..."}\n')
    text = NANO.read_text().replace('traces = { source = "nano"', 'traces = { source = "traces.jsonl"')
    code, out = check(tmp_path, text)
    assert code == 1
    assert "traces.jsonl, line 1: column 'thinking' is missing" in out


def test_thinking_tags_that_decoding_would_strip_are_found(tmp_path: Path) -> None:
    write_model(tmp_path / "base", 3)
    tokens = [{"content": "<think>", "special": True}, {"content": "</think>", "special": False}]
    (tmp_path / "base/tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
    code, out = check(tmp_path, NANO.read_text().replace('model = "nano"', f'model = "{tmp_path}/base"'))
    assert code == 1
    assert "<think> as special tokens" in out
    assert "'special': false" in out


def test_check_of_a_run_compares_its_files_with_the_manifests(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    assert r1pipe(folder, "check", "nano", "--contents").code == 0
    weights = folder / "runs/nano/2-reasoning-rl/model/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert r1pipe(folder, "check", "nano").code == 0  # the size is the same
    done = r1pipe(folder, "check", "nano", "--contents", columns=200)
    assert done.code == 1
    assert "model.safetensors was altered" in done.out
    again = "r1pipe run-all --run nano --redo reasoning-rl   makes it again and what was made from it: rejection-sft/sample, "
    found = json.loads(r1pipe(folder, "check", "nano", "--contents", "--json").out)["facts"]
    assert [fact["hint"].startswith(again) for fact in found if fact["state"] == "missing"] == [True]
    assert r1pipe(folder, "fork", "nano", "other", "--before", "evaluate").code == 0
    hints = [fact["hint"] for fact in json.loads(r1pipe(folder, "check", "nano", "--contents", "--json").out)["facts"]]
    shared = (
        "r1pipe fork nano nano-2 --before reasoning-rl   makes it anew beside this one, which other shares; or put the files back"
    )
    assert shared in hints


def test_check_as_json(tmp_path: Path) -> None:
    data = json.loads(r1pipe(finished_folder(), "check", "nano", "--json").out)
    assert data["ok"] is True
    assert {fact["group"] for fact in data["facts"]} == {"recipe", "steps", "run"}


# --- verify, audit


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    rows = [
        {"id": "a", "question": "1+1?", "answer": "2", "completion": "<think>x</think>\\boxed{2}", "expected": True},
        {"id": "b", "question": HOSTILE[0], "answer": "3", "completion": HOSTILE[1] + "\\boxed{4}", "expected": True},
        {"id": "c", "question": "1+3?", "answer": "4", "completion": "no idea", "expected": False},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_verify_judges_a_file_and_shows_what_is_not_right_first(answers: Path) -> None:
    done = r1pipe(answers, "verify", "rows.jsonl", "--domain", "maths", "--expected", "expected")
    assert done.code == 0
    assert done.out.index(" b ") < done.out.index(" a ")
    assert "answered 4, wanted 3" in done.out
    data = json.loads(r1pipe(answers, "verify", "rows.jsonl", "--domain", "maths", "--expected", "expected", "--json").out)
    assert {key: data["summary"][key] for key in ("rows", "right", "wrong", "unjudged", "false_rejects")} == {
        "rows": 3, "right": 1, "wrong": 2, "unjudged": 0, "false_rejects": 1,
    }  # fmt: skip
    assert [row["verdict"] for row in data["rows"]] == ["right", "wrong", "wrong"]


def test_audit_tries_gold_answers_and_hostile_responses(answers: Path) -> None:
    done = r1pipe(answers, "audit", "rows.jsonl", "--domain", "maths")
    assert done.code == 0
    assert "hostile responses passed for right" in done.out
    data = json.loads(r1pipe(answers, "audit", "rows.jsonl", "--domain", "maths", "--json").out)
    assert data["summary"] == {"rows": 3, "gold_right": 3, "gold_wrong": 0, "unjudgeable": 0}
    assert data["hostile"]["tried"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "rows.jsonl", "--domain", "math"], "did you mean 'maths'"),
        (["verify", "gone.jsonl", "--domain", "maths"], "there is no file gone.jsonl"),
        (["verify", "rows.jsonl", "--domain", "maths", "--completion", "response"], "there is no column 'response'"),
    ],
)
def test_a_mistake_in_verify_is_two_lines(answers: Path, arguments: list[str], words: str) -> None:
    done = r1pipe(answers, *arguments)
    assert done.code in (1, 2)
    assert words in done.err
    assert done.err.startswith("error ")
