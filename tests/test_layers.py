"""The rules that hold for the code as a whole, checked by the tools that know them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "ruff", "check", "."],
        ["-c", "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"],
    ],
    ids=["ruff finds nothing", "imports go downward only"],
)
def test_the_code_keeps_its_rules(command: list[str]) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_no_file_of_the_package_is_longer_than_about_three_hundred_lines() -> None:
    long = {path.name: lines for path in (ROOT / "r1pipe").rglob("*.py") if (lines := len(path.read_text().splitlines())) > 340}
    assert not long


def test_only_train_and_engines_import_torch_at_their_top() -> None:
    heavy = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "vllm")
    places = {
        path.relative_to(ROOT / "r1pipe").parts[0]
        for path in (ROOT / "r1pipe").rglob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(tuple(f"{start} {name}" for start in ("import", "from") for name in heavy))
    }
    assert places == {"train", "engines"}
