"""The objective's choices: what a preset says, what is refused, small differences that stay small, and limits that move."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from grpo_numbers import log_probs, terms
from pydantic import ValidationError
from test_train_numbers import SIZES, EvenBytes, Run, trained
from test_train_resume import GRPO, Crash, context, grpo
from tiny import make_tiny_model, weights_digest

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.errors import TrainingError
from r1pipe.rewards import Mix
from r1pipe.rewards.language import LanguageConsistency
from r1pipe.rewards.mix import Part
from r1pipe.stages import mixed_rl
from r1pipe.train.advantages import advantages, signal_shares
from r1pipe.train.presets import PRESETS
from r1pipe.train.settings import GrpoSettings

LANGUAGE = [0.97] * 2 + [0.98] * 4 + [0.99] * 6 + [1.0] * 4
"""Sixteen right answers whose language consistency lies between 0.97 and 1.00: deviation 0.0097 around 0.9875."""
PLAIN: dict[str, Any] = {"scale": "group", "floor": 0.0, "leave_out_flat": False, "token_mean": False}


class Given:
    """Scores by place in the rollout, over and over."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        return [Score(self.values[index % len(self.values)]) for index in range(len(attempts))]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def stopping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with many end tokens, so that some answers end and others are cut off."""
    from transformers import GenerationConfig

    folder = make_tiny_model(tmp_path_factory.mktemp("stopping"))
    GenerationConfig(eos_token_id=[1, *range(100, 125)], pad_token_id=0).save_pretrained(str(folder))
    return folder


# --- small differences


def test_a_floor_keeps_the_advantages_of_sixteen_right_answers_small() -> None:
    shares = np.array(LANGUAGE)
    plain = (shares - shares.mean()) / shares.std()
    assert (shares.std(), plain.min(), plain.max()) == pytest.approx((0.0097, -1.81, 1.29), abs=0.005)
    made = [advantages(LANGUAGE, [1] * 16, group=16, **{**PLAIN, "floor": floor}) for floor in (0.0, 0.1)]
    assert (min(made[0]), max(made[0])) == pytest.approx((-1.75, 1.25))  # the sample deviation, as TRL takes it
    assert (min(made[1]), max(made[1])) == pytest.approx((-0.175, 0.125))
    # a group that is told apart by right and wrong keeps what it has: its deviation is above the floor
    answers = [1.0] * 4 + [0.0] * 12
    assert advantages(answers, [1] * 16, group=16, **{**PLAIN, "floor": 0.1}) == pytest.approx(
        (np.array(answers) - 0.25) / np.std(answers, ddof=1)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "ends"), [(0.0, (-1.73, 1.24)), (0.1, (-0.175, 0.125))])
def test_the_trainer_gets_small_advantages_for_small_differences_only_with_a_floor(
    floor: float, ends: tuple[float, float], base: Path, tmp_path: Path
) -> None:
    settings = GrpoSettings.model_validate(
        {
            **SIZES,
            "steps": 1,
            "questions_per_step": 1,
            "group": 16,
            "minibatches": 1,
            "refresh_reference": 0,
            "advantage_floor": floor,
        }
    )
    mix = Mix((Part("accuracy", Given([1.0]), 1.0), Part("language", Given(LANGUAGE), 1.0)))
    run = trained(base, tmp_path, settings, mix)
    made = run.seen.rollouts[0].advantages
    assert (made.min(), made.max()) == pytest.approx(ends, abs=0.01)
    (row,) = run.metrics("rollout")
    assert row["total_mean"] == pytest.approx(1.9875, abs=1e-3)  # the log keeps the rewards as they were
    assert row["signal"] == pytest.approx({"accuracy": 0.0, "language": 1.0})


def test_the_grid_of_the_language_reward_alone_leaves_a_cliff_that_the_floor_takes_away() -> None:
    grid = LanguageConsistency().grid
    assert {round(share * grid) / grid for share in LANGUAGE} == {1.0}
    cliff = [1.0] * 15 + [round(0.96 * grid) / grid]
    assert min(advantages(cliff, [1] * 16, group=16, **PLAIN)) == pytest.approx(-3.75)
    assert min(advantages(cliff, [1] * 16, group=16, **{**PLAIN, "floor": 0.1})) == pytest.approx(-0.59, abs=0.01)


