"""Experiment trackers besides the run's own files: which there are, whether they are installed, and where they write.

The trainer's library speaks to them; r1pipe chooses what is told by `[launch] report_to`. Everything stays on this machine, in
the step's folder, unless the launch says otherwise: trackers of the web are set to offline while the launch is.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from r1pipe.errors import RecipeError

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}
"""Tracker -> the module that it needs."""

FOLDER = "trackers"
"""Where they write, in the step's folder."""

PROJECT = "r1pipe"


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker that does not exist or is not installed, before anything starts.

    Raises:
        RecipeError: naming it, and what to type.
    """
    for name in names:
        if name not in PACKAGES:
            near = get_close_matches(name, PACKAGES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else ""
            raise RecipeError(f"launch.report_to: there is no tracker {name!r}; known: {', '.join(PACKAGES)}", hint)
    lacking = list(dict.fromkeys(PACKAGES[name] for name in names if find_spec(PACKAGES[name]) is None))
    if lacking:
        raise RecipeError(
            f"launch.report_to: {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed",
            f"pip install {' '.join(lacking)}, or take it out of launch.report_to",
        )


def tracker_environment(names: Sequence[str], folder: Path, offline: bool) -> dict[str, str]:
    """Environment variables of a step's process for its trackers; empty without any.

    Args:
        folder: the step's folder.
        offline: whether the launch forbids the network.
    """
    if not names:
        return {}
    place = (folder / FOLDER).absolute()
    known = {
        "tensorboard": {"TENSORBOARD_LOGGING_DIR": str(place / "tensorboard")},
        "wandb": {"WANDB_DIR": str(place), "WANDB_PROJECT": PROJECT, "WANDB_SILENT": "true"}
        | ({"WANDB_MODE": "offline"} if offline else {}),
        "trackio": {"TRACKIO_DIR": str(place / "trackio")},
        "mlflow": {"MLFLOW_EXPERIMENT_NAME": PROJECT, "MLFLOW_DISABLE_TELEMETRY": "true"}
        | ({"MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}"} if offline else {}),
    }
    return {key: found for name in names for key, found in known[name].items()}
