"""The base model as steps read it: as it lies in its folder or, with `[chat] template`, with that chat template.

Many bases come without one, and a question cannot be put to them. The base itself is never written to: a folder of links stands
for it, in which only the template is new. What a step trains from it is saved with the template, so that every later
checkpoint carries it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from r1pipe.data.chat import TEMPLATES
from r1pipe.errors import ArtifactError
from r1pipe.stage import StepContext
from r1pipe.stages.sections import BUILT_IN, ChatSection

TEMPLATE, SETTINGS = "chat_template.jinja", "tokenizer_config.json"


def base_of(context: StepContext) -> Path:
    """The folder from which a step loads the base model."""
    chat: ChatSection = context.shared["chat"]
    view = context.folder / f".base-{os.environ.get('RANK', '0')}"  # processes that train together must not meet in it
    return with_template(context.inputs["base"], chat, view)


def with_template(folder: Path, chat: ChatSection, view: Path) -> Path:
    """`folder` itself when the recipe gives no template, else `view`, made anew to stand for it with the template.

    Raises:
        ArtifactError: the template's file cannot be read.
    """
    if not chat.template:
        return folder
    template = template_text(chat)
    shutil.rmtree(view, ignore_errors=True)
    view.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file() and not file.name.startswith("chat_template") and file.name != SETTINGS:
            (view / file.name).symlink_to(file.resolve())
    (view / TEMPLATE).write_text(template, encoding="utf-8")
    if (folder / SETTINGS).is_file():
        settings = json.loads((folder / SETTINGS).read_bytes())
        settings.pop("chat_template", None)
        (view / SETTINGS).write_text(json.dumps(settings, ensure_ascii=False, indent=2), encoding="utf-8")
    return view


def template_text(chat: ChatSection) -> str:
    """The chat template that the recipe gives.

    Raises:
        ArtifactError: its file cannot be read.
    """
    if chat.template == BUILT_IN:
        return TEMPLATES[BUILT_IN]
    path = Path(chat.template).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(
            f"chat template {chat.template}: {error}", f'name a file, or "{BUILT_IN}", as [chat] template'
        ) from error