def test_the_share_of_each_reward_in_the_signal_adds_up() -> None:
    parts = [
        {"accuracy": Score(a), "language": Score(b), "safety": None} for a, b in [(1.0, 1.0), (0.0, 1.0), (1.0, 0.5), (1.0, 1.0)]
    ]
    shares = signal_shares(parts, [2.0, 1.0, 1.5, 2.0], {"accuracy": 1.0, "language": 1.0, "safety": 1.0}, 2)
    # groups (2, 1) and (1.5, 2): variances 0.5 by accuracy and 0.125 by language
    assert shares == pytest.approx({"accuracy": 0.8, "language": 0.2, "safety": 0.0})
    assert signal_shares(parts[:2], [1.0, 1.0], {"accuracy": 1.0, "language": 1.0, "safety": 1.0}, 2) == {}


# --- groups without signal


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("value", [0.7, 0.1, 1 / 3])
def test_a_group_of_equal_rewards_has_advantages_of_exactly_zero(scale: str, value: float) -> None:
    made = advantages([value] * 8 + [0.0, 1.0] * 4, [1] * 16, group=8, **{**PLAIN, "scale": scale})
    assert made[:8] == [0.0] * 8
    assert made[8] == -made[9] != 0.0


def test_an_answer_without_a_verdict_counts_in_no_mean() -> None:
    made = advantages([1.0, 0.0, None, 1.0], [1] * 4, group=4, **PLAIN)
    three = advantages([1.0, 0.0, 1.0], [1] * 3, group=3, **PLAIN)
    assert made == [three[0], three[1], None, three[2]]
    assert advantages([None, None, 1.0, None], [1] * 4, group=4, **PLAIN) == [None, None, 0.0, None]


def test_groups_without_signal_leave_their_weight_to_the_others() -> None:
    totals, tokens = [1.0, 1.0, 0.0, 1.0, 0.0, 0.0], [5, 5, 10, 20, 1, 1]
    kept = advantages(totals, tokens, group=2, **PLAIN)
    answers = advantages(totals, tokens, group=2, **{**PLAIN, "leave_out_flat": True})
    assert answers == pytest.approx([3 * value for value in kept])  # three groups, one with signal
    mean = advantages(totals, tokens, group=2, **{**PLAIN, "leave_out_flat": True, "token_mean": True})
    assert mean == pytest.approx([42 / 30 * value for value in kept])  # 42 tokens, 30 of them with signal
    assert advantages([1.0] * 4, [1] * 4, group=2, **{**PLAIN, "leave_out_flat": True}) == [0.0] * 4


def test_answers_that_are_no_whole_groups_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(ValueError, match=r"10 = 2 × 4 \+ 2"):
        advantages([1.0] * 10, [1] * 10, group=4, **PLAIN)


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_eight_equal_rewards_of_seven_tenths_leave_the_weights_bit_for_bit(preset: str, base: Path, tmp_path: Path) -> None:
    settings = GrpoSettings.model_validate(
        {
            **SIZES, "preset": preset, "kl": 0.0, "refresh_reference": 0, "steps": 2, "minibatches": 1, "questions_per_step": 1,
            "group": 8, "overlong_share": 0.0,
        }
    )  # fmt: skip
    run = trained(base, tmp_path, settings, Mix((Part("same", Given([0.7]), 1.0),)))
    assert weights_digest(tmp_path / "model") == weights_digest(base)
    assert [row["flat_share"] for row in run.metrics("rollout")] == [1.0, 1.0]


def scored(points: float, group: int, folder: Path) -> list[float | None]:
    """What the trainer is told of a rollout whose answers all get `points`."""
    from r1pipe.metrics import MetricsWriter
    from r1pipe.train.rollouts import RolloutScorer

    tokenizer = SimpleNamespace(eos_token_id=1, decode=lambda ids, skip_special_tokens: "x")
    scorer = RolloutScorer(
        problems=[Problem("p", "?", "1")], mix=Mix((Part("points", Given([points]), 1.0),)), tokenizer=tokenizer, prefix="",
        group=group, minibatches=1, folder=folder, keep=0, metrics=MetricsWriter(folder / "metrics.jsonl"), live={},
        main_process=True,
    )  # fmt: skip
    return scorer(completion_ids=[[5, 1]] * group, row=[0] * group, trainer_state=SimpleNamespace(global_step=0))


