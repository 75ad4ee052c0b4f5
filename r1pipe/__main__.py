"""The `r1pipe` command, also as `python -m r1pipe`: a process that loads, answers and ends."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run a command without the housekeeping that a process of half a second does not need."""
    # what a command loads stays to its end, so searching it for cycles again and again, and once more at the end, is lost time
    gc.set_threshold(100_000)
    # no plugin of pydantic has a say here, and looking for one reads the entry points of every installed package
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        os.getcwd()
    except FileNotFoundError:
        print("the folder that this shell is in was deleted; change to one that exists", file=sys.stderr)
        sys.exit(2)
    from r1pipe.cli import main as run

    try:
        run()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
