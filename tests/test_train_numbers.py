"""Every number of GRPO, from a logged rollout to the gradient, recomputed in NumPy and double precision."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from grpo_numbers import Seen, SeenPass, Terms, log_probs, terms, watching, z_scores
from tiny import make_tiny_model

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import read_part
from r1pipe.recipe import Launch
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.stage import Step, StepContext
from r1pipe.stages import mixed_rl, reasoning_rl
from r1pipe.train.settings import GrpoSettings, SftSettings

pytestmark = pytest.mark.slow

CLOSE = 1e-5
PROBLEMS = [Problem(id=str(n), question=f"{n}+1=", answer=str(n + 1)) for n in range(40)]
SIZES: dict[str, Any] = {
    "steps": 8, "questions_per_step": 2, "group": 4, "minibatches": 2, "max_completion_tokens": 12, "learning_rate": 1e-2,
    "optimizer": {"max_grad_norm": 1e6},
}  # fmt: skip
"""Four rollouts of two minibatches of two passes; the reference is replaced after the second rollout."""
STAGE_2 = reasoning_rl.Config.model_validate({**SIZES, "preset": "paper", "refresh_reference": 4})
STAGE_4 = mixed_rl.Config.model_validate({**SIZES, "preset": "paper", "refresh_reference": 4, "preference_from_step": 3})
LOW_CLIP = reasoning_rl.Config.model_validate({**SIZES, "refresh_reference": 4, "clip": 0.05, "clip_high": 0.08, "kl": 0.3})


class EvenBytes:
    """The share of even bytes, so that the answers of a group differ; `step` is the grid."""

    def __init__(self, step: float = 1 / 8) -> None:
        self.step = step

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        shares = [sum(ord(c) % 2 == 0 for c in a.completion) / max(1, len(a.completion)) for a in attempts]
        return [Score(round(share / self.step) * self.step) for share in shares]


@dataclass
class Run:
    settings: GrpoSettings
    seen: Seen
    folder: Path
    summary: dict[str, Any]

    @cached_property
    def formulas(self) -> dict[int, list[Terms]]:
        """What the formulas say of each pass, by the identity of the pass."""
        return {id(seen): answer_terms(self, seen) for seen in self.seen.passes}

    def metrics(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]

    def rollout(self, step: int) -> list[dict[str, Any]]:
        """The attempts of a rollout as they were written down."""
        return list(read_part(self.folder / "rollouts" / f"part-{step // self.settings.minibatches:05d}.parquet"))


def trained(base: Path, folder: Path, settings: GrpoSettings, mix: Mix | None = None) -> Run:
    import r1pipe.train.grpo as module

    folder.mkdir(parents=True, exist_ok=True)
    late = settings.switch_step if isinstance(settings, mixed_rl.Config) else 0
    mix = mix or Mix((Part("rule", EvenBytes(), 1.0), Part("late", EvenBytes(1 / 4), 0.5, late)))
    step = Step("toy", "toy", lambda _: {}, SftSettings, writes={"model": "model"})
    launch = Launch(threads=1, micro_batch=4, keep_attempts=1000)
    context = StepContext(step, None, {"chat": SimpleNamespace(system="")}, launch, {}, {}, folder, 3)
    order = prompt_order(
        verifiable=list(range(40)), general=[], rollouts=settings.rollouts, questions=settings.questions_per_rollout,
        general_from=0, general_share=0.0, seed=3,
    )  # fmt: skip
    seen = Seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GRPOTrainer", watching(seen))
        summary = module.train_grpo(
            context, settings, policy=base, problems=PROBLEMS, order=order, mix=mix, system="", what="toy"
        )
    return Run(settings, seen, folder, summary)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module", params=[STAGE_2, STAGE_4, LOW_CLIP], ids=["stage 2", "stage 4", "low clip"])
def run(request: pytest.FixtureRequest, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(base, tmp_path_factory.mktemp("run"), request.param)


def answer_terms(run: Run, seen: SeenPass, policy: dict[str, np.ndarray] | None = None) -> list[Terms]:
    """Every answer of a pass by the formula: from the weights of policy, old policy and reference, and the logged rewards."""
    settings = run.settings
    rollout = run.seen.rollouts[seen.step // settings.minibatches]
    advantages = z_scores([row["total"] for row in run.rollout(rollout.step)], settings.group)
    result = []
    for prompt, answer in zip(seen.prompts, seen.answers, strict=True):
        place = next(
            index for index, pair in enumerate(zip(rollout.prompts, rollout.answers, strict=True)) if pair == (prompt, answer)
        )
        now, old, reference = (
            log_probs(weights, prompt, answer, settings.temperature)
            for weights in (policy or seen.policy, rollout.policy, rollout.reference)
        )
        high = settings.clip if settings.clip_high is None else settings.clip_high
        result.append(terms(now, old, reference, advantages[place], settings.clip, high, settings.kl))
    return result


def loss_of(found: list[Terms]) -> float:
    """Mean over each answer's tokens, then over answers, halved: a step has two passes."""
    return float(np.mean([np.mean(term.loss) for term in found])) / 2


