"""Rounds of stage 4 with real trainers on tiny models: what is replayed, where training begins, what is left of a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_mixed_rl import CONFIG, crash_at, make_reward_model, rows
from tiny import make_tiny_model, weights_digest
from train_helpers import Crash

from r1pipe.data.rows import Attempt, Score
from r1pipe.data.tables import LABEL_COLUMNS, PAIR_COLUMNS, PROBLEM_COLUMNS, part_path, problem_row, read_part, write_table
from r1pipe.errors import RecipeError, Stopped
from r1pipe.pipeline import load
from r1pipe.recipe import Launch
from r1pipe.rewards.mix import RewardSpec
from r1pipe.stage import Output, StepContext
from r1pipe.stages.iterating import FreshConfig, LaterConfig, LaterRewardModelsConfig, round_seed
from r1pipe.stages.sections import ChatSection, RewardsSection
from r1pipe.train.settings import RewardModelSettings

pytestmark = pytest.mark.slow

SEED = 3
SHAPE = {"mixed-rl": {"rounds": {"count": 3, "optimizer_state": "keep"}}}
PIPELINE = load("r1").shaped(SHAPE)
LABELS = RewardSpec(name="test_rounds_training:LowBytes")
FRESH = FreshConfig(samples=4, max_tokens=12, problems=4, problems_per_shard=5, helpfulness_labels=LABELS, safety_labels=LABELS)
MODEL = RewardModelSettings(batch=4, learning_rate=1e-3, max_tokens=256, held_out_share=0.3, min_accuracy_above=0.0)
MODELS = LaterRewardModelsConfig(helpfulness=MODEL, safety=MODEL, replay=0.25, margin=0.1)
KEEP = LaterConfig.model_validate({**CONFIG.model_dump(exclude_unset=True), "optimizer_state": "keep"})
RESET = LaterConfig.model_validate({**CONFIG.model_dump(exclude_unset=True), "optimizer_state": "reset"})


class LowBytes:
    """Likes characters of low numbers: a rule that random text follows now more, now less."""

    def __init__(self, kind: str, system: str) -> None:
        self.kind = kind

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        return [Score(sum(ord(c) < 110 for c in one.completion) / max(1, len(one.completion)) * 4 - 2) for one in attempts]


class Rounds:
    """Steps of one run, each called as its process would call it."""

    def __init__(self, root: Path, given: dict[str, Path]) -> None:
        self.root, self.given = root, given

    def output(self, source: Any) -> Path:
        found = self.given.get(f"{source.step}/{source.name}") if isinstance(source, Output) else self.given["base"]
        return found or self.root / source.step / source.name

    def run(self, name: str, config: Any, into: str = "", stop: Any = lambda: False) -> dict[str, Any]:
        step = PIPELINE.step(name)
        folder = self.root / (into or name)
        folder.mkdir(parents=True, exist_ok=True)
        launch = Launch(checkpoint_every=2, threads=1, hacking={"every": 0})
        inputs = {key: self.output(source) for key, source in step.reads.items()}
        shared = {"chat": ChatSection(), "rewards": RewardsSection()}
        return step.run(
            StepContext(step, config, shared, launch, inputs, dict.fromkeys(inputs, "d"), folder, SEED, stop_requested=stop)
        )


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    """Round 1 finished, and the labelled answers and reward models of round 2."""
    root = tmp_path_factory.mktemp("rounds")
    base = make_tiny_model(root / "dev3")
    tables: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
        "problems": ([problem_row(one) for one in rows("p", "verifiable", 12)], PROBLEM_COLUMNS),
        "general": (
            [problem_row(one) for one in (*rows("hello", "helpfulness", 9), *rows("harm", "safety", 9))], PROBLEM_COLUMNS,
        ),
        "evaluation": ([problem_row(one) for one in rows("e", "verifiable", 4)], PROBLEM_COLUMNS),
        "general_evaluation": ([problem_row(one) for one in rows("thanks", "helpfulness", 4)], PROBLEM_COLUMNS),
        "pairs": (
            [{"id": str(n), "question": f"old {n}", "language": "en", "kind": "helpfulness", "chosen": f"abc {n}",
              "rejected": f"xyz {n}", "source": "test"} for n in range(40)], PAIR_COLUMNS,
        ),
        "labels": (
            [{"id": str(n), "question": f"old {n}", "language": "en", "response": f"{'abc' if n % 2 else 'xyz'} {n}",
              "safe": n % 2, "source": "test"} for n in range(40)], LABEL_COLUMNS,
        ),
    }  # fmt: skip
    for name, (found, columns) in tables.items():
        write_table(root / "prepare" / name, found, columns)
    given = {"rejection-sft/train/model": base, "base": base}
    for seed, kind in enumerate(("helpfulness", "safety")):
        given[f"mixed-rl/reward-models/{kind}"] = make_reward_model(base, root / "models" / kind, seed)
    made = Rounds(root, given)
    made.run("mixed-rl/train", CONFIG)
    made.run("mixed-rl/fresh-2", FRESH)
    (root / "summary.json").write_text(json.dumps(made.run("mixed-rl/reward-models-2", MODELS)))
    made.run("mixed-rl/train-2", KEEP)
    return made


@pytest.fixture
def summary(rounds: Rounds) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((rounds.root / "summary.json").read_text())
    return found


def tensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(str(path))


def attempts(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted((folder / "attempts").glob("part-*.parquet")) for row in read_part(path)]


def test_fresh_answers_are_the_policys_and_each_has_its_label(rounds: Rounds) -> None:
    found = attempts(rounds.root / "mixed-rl/fresh-2")
    assert len(found) == (18 + 4) * 4
    for row in found:
        value, _ = json.loads(row["scores"])["label"]
        low = sum(ord(c) < 110 for c in row["completion"]) / max(1, len(row["completion"])) * 4 - 2
        assert value == (-1.0 if row["kind"] == "verifiable" else pytest.approx(low))
        assert row["verdict"] == ("right" if value > 0 else "wrong")


def test_sampling_that_is_stopped_between_its_shards_ends_with_the_same_answers(rounds: Rounds) -> None:
    again, calls = rounds.root / "again-fresh", 0

    def after_two() -> bool:
        nonlocal calls
        calls += 1
        return calls > 3

    with pytest.raises(Stopped):
        rounds.run("mixed-rl/fresh-2", FRESH, "again-fresh", after_two)
    assert part_path(again / "attempts", 0).is_file()
    assert not part_path(again / "attempts", 4).is_file()
    rounds.run("mixed-rl/fresh-2", FRESH, "again-fresh")
    assert attempts(again) == attempts(rounds.root / "mixed-rl/fresh-2")


def test_prompts_that_nobody_can_label_are_refused_by_the_step_itself(rounds: Rounds) -> None:
    config = FRESH.model_copy(update={"safety_labels": "rule"})
    with pytest.raises(RecipeError) as error:
        rounds.run("mixed-rl/fresh-2", config, "unlabelled")
    assert "no rule can label answers to 9 safety prompts" in error.value.problem
    assert "mixed-rl.rounds.safety_labels" in error.value.hint


def test_exactly_the_share_of_old_training_rows_is_replayed(summary: dict[str, Any], rounds: Rounds) -> None:
    from r1pipe.train.reward_model import Judged, split_by_question
    from r1pipe.train.reward_rounds import replayed_rows

    old = [Judged(f"old {n}", [n, 1], [n, 2]) for n in range(40)]
    known, held_out = split_by_question(old, MODEL.held_out_share, SEED)
    for kind in ("helpfulness", "safety"):
        found = summary[kind]
        assert found["old"] == len(known)
        assert found["replayed"] == round(0.25 * len(known)) > 0
        assert found["rows"] == found["fresh"] + found["replayed"]
        assert found["old_after"]["held_out"] == len(held_out)
    for share in (0.0, 0.1, 1.0):
        chosen = replayed_rows(known, share, round_seed(SEED, 2))
        assert len(chosen) == round(share * len(known))
        assert len({one.question for one in chosen}) == len(chosen)
        assert not {one.question for one in chosen} & {one.question for one in held_out}
    assert replayed_rows(known, 0.5, 1) != replayed_rows(known, 0.5, 2)


def test_accuracy_before_is_the_former_models_and_after_the_new_ones(summary: dict[str, Any], rounds: Rounds) -> None:
    """Measured again here, by the reward that RL uses, on fresh pairs that were held out."""
    from r1pipe.data.rows import Problem
    from r1pipe.stages.fresh import fresh_pairs
    from r1pipe.train.reward_model import Judged, split_by_question
    from r1pipe.train.scorer import PreferenceReward

    pairs, counts = fresh_pairs(attempts(rounds.root / "mixed-rl/fresh-2"), MODELS.margin)
    assert summary["helpfulness"]["answers"] == counts
    marked = [Judged(pair["question"], [n], [n, n]) for n, pair in enumerate(pairs)]
    held_out = [pairs[one.better[0]] for one in split_by_question(marked, MODEL.held_out_share, SEED)[1]]
    assert held_out
    for when, folder in (
        ("fresh_before", rounds.given["mixed-rl/reward-models/helpfulness"]),
        ("fresh_after", rounds.root / "mixed-rl/reward-models-2/helpfulness"),
    ):
        reward = PreferenceReward(str(folder), "helpfulness")
        right = 0
        for pair in held_out:
            problem = Problem("x", pair["question"], kind="helpfulness")
            better, worse = reward.score([Attempt(problem, pair["chosen"]), Attempt(problem, pair["rejected"])])
            assert better is not None
            assert worse is not None
            right += float(better.note.split()[1]) > float(worse.note.split()[1])
        found = summary["helpfulness"][when]
        assert (found["held_out"], found["accuracy"]) == (len(held_out), pytest.approx(right / len(held_out)))


def test_a_reward_model_goes_on_from_the_former_one(rounds: Rounds) -> None:
    """With steps too small to be seen, what comes out is the former model, head and all, and not the base."""
    still = MODEL.model_copy(update={"learning_rate": 1e-12})
    rounds.run("mixed-rl/reward-models-2", MODELS.model_copy(update={"helpfulness": still, "safety": still}), "still")
    for kind in ("helpfulness", "safety"):
        former = tensors(rounds.given[f"mixed-rl/reward-models/{kind}"] / "model.safetensors")
        after = tensors(rounds.root / "still" / kind / "model.safetensors")
        moved = tensors(rounds.root / "mixed-rl/reward-models-2" / kind / "model.safetensors")
        assert former.keys() == after.keys()
        assert all((former[name] - after[name]).abs().max() < 1e-6 for name in former)
        assert max(float((former[name] - moved[name]).abs().max()) for name in former) > 1e-4


def test_reward_models_that_are_stopped_in_training_end_with_the_same_weights(rounds: Rounds, summary: dict[str, Any]) -> None:
    assert [summary[kind]["steps"] > 3 for kind in ("helpfulness", "safety")] == [True, True]
    for stops in (1, 3):
        seen = iter(range(1000))
        with pytest.raises(Stopped):
            rounds.run("mixed-rl/reward-models-2", MODELS, "again-models", lambda seen=seen, stops=stops: next(seen) > stops)
    assert rounds.run("mixed-rl/reward-models-2", MODELS, "again-models")["safety"]["steps"] > 2
    for kind in ("helpfulness", "safety"):
        one, other = (rounds.root / name / kind for name in ("again-models", "mixed-rl/reward-models-2"))
        assert weights_digest(one) == weights_digest(other)


def test_a_model_that_fresh_answers_teach_nothing_is_taken_over_and_the_summary_says_why(rounds: Rounds) -> None:
    wide = MODELS.model_copy(update={"margin": 100.0, "continued": ("helpfulness",)})
    found = rounds.run("mixed-rl/reward-models-2", wide, "nothing")
    assert found["helpfulness"]["taken_over"] == "0 fresh pairs leave 0 for training and 0 held out"
    assert found["safety"]["taken_over"] == "nobody labels answers for it"
    for kind in ("helpfulness", "safety"):
        assert weights_digest(rounds.root / "nothing" / kind) == weights_digest(rounds.given[f"mixed-rl/reward-models/{kind}"])


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trainers of this test's RL, each caught when its first rollout is about to begin: [(trainer, number of weights)]."""
    import r1pipe.train.grpo as grpo

    caught: list[Any] = []
    original = grpo._agree

    def catching(trainer: Any, *arguments: Any) -> None:
        caught.append(look_at(trainer))
        original(trainer, *arguments)

    monkeypatch.setattr(grpo, "_agree", catching)
    return caught


