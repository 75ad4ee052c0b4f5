"""A base model without a chat template is refused with the way out; `[chat] template` gives it one that checkpoints keep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import r1pipe
from tiny import make_tiny_model

from r1pipe.artifact import digest_base
from r1pipe.data.chat import TEMPLATES, messages
from r1pipe.data.rows import Problem
from r1pipe.data.tables import TRACE_COLUMNS, problem_row, write_table
from r1pipe.errors import ArtifactError
from r1pipe.pipeline import load, locate_base
from r1pipe.recipe import Launch
from r1pipe.stage import StepContext
from r1pipe.stages import cold_start
from r1pipe.stages.base_model import with_template
from r1pipe.stages.own import own_files
from r1pipe.stages.sections import ChatSection

BUILT_IN = ChatSection(template="built-in")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The embedded base without its chat template."""
    folder = tmp_path / "bare"
    shutil.copytree(locate_base("nano"), folder)
    (folder / "chat_template.jinja").unlink()
    return folder


def test_a_base_without_a_template_is_refused_with_what_to_type_and_accepted_with_it(bare: Path) -> None:
    here = bare.parent
    arguments = ["run-all", "--recipe", "nano-zero", "--until", "prepare", "--set", f"base.model={bare}"]
    refused = r1pipe(here, *arguments, columns=300, R1PIPE_PIPELINES="r1pipe.pipeline:load")
    assert refused.code == 0, "preparing data needs no base"
    checked = r1pipe(here, "check", columns=300, R1PIPE_PIPELINES="r1pipe.pipeline:load")
    assert checked.code != 0
    assert "has no chat template" in checked.out
    assert "--set chat.template=built-in" in checked.out
    planned = r1pipe(here, "plan", "--set", "chat.template=built-in", columns=300, R1PIPE_PIPELINES="r1pipe.pipeline:load")
    assert "with chat template built-in" in planned.out


def test_the_stand_in_for_the_base_has_its_files_and_the_template_and_the_base_is_left_alone(bare: Path, tmp_path: Path) -> None:
    from r1pipe.engines.text import load_tokenizer, turn_end

    before = digest_base(bare)
    with pytest.raises(ArtifactError, match="has no chat template") as caught:
        load_tokenizer(bare)
    assert "--set chat.template=built-in" in caught.value.hint
    view = with_template(bare, BUILT_IN, tmp_path / "view")
    assert with_template(bare, BUILT_IN, view) == view, "made anew at each start"
    tokenizer = load_tokenizer(view)
    turn_end(tokenizer)
    turns = [*messages("1+1?", "Be brief."), {"role": "assistant", "content": "<think>\n2\n</think>\n\n2"}]
    rendered = tokenizer.apply_chat_template(turns, tokenize=False)
    assert rendered == "Be brief.\n<|User|>1+1?<|Assistant|><think>\n2\n</think>\n\n2<|end|>"
    asked = tokenizer.apply_chat_template(messages("{{ 6*7 }}"), tokenize=False, add_generation_prompt=True)
    assert asked == "<|User|>{{ 6*7 }}<|Assistant|>"
    assert (view / "model.safetensors").samefile(bare / "model.safetensors")
    assert digest_base(bare) == before


def test_a_given_template_wins_over_the_bases_own_and_a_file_is_part_of_what_is_made(tmp_path: Path) -> None:
    from r1pipe.engines.text import load_tokenizer

    base = make_tiny_model(tmp_path / "base")
    settings = json.loads((base / "tokenizer_config.json").read_text())
    (base / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": "{{ 'old' }}"}))
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}[{{ m['content'] }}]{{ eos_token }}{% endfor %}")
    chat = ChatSection(template=str(file))
    tokenizer = load_tokenizer(with_template(base, chat, tmp_path / "view"))
    assert tokenizer.apply_chat_template(messages("q"), tokenize=False) == "[q]<|end|>"
    assert own_files(cold_start.Config(), {"chat": chat}) == {"chat.template": file}
    assert own_files(cold_start.Config(), {"chat": BUILT_IN}) == own_files(cold_start.Config(), {"chat": ChatSection()}) == {}
    with pytest.raises(ArtifactError, match=r"chat template gone\.jinja: .*No such file"):
        with_template(base, ChatSection(template="gone.jinja"), tmp_path / "view")
    assert with_template(base, ChatSection(), tmp_path / "other") == base


@pytest.mark.slow
def test_what_is_trained_from_such_a_base_carries_the_template_and_needs_the_base_no_more(tmp_path: Path) -> None:
    from r1pipe.artifact import check_artifact
    from r1pipe.engines.text import load_tokenizer

    base = make_tiny_model(tmp_path / "base")
    (base / "chat_template.jinja").unlink()
    rows: list[dict[str, Any]] = [
        {**problem_row(Problem(id=str(n), question=f"{n}+1=", answer=str(n + 1))),
         "thinking": f"{n} and 1", "summary": str(n + 1), "origin": "given"}
        for n in range(8)
    ]  # fmt: skip
    write_table(tmp_path / "traces", rows, TRACE_COLUMNS)
    config = cold_start.Config(epochs=1, batch=4, max_tokens=200)
    step = load("r1").step("cold-start")
    inputs = {"base": base, "traces": tmp_path / "traces"}
    step_folder = tmp_path / "step"
    step_folder.mkdir()
    context = StepContext(step, config, {"chat": BUILT_IN}, Launch(threads=1), inputs, {"base": "d"}, step_folder, 3)
    cold_start.run(context)
    shutil.rmtree(base)
    model = context.output("model")
    check_artifact(model, "model")
    assert load_tokenizer(model).chat_template == TEMPLATES["built-in"]
    assert not list((step_folder / "checkpoints").rglob("README.md")), "no card of a library about a model that is not finished"
