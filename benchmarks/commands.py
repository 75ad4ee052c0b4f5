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

from common import save

R1PIPE = str(Path(sys.executable).parent / "r1pipe")
"""The command as it is typed."""

COMMANDS = (["--help"], ["status"], ["inspect"], ["inspect", "reasoning-rl"], ["plan"])


def seconds_of(command: list[str], cwd: Path) -> float:
    """Wall time of a command that must succeed."""
    begun = time.monotonic()
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)
    return time.monotonic() - begun


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    folder = arguments.run.resolve().parent.parent
    name = arguments.run.name
    lines = {
        " ".join(command): [R1PIPE, *command, *(["--run", name] if command[0] in ("inspect", "plan") else [])]
        for command in COMMANDS
    }
    lines["status"].append(name)
    lines["imports"] = [sys.executable, "-c", "import typer, rich, pydantic"]
    # by turns, so that what else the machine does meets all of them alike
    times: dict[str, list[float]] = {key: [] for key in lines}
    for _ in range(arguments.repeats + 1):
        for key, line in lines.items():
            times[key].append(seconds_of(line, folder))
    medians = {key: statistics.median(values[1:]) for key, values in times.items()}
    peer = medians.pop("imports")
    limit = 1.3 * peer + 0.3
    rows = []
    for command, seconds in medians.items():
        rows.append(
            {
                "command": command,
                "seconds": round(seconds, 3),
                "ratio": round(seconds / peer, 2),
                "within": seconds <= limit,
            }
        )
        verdict = "ok" if seconds <= limit else "TOO SLOW"
        print(f"r1pipe {command:24} {seconds:.2f} s, {seconds / peer:.2f} × the imports, limit {limit:.2f} s: {verdict}")
    save("commands", {"imports_seconds": round(peer, 3), "limit_seconds": round(limit, 3), "commands": rows})


if __name__ == "__main__":
    main()