def look_at(trainer: Any) -> dict[str, Any]:
    import torch

    ids = torch.tensor([[5, 60, 70, 80, 90, 100]])
    with torch.no_grad():
        policy, reference = (torch.log_softmax(model(ids).logits, -1) for model in (trainer.model, trainer.ref_model))
    counts = {int(moments["step"]) for moments in trainer.optimizer.state_dict()["state"].values()}
    return {"ids": ids, "policy": policy, "reference": reference, "counts": counts}


def test_a_round_begins_with_the_former_policy_as_its_reference_and_with_the_optimizer_it_is_told_to(
    rounds: Rounds, trainers: list[Any]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    for name, config in (("kept", KEEP), ("reset", RESET)):
        rounds.run("mixed-rl/train-2", config, name)
    with torch.no_grad():
        made, before = (
            torch.log_softmax(AutoModelForCausalLM.from_pretrained(folder)(trainers[0]["ids"]).logits, -1)
            for folder in (rounds.root / "mixed-rl/train/model", rounds.given["base"])
        )
    assert [found["counts"] for found in trainers] == [{CONFIG.steps}, set()]
    for found in trainers:
        assert torch.equal(found["reference"], made)
        assert torch.equal(found["policy"], made)
        assert not torch.allclose(found["reference"], before, atol=1e-3)
    first = [json.loads(line) for line in (rounds.root / "kept/metrics.jsonl").read_text().splitlines()]
    assert next(line["kl"] for line in first if line["kind"] == "step") == 0
    kept, reset = (tensors(rounds.root / name / "optimizer/optimizer.safetensors") for name in ("kept", "reset"))
    steps = [{int(value) for name, value in found.items() if name.startswith("step/")} for found in (kept, reset)]
    assert steps == [{2 * CONFIG.steps}, {CONFIG.steps}]
    assert weights_digest(rounds.root / "kept/model") != weights_digest(rounds.root / "reset/model")
    assert weights_digest(rounds.root / "kept/model") == weights_digest(rounds.root / "mixed-rl/train-2/model")


def test_a_round_that_is_killed_twice_ends_with_the_same_weights_and_optimizer(rounds: Rounds) -> None:
    for call in (2, 3):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, call)
            with pytest.raises(Crash):
                rounds.run("mixed-rl/train-2", KEEP, "killed")
    rounds.run("mixed-rl/train-2", KEEP, "killed")
    assert weights_digest(rounds.root / "killed/model") == weights_digest(rounds.root / "mixed-rl/train-2/model")
    one, other = (rounds.root / name / "optimizer/optimizer.safetensors" for name in ("killed", "mixed-rl/train-2"))
    assert one.read_bytes() == other.read_bytes()


