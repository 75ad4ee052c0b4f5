"""How a reward model reads a question and an answer, and finished reward models that are taken instead of trained.

Models that r1pipe trained read the prompt as the policy sees it, then the text and the end of the turn. A model from elsewhere
reads what its own chat template makes of the two turns, as its authors trained it. In both, text that a model wrote is plain
text: it can spell out a special token and closes no turn with it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from r1pipe.artifact import BASE_FILES
from r1pipe.data.chat import messages
from r1pipe.engines.text import prompt_ids
from r1pipe.errors import ArtifactError
from r1pipe.manifest import write_atomic

MARK = "⟪the answer⟫"
"""Stands for the answer while a template is rendered."""
OWN_TEMPLATE = "r1pipe_own_template"
"""In a reward model's configuration: it reads through its own chat template."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reward model reads, as token ids.

    Attributes:
        prompt, answer, end: question, answer, and what its template puts behind.
    """

    prompt: list[int]
    answer: list[int]
    end: list[int]

    @property
    def tokens(self) -> int:
        """Length of the whole."""
        return len(self.prompt) + len(self.answer) + len(self.end)

    @property
    def ids(self) -> list[int]:
        """The whole."""
        return [*self.prompt, *self.answer, *self.end]

    def cut(self, limit: int) -> list[int]:
        """At most `limit` tokens: the answer loses its end, what the template puts behind it stays."""
        if self.tokens <= limit:
            return self.ids
        return [*[*self.prompt, *self.answer][: max(0, limit - len(self.end))], *self.end][:limit]


def reading(config: Any, tokenizer: Any, question: str, system: str, text: str) -> Reading:
    """What the reward model with this configuration reads of a question and an answer."""
    return readings(config, tokenizer, system, [(question, text)])[0]


def readings(config: Any, tokenizer: Any, system: str, rows: Sequence[tuple[str, str]]) -> list[Reading]:
    """The same for many (question, answer): each question is rendered once, and the answers are tokenised together."""
    framed = own_frame if getattr(config, OWN_TEMPLATE, False) else frame
    frames = {question: framed(tokenizer, question, system) for question in dict.fromkeys(question for question, _ in rows)}
    texts = [text for _, text in rows]
    answers = tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"] if texts else []
    return [
        Reading(frames[question][0], list(answer), frames[question][1])
        for (question, _), answer in zip(rows, answers, strict=True)
    ]


def frame(tokenizer: Any, question: str, system: str) -> tuple[list[int], list[int]]:
    """What stands before an answer and behind it for a model of r1pipe's: see `judged_ids`."""
    return prompt_ids(tokenizer, question, system), [tokenizer.eos_token_id]


def own_frame(tokenizer: Any, question: str, system: str) -> tuple[list[int], list[int]]:
    """The same through the tokenizer's own chat template: a user's turn and an assistant's.

    Raises:
        ArtifactError: the template loses or changes the assistant's text.
    """
    turns = [*messages(question, system), {"role": "assistant", "content": MARK}]
    rendered: str = tokenizer.apply_chat_template(turns, tokenize=False)
    before, found, after = rendered.partition(MARK)
    if not found:
        raise ArtifactError(
            f"the chat template of the reward model loses the assistant's text: {rendered[:200]!r}",
            "mend chat_template.jinja in the model's folder",
        )
    prompt, end = (list(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (before, after))
    return prompt, end


def marked_own(config: Any) -> Any:
    """The configuration, marked as that of a model that reads through its own chat template."""
    setattr(config, OWN_TEMPLATE, True)
    return config


def find_model(named: str) -> Path:
    """The folder of a reward model: the folder named, or the snapshot of that name in the Hugging Face cache.

    Raises:
        ArtifactError: there is none.
    """
    folder = Path(named).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(named, allow_patterns=list(BASE_FILES)))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError) as error:
        raise ArtifactError(
            f"the reward model {named!r} is neither a folder here nor in the Hugging Face cache",
            f"download it first, e.g. `hf download {named} --local-dir models/{Path(named).name}`, and name that folder",
        ) from error


def load_classifier(folder: Path, logit: int) -> tuple[Any, Any]:
    """(model, tokenizer) of a sequence classifier from elsewhere.

    Raises:
        ArtifactError: it has no trained head, no such output, or no chat template.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, loading = AutoModelForSequenceClassification.from_pretrained(
        str(folder), dtype="auto" if torch.cuda.is_available() else torch.float32, output_loading_info=True
    )
    if missing := sorted(loading["missing_keys"]):
        raise ArtifactError(
            f"{folder.name} is not a reward model: {', '.join(missing)} is not among its weights",
            "name a sequence classifier (…ForSequenceClassification)",
        )
    outputs = int(model.config.num_labels)
    if logit >= outputs:
        raise ArtifactError(f"{folder.name} has {outputs} outputs and logit is {logit}", "count outputs from 0")
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if not tokenizer.chat_template:
        raise ArtifactError(f"the reward model {folder.name} has no chat template", "add chat_template.jinja to its folder")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model.eval(), tokenizer


def take(folder: Path, target: Path, logit: int, mean: float, spread: float, pad: int) -> None:
    """Copy a reward model into the run, with the scale that was measured and how it is to be read in its configuration."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.is_file() and any(fnmatch(path.name, pattern) for pattern in BASE_FILES):
            shutil.copyfile(path, target / path.name)
    config = json.loads((target / "config.json").read_bytes())
    config |= {
        "r1pipe_scale": {"mean": mean, "spread": spread},
        "r1pipe_logit": logit,
        OWN_TEMPLATE: True,
        "pad_token_id": pad,
    }
    write_atomic(target / "config.json", json.dumps(config, ensure_ascii=False, indent=1).encode())
