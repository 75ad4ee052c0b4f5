"""R1-Zero: the form of its prompt, its rewards, what is recorded of its thinking, and a training run on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import make_tiny_model, weights_digest

from r1pipe.data.chat import TEMPLATES, messages
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import PROBLEM_COLUMNS, problem_row, write_table
from r1pipe.pipeline import load
from r1pipe.recipe import Launch
from r1pipe.rewards import Accuracy, Mix, RewardSpec, Row
from r1pipe.stage import StepContext
from r1pipe.stages.sections import ChatSection
from r1pipe.stages.zero import Config, train
from r1pipe.views.lineage import chains, links

PROBLEM = Problem(id="p", question="What is 40 + 2?", answer="42")
SMALL = {
    "steps": 4, "questions_per_step": 2, "group": 4, "minibatches": 2, "learning_rate": 1e-2, "max_completion_tokens": 12,
    "refresh_reference": 2,
}  # fmt: skip


def total(config: Config, text: str) -> dict[str, float | None]:
    (row,) = Mix.build(config.rules).score([Attempt(PROBLEM, text)])
    return {name: None if score is None else score.value for name, score in row.parts.items()} | {"total": row.total}


def test_the_conversation_asks_for_an_answer_block_and_accuracy_reads_it_there() -> None:
    paper = Config()
    tagged = " <think> forty and two </think> <answer> 42 </answer>"
    assert total(paper, tagged) == {"accuracy": 1.0, "format": 1.0, "language": 1.0, "total": 2.0}
    assert total(paper, "<think> forty and two </think> The answer is \\boxed{42}.")["total"] == 0.0
    assert total(paper, "<think> so <answer>42</answer> </think> it is 42")["accuracy"] == 0.0
    assert total(paper, "<think> a </think> <answer> 41 </answer>")["total"] == 1.0


def test_the_chat_form_asks_for_thinking_and_then_an_answer() -> None:
    chat = Config(template="chat")
    assert total(chat, "<think> forty and two </think> The answer is \\boxed{42}.")["total"] == 2.0


def test_options_that_the_recipe_gives_win_over_the_templates() -> None:
    config = Config(format=RewardSpec(name="format", options={"style": "think"}))
    assert total(config, "<think> a </think> 42") == {"accuracy": 0.0, "format": 1.0, "language": 1.0, "total": 1.0}


def test_language_is_measured_and_by_default_not_rewarded() -> None:
    mixed = "<think> 四十加二 is 42 </think> <answer> 42 </answer>"
    assert total(Config(), mixed)["total"] == 2.0
    measured = total(Config(), mixed)["language"]
    assert measured is not None
    assert 0 < measured < 1
    rewarded = total(Config(language=RewardSpec(name="language")), mixed)["total"]
    assert rewarded == 2.0 + measured


def test_an_answer_that_must_stand_in_a_tag_counts_nowhere_else() -> None:
    texts = ["<think>t</think>\\boxed{42}", "<think>t</think><answer>\\boxed{42}</answer>", "<think>t</think><answer>42"]
    anywhere = [score.value for score in Accuracy().score([Attempt(PROBLEM, text) for text in texts]) if score]
    tag = [score for score in Accuracy(answer="tag").score([Attempt(PROBLEM, text) for text in texts]) if score]
    assert anywhere == [1.0, 1.0, 1.0]
    assert [score.value for score in tag] == [0.0, 1.0, 0.0]
    assert tag[0].note == "no answer block"
    with pytest.raises(ValueError, match="answer is 'tags'; known: anywhere, tag"):
        Accuracy(answer="tags")  # type: ignore[arg-type]


def test_an_answer_that_the_engine_could_not_make_is_unjudged_and_not_wrong() -> None:
    (score,) = Accuracy().score([Attempt(PROBLEM, "", finish="error")])
    assert score == Score(None, "generation failed")


def tokenizer_with(template: str, folder: Path) -> Any:
    from r1pipe.engines.text import load_tokenizer

    tokenizer = load_tokenizer(make_tiny_model(folder))
    tokenizer.chat_template = template
    return tokenizer


def test_the_conversation_is_plain_text_that_opens_nothing_and_ends_at_the_end_token(tmp_path: Path) -> None:
    from r1pipe.engines.text import prompt_ids, prompt_prefix, turn_end

    tokenizer = tokenizer_with(TEMPLATES["conversation"], tmp_path)
    prompt = tokenizer.decode(prompt_ids(tokenizer, "What is 1+1?", ""))
    assert prompt.endswith("User: What is 1+1?. Assistant:")
    assert all(tag in prompt for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    assert "<|user|>" not in prompt
    assert prompt_prefix(tokenizer, "") == ""
    assert turn_end(tokenizer) == tokenizer.eos_token_id
    tokenizer.bos_token = "<|system|>"
    assert tokenizer.decode(prompt_ids(tokenizer, "q", "Be brief.")).startswith("<|system|>Below")
    assert "Be brief.\nUser: q. " in tokenizer.decode(prompt_ids(tokenizer, "q", "Be brief."))


def test_the_conversation_does_not_read_what_a_question_says_as_template(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(TEMPLATES["conversation"], tmp_path)
    rendered = tokenizer.apply_chat_template(messages("{{ 6*7 }} {% raw %}"), add_generation_prompt=True, tokenize=False)
    assert rendered.endswith("User: {{ 6*7 }} {% raw %}. Assistant:")


def context(folder: Path, base: Path, **settings: Any) -> StepContext:
    folder.mkdir(parents=True, exist_ok=True)
    problems = [Problem(id=str(n), question=f"{n}+1=", answer=str(n + 1)) for n in range(24)]
    write_table(folder / "problems", [problem_row(problem) for problem in problems], PROBLEM_COLUMNS)
    config = Config(**{**SMALL, **settings})
    inputs = {"base": base, "problems": folder / "problems"}
    shared = {"chat": ChatSection()}
    step = load("r1-zero").step("zero/train")
    return StepContext(step, config, shared, Launch(threads=1), inputs, {"base": "d"}, folder / "step", 3)


@pytest.mark.slow
def test_zero_trains_the_base_and_hands_on_the_form_it_was_trained_in(tmp_path: Path) -> None:
    from r1pipe.artifact import check_model
    from r1pipe.engines.transformers_engine import open_engine

    base = make_tiny_model(tmp_path / "base")
    # a tiny random model never meets the format: the length of answers is what differs within a group
    ctx = context(tmp_path, base, accuracy={"name": "test_zero:EvenBytes"})
    summary = train(ctx)
    assert summary["steps"] == 4
    assert weights_digest(ctx.output("model")) != weights_digest(base)
    check_model(ctx.output("model"))
    assert (ctx.output("model") / "chat_template.jinja").read_text() == TEMPLATES["conversation"]
    engine = open_engine(ctx.output("model"), system="", batch=4, dtype="float32")
    asked = engine.codec.tokenizer.apply_chat_template(messages("1+1="), add_generation_prompt=True, tokenize=False)
    assert asked.endswith("User: 1+1=. Assistant:")
    lines = [json.loads(line) for line in (ctx.folder / "metrics.jsonl").read_text().splitlines()]
    rollouts = [line for line in lines if line["kind"] == "rollout"]
    assert [line["step"] for line in rollouts] == [0, 2]
    assert all({"thinking_characters", "reflection", "mixed_share"} <= line.keys() for line in rollouts)
    assert all(set(line["rewards"]) == {"accuracy", "format", "language"} for line in rollouts)


class EvenBytes:
    """The share of even characters, on a grid."""

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        return [Score(round(8 * sum(ord(c) % 2 == 0 for c in a.completion) / max(1, len(a.completion))) / 8) for a in attempts]


def test_length_reflection_and_mixing_are_means_over_what_they_apply_to() -> None:
    from r1pipe.train.rollouts import thinking_numbers

    english = Problem(id="1", question="q")
    chinese = Problem(id="2", question="q", language="zh")
    attempts = [
        Attempt(english, "<think>Wait, 1+1 is 2, but let me check.</think>2"),
        Attempt(english, "<think>等等</think>2"),
        Attempt(chinese, "no thinking, but wait"),
        Attempt(chinese, "<think>检查一下</think>2"),
    ]
    values = [1.0, 0.0, 0.0, 1.0]
    rows = [Row({"language": Score(value)}, value) for value in values]
    numbers = thinking_numbers(attempts, rows)
    assert numbers["thinking_characters"] == pytest.approx((len("Wait, 1+1 is 2, but let me check.") + 2 + 4) / 3)
    assert numbers["reflection"] == pytest.approx((3 + 0 + 0 + 1) / 4)  # words of the question's language
    assert numbers["mixed_share"] == pytest.approx(1 / 3)
    assert thinking_numbers(attempts, [Row({}, 0.0)] * 4)["mixed_share"] is None


def test_the_pipelines_hang_together_as_the_paper_says() -> None:
    assert chains(load("r1-zero")) == [["Base", "Zero"]]
    full = load("r1-full")
    assert chains(full) == [["Base", "Zero"], ["Base", "Dev1", "Dev2"], ["Base", "Dev3", "R1"]]
    learns = {link.name: link.learns_from for link in links(full)}
    assert learns["Dev1"] == ("Zero",)
    assert [step.name for step in full.select("zero")] == ["zero/train", "zero/sample", "zero/build"]
    assert {step.name for step in full.readers("zero/build")} >= {"cold-start", "reasoning-rl", "evaluate"}
    assert "rejection-sft/train" in {step.name for step in full.reads_base()}
