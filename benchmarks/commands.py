"""How fast the reading commands answer on a finished run, against importing what any such tool imports.

    python benchmarks/commands.py --run runs/nano

The peer is `python -c "import typer, rich, pydantic"` in the same session; the goal is 1.3 times its time plus 0.3 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import R1PIPE, save

COMMANDS = (["--help"], ["status"], ["inspect"], ["inspect", "reasoning-rl"], ["plan"])


def median_seconds(command: list[str], cwd: Path, repeats: int) -> float:
    """Median wall time of a command that must succeed."""
    times = []
    for _ in range(repeats):
        begun = time.monotonic()
        subprocess.run(command, cwd=cwd, check=True, capture_output=True)
        times.append(time.monotonic() - begun)
    return statistics.median(times)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    folder = arguments.run.resolve().parent.parent
    peer = median_seconds([sys.executable, "-c", "import typer, rich, pydantic"], folder, arguments.repeats)
    limit = 1.3 * peer + 0.3
    rows = []
    for command in COMMANDS:
        extra = (
            []
            if command == ["--help"]
            else ["--run", arguments.run.name]
            if command[0] in ("inspect", "plan")
            else [arguments.run.name]
        )
        seconds = median_seconds([*R1PIPE, *command, *extra], folder, arguments.repeats)
        rows.append(
            {
                "command": " ".join(command),
                "seconds": round(seconds, 3),
                "ratio": round(seconds / peer, 2),
                "within": seconds <= limit,
            }
        )
        verdict = "ok" if seconds <= limit else "TOO SLOW"
        print(
            f"r1pipe {' '.join(command):24} {seconds:.2f} s, {seconds / peer:.2f} × the imports, limit {limit:.2f} s: {verdict}"
        )
    save("commands", {"imports_seconds": round(peer, 3), "limit_seconds": round(limit, 3), "commands": rows})


if __name__ == "__main__":
    main()
