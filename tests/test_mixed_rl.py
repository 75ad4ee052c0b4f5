"""Stage 4 as a stage, with real reward models: when preference rewards join, whom they judge, and what is left of a kill
there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from tiny import make_tiny_model, weights_digest
from train_helpers import Crash

from r1pipe.data.rows import Problem
from r1pipe.data.tables import PROBLEM_COLUMNS, part_path, problem_row, read_part, scores_of, write_table
from r1pipe.pipeline import MIXED_RL
from r1pipe.recipe import Launch
from r1pipe.stage import StepContext
from r1pipe.stages import mixed_rl
from r1pipe.stages.sections import ChatSection, RewardsSection

pytestmark = pytest.mark.slow

SWITCH, STEPS = 4, 8
CONFIG = mixed_rl.Config(
    steps=STEPS, questions_per_step=2, group=4, minibatches=2, learning_rate=1e-2, kl=0.1, max_completion_tokens=12,
    refresh_reference=4, preference_from_step=4, general_share=0.5, preference_weight=0.5, safety_weight=0.25,
)  # fmt: skip


def rows(name: str, kind: Any, count: int) -> list[Problem]:
    if kind == "verifiable":
        return [Problem(id=f"{name}{n}", question=f"{n}+1=", answer=str(n + 1)) for n in range(count)]
    return [Problem(id=f"{name}{n}", question=f"{name} {n}", checker="none", kind=kind, domain="general") for n in range(count)]


def make_reward_model(base: Path, folder: Path, seed: int) -> Path:
    """A reward model with a random head and a scale: what it likes does not matter here, that it likes something does."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from r1pipe.engines.text import judged_ids
    from r1pipe.train.scorer import score_ids

    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(str(base))
    model.config.pad_token_id = tokenizer.pad_token_id
    texts = ["".join(chr(33 + (7 * n + 13 * k) % 90) for k in range(12)) for n in range(16)]
    raw = score_ids(model, tokenizer.pad_token_id, [judged_ids(tokenizer, "hello 1", "", text) for text in texts])
    model.config.r1pipe_scale = {"mean": fmean(raw), "spread": pstdev(raw)}
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("inputs")
    base = make_tiny_model(root / "policy")
    tables = {
        "problems": rows("p", "verifiable", 40),
        "general": [*rows("hello", "helpfulness", 2), *rows("harm", "safety", 2)],
        "evaluation": rows("e", "verifiable", 9),
        "general_evaluation": [*rows("thanks", "helpfulness", 3), *rows("risk", "safety", 3)],
    }
    for name, problems in tables.items():
        write_table(root / name, [problem_row(problem) for problem in problems], PROBLEM_COLUMNS)
    models = {kind: make_reward_model(base, root / kind, seed) for seed, kind in enumerate(("helpfulness", "safety"))}
    return {"policy": base, **{name: root / name for name in tables}, **models}


def train(folder: Path, inputs: dict[str, Path], config: mixed_rl.Config = CONFIG, **launch: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    settings = Launch(**{"checkpoint_every": 2, "threads": 1, "hacking": {"every": 2, "problems": 6, "general": 4}, **launch})
    shared = {"chat": ChatSection(), "rewards": RewardsSection()}
    digests = dict.fromkeys(inputs, "d")
    return mixed_rl.run(StepContext(MIXED_RL, config, shared, settings, inputs, digests, folder, 3))


def crash_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Die in the nth rollout from here on: its answers are scored, nothing of it is written."""
    import r1pipe.train.rollouts as rollouts

    calls, original = 0, rollouts.rollout_numbers

    def counting(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Crash
        return original(*arguments)

    monkeypatch.setattr(rollouts, "rollout_numbers", counting)


@pytest.fixture(scope="module")
def unbroken(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("unbroken")
    return folder, train(folder, inputs)


@pytest.fixture(scope="module")
def killed(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The same run, killed in the first rollout with preference rewards, and in it again, and in the one after it."""
    folder = tmp_path_factory.mktemp("killed")
    for call in (3, 1, 2):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, call)
            with pytest.raises(Crash):
                train(folder, inputs)
    return folder, train(folder, inputs)


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith("_seconds")} for line in read if line["kind"] == kind]


@pytest.mark.parametrize("run", ["unbroken", "killed"])
def test_no_preference_reward_counts_before_the_switch_and_all_do_after_it(run: str, request: pytest.FixtureRequest) -> None:
    folder, summary = request.getfixturevalue(run)
    assert summary["preference_from_step"] == SWITCH
    weights = {"accuracy": 1.0, "format": 1.0, "language": 1.0, "helpfulness": 0.5, "safety": 0.25}
    kinds: Counter[str] = Counter()
    for number in range(STEPS // 2):
        joined = number * 2 >= SWITCH
        table = read_part(part_path(folder / "rollouts", number))
        assert len(table) == 16
        for row in table:
            scores = scores_of(row)
            given = {name: score.value for name, score in scores.items() if score is not None and score.value is not None}
            assert row["total"] == pytest.approx(sum(weights[name] * value for name, value in given.items()), abs=1 / 4096)
            judges = {"helpfulness", "safety"} & given.keys()
            assert judges == ({row["kind"]} if row["kind"] != "verifiable" else set())
            assert row["kind"] == "verifiable" or joined
            assert ("accuracy" in given) == (row["kind"] == "verifiable")
            assert "format" in given
        questions = Counter(row["kind"] for row in table[::4])
        assert questions.total() - questions["verifiable"] == (2 if joined else 0), (
            "the share of general questions of every rollout"
        )
        kinds += questions
    assert kinds["helpfulness"] == kinds["safety"] == 2
    for line in lines(folder, "rollout"):
        joined = line["step"] >= SWITCH
        means = [line["rewards"]["helpfulness"], line["rewards"]["safety"]]
        assert any(mean is not None for mean in means) == joined
        shares = [line["signal"].get("helpfulness", 0.0), line["signal"].get("safety", 0.0)]
        assert any(share != 0 for share in shares) == joined


def test_a_run_killed_at_the_switch_ends_with_the_same_weights_rollouts_and_looks(
    unbroken: tuple[Path, dict[str, Any]], killed: tuple[Path, dict[str, Any]]
) -> None:
    whole, broken = unbroken[0], killed[0]
    assert weights_digest(broken / "model") == weights_digest(whole / "model")
    for kind in ("rollout", "held-out"):
        assert lines(broken, kind) == lines(whole, kind)
    for number in range(STEPS // 2):
        assert read_part(part_path(broken / "rollouts", number)) == read_part(part_path(whole / "rollouts", number))


def test_the_policy_is_looked_at_with_the_last_rows_of_the_evaluation_tables(unbroken: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = unbroken
    assert [line["step"] for line in lines(folder, "held-out")] == [0, 4, 6, 8]
    watched = summary["hacking_watch"]
    assert list(watched["looks"]) == ["0", "4", "6", "8"]
    assert all(0 <= found["refused_harmless"] <= 1 for found in watched["looks"].values())
    assert all(len(line["verdicts"]) == 6 and len(line["preferences"]) == 4 for line in lines(folder, "held-out"))
    assert watched["seconds"] > 0


def test_the_watch_can_be_switched_off_and_makes_the_same_weights(
    unbroken: tuple[Path, dict[str, Any]], inputs: dict[str, Path], tmp_path: Path
) -> None:
    summary = train(tmp_path, inputs, hacking={"every": 0})
    assert summary["hacking_watch"] == {}
    assert lines(tmp_path, "held-out") == []
    assert weights_digest(tmp_path / "model") == weights_digest(unbroken[0] / "model")
