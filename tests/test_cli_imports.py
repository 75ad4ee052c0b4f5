"""Reading commands answer at once: none of them loads a library that trains, samples, checks maths or reads tables."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_helpers import environment, finished_folder

SLOW = (
    "torch", "transformers", "trl", "peft", "accelerate", "datasets", "pyarrow", "pandas", "numpy", "sympy", "math_verify",
    "reasoning_gym", "duckdb", "safetensors", "tokenizers", "psutil", "vllm", "ray", "py3langid",
)  # fmt: skip

COMMANDS = (
    ["--help"], ["--version"], ["run-all", "--help"], ["inspect", "--help"], ["status"], ["status", "--json"], ["plan"],
    ["plan", "--set", "seed=2"], ["inspect"], ["inspect", "--json"], ["inspect", "reasoning-rl"],
    ["inspect", "reasoning-rl", "--json"], ["inspect", "evaluate/results"], ["recipes"], ["run-all"],
)  # fmt: skip

PROGRAM = """
import sys
from r1pipe.cli import main
try:
    main(sys.argv[1:])
except SystemExit as left:
    assert not left.code, left.code
sys.stderr.write("LOADED " + ",".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reading_command_loads_nothing_slow(command: list[str]) -> None:
    folder = finished_folder()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(folder),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split("LOADED ")[1].split(","))
    assert loaded.isdisjoint(SLOW), loaded & set(SLOW)
    assert "rich" in loaded or "--version" in command


def test_importing_the_command_line_loads_no_views_and_no_stages() -> None:
    program = "import sys, r1pipe.cli; print(*sorted(name for name in sys.modules if name.startswith('r1pipe')))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(finished_folder()))
    light = [
        "r1pipe",
        *(
            f"r1pipe.{name}"
            for name in ("cli", "cli_checking", "cli_data", "cli_evidence", "cli_lab", "console", "errors", "options")
        ),
    ]
    assert done.stdout.split() == light
