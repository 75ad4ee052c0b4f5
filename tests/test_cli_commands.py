"""The commands as a user types them, on the scripted chain: run, stop, go on, look, change a setting, break a recipe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_helpers import copy_of_finished, environment, finished_folder, r1pipe

# --- a finished run


def test_run_all_on_a_finished_run_does_nothing_and_shows_the_table() -> None:
    folder = finished_folder()
    manifests = {path: path.stat().st_mtime_ns for path in (folder / "runs/nano").rglob("manifest.json")}
    begin = time.monotonic()
    done = r1pipe(folder, "run-all")
    assert done.code == 0
    assert time.monotonic() - begin < 3
    assert "9 of 9 steps done" in done.out
    for words in ("pass@1", "Base", "Dev1", "Dev2", "Dev3", "R1", "0.820–0.880"):
        assert words in done.out
    assert "r1pipe inspect mixed-rl/train" in done.out
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs/nano").rglob("manifest.json")} == manifests
    assert len(manifests) == 9


def test_status_shows_steps_lineage_and_the_one_base() -> None:
    done = r1pipe(finished_folder(), "status")
    assert done.code == 0
    assert "Base ── cold-start ──▶ Dev1 ── reasoning-rl ──▶ Dev2" in done.out
    assert "Base ── rejection-sft/train ──▶ Dev3 ── mixed-rl/train ──▶ R1" in done.out
    assert "Dev3 learns from what Dev2 wrote" in done.out
    assert "the same clean base" in done.out
    assert done.out.count("✓") == 9


def test_status_as_json_names_states_builds_and_lineage() -> None:
    data = json.loads(r1pipe(finished_folder(), "status", "--json").out)
    assert data["finished"] is True
    assert [step["state"] for step in data["steps"]] == ["done"] * 9
    assert data["lineage"]["chains"] == [["Base", "Dev1", "Dev2"], ["Base", "Dev3", "R1"]]
    assert len(set(data["lineage"]["base"].values())) == 1
    assert len({step["build"] for step in data["steps"]}) == 9


@pytest.mark.parametrize("columns", [40, 80, 140])
@pytest.mark.parametrize(
    "command", [["status"], ["inspect"], ["plan"], ["inspect", "reasoning-rl"], ["inspect", "evaluate/results"]]
)
def test_views_fit_the_width(command: list[str], columns: int) -> None:
    from rich.cells import cell_len

    done = r1pipe(finished_folder(), *command, columns=columns)
    assert done.code == 0
    wide = [line for line in done.out.split("\n") if cell_len(line) > columns and not line.startswith("next") and columns >= 80]
    assert wide == []


def test_inspect_of_a_step_shows_record_settings_inputs_outputs_and_plots() -> None:
    done = r1pipe(finished_folder(), "inspect", "reasoning-rl")
    for words in (
        "reasoning-rl → Dev2", "build", "seed 1", "learning_rate", "cold-start/model", "digest", "accuracy  0.250 → 0.800",
        "no signal  0.750 → 0.200", "KL", "always", "r1pipe inspect reasoning-rl/rollouts",
    ):  # fmt: skip
        assert words in done.out
    assert any(0x2800 < ord(character) <= 0x28FF for character in done.out)


def test_inspect_of_a_step_as_json_holds_the_numbers() -> None:
    data = json.loads(r1pipe(finished_folder(), "inspect", "reasoning-rl", "--json").out)
    assert data["settings"]["learning_rate"] == data["manifest"]["settings"]["reasoning-rl"]["learning_rate"]
    assert data["metrics"]["metrics"]["rewards.accuracy"]["values"][-1] == pytest.approx(0.8)
    assert "rollouts" in data["artifacts"]


def test_inspect_of_a_selection_counts_the_reasons() -> None:
    done = r1pipe(finished_folder(), "inspect", "rejection-sft/select/report")
    assert "mixed language" in done.out
    assert "format: no thinking tags [/x]" in done.out


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("rejection-sft", "rejection-sft/select"), ("reasoning-rl/model", "model.safetensors"),
        ("reasoning-rl/log", "starting at step 0 of 12"), ("reasoning-rl/manifest", "outputs"),
        ("evaluate/results", "pass@1 by domain"), ("mixed-rl/reward-models", "metrics safety"),
    ],
)  # fmt: skip
def test_inspect_opens_whatever_is_named(what: str, words: str) -> None:
    done = r1pipe(finished_folder(), "inspect", what)
    assert (done.code, done.err) == (0, "")
    assert words in done.out


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["inspect", "resoning-rl"], "no step or stage 'resoning-rl'", "did you mean 'reasoning-rl'"),
        (["inspect", "mixed-rl/tran"], "stage mixed-rl has no step 'tran'", "mixed-rl/train"),
        (["inspect", "reasoning-rl/rolouts"], "nothing called 'rolouts'", "did you mean 'rollouts'"),
        (["inspect", "cold-start", "--verdict", "wrong"], "needs a table", "reasoning-rl/rollouts"),
        (["inspect", "reasoning-rl/rollouts", "--row", "99999"], "no row 99999", "its rows are 0 to"),
        (["status", "nanu"], "no run 'nanu'", "nano"),
        (["run-all", "--recipe", "nanoo"], "recipe 'nanoo'", "did you mean 'nano'"),
        (["run-all", "--recipe", "gone.toml"], "no such file", "r1pipe recipes"),
        (["run-all", "--set", "reasoning-rl.stepz=3"], "unknown key 'stepz'", "did you mean 'steps'"),
        (["run-all", "--set", "reasoning-rl.kl"], "there is no '='", "--set section.key=value"),
        (["run-all", "--until", "sampel"], "no step or stage 'sampel'", ""),
    ],
)
def test_a_mistake_is_named_with_what_to_type(arguments: list[str], problem: str, hint: str) -> None:
    done = r1pipe(finished_folder(), *arguments)
    assert done.code in (1, 2)
    assert done.err.startswith("error ")
    assert "\nhint  " in done.err
    assert problem in done.err
    assert hint in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_the_traceback_is_there_when_it_is_asked_for() -> None:
    done = r1pipe(finished_folder(), "status", "nanu", R1PIPE_DEBUG="1")
    assert "Traceback" in done.err
    assert "error there is no run" in done.err


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity"])
def test_a_setting_that_is_not_finite_is_refused(tmp_path: Path, number: str) -> None:
    done = r1pipe(tmp_path, "run-all", "--set", f"reasoning-rl.kl={number.removesuffix('inity').lower()}")
    assert done.code == 2
    assert "finite" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_are_not_finite_are_refused(number: str) -> None:
    done = r1pipe(finished_folder(), "inspect", "reasoning-rl/rollouts", "--below", number)
    assert done.code == 2
    assert "finite" in done.err


def test_output_into_a_closed_pipe_is_no_crash() -> None:
    folder = finished_folder()
    process = subprocess.Popen(
        [sys.executable, "-m", "r1pipe", "inspect", "reasoning-rl/rollouts", "--limit", "200", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=environment(folder),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.wait(60)
    process.stderr.close()
    assert "Traceback" not in errors


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_is_no_crash(closed: str) -> None:
    folder = finished_folder()
    line = f"{sys.executable} -m r1pipe status {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=folder, env=environment(folder))
    assert done.returncode == 0
    assert "Traceback" not in done.stderr + done.stdout


# --- before a run


def test_a_newcomer_is_told_what_to_type(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, columns=80)
    assert done.code == 0
    assert "r1pipe plan" in done.out
    assert "r1pipe run-all" in done.out
    assert list(tmp_path.iterdir()) == []


def test_plan_of_a_run_that_does_not_exist_writes_nothing(tmp_path: Path) -> None:
    sets = ["--set=reasoning-rl.steps=80", "--set=reasoning-rl.minibatches=2", "--set=reasoning-rl.refresh_reference=0"]
    done = r1pipe(tmp_path, "plan", *sets)
    assert done.code == 0
    assert "80 steps = 40 rollouts × 2 minibatches" in done.out
    assert "9 steps would run; nothing has started" in done.out
    data = json.loads(r1pipe(tmp_path, "plan", "--json").out)
    assert [step["would"] for step in data["steps"]] == ["runs"] * 9
    assert data["exists"] is False
    assert list(tmp_path.iterdir()) == []


def test_recipes_are_listed_and_printed(tmp_path: Path) -> None:
    assert "nano" in r1pipe(tmp_path, "recipes").out
    assert "nano" in [recipe["name"] for recipe in json.loads(r1pipe(tmp_path, "recipes", "--json").out)]
    printed = r1pipe(tmp_path, "recipes", "nano").out
    assert printed == (Path(__file__).parents[1] / "r1pipe/recipes/nano.toml").read_text()


def test_init_writes_a_recipe_once_and_refuses_to_overwrite(tmp_path: Path) -> None:
    assert r1pipe(tmp_path, "init", "my.toml").code == 0
    before = (tmp_path / "my.toml").read_text()
    done = r1pipe(tmp_path, "init", "my.toml")
    assert done.code == 2
    assert "exists already" in done.err
    assert (tmp_path / "my.toml").read_text() == before
    assert r1pipe(tmp_path, "plan", "--recipe", "my.toml").code == 0


def test_a_broken_recipe_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "r1pipe/recipes/nano.toml").read_text()
    (tmp_path / "bad.toml").write_text(re.sub("learning_rate = .*", 'learning_rate = "fast"', text, count=1))
    done = r1pipe(tmp_path, "run-all", "--recipe", "bad.toml")
    assert done.code == 2
    assert "bad.toml line" in done.err
    assert not (tmp_path / "runs").exists()


def test_a_runs_recipe_saved_by_another_editor_is_read_or_named(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    recipe = folder / "runs/nano/recipe.toml"
    text = recipe.read_bytes()
    recipe.write_bytes(b"\xef\xbb\xbf" + text)
    assert r1pipe(folder, "status").code == 0
    assert "9 of 9 steps done" in r1pipe(folder, "run-all").out
    recipe.write_bytes(b"# caf\xe9\n" + text)
    for command in ("status", "run-all", "plan"):
        done = r1pipe(folder, command)
        assert (done.code, "recipe.toml is not UTF-8 text (byte 5)" in done.err) == (2, True)


@pytest.mark.parametrize("setting", ["reasoning-rl.steps=0", "reasoning-rl.steps=-4", "mixed-rl.train.steps=0", f"seed={2**32}"])
def test_steps_and_seeds_that_the_trainers_would_read_otherwise_are_refused(tmp_path: Path, setting: str) -> None:
    done = r1pipe(tmp_path, "plan", "--recipe", "nano", "--set", setting)
    assert done.code == 2
    assert f"--set {setting}" in done.err


def test_settings_that_disagree_are_named_with_their_section_and_what_was_typed(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, "plan", "--recipe", "nano-zero", "--set", "zero.train.clip_high=0.28", columns=400)
    assert done.code == 2
    assert "[zero.train] with --set zero.train.clip_high=0.28: clip_high (0.28) is below clip (10.0)" in done.err


def test_a_stage_that_the_recipe_leaves_out_is_said_when_the_run_begins(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "r1pipe/recipes/nano.toml").read_text()
    shorter = re.sub(r"\[reasoning-rl\].*?(?=\n\[)", "", text, flags=re.DOTALL)
    assert shorter != text
    (tmp_path / "short.toml").write_text(shorter)
    small = ["--set", "prepare.problems.count=20", "--until", "prepare"]
    done = r1pipe(tmp_path, "run-all", "--recipe", "short.toml", *small, columns=200)
    assert done.code == 0
    assert "the recipe has no [reasoning-rl]: all settings there are defaults, at the paper's scale" in done.err
    (tmp_path / "full.toml").write_text(text)
    assert "the recipe has no" not in r1pipe(tmp_path, "run-all", "--recipe", "full.toml", "--run", "full", *small).err


OPTIONS = {
    "run-all": {"--recipe", "--run", "--set", "--until", "--redo", "--plain"},
    "run": {"--run", "--set", "--redo", "--plain"},
    "resume": {"--plain", "--until"},
    "fork": {"--before", "--set"},
    "plan": {"--recipe", "--run", "--set", "--settings", "--json"},
    "status": {"--json"},
    "inspect": {
        "--run", "--reward", "--below", "--above", "--verdict", "--domain", "--language", "--find", "--part", "--limit", "--row",
        "--id", "--sql", "--json",
    },
    "recipes": {"--json"},
    "init": {"--recipe"},
    "doctor": {"--json"},
    "check": {"--contents", "--json"},
    "verify-resume": {"--run", "--keep", "--json"},
    "verify": {"--domain", "--gold", "--completion", "--expected", "--limit", "--json"},
    "audit": {"--domain", "--gold", "--limit", "--json"},
    "judge": {"--engine", "--json", "--kind", "--margin", "--model", "--seed", "--temperature", "--votes"},
    "report": {"--against", "--out", "--serve", "--port", "--json"},
    "watch": {"--plain"},
    "eval": {
        "--batch", "--domain", "--engine", "--gold", "--json", "--limit", "--max-tokens", "--on", "--out", "--run", "--samples",
        "--seed", "--temperature", "--top-p",
    },
    "chat": {"--ask", "--engine", "--fold", "--max-tokens", "--run", "--temperature", "--top-p"},
    "export": {"--json", "--run"},
    "data": set(),
    "lab": set(),
}  # fmt: skip
"""Every command and option. A new one is a promise to keep; settings belong into the recipe."""


def test_the_options_are_these_and_no_others(tmp_path: Path) -> None:
    shown = r1pipe(tmp_path, "--help").out
    assert set(re.findall(r"^│ ([a-z][a-z-]*) ", shown, re.MULTILINE)) == set(OPTIONS)
    for command, options in OPTIONS.items():
        lines = r1pipe(tmp_path, command, "--help", columns=80).out.splitlines()
        assert {word for line in lines for word in re.findall(r"^│ \*?\s*(--[a-z-]+)", line)} - {"--help"} == options, command
        assert max(map(len, lines)) <= 80
    lines = r1pipe(tmp_path, "data", "preview", "--help", columns=80).out.splitlines()
    assert {word for line in lines for word in re.findall(r"^│ \*?\s*(--[a-z-]+)", line)} - {"--help"} == {
        "--recipe", "--table", "--field", "--value", "--count", "--revision", "--subset", "--split", "--limit", "--json",
    }  # fmt: skip


def test_version(tmp_path: Path) -> None:
    from r1pipe import __version__

    assert r1pipe(tmp_path, "--version").out == f"r1pipe {__version__}\n"


# --- running


def test_a_step_that_reads_what_is_not_there_says_what_to_run(tmp_path: Path) -> None:
    assert r1pipe(tmp_path, "run-all", "--until", "prepare").code == 0
    done = r1pipe(tmp_path, "run", "reasoning-rl")
    assert done.code == 1
    assert "cold-start" in done.err
    assert "r1pipe run cold-start" in done.err
    assert r1pipe(tmp_path, "run", "cold-start").code == 0
    status = json.loads(r1pipe(tmp_path, "status", "--json").out)
    assert [step["state"] for step in status["steps"]][:3] == ["done", "done", "todo"]


def test_a_step_that_fails_is_two_lines_with_the_log_and_goes_on_after(tmp_path: Path) -> None:
    done = r1pipe(tmp_path, "run-all", "--until", "cold-start", R1PIPE_SCRIPTED_FAIL="cold-start")
    assert done.code == 1
    assert "the loss of step 3 is nan [/red]" in done.err
    assert "lower the learning rate" in done.err
    assert "attempt-1.log" in done.err
    assert "Traceback" not in done.err
    shown = r1pipe(tmp_path, "inspect", "cold-start")
    assert "attempt 1 failed" in shown.out
    assert "the loss of step 3 is nan [/red]" in shown.out
    assert r1pipe(tmp_path, "run-all", "--until", "cold-start").code == 0


def test_a_setting_changed_late_blocks_with_the_difference_and_the_commands(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    done = r1pipe(folder, "run-all", "--set", "rejection-sft.select.max_repetition=0.31")
    assert done.code == 1
    assert "rejection-sft.select.max_repetition: " in done.err
    assert "-> 0.31" in done.err
    again = ["--redo", "rejection-sft/select", "--set", "rejection-sft.select.max_repetition=0.31"]
    assert " ".join(again) in " ".join(done.err.split())
    assert "recipe.toml was not changed" in done.err
    assert "0.31" not in (folder / "runs/nano/recipe.toml").read_text()
    states = {step["state"] for step in json.loads(r1pipe(folder, "status", "--json").out)["steps"]}
    assert states == {"done"}, "a setting that is refused leaves the run as it was"
    recipe = folder / "runs/nano/recipe.toml"
    recipe.write_text(recipe.read_text().replace("[rejection-sft.select]", "[rejection-sft.select]\nmax_repetition = 0.31"))
    planned = r1pipe(folder, "plan", columns=160)
    assert "rejection-sft.select.max_repetition: 0.3 → 0.31" in planned.out
    assert "r1pipe run-all --run nano --redo rejection-sft/select   " in planned.out
    states = {step["step"]: step["state"] for step in json.loads(r1pipe(folder, "status", "--json").out)["steps"]}
    assert states["rejection-sft/select"] == "changed"
    assert states["rejection-sft/sample"] == "done"
    assert states["mixed-rl/train"] == "stale"
    part = r1pipe(folder, "run-all", "--until", "prepare")
    assert part.code == 0
    assert "r1pipe plan --run nano   says which other steps do not fit" in part.out
    assert "r1pipe resume" not in part.out
    before = {step["step"]: step["build"] for step in json.loads(r1pipe(folder, "status", "--json").out)["steps"]}
    assert r1pipe(folder, "run-all", "--redo", "rejection-sft/select").code == 0
    after = {step["step"]: step["build"] for step in json.loads(r1pipe(folder, "status", "--json").out)["steps"]}
    redone = {step for step in before if before[step] != after[step]}
    assert redone == {"rejection-sft/select", "rejection-sft/train", "mixed-rl/train", "evaluate"}


def test_inspect_of_a_finished_run_names_every_step_and_not_itself(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    shown = r1pipe(folder, "inspect", columns=160).out
    assert "shows what came of it" not in shown
    for step in json.loads(r1pipe(folder, "status", "--json").out)["steps"]:
        assert re.search(rf"r1pipe inspect {step['step']}\s", shown)


def test_plan_of_a_new_run_says_that_files_and_rewards_are_checked_at_the_start(tmp_path: Path) -> None:
    assert (
        "r1pipe run-all   with the same options, checks files, rewards and the base model"
        in r1pipe(tmp_path, "plan", columns=160).out
    )


def test_a_file_that_was_edited_after_it_was_read_makes_the_step_stale_and_a_touched_one_does_not(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    rows = [json.dumps({"question": f"What is {n} plus {n}?", "answer": str(2 * n), "checker": "maths"}) for n in range(1, 40)]
    mine.write_text("\n".join(rows) + "\n")
    begin = ["run-all", "--until", "prepare", "--set", "prepare.problems.source=mine.jsonl", "--set", "prepare.problems.count=0"]
    assert r1pipe(tmp_path, *begin).code == 0

    def state() -> tuple[str, str]:
        step = json.loads(r1pipe(tmp_path, "status", "--json").out)["steps"][0]
        return step["state"], step["why"]

    assert state()[0] == "done"
    os.utime(mine, (1, 1))
    assert state()[0] == "done"
    mine.write_text("\n".join([*rows, rows[0].replace("1 plus 1", "1 + 1")]) + "\n")
    assert state() == ("stale", "it was made from mine.jsonl, which was changed since")
    stopped = r1pipe(tmp_path, "run-all", "--until", "prepare")
    assert stopped.code == 1
    assert "it was made from mine.jsonl, which was changed since" in stopped.err
    assert r1pipe(tmp_path, "run-all", "--until", "prepare", "--redo", "prepare").code == 0
    assert state()[0] == "done"
    assert "file mine.jsonl" in r1pipe(tmp_path, "inspect", "prepare").out
    mine.unlink()
    assert state()[0] == "done", "what was read is read"


def test_a_launch_value_changes_nothing(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    done = r1pipe(folder, "run-all", "--set", "launch.threads=1")
    assert done.code == 0
    assert "launch.threads" in done.err
    assert "9 of 9 steps done" in done.out


def test_another_recipe_for_the_same_run_is_refused_key_by_key(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    text = (folder / "runs/nano/recipe.toml").read_text()
    (folder / "other.toml").write_text(text.replace("seed = 1", "seed = 7"))
    done = r1pipe(folder, "run-all", "--recipe", "other.toml")
    assert done.code == 1
    assert "seed: 1 in the run, 7 in other.toml" in done.err
    assert "r1pipe resume nano" in done.err
    assert (folder / "runs/nano/recipe.toml").read_text() == text
    assert r1pipe(folder, "run-all", "--recipe", "nano").code == 0  # the same recipe is no other recipe


def test_the_same_command_typed_again_goes_on(tmp_path: Path) -> None:
    arguments = ["run-all", "--recipe", "nano", "--run", "mine", "--set", "seed=5", "--until", "prepare"]
    assert r1pipe(tmp_path, *arguments).code == 0
    assert "seed = 5" in (tmp_path / "runs/mine/recipe.toml").read_text()
    assert r1pipe(tmp_path, *arguments).code == 0
    refused = r1pipe(tmp_path, "run-all", "--recipe", "nano", "--run", "mine")
    assert refused.code == 1
    assert "seed: 5 in the run, 1 in recipe nano" in refused.err


def test_a_fork_shares_steps_and_takes_its_own_settings(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    done = r1pipe(folder, "fork", "nano", "longer", "--before", "mixed-rl/train", "--set", "mixed-rl.train.steps=960")
    assert done.code == 0
    assert "shares 7 finished steps with nano" in done.out
    assert "r1pipe resume longer" in done.out
    states = {step["step"]: step["state"] for step in json.loads(r1pipe(folder, "status", "longer", "--json").out)["steps"]}
    assert states["mixed-rl/reward-models"] == "done"
    assert states["mixed-rl/train"] == "todo"
    assert "steps = 960" in (folder / "runs/longer/recipe.toml").read_text()
    assert "steps = 960" not in (folder / "runs/nano/recipe.toml").read_text()
    taken = r1pipe(folder, "fork", "nano", "longer", "--before", "mixed-rl")
    assert taken.code == 1
    assert "exists already" in taken.err


def test_commands_name_the_run_when_it_is_not_the_newest(tmp_path: Path) -> None:
    folder = copy_of_finished(tmp_path)
    assert "r1pipe inspect   " in r1pipe(folder, "status", "nano").out
    r1pipe(folder, "fork", "nano", "newer", "--before", "evaluate")
    assert "r1pipe inspect --run nano   " in r1pipe(folder, "status", "nano").out


# --- stopping


def wait_for(process: subprocess.Popen[str], path: Path, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


@contextmanager
def started(folder: Path, *arguments: str, pause: str = "0.4") -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which does not outlive the `with` block; its worker watches it and ends too."""
    command = [sys.executable, "-m", "r1pipe", *arguments]
    env = environment(folder, R1PIPE_SCRIPTED_PAUSE=pause)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_stops_at_a_safe_point_says_how_to_go_on_and_resume_does(tmp_path: Path) -> None:
    with started(tmp_path, "run-all", "--until", "cold-start") as process:
        wait_for(process, tmp_path / "runs/nano/1-cold-start/state.json")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 75
    assert "stopping cold-start at its next safe point; once more to stop now" in out
    assert err.splitlines()[-2].startswith("stop  ")
    assert "r1pipe resume nano" in err.splitlines()[-1]
    state = json.loads(r1pipe(tmp_path, "status", "--json").out)["steps"][1]
    assert state["state"] == "partial"
    assert "stopped at step" in r1pipe(tmp_path, "status").out
    done = r1pipe(tmp_path, "run-all", "--until", "cold-start")
    assert done.code == 0
    assert "attempt 2" in done.out
    log = (tmp_path / "runs/nano/1-cold-start/logs/attempt-2.log").read_text()
    assert "resuming at step" in log