def test_every_advantage_follows_from_the_rewards_in_the_log(run: Run) -> None:
    assert [rollout.step for rollout in run.seen.rollouts] == [0, 2, 4, 6]
    for rollout in run.seen.rollouts:
        logged = run.rollout(rollout.step)
        assert len(logged) == run.settings.questions_per_rollout * run.settings.group == 16
        mine = z_scores([row["total"] for row in logged], run.settings.group)
        np.testing.assert_allclose(rollout.advantages, mine, atol=CLOSE)
        assert np.abs(mine).max() > 1


def test_the_log_holds_the_answers_that_were_trained_on(run: Run, base: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(base))
    for rollout in run.seen.rollouts:
        texts = [tokenizer.decode(answer, skip_special_tokens=True) for answer in rollout.answers]
        assert [row["completion"] for row in run.rollout(rollout.step)] == texts
    asked = {"".join(tokenizer.decode(prompt)) for rollout in run.seen.rollouts for prompt in rollout.prompts}
    assert len(asked) == 16


def test_minibatches_split_groups_and_keep_the_advantages_of_the_whole_group(run: Run) -> None:
    split = 0
    for seen in run.seen.passes:
        rollout = run.seen.rollouts[seen.step // 2]
        made = {
            (tuple(p), tuple(a)): value for p, a, value in zip(rollout.prompts, rollout.answers, rollout.advantages, strict=True)
        }
        keys = [(tuple(p), tuple(a)) for p, a in zip(seen.prompts, seen.answers, strict=True)]
        assert [made[key] for key in keys] == list(seen.advantages)
        split += len({prompt for prompt, _ in keys}) > 1
    assert split > 0


def test_every_log_probability_is_that_of_the_weights(run: Run) -> None:
    for seen in run.seen.passes:
        rollout = run.seen.rollouts[seen.step // 2]
        sources = [(seen.log_probs, seen.policy), (seen.old, rollout.policy), (seen.reference, rollout.reference)]
        for theirs, weights in sources:
            for row, (prompt, answer) in enumerate(zip(seen.prompts, seen.answers, strict=True)):
                mine = log_probs(weights, prompt, answer, run.settings.temperature)
                np.testing.assert_allclose(theirs[row][seen.mask[row]], mine, atol=CLOSE)


def test_every_ratio_kl_clip_and_loss_is_the_formulas(run: Run) -> None:
    furthest, largest, clips = 0.0, 0.0, 0
    by_step: dict[int, list[Terms]] = {}
    for seen in run.seen.passes:
        mine = run.formulas[id(seen)]
        by_step.setdefault(seen.step, []).extend(mine)
        for row, term in enumerate(mine):
            kept = seen.mask[row]
            now, old, reference = seen.log_probs[row][kept], seen.old[row][kept], seen.reference[row][kept]
            np.testing.assert_allclose(np.exp(now - old), term.ratio, rtol=CLOSE * 2, atol=CLOSE)
            np.testing.assert_allclose(np.exp(reference - now) - (reference - now) - 1, term.kl, rtol=CLOSE * 2, atol=CLOSE)
            furthest, largest = max(furthest, np.abs(term.ratio - 1).max()), max(largest, term.kl.max())
            clips += int(term.clipped.sum())
        assert seen.loss == pytest.approx(loss_of(mine), abs=CLOSE)
    assert furthest > 0.1
    assert largest > 0.01
    assert (clips > 10) == (run.settings.clip < 1)
    for line in run.metrics("step"):
        found = by_step[line["step"] - 1]
        tokens = sum(len(term.kl) for term in found)
        assert line["kl"] == pytest.approx(mean_of_passes(run, line["step"] - 1, "kl"), abs=CLOSE)
        assert line["clipped_share"] == pytest.approx(mean_of_passes(run, line["step"] - 1, "clipped"), abs=CLOSE)
        assert tokens > 8


def mean_of_passes(run: Run, step: int, what: str) -> float:
    """The mean over the passes of a step of the mean over their tokens."""
    passes = [run.formulas[id(seen)] for seen in run.seen.passes if seen.step == step]
    return float(np.mean([np.mean(np.concatenate([getattr(term, what) for term in found])) for found in passes]))


def test_the_gradient_is_that_of_the_formula(run: Run) -> None:
    """Along a random direction, by central differences in double precision: what is trained on, not only what is reported."""
    generator = np.random.default_rng(0)
    for step in (1, 7):  # the last minibatch of the first rollout, and of the second one after the refresh
        passes = [seen for seen in run.seen.passes if seen.step == step]
        assert len(passes) == 2
        direction = {name: generator.standard_normal(value.shape) for name, value in passes[0].policy.items()}
        direction["model.embed_tokens.weight"][0] = 0  # the row of the pad token, to which the layer passes no gradient

        def at(distance: float, passes: list[SeenPass] = passes, direction: Any = direction) -> float:
            moved = {name: value + distance * direction[name] for name, value in passes[0].policy.items()}
            return sum(loss_of(answer_terms(run, seen, moved)) for seen in passes)

        mine = (at(1e-6) - at(-1e-6)) / 2e-6
        theirs = sum(float(np.sum(passes[-1].gradient[name] * direction[name])) for name in direction)
        assert theirs == pytest.approx(mine, rel=1e-3, abs=CLOSE)


def test_the_first_minibatch_of_a_rollout_is_on_policy_and_the_reference_is_the_policy_of_the_last_refresh(run: Run) -> None:
    start, _, refreshed, after = run.seen.rollouts
    for seen in run.seen.passes:
        if seen.step % 2 == 0:
            np.testing.assert_allclose(seen.log_probs[seen.mask], seen.old[seen.mask], atol=CLOSE)
    for rollout, of in ((start, start), (run.seen.rollouts[1], start), (refreshed, refreshed), (after, refreshed)):
        assert rollout.reference is not None
        assert all(np.array_equal(rollout.reference[name], of.policy[name]) for name in of.policy)
    assert any(not np.array_equal(start.policy[name], refreshed.policy[name]) for name in start.policy)
    assert any(not np.array_equal(after.policy[name], refreshed.policy[name]) for name in after.policy)


def test_the_stages_train_with_the_papers_objective_and_the_record_says_so(run: Run) -> None:
    objective = run.summary["objective"]
    assert (objective["loss"], objective["ratio"], objective["scale"], objective["passes"]) == ("grpo", "token", "group", 1)
    assert objective["advantages_by"] == "trl"
    assert (objective["bias_corrected_kl"], objective["dropout"], objective["mask_truncated"]) == (False, False, False)
    if run.settings is not LOW_CLIP:
        assert (objective["kl"], objective["clip_low"], objective["clip_high"]) == (0.001, 10.0, 10.0)
    assert objective["temperature"] == (0.7 if run.settings is STAGE_4 else 1.0)


def test_preference_rewards_are_in_the_advantages_from_the_switch_on(run: Run) -> None:
    joined = [row["rewards"]["late"] is not None for row in run.metrics("rollout")]
    assert joined == ([False, False, True, True] if run.settings is STAGE_4 else [True] * 4)
