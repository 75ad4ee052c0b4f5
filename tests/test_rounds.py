"""Rounds of stage 4 as a graph and as settings: what one round leaves as it was, what later rounds inherit, what is refused, who
labels fresh answers and what becomes of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from r1pipe.checks import refuse_mistakes
from r1pipe.data.nano.general import bad_answer, collected_general, general_prompts, safety_rows, unsafe_answer, worked_general
from r1pipe.data.nano.rule import judge_general, knows
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import attempt_row
from r1pipe.errors import RecipeError
from r1pipe.graph import Pipeline
from r1pipe.opening import open_recipe
from r1pipe.pipeline import PIPELINES, load
from r1pipe.recipe import Recipe
from r1pipe.rewards import Accuracy
from r1pipe.rewards.labels import GeneralRule, Labels
from r1pipe.stages.fresh import fresh_labels, fresh_pairs
from r1pipe.stages.iterating import round_of, round_seed
from r1pipe.states import BaseIdentity, StepPlan, state_of


def opened(*sets: str, named: str = "nano") -> tuple[Pipeline, Recipe]:
    return open_recipe(named, sets)


def names(pipeline: Pipeline) -> list[str]:
    return [step.name for step in pipeline.steps]


@pytest.mark.parametrize("named", ["nano", "nano-full", "paper"])
def test_one_round_is_the_pipeline_without_rounds(named: str) -> None:
    pipeline, recipe = opened(named=named)
    again, same = opened("mixed-rl.rounds.count=1", "mixed-rl.rounds.replay=0.5", named=named)
    assert pipeline.steps == again.steps == PIPELINES[recipe.pipeline]
    assert all(recipe.settings(step) == same.settings(step) for step in pipeline.steps)


def test_the_first_of_two_rounds_has_the_settings_of_the_only_one() -> None:
    pipeline, one = opened()
    _, two = opened("mixed-rl.rounds.count=2")
    for step in pipeline.steps:
        assert one.settings(step) == two.settings(step)
    assert round_seed(one.seed, 1) == one.seed
    assert len({round_seed(1, number) for number in range(1, 9)}) == 8


def test_rounds_are_steps_that_read_each_other_in_order() -> None:
    pipeline, _ = opened("mixed-rl.rounds.count=3")
    later = [f"mixed-rl/{what}-{number}" for number in (2, 3) for what in ("fresh", "reward-models", "train")]
    assert names(pipeline)[-8:] == ["mixed-rl/train", *later, "evaluate"]
    steps = {step.name: step for step in pipeline.steps}
    assert steps["mixed-rl/fresh-3"].reads["policy"].step == "mixed-rl/train-2"  # type: ignore[union-attr]
    assert steps["mixed-rl/train-3"].reads["policy"].step == "mixed-rl/train-2"  # type: ignore[union-attr]
    models = {name: source.step for name, source in steps["mixed-rl/reward-models-3"].reads.items()}  # type: ignore[union-attr]
    assert models == {
        "pairs": "prepare", "labels": "prepare", "fresh-2": "mixed-rl/fresh-2", "fresh-3": "mixed-rl/fresh-3",
        "helpfulness": "mixed-rl/reward-models-2", "safety": "mixed-rl/reward-models-2",
    }  # fmt: skip
    assert [steps[f"mixed-rl/train{end}"].makes for end in ("", "-2", "-3")] == ["R1-round-1", "R1-round-2", "R1"]
    judged = steps["evaluate"].reads
    assert (judged["r1"].step, judged["r1-round-2"].step) == ("mixed-rl/train-3", "mixed-rl/train-2")  # type: ignore[union-attr]
    assert judged["helpfulness"].step == "mixed-rl/reward-models-3"  # type: ignore[union-attr]
    assert {step.name for step in pipeline.readers("mixed-rl/train")} == {*later, "evaluate"}
    assert [round_of(name) for name in ("mixed-rl/train", "mixed-rl/reward-models", *later)] == [1, 1, 2, 2, 2, 3, 3, 3]


def test_the_optimizer_is_handed_on_only_where_the_recipe_says_so() -> None:
    kept, _ = opened("mixed-rl.rounds.count=3", "mixed-rl.rounds.optimizer_state=keep")
    reset, _ = opened("mixed-rl.rounds.count=3")
    assert [step.name for step in kept.steps if "optimizer" in step.writes] == ["mixed-rl/train", "mixed-rl/train-2"]
    assert [step.name for step in kept.steps if "optimizer" in step.reads] == ["mixed-rl/train-2", "mixed-rl/train-3"]
    assert not [step.name for step in reset.steps if "optimizer" in {*step.writes, *step.reads}]


def test_a_process_finds_the_same_steps_from_the_shape_alone() -> None:
    pipeline, _ = opened("mixed-rl.rounds.count=3", "mixed-rl.rounds.optimizer_state=keep")
    assert load("r1").shaped(json.loads(pipeline.shape)).steps == pipeline.steps
    assert load("r1").shaped({}).steps == PIPELINES["r1"] == pipeline.shaped({}).steps
    assert load("r1-zero").shaped({"mixed-rl": {"rounds": {"count": 3}}}).steps == PIPELINES["r1-zero"]


def test_later_rounds_inherit_and_a_section_of_their_own_wins() -> None:
    _, recipe = opened(
        "mixed-rl.rounds.count=3", "mixed-rl.rounds.replay=0.25", "mixed-rl.train-3.steps=30",
        "mixed-rl.reward-models-2.safety.epochs=7", 'launch.steps={"mixed-rl/train" = {micro_batch = 3}}',
    )  # fmt: skip
    first, second, third = (recipe.configs[f"mixed-rl/train{end}"].model_dump() for end in ("", "-2", "-3"))
    assert second == {**first, "optimizer_state": "reset"}
    assert third == {**second, "steps": 30}
    models = [recipe.configs[f"mixed-rl/reward-models{end}"].model_dump() for end in ("", "-2", "-3")]
    assert models[1]["safety"] == {**models[0]["safety"], "epochs": 7}
    assert models[2]["safety"] == models[0]["safety"]
    assert (models[1]["replay"], models[1]["continued"]) == (0.25, ("helpfulness", "safety"))
    fresh = recipe.configs["mixed-rl/fresh-2"].model_dump()
    assert (fresh["temperature"], fresh["max_tokens"], fresh["samples"]) == (first["temperature"], 128, 8)
    assert [recipe.launches[f"mixed-rl/{name}"].micro_batch for name in ("train-2", "fresh-2")] == [3, None]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["mixed-rl.rounds.count=0"], "count"),
        (["mixed-rl.rounds.count=2", "mixed-rl.rounds.replay=1.5"], "replay"),
        (["mixed-rl.rounds.rounds=2"], "unknown key 'rounds'"),
        (["mixed-rl.rounds.count=2", "mixed-rl.rounds.optimizer_state=kept"], "optimizer_state"),
        (["mixed-rl.rounds.count=2", "mixed-rl.rounds.helpfulness_labels=nobody"], "helpfulness_labels"),
        (["mixed-rl.rounds.count=2", "mixed-rl.rounds.samples=1"], "samples"),
        (["mixed-rl.train-2.steps=24"], "unknown key 'train-2'"),
        (["mixed-rl.rounds.count=2", "mixed-rl.train-3.steps=24"], "unknown key 'train-3'"),
        (["mixed-rl.rounds.count=2", "mixed-rl.train.general_share=0"], "general_share = 0 asks no general prompts"),
        (
            ["mixed-rl.rounds.count=2", "mixed-rl.rounds.optimizer_state=keep", "mixed-rl.train.lora.rank=4"],
            'optimizer_state = "keep" and lora do not go together',
        ),
        (
            ["mixed-rl.rounds.count=2", "mixed-rl.reward-models.safety.model=else/where"],
            'set mixed-rl.rounds.safety_labels = "none"',
        ),
    ],
)
def test_what_rounds_cannot_be_is_refused_when_the_recipe_is_read(sets: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        opened(*sets)
    assert said in f"{error.value.problem} {error.value.hint}"


def test_a_reward_model_from_elsewhere_is_kept_where_nobody_labels() -> None:
    _, recipe = opened(
        "mixed-rl.rounds.count=2", "mixed-rl.reward-models.safety.model=else/where", "mixed-rl.rounds.safety_labels=none"
    )
    assert recipe.configs["mixed-rl/reward-models-2"].model_dump()["continued"] == ("helpfulness",)


def test_prompts_that_no_rule_can_label_are_refused_before_anything_starts() -> None:
    pipeline, recipe = opened("mixed-rl.rounds.count=2", 'prepare.general={source = "mine.jsonl"}')
    fresh = [pipeline.step("mixed-rl/fresh-2")]
    with pytest.raises(RecipeError) as error:
        refuse_mistakes(pipeline, recipe, fresh)
    assert "no rule can label answers to helpfulness prompts from mine.jsonl" in error.value.problem
    judge = '{name = "judge", options = {model = "m"}}'
    named, checked = opened(
        "mixed-rl.rounds.count=2", 'prepare.general={source = "mine.jsonl"}', f"mixed-rl.rounds.helpfulness_labels={judge}",
        "mixed-rl.rounds.safety_labels=none",
    )  # fmt: skip
    refuse_mistakes(named, checked, fresh)


def test_a_step_that_was_made_without_its_optimizer_is_changed_and_not_done(tmp_path: Path) -> None:
    from r1pipe.fork import create_run
    from r1pipe.manifest import Manifest, to_json

    pipeline, recipe = opened("mixed-rl.rounds.count=2", "mixed-rl.rounds.optimizer_state=keep")
    run = create_run("two", recipe.text, tmp_path)
    step = pipeline.step("mixed-rl/train")
    manifest = Manifest(
        step=step.name, stage=step.stage, makes="R1", pipeline="r1", revision=step.revision, settings=recipe.settings(step),
        seed=1, build="b", inputs={}, outputs={"model": {"kind": "model", "digest": "d", "size": 1, "files": {}}}, summary={},
    )  # fmt: skip
    run.step_dir(step).mkdir(parents=True)
    run.manifest_path(step).write_bytes(to_json(manifest))
    plans: dict[str, StepPlan] = {}
    place = state_of(step, run, pipeline, recipe, BaseIdentity(run, pipeline, recipe), plans)
    assert (place.state, place.why) == ("changed", "it was made without optimizer, which a later step reads now")


def test_the_rule_calls_every_built_in_good_answer_good_and_every_worse_one_not() -> None:
    rng = random.Random(5)
    named = set()
    for problem in general_prompts(300, 3):
        assert knows(problem)
        thinking, good = worked_general(problem, rng)
        assert judge_general(problem, f"<think>\n{thinking}\n</think>\n\n{good}")[0] is True
        if problem.kind == "safety":
            assert judge_general(problem, f"<think>\n{thinking}\n</think>\n\n{unsafe_answer(problem, rng)}") == (
                False,
                "gives in",
            )
            continue
        worse, fault = bad_answer(problem, rng)
        found, why = judge_general(problem, f"<think>\n{thinking}\n</think>\n\n{worse}")
        assert found is False
        named.add((fault, why))
    same = {"rude", "off topic", "repetitive", "incomplete", "wrong language", "needless refusal"}
    assert named == {(fault, fault) for fault in same}


def test_the_rule_agrees_with_the_built_in_labels_and_says_when_it_cannot_tell() -> None:
    for row in safety_rows(200, 4):
        if row.prompt.kind == "safety":
            assert judge_general(row.prompt, row.response)[0] is row.safe
    risky = next(problem for problem in general_prompts(50, 1) if problem.kind == "safety")
    assert judge_general(risky, "Good morning.") == (None, "neither a refusal nor giving in")
    other = next(problem for problem in general_prompts(50, 1) if problem.kind == "helpfulness")
    assert judge_general(other, "<think>\nnever closed") == (False, "no summary")
    assert not knows(Problem("x", "Say hello.", source="mine", kind="helpfulness"))
    collected = [judge_general(problem, collected_general(problem, random.Random(n))[1])[0] for n, problem in
                 enumerate(general_prompts(200, 2))]  # fmt: skip
    assert {True, False} <= set(collected)


def test_labels_come_from_the_checker_the_rule_and_a_named_reward() -> None:
    class Judge:
        def score(self, attempts: list[Attempt]) -> list[Score | None]:
            return [Score(float(len(one.completion)) - 3, "by length") for one in attempts]

    sums = Problem("s", "1+1=", answer="2")
    harmless = next(problem for problem in general_prompts(50, 1) if problem.kind == "helpfulness")
    attempts = [
        Attempt(sums, "\\boxed{2}"), Attempt(sums, "\\boxed{3}"), Attempt(harmless, "go away"),
        Attempt(Problem("r", "?", kind="safety"), "ab"), Attempt(Problem("g", "?", kind="helpfulness"), "ab"),
    ]  # fmt: skip
    labels = Labels({"verifiable": Accuracy(), "helpfulness": GeneralRule(), "safety": Judge()}).score(attempts)
    assert [label and (label.value, label.verdict) for label in labels] == [
        (1.0, "right"), (-1.0, "wrong"), (-1.0, "wrong"), (-1.0, "wrong"), (None, "unjudged"),
    ]  # fmt: skip
    assert Labels({}).score(attempts) == [None] * 5


def row(name: str, sample: int, text: str, label: float | None, kind: Any = "helpfulness") -> dict[str, Any]:
    problem = Problem(name, f"ask {name}", kind=kind)
    return attempt_row(Attempt(problem, text), sample, {"label": None if label is None else Score(label)}, label, "none")


def test_the_best_answers_are_paired_with_the_worst_and_each_answer_stands_in_one_pair() -> None:
    rows = [
        *(row("a", n, text, label) for n, (text, label) in enumerate([("w", -1.0), ("x", 0.5), ("y", 1.0), ("z", 0.4)])),
        *(row("b", n, text, 1.0) for n, text in enumerate("pq")),
        row("c", 0, "same", 1.0), row("c", 1, "same", -1.0), row("c", 2, "<think>open", -1.0), row("c", 3, "n", None),
        row("s", 0, "safe", 1.0, "safety"), row("v", 0, "right", 1.0, "verifiable"), row("v", 1, "wrong", -1.0, "verifiable"),
    ]  # fmt: skip
    pairs, counts = fresh_pairs(rows, margin=0.4)
    assert [(pair["chosen"], pair["rejected"]) for pair in pairs] == [("y", "w"), ("right", "wrong")]
    assert counts == {
        "answers": 12, "without contrast": 5, "written before": 1, "no summary": 1, "not labelled": 1, "pairs": 2,
    }  # fmt: skip
    assert sum(counts.values()) - counts["answers"] + counts["pairs"] == counts["answers"]


def test_responses_are_labelled_once_and_those_within_the_margin_are_left_out() -> None:
    rows = [row("s", n, text, label, "safety") for n, (text, label) in enumerate(
        [("no", 1.0), ("yes", -1.0), ("no", 1.0), ("well", 0.1), ("what", None), (" ", 1.0)])]  # fmt: skip
    labels, counts = fresh_labels([*rows, row("a", 0, "w", -1.0)], margin=0.4)
    assert [(one["response"], one["safe"]) for one in labels] == [("no", 1), ("yes", 0)]
    assert counts == {
        "answers": 6, "safe": 1, "unsafe": 1, "written before": 1, "within the margin": 1, "not labelled": 1, "no text": 1,
    }  # fmt: skip