def test_a_step_that_begins_again_is_told_from_where_its_last_attempt_stopped(tmp_path: Path) -> None:
    with started(tmp_path, "run-all", "--until", "cold-start") as process:
        wait_for(process, tmp_path / "runs/nano/1-cold-start/state.json")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    with started(tmp_path, "run-all", "--until", "cold-start", pause="600") as process:
        wait_for(process, tmp_path / "runs/nano/1-cold-start/logs/attempt-2.log")
        assert "begins again, stopped at step" in r1pipe(tmp_path, "status").out


def test_a_command_in_a_folder_that_was_deleted_says_so(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && exec {sys.executable} -P -m r1pipe status"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment(tmp_path), check=False)
    assert done.returncode == 2
    assert done.stderr == "the folder that this shell is in was deleted; change to one that exists\n"


def test_a_second_ctrl_c_stops_now_with_another_exit_code(tmp_path: Path) -> None:
    with started(tmp_path, "run-all", "--until", "cold-start", pause="600") as process:
        wait_for(process, tmp_path / "runs/nano/1-cold-start/worker.json")
        process.send_signal(signal.SIGINT)
        wait_for(process, tmp_path / "runs/nano/1-cold-start/stop")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "r1pipe resume nano" in err


def test_a_run_that_is_worked_on_says_so_and_its_recipe_does_not_change(tmp_path: Path) -> None:
    with started(tmp_path, "run-all", "--until", "cold-start", pause="600") as process:
        wait_for(process, tmp_path / "runs/nano/1-cold-start/worker.json")
        assert f"process {process.pid}" in r1pipe(tmp_path, "status").out
        planned, looked = r1pipe(tmp_path, "plan").out, r1pipe(tmp_path, "inspect", "cold-start").out
        assert "▶ cold-start → Dev1  runs now" in planned
        assert f"process {process.pid}" in planned
        assert "▶ cold-start → Dev1  running" in looked
        for said in (planned, looked):
            assert not re.search("stopped|nothing has started|r1pipe resume", said)
        before = (tmp_path / "runs/nano/recipe.toml").read_text()
        done = r1pipe(tmp_path, "run-all", "--set", "seed=9")
        assert done.code == 1
        assert "is being worked on" in done.err
        assert (tmp_path / "runs/nano/recipe.toml").read_text() == before