def test_equal_totals_that_would_not_cancel_in_single_precision_are_refused_with_the_largest_that_do(tmp_path: Path) -> None:
    assert scored(4096 / 8 - 0.25, 8, tmp_path) == [511.75] * 8
    assert scored(100.7, 16, tmp_path) == [pytest.approx(100.7, abs=1e-3)] * 16
    with pytest.raises(TrainingError, match="with 8 answers a question, equal totals above 512 do not cancel") as refused:
        scored(1000.7, 8, tmp_path)
    assert refused.value.hint == "divide the weights of the rewards by 2 or more"


# --- presets


def formula(run: Run, pass_number: int) -> float:
    """The loss of a pass by the formulas of the preset's paper, in NumPy."""
    settings, seen = run.settings, run.seen.passes[pass_number]
    rollout = run.seen.rollouts[seen.step // settings.minibatches]
    logged = run.rollout(rollout.step)
    groups = np.array([row["total"] for row in logged]).reshape(-1, settings.group)
    made = groups - groups.mean(1, keepdims=True)
    if settings.preset in ("dapo", "gspo"):
        spread = groups.std(1, ddof=1, keepdims=True)
        made /= spread + 1e-4 if settings.preset == "gspo" else np.where(spread > 0, spread, 1)
    if settings.preset == "modern":
        made /= max(groups.std(ddof=1), 0.1)
    lengths = np.array([len(answer) for answer in rollout.answers]).reshape(groups.shape)  # 0 where masked
    losses, counts = [], []
    for prompt, answer in zip(seen.prompts, seen.answers, strict=True):
        place = next(i for i, pair in enumerate(zip(rollout.prompts, rollout.answers, strict=True)) if pair == (prompt, answer))
        now, old = (log_probs(weights, prompt, answer, 1.0) for weights in (seen.policy, rollout.policy))
        high = settings.clip_high or settings.clip
        found = terms(now, old, None, made.flat[place], settings.clip, high, 0.0, sequence=settings.ratio == "sequence")
        losses.append(found.loss.sum())
        counts.append(len(answer))
    if settings.preset == "gspo":  # mean over an answer's tokens, over answers, over the four passes of a step
        return float(np.mean(np.array(losses) / np.array(counts)) / 4)
    if settings.preset == "dr-grpo":  # a constant: the length limit
        return float(np.sum(losses) / (len(losses) * settings.max_completion_tokens) / 4)
    signal = groups.std(1) > 0  # mean over all tokens of the groups with signal; a rollout has two steps
    return float(np.sum(losses) / (lengths[signal].sum() / 2))


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["dr-grpo", "dapo", "gspo", "modern"])
def test_a_preset_trains_on_the_loss_of_its_paper(preset: str, stopping: Path, tmp_path: Path) -> None:
    settings = GrpoSettings.model_validate(
        {**SIZES, "preset": preset, "steps": 4, "questions_per_step": 4, "overlong_share": 0.0}
    )
    flat_then_not = Given([1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.5, 0.0])
    run = trained(stopping, tmp_path, settings, Mix((Part("rule", flat_then_not, 1.0),)))
    assert len(run.seen.passes) == 16
    found = [formula(run, number) for number in range(16)]
    np.testing.assert_allclose([seen.loss for seen in run.seen.passes], found, atol=1e-5)
    assert max(map(abs, found)) > 0.01
    logged = [row for step in (0, 2) for row in run.rollout(step)]
    assert {row["finish"] for row in logged} == {"stop", "length"}  # an answer ends at any of the model's end tokens
    masked = sum(not answer for rollout in run.seen.rollouts for answer in rollout.answers)
    assert masked == (sum(row["finish"] == "length" for row in logged) if preset == "dapo" else 0)


