"""What a person means by a checkpoint: its name in a run ("r1", "nano/dev2", "base"), or the folder of any model."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from r1pipe.errors import R1PipeError, StateError
from r1pipe.manifest import Manifest, read_manifest
from r1pipe.opening import Opened, open_run
from r1pipe.stage import Step
from r1pipe.stages.base_model import with_template
from r1pipe.stages.sections import ChatSection
from r1pipe.states import BaseIdentity

BASE = "base"


class NoCheckpoint(R1PipeError):
    """What the user named is no checkpoint."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model that can be asked.

    Attributes:
        name: as it is shown, e.g. "Dev2", "nano/Dev2", or a folder's name.
        folder: its files.
        opened: the run that it belongs to, if any.
        step: the step that made it; None for a base model and for a folder.
        manifest: that step's record.
    """

    name: str
    folder: Path
    opened: Opened | None = None
    step: Step | None = None
    manifest: Manifest | None = None


def find_checkpoint(named: str, run: str | None = None) -> Checkpoint:
    """The checkpoint that the user means.

    Args:
        named: NAME of a checkpoint of the run, RUN/NAME, or a folder with a config.json. A folder must be written as a path
            ("./dev1") when a checkpoint has its name.
        run: the run that NAME belongs to; None means the one worked on last.

    Raises:
        NoCheckpoint: there is none, with those that there are. StateError: there is no such run.
    """
    folder = Path(named).expanduser()
    is_model = (folder / "config.json").is_file()
    is_path = os.sep in named or named.startswith((".", "~"))
    if is_path and is_model:
        return _of_folder(folder)
    run_name, slash, name = named.rpartition("/")
    try:
        opened = open_run(run_name if slash else run)
    except StateError as error:
        if is_model:
            return _of_folder(folder)
        if is_path:
            hint = "download a model first, or name a checkpoint of a run"
            raise NoCheckpoint(
                f"{named} is neither a checkpoint of a run nor a model's folder with a config.json", hint
            ) from error
        raise
    found = _of_run(opened, name, f"{run_name}/" if slash else "")
    if found is not None:
        return found
    if is_model:
        return _of_folder(folder)
    known = ", ".join(one.name for one in checkpoints_of(opened))
    near = get_close_matches(name.lower(), [one.name.lower() for one in checkpoints_of(opened)], n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise NoCheckpoint(
        f"run {opened.run.name} has no finished checkpoint {name!r}", f"{hint}there: {known}; or name a model's folder"
    )


def checkpoints_of(opened: Opened) -> list[Checkpoint]:
    """The base and every finished checkpoint of a run, in order."""
    found = [Checkpoint("Base", BaseIdentity(opened.run, opened.pipeline, opened.recipe).folder, opened)]
    for step in opened.pipeline.steps:
        path = opened.run.manifest_path(step)
        if step.makes and path.exists():
            found.append(Checkpoint(step.makes, opened.run.output_path(step, "model"), opened, step, read_manifest(path, step)))
    return found


def folder_to_ask(one: Checkpoint) -> Path:
    """The folder that a checkpoint is loaded from to be asked: of a base model one with the chat template that the recipe of its
    run gives, which is gone when this program ends."""
    chat = one.opened.recipe.shared.get("chat") if one.opened is not None and one.step is None else None
    if not isinstance(chat, ChatSection) or not chat.template:
        return one.folder
    around = Path(tempfile.mkdtemp(prefix="r1pipe-base-"))
    atexit.register(shutil.rmtree, around, ignore_errors=True)
    return with_template(one.folder, chat, around / one.folder.name)


def _of_run(opened: Opened, name: str, before: str) -> Checkpoint | None:
    for one in checkpoints_of(opened):
        if one.name.lower() == name.lower():
            return Checkpoint(before + one.name, one.folder, one.opened, one.step, one.manifest)
    return None


def _of_folder(folder: Path) -> Checkpoint:
    return Checkpoint(folder.resolve().name, folder)
