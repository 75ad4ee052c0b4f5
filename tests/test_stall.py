"""A step that does nothing ends with its stacks in the log."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_process_without_progress_shows_its_stacks_and_fails() -> None:
    done = run(
        "import time\nfrom r1pipe.stall import still_moving\ndef stuck():\n    time.sleep(50)\nstill_moving(0.005)\nstuck()"
    )
    assert done.returncode == 1
    assert "in stuck" in done.stderr


def test_progress_and_the_end_keep_a_process_alive() -> None:
    loop = "for _ in range(4):\n    still_moving(0.01)\n    time.sleep(0.3)\nfinished()\ntime.sleep(0.8)\nprint('alive')"
    done = run(f"import time\nfrom r1pipe.stall import finished, still_moving\n{loop}")
    assert (done.returncode, done.stdout) == (0, "alive\n")