@pytest.mark.slow
def test_the_upper_clip_range_of_cispo_is_a_distance_from_one_too(stopping: Path, tmp_path: Path) -> None:
    settings = GrpoSettings.model_validate(
        {**SIZES, "preset": "dapo", "loss": "cispo", "truncated": "score", "steps": 4, "questions_per_step": 4,
         "overlong_share": 0.0}
    )  # fmt: skip
    run = trained(stopping, tmp_path, settings, Mix((Part("rule", Given([0.0, 1.0, 0.5, 0.0]), 1.0),)))
    assert run.summary["objective"]["clip_high"] == pytest.approx(0.28)
    tokens = {rollout.step: sum(map(len, rollout.answers)) for rollout in run.seen.rollouts}
    for seen in run.seen.passes:
        ratio = np.minimum(np.exp(seen.log_probs - seen.old), 1.28)
        loss = -(ratio * seen.advantages.reshape(-1, 1) * seen.log_probs * seen.mask).sum()
        assert seen.loss == pytest.approx(loss / (tokens[seen.step // 2 * 2] / 2), abs=1e-5)


@pytest.mark.slow
def test_the_penalty_before_the_limit_is_one_of_the_rewards(base: Path, tmp_path: Path) -> None:
    settings = GrpoSettings.model_validate({**SIZES, "preset": "modern", "steps": 2})
    run = trained(base, tmp_path, settings, Mix((Part("rule", EvenBytes(), 1.0),)))
    (row,) = run.metrics("rollout")
    assert row["truncated_share"] > 0.5
    assert row["rewards"]["overlong"] == pytest.approx(-1.0, abs=0.5)
    assert row["total_mean"] == pytest.approx(row["rewards"]["rule"] + row["rewards"]["overlong"], abs=1e-3)


def test_a_preset_fills_in_what_the_recipe_leaves_out_and_nothing_else() -> None:
    settings = GrpoSettings.model_validate({"steps": 160, "preset": "modern", "clip": 0.1, "kl": 0.01})
    assert (settings.clip, settings.kl) == (0.1, 0.01)
    written = settings.model_dump(mode="json")
    assert {key: written[key] for key in PRESETS["modern"] if key not in ("clip", "kl")} == {
        key: value for key, value in PRESETS["modern"].items() if key not in ("clip", "kl")
    }
    assert GrpoSettings.model_validate(written) == settings
    assert len({frozenset(preset) for preset in PRESETS.values()}) == 1


def test_the_default_is_the_papers_objective() -> None:
    plain = GrpoSettings(steps=160)
    assert plain == GrpoSettings(steps=160, preset="paper")
    assert {key: getattr(plain, key) for key in PRESETS["paper"]} == PRESETS["paper"]


# --- what is refused


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip": 0}, "greater than 0"),
        ({"clip": -1}, "greater than 0"),
        ({"clip": 0.3, "clip_high": 0.2}, "upper range"),
        (
            {"preset": "dapo", "clip": 10.0},
            r"clip \(10\.0, .* wider than clip_high \(0\.28, from preset \"dapo\"\).* set clip_high = 10\.0 .* preset's 0\.2",
        ),
        ({"kl": -0.1}, "greater than or equal to 0"),
        ({"temperature": 0}, "greater than 0"),
        ({"learning_rate": 0}, "greater than 0"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"loss": "gpro"}, "'grpo'"),
        ({"advantage_scale": "std"}, "'group', 'batch' or 'none'"),
        ({"preset": "papper"}, "'paper'"),
        ({"group": 1}, "greater than or equal to 2"),
        ({"top_p": 0.9}, "another distribution"),
        ({"top_k": 5}, "Extra inputs"),
        ({"max_completion_tokens": 0}, "greater than 0"),
        ({"ratio": "sequence", "loss": "dapo"}, 'use loss = "grpo"'),
        ({"advantage_floor": 0.1, "advantage_scale": "none"}, "divides by none"),
        ({"raised_completion_tokens": 65536}, "go together"),
        ({"raised_completion_tokens": 100, "raise_from_step": 32}, "is not above max_completion_tokens"),
        ({"raised_completion_tokens": 65536, "raise_from_step": 159}, "no rollout before the last step"),
        ({"raised_completion_tokens": 65536, "raise_from_step": 32, "overlong_share": 0.2}, "needs one length limit"),
        ({"refresh_reference": 0, "lora": {"target_modules": ["q_proj", "lm_head"]}}, "would not train"),
        ({"refresh_reference": 0, "lora": {"dropout": 0.1}}, "Extra inputs"),
        ({"steps": 1700}, r"1700 = 106 × 16 \+ 4; use 1696 or 1712"),
        ({"steps": 8}, r"8 = 0 × 16 \+ 8; use 16"),
    ],
)
def test_nonsense_is_refused_before_anything_is_loaded(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        GrpoSettings.model_validate({"steps": 160, **settings})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preference_from_step": 160}, "no rollout before the last step"),
        ({"preference_from_step": 152}, r"preference_from_step \(152\) falls on no rollout before the last step \(160\)"),
        ({"preference_from_step": 144, "minibatches": 1, "questions_per_step": 1}, "0.3, and would ask no general prompt"),
    ],
)
def test_preference_rewards_that_would_never_be_given_are_refused(settings: dict[str, Any], words: str) -> None:
    assert mixed_rl.Config.model_validate({"steps": 160, "preference_from_step": 151}).switch_step == 144
    with pytest.raises(ValidationError, match=words):
        mixed_rl.Config.model_validate({"steps": 160, **settings})