def test_rounds_differ_in_what_is_asked_and_how_it_is_sampled(rounds: Rounds) -> None:
    first, second = (read_part(part_path(rounds.root / name / "rollouts", 0)) for name in ("mixed-rl/train", "mixed-rl/train-2"))
    assert [row["question"] for row in first] != [row["question"] for row in second]


def test_with_ppo_the_value_model_goes_on_too(rounds: Rounds) -> None:
    settings = {"method": "ppo", "steps": 2, "preference_from_step": 0, "refresh_reference": 0, "optimizer_state": "keep"}
    config = LaterConfig.model_validate({**CONFIG.model_dump(exclude_unset=True), **settings})
    first = type(CONFIG).model_validate(
        {k: v for k, v in config.model_dump(exclude_unset=True).items() if k != "optimizer_state"}
    )
    own = Rounds(rounds.root / "ppo", {**rounds.given, **{f"prepare/{name}": rounds.root / "prepare" / name for name in (
        "problems", "general", "evaluation", "general_evaluation")}})  # fmt: skip
    own.given |= {f"mixed-rl/reward-models-2/{kind}": rounds.root / "mixed-rl/reward-models-2" / kind
                  for kind in ("helpfulness", "safety")}  # fmt: skip
    own.run("mixed-rl/train", first)
    own.run("mixed-rl/train-2", config)
    one, two = (tensors(own.root / name / "optimizer/value.safetensors") for name in ("mixed-rl/train", "mixed-rl/train-2"))
    assert {int(value) for name, value in one.items() if name.startswith("step/")} == {2}
    assert {int(value) for name, value in two.items() if name.startswith("step/")} == {4}


def test_a_round_whose_former_one_left_no_optimizer_says_so(rounds: Rounds) -> None:
    step = PIPELINE.step("mixed-rl/train-2")
    inputs = {key: rounds.output(source) for key, source in step.reads.items() if key != "optimizer"}
    context = StepContext(step, KEEP, {"chat": ChatSection()}, Launch(), inputs, {}, rounds.root / "without", SEED)
    with pytest.raises(RecipeError, match="the round before has not written its optimizer"):
        step.run(context)
