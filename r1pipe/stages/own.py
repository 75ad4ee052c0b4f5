"""What of the user's a step reads and runs: files, and code that its settings name by import path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from r1pipe.artifact import base_files
from r1pipe.data.sources import HUB, is_file, is_generated
from r1pipe.own_code import is_there
from r1pipe.rewards import REWARDS, RewardSpec
from r1pipe.stages.schema import SourceSpec
from r1pipe.stages.sections import ChatSection
from r1pipe.train.settings import GrpoSettings

TEMPLATE = "chat.template"
"""The setting that may name a file with a chat template."""
START = "start_from"
"""The setting that may name a model's folder."""
SCORER = "process.model"
"""The setting that names the folder of a step-scoring model."""
ENGINE = "engine"
"""Name of the settings that say what generates."""


def own_files(config: Any, shared: Mapping[str, Any]) -> dict[str, Path]:
    """The files of a step's sources, of the model that it starts from in place of the step before, of the model that scores
    steps, and of the base model's chat template, by the key that names them."""
    sources = {
        f"{name}.source": Path(spec.source).expanduser()
        for name in type(config).model_fields
        if isinstance(spec := getattr(config, name), SourceSpec) and is_file(spec.source)
    }
    if isinstance(config, GrpoSettings) and config.start_from:
        folder = Path(config.start_from).expanduser()
        files = base_files(folder) if folder.is_dir() else [folder / "config.json"]
        sources |= {f"{START} {file.name}": file for file in files}
    if isinstance(config, GrpoSettings) and config.process is not None and config.process.model:
        folder = Path(config.process.model).expanduser()
        files = base_files(folder) if folder.is_dir() else [folder / "config.json"]
        sources |= {f"{SCORER} {file.name}": file for file in files}
    chat = shared.get("chat")
    template = chat.template_file if isinstance(chat, ChatSection) else None
    return {**sources, TEMPLATE: template} if template else sources


def own_code(config: Any, shared: Mapping[str, Any]) -> tuple[str, ...]:
    """Import paths ("pkg.module:name") among the settings of a step and the shared sections that it uses."""
    return tuple(dict.fromkeys(path for _, path in _named((config, *shared.values())) if ":" in path))


def missing(config: Any, shared: Mapping[str, Any]) -> list[str]:
    """Rewards that there are not, and modules of the user's code that are not found here, in words; nothing is imported."""
    said = []
    for what, name in dict.fromkeys(_named((config, *shared.values()))):
        if what == ENGINE:
            continue  # `engines.needs` says what an engine needs
        if ":" in name and not is_there(name):
            said.append(f"{what} {name!r}: there is no module {name.partition(':')[0]!r} (installed? PYTHONPATH?)")
        elif ":" not in name and what == "reward" and name not in REWARDS:
            said.append(f"unknown reward {name!r}; known: {', '.join(sorted(REWARDS))}")
    return said


def _named(value: Any) -> Iterator[tuple[str, str]]:
    """(what it is, name) of whatever may be an import path, anywhere below."""
    if isinstance(value, RewardSpec):
        yield "reward", value.name
    elif isinstance(value, SourceSpec):
        if not (is_file(value.source) or is_generated(value.source) or value.source.startswith(HUB)):
            yield "source", value.source
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            inner = getattr(value, name)
            yield from [(ENGINE, inner)] if name == ENGINE and isinstance(inner, str) else _named(inner)
    elif isinstance(value, Mapping | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _named(inner)