def test_groups_stay_whole_on_every_process() -> None:
    settings = GrpoSettings(steps=8, questions_per_step=1, group=4, minibatches=2, refresh_reference=0)
    assert settings.split(2, 8) == (2, 1)
    with pytest.raises(ValueError, match=r"a rollout of 2 questions .* 4 processes, each with whole groups: 2 = 0 × 4 \+ 2"):
        settings.split(4, 8)


# --- the length limit


RAISED = GRPO.model_copy(update={"max_completion_tokens": 5, "raised_completion_tokens": 11, "raise_from_step": 3})


@pytest.mark.slow
def test_the_length_limit_is_raised_at_the_start_of_a_rollout(base: Path, tmp_path: Path, capfd: Any) -> None:
    run = trained(base, tmp_path, RAISED, Mix((Part("rule", EvenBytes(), 1.0),)))
    assert RAISED.raise_step == 4
    assert run.seen.limits == [5, 5, 11, 11]
    assert [max(map(len, rollout.answers)) for rollout in run.seen.rollouts] == [5, 5, 11, 11]
    assert "answers may have 11 tokens from step 4 on (before: 5)" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", [3, 4])
def test_a_run_resumed_on_either_side_of_the_raise_ends_with_the_same_weights(crash_at: int, base: Path, tmp_path: Path) -> None:
    grpo(context(tmp_path / "whole"), base, settings=RAISED)
    with pytest.raises(Crash):
        grpo(context(tmp_path / "broken"), base, settings=RAISED, crash_at=crash_at)
    grpo(context(tmp_path / "broken"), base, settings=RAISED)
    assert weights_digest(tmp_path / "broken" / "model") == weights_digest(tmp_path / "whole" / "model")


def test_the_papers_steps_fall_on_the_nearest_rollout() -> None:
    from r1pipe.stages.mixed_rl import Config

    assert Config().switch_step == 1296  # 1,300 = 81 × 16 + 4
    assert Config().steps - Config().switch_step == 400
    zero = GrpoSettings(steps=10400, raised_completion_tokens=65536, raise_from_step=8200)
    assert (zero.raise_step, zero.token_limit(8207), zero.token_limit(8208)) == (8208, 32768, 65536)


# --- several processes


@pytest.mark.heavy
def test_two_processes_make_the_advantages_of_the_whole_rollout(tmp_path: Path) -> None:
    import json
    import subprocess
    import sys

    script = tmp_path / "two.py"
    script.write_text(
        "import json, sys\n"
        "from pathlib import Path\n"
        "from accelerate import PartialState\n"
        "from r1pipe.data.rows import Attempt, Problem\n"
        "from r1pipe.train.grpo import shape_rollout\n"
        "from r1pipe.train.run import rank\n"
        "from r1pipe.train.settings import GrpoSettings\n"
        "PartialState(cpu=True)\n"
        "settings = GrpoSettings(steps=2, group=2, minibatches=2, preset='modern', refresh_reference=0)\n"
        "totals = [1.0, 1.0, 0.0, 1.0] if rank() == 0 else [0.5, 0.0, None, 1.0]\n"
        "attempts = [Attempt(Problem(id='1', question='q'), 'x', '', 'stop', 3 + rank())] * 4\n"
        "made = shape_rollout(settings, totals, attempts)\n"
        "Path(sys.argv[1], f'{rank()}.json').write_text(json.dumps(made))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(script), str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    found = [value for rank in (0, 1) for value in json.loads((tmp_path / f"{rank}.json").read_text())]
    whole = [1.0, 1.0, 0.0, 1.0, 0.5, 0.0, None, 1.0]
    assert found == advantages(whole, [3] * 4 + [4] * 4, group=2, scale="batch", floor=0.1, leave_out_flat=True, token_mean=True)
