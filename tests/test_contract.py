"""What one stage hands to the next is tried on a few rows before anything trains; what does not fit stops with the fix."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import TEMPLATE, make_tiny_model
from train_helpers import GRPO, context

from r1pipe.data.chat import join_response
from r1pipe.data.rows import Problem
from r1pipe.data.schedule import prompt_order
from r1pipe.errors import RecipeError, TrainingError
from r1pipe.guards import GuardSettings
from r1pipe.rewards import Accuracy, Mix, RewardSpec
from r1pipe.rewards.mix import Part
from r1pipe.train.scoring_time import busiest_rollout, check_scoring_time
from r1pipe.train.settings import SftSettings

PROBLEMS = [Problem(id=f"p{n}", question=f"What is {n} + 1?", answer=str(n + 1)) for n in range(60)]
EXAMPLES = [(f"What is {n} + 1?", join_response(f"{n} and one more.", f"\\boxed{{{n + 1}}}")) for n in range(30)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    shutil.copytree(base, tmp_path / "model")
    return tmp_path / "model"


def with_template(folder: Path, template: str) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    return folder


def rules() -> Mix:
    return Mix.build([RewardSpec(name="accuracy"), RewardSpec(name="format")])


def prompts(folder: Path, problems: list[Problem] = PROBLEMS, system: str = "", most_tokens: int = 64) -> list[str]:
    from r1pipe.engines.text import load_tokenizer
    from r1pipe.train.contract import try_prompts

    return try_prompts(load_tokenizer(folder), folder, problems, rules(), system, most_tokens, "toy")


def examples(folder: Path, rows: list[tuple[str, str]] = EXAMPLES, system: str = "") -> None:
    from r1pipe.engines.text import load_tokenizer
    from r1pipe.train.contract import try_examples

    try_examples(load_tokenizer(folder), folder, rows, system, "toy")


def opening(words: str) -> str:
    return TEMPLATE.replace("'<|assistant|>' }}{% endif %}", f"'<|assistant|>{words}' }}}}{{% endif %}}")


@pytest.mark.parametrize("template", [TEMPLATE, opening("<think>\\n"), opening("<think>")])
def test_what_fits_passes_in_silence(template: str, folder: Path) -> None:
    with_template(folder, template)
    assert prompts(folder, system="Be brief.") == []
    examples(folder, system="Be brief.")


def test_a_template_that_opens_the_thinking_otherwise_than_responses_begin_is_refused(folder: Path) -> None:
    with_template(folder, opening("<think>\\n\\n"))
    for attempt in (prompts, examples):
        with pytest.raises(TrainingError, match="2 opening tags") as refused:
            attempt(folder)
        assert "'<think>\\n\\n'" in str(refused.value)
        assert "chat_template.jinja" in refused.value.hint


def test_a_template_that_ends_the_thinking_itself_is_refused(folder: Path) -> None:
    with_template(folder, opening("<think>\\n\\n</think>\\n\\n"))
    for attempt in (prompts, examples):
        with pytest.raises(TrainingError, match="ends the thinking before the answer begins"):
            attempt(folder)


def test_what_is_set_and_has_no_effect_is_told() -> None:
    from r1pipe.train.contract import without_effect

    def told(passes: int = 1, from_step: int = 0, **settings: Any) -> list[str]:
        mix = Mix((*rules().parts, Part("late", Accuracy(), 1.0, from_step)))
        made = GRPO.model_validate({**GRPO.model_dump(), **settings})
        return without_effect(made, mix, GuardSettings(zero_rewards=("accuracy", "late")), passes)

    assert told() == told(from_step=4) == told(passes=2) == []
    assert told(from_step=3) == ["reward late joins at step 4, the start of a rollout (the recipe says 3)"]
    assert told(from_step=7) == ["reward late joins at step 8 and the run has 8 steps: it never counts"]
    assert "launch.micro_batch changes what is trained" in told(passes=2, loss="bnpo")[0]
    (odd,) = without_effect(GRPO, rules(), GuardSettings(zero_rewards=("acuracy",)), 1)
    assert odd == "[launch.guards] zero_rewards names 'acuracy', which is none of the rewards here: accuracy, format"


def test_a_template_that_loses_the_question_or_the_system_text_is_refused(folder: Path) -> None:
    with_template(folder, TEMPLATE.replace("m['content']", "m['content'][:8]"))
    with pytest.raises(TrainingError, match="loses the question"):
        prompts(folder)
    with_template(folder, TEMPLATE.replace("for m in messages", "for m in messages if m['role'] != 'system'"))
    with pytest.raises(TrainingError, match="loses the system text"):
        examples(folder, system="Think in English.")


def test_a_model_whose_own_settings_stop_at_another_token_is_refused_with_both_tokens(folder: Path) -> None:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": 7}))
    with pytest.raises(TrainingError, match=r"stops at token 7 .* and a turn ends with token 1 \('<\|end\|>'\)") as refused:
        examples(folder)
    assert refused.value.hint.startswith("set eos_token_id to 1 in ")


def test_one_question_that_leaves_no_room_for_its_answer_is_found_among_many(folder: Path) -> None:
    long = Problem(id="long", question="x" * 990, answer="1")
    assert prompts(folder, [*PROBLEMS, long], most_tokens=16) == []
    with pytest.raises(TrainingError, match=r"problem long has a prompt of 992 tokens, and 992 \+ .* 64 = 1,056") as refused:
        prompts(folder, [*PROBLEMS[:7], long, *PROBLEMS[7:]], most_tokens=64)
    assert "at most 32" in refused.value.hint


def test_problems_without_gold_answers_are_refused_by_column(folder: Path) -> None:
    with pytest.raises(TrainingError, match="nothing in the column 'answer'"):
        prompts(folder, [Problem(id=p.id, question=p.question, answer=" ") for p in PROBLEMS])


def test_gold_answers_that_the_rewards_do_not_call_right_are_refused_and_a_single_one_is_told(folder: Path) -> None:
    letters = [Problem(id=p.id, question=p.question, answer=p.answer, checker="algebra") for p in PROBLEMS]
    with pytest.raises(TrainingError, match=r"reward accuracy gives None to (19|20) of \1 gold answers") as refused:
        prompts(folder, letters)
    assert "r1pipe audit" in refused.value.hint
    (told,) = prompts(folder, [letters[0], *PROBLEMS[1:]])
    assert re.search("to 1 of (19|20) gold answers", told)


def test_a_mismatch_stops_training_before_the_weights_are_touched(folder: Path, tmp_path: Path) -> None:
    from r1pipe.train.grpo import train_grpo
    from r1pipe.train.sft import train_sft

    with_template(folder, opening("<think>\\n\\n"))
    (folder / "model.safetensors").unlink()
    order = prompt_order(
        verifiable=list(range(40)), general=[], rollouts=4, questions=4, general_from=0, general_share=0.0, seed=3
    )
    options: dict[str, Any] = {
        "policy": folder,
        "problems": PROBLEMS,
        "order": order,
        "mix": rules(),
        "system": "",
        "what": "toy",
    }
    with pytest.raises(TrainingError, match="2 opening tags"):
        train_grpo(context(tmp_path / "rl"), GRPO, **options)
    with pytest.raises(TrainingError, match="2 opening tags"):
        train_sft(context(tmp_path / "sft"), SftSettings(), model=folder, examples=EXAMPLES, system="", what="toy")


def test_scoring_that_could_outlast_the_other_processes_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(RecipeError) as refused:
        check_scoring_time("reasoning-rl", {"maths": 8192, "choice": 9000}, processes=4, collective_minutes=30, workers=8)
    assert "5 s × ⌈2,048 maths answers ÷ 8 scoring processes⌉ = 1,280 s" in refused.value.problem
    assert "900 s" in refused.value.problem
    assert "launch.collective_minutes = 43" in refused.value.hint
    check_scoring_time("reasoning-rl", {"maths": 8192}, processes=4, collective_minutes=43, workers=8)
    check_scoring_time("reasoning-rl", {"maths": 8192}, processes=8, collective_minutes=30, workers=8)
    check_scoring_time("reasoning-rl", {"maths": 8192}, processes=1, collective_minutes=30, workers=1)


def test_the_busiest_rollout_is_counted_by_checker() -> None:
    problems = [Problem(id=str(n), question="q", checker="code" if n < 2 else "maths") for n in range(8)]
    order = prompt_order(
        verifiable=list(range(8)), general=[], rollouts=4, questions=2, general_from=0, general_share=0.0, seed=1
    )
    codes = [sum(row < 2 for row in rollout) for rollout in order.rollouts]
    assert busiest_rollout(problems, order, group=4)["code"] == 4 * max(codes)
