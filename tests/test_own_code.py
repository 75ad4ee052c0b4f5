"""Code of the user's is part of what a step was made from: editing it is seen, with what to type."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import ROOT, TESTS, r1pipe

from r1pipe.opening import packaged_recipes
from r1pipe.own_code import code_files, is_there
from r1pipe.pipeline import load
from r1pipe.recipe import apply_sets, load_recipe

REWARD = """
from dataclasses import dataclass
from r1pipe.rewards import Score
import {helper}

@dataclass(frozen=True)
class Brevity:
    limit: int = 80

    def score(self, attempts):
        return [Score(float(len(attempt.text) <= self.limit * {helper}.FACTOR), "short") for attempt in attempts]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python looks for modules in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_code_is_followed_to_what_it_imports_from_beside_it_and_no_further(folder: Path) -> None:
    one = write(folder, "project_a/__init__.py", "")
    imports = "import json, numpy\nfrom . import words\nfrom ..shared import x\nimport r1pipe.files\n"
    reward = write(folder, "project_a/rewards/mine.py", imports)
    words = write(folder, "project_a/rewards/words.py", "def late():\n    from tools_a import helper\n")
    shared = write(folder, "project_a/shared.py", "raise RuntimeError('nothing of this is run')\n")
    tools = write(folder, "tools_a.py", "import project_a.rewards.mine\n")
    write(folder, "project_a/unused.py", "")
    assert code_files(["project_a.rewards.mine:Brevity"]) == {
        "project_a": one, "project_a.rewards.mine": reward, "project_a.rewards.words": words, "project_a.shared": shared,
        "tools_a": tools,
    }  # fmt: skip


def test_a_module_in_folders_without_init_files_is_found_and_an_installed_one_is_not_followed_out_of_its_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write(folder, "loose_b/inner/mine.py", "import typer\n")
    assert code_files(["loose_b.inner.mine:Brevity"]) == {"loose_b.inner.mine": plain}
    installed = folder / "site-packages"
    monkeypatch.syspath_prepend(str(installed))
    mine = write(installed, "package_b/__init__.py", "import other_b\nfrom package_b.inside import x\n")
    inside = write(installed, "package_b/inside.py", "x = 1\n")
    write(installed, "other_b.py", "")
    assert code_files(["package_b:Brevity"]) == {"package_b": mine, "package_b.inside": inside}


def test_what_is_not_there_is_broken_or_is_ours_has_no_files(folder: Path) -> None:
    broken = write(folder, "broken_c.py", "def (:\n")
    assert code_files(["no_such_module_c:X", "sys:path", "r1pipe.rewards.format:FormatReward"]) == {}
    assert code_files(["broken_c:X"]) == {"broken_c": broken}
    assert [is_there(path) for path in ("no_such_module_c:X", "sys:path", "broken_c:X", "json.nothing:X")] == [
        False,
        True,
        True,
        False,
    ]


def test_rewards_engines_judges_and_sources_that_are_named_by_import_path_are_found_by_the_steps_that_run_them() -> None:
    pipeline = load("r1-full")
    sets = (
        "prepare.problems.source=mine.data:rows", "prepare.evaluation.source=mine.jsonl",
        'rewards.language={ name = "mine:Brevity" }', 'zero.train.format={ name = "mine.zero:Form" }',
        "zero.sample.engine=mine.engine:open",
        'mixed-rl.train.helpfulness={ name = "mine.judge:Kind", options = { model = "qwen:latest" } }',
    )  # fmt: skip
    text = apply_sets(packaged_recipes()["nano-full"].read_text(), sets, pipeline)
    recipe = load_recipe(text, pipeline)
    found: dict[str, Any] = {
        step.name: step.code(recipe.configs[step.name], {name: recipe.shared[name] for name in step.shares})
        for step in pipeline.steps
    }
    assert found["prepare"] == ("mine.data:rows",)
    assert found["zero/train"] == ("mine.zero:Form",)
    assert found["zero/sample"] == ("mine.engine:open", "mine:Brevity")
    assert found["reasoning-rl"] == found["evaluate"] == ("mine:Brevity",)
    assert found["mixed-rl/train"] == ("mine.judge:Kind", "mine:Brevity")
    assert found["cold-start"] == found["rejection-sft/train"] == ()


def test_plan_says_what_could_not_start_here_without_importing_anything(folder: Path) -> None:
    write(folder, "loud_e.py", "raise RuntimeError('plan imports nothing of the user')\n")
    sets = [
        'rewards.format={ name = "formt" }',
        'rewards.language={ name = "absent_e:X" }',
        'rewards.accuracy={ name = "loud_e:X" }',
    ]
    options = [word for one in sets for word in ("--set", one)]
    planned = r1pipe(folder, "plan", *options, "--set", "base.model=nowhere", columns=400).out
    assert "cannot start here: unknown reward 'formt'; known: accuracy, " in planned
    assert "cannot start here: reward 'absent_e:X': there is no module 'absent_e'" in planned
    assert "loud_e" not in planned.replace("loud_e:X", "")
    assert "cannot start here: nowhere/config.json is missing" in planned
    assert "cannot start here" not in r1pipe(folder, "plan", columns=400).out


def test_an_own_reward_that_was_edited_stops_what_it_made_with_its_file_and_the_commands(folder: Path) -> None:
    reward = write(folder, "reward_d.py", REWARD.format(helper="helper_d"))
    helper = write(folder, "helper_d.py", "FACTOR = 2\n")
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, TESTS)))}
    begin = ["run-all", "--until", "reasoning-rl", "--set", 'rewards.language={ name = "reward_d:Brevity", weight = 0.5 }']
    done = r1pipe(folder, *begin, **paths)
    assert done.code == 0, done.err

    def states() -> dict[str, str]:
        steps = json.loads(r1pipe(folder, "status", "--json").out)["steps"]
        return {step["step"]: step["state"] for step in steps if step["state"] != "todo"}

    assert set(states().values()) == {"done"}
    os.utime(reward, (1, 1))
    assert set(states().values()) == {"done"}
    helper.write_text("FACTOR = 3\n")
    assert states() == {"prepare": "done", "cold-start": "done", "reasoning-rl": "stale"}
    stopped = r1pipe(folder, "resume", columns=200, **paths)
    assert stopped.code == 1
    assert "it was made with the code of helper_d (helper_d.py), which was changed since" in stopped.err
    assert "r1pipe run-all --run nano --redo reasoning-rl   discards it" in stopped.err
    assert "or put the file back as it was" in stopped.err
    assert "code of helper_d" in r1pipe(folder, "plan", columns=200).out
    assert "file reward_d.py" in r1pipe(folder, "inspect", "reasoning-rl", columns=200).out
    helper.write_text("FACTOR = 2\n")
    assert states()["reasoning-rl"] == "done"
