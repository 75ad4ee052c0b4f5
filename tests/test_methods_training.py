"""Every method by the real trainer: its gradient against the closed form of a softmax policy, and going on after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from grpo_numbers import Seen, SeenRollout, watching
from tiny import make_tiny_model, weights_digest
from train_helpers import GRPO, PROBLEMS, Crash, context, grpo

from r1pipe.data.nano.problems import problems as nano_problems
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.schedule import prompt_order
from r1pipe.data.tables import PROBLEM_COLUMNS, problem_row, read_part, write_table
from r1pipe.errors import RecipeError, Stopped, TrainingError
from r1pipe.pipeline import locate_base
from r1pipe.recipe import Launch
from r1pipe.rewards import Mix
from r1pipe.rewards.mix import Part
from r1pipe.rewards.steps import JudgedStep
from r1pipe.stage import Step, StepContext
from r1pipe.stages import reasoning_rl
from r1pipe.stages.sections import ChatSection, RewardsSection
from r1pipe.train.settings import GrpoSettings, SftSettings

pytestmark = pytest.mark.slow

CLOSE = 1e-6
OTHERS = ("rft", "online-rft", "grpo-process", "reinforce-loo", "ppo")
HEAVY = [method if method == "ppo" else pytest.param(method, marks=pytest.mark.heavy) for method in OTHERS]
"""PPO, which adds most to a run, in the default suite; the others with the heavy tests."""
SIZES: dict[str, Any] = {
    "steps": 6, "questions_per_step": 2, "group": 4, "minibatches": 2, "max_completion_tokens": 10, "learning_rate": 3e-2,
    "refresh_reference": 4, "optimizer": {"max_grad_norm": 1e6},
}  # fmt: skip


# --- a softmax policy whose gradient is known


def make_softmax_policy(folder: Path) -> Path:
    """A model whose logits are a matrix times a fixed vector of the token before: the layer between adds nothing."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    make_tiny_model(folder)
    found = Qwen3Config.from_pretrained(str(folder))
    torch.manual_seed(1)
    config = Qwen3Config(**{**found.to_dict(), "num_hidden_layers": 1, "layer_types": None, "tie_word_embeddings": False})
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.norm.weight.copy_(1 + torch.rand_like(model.model.norm.weight))
        model.lm_head.weight.copy_(torch.randn_like(model.lm_head.weight) * 0.3)
    model.save_pretrained(str(folder))
    return folder


def features(weights: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """The fixed vectors of tokens, (tokens, width)."""
    rows = weights["model.embed_tokens.weight"][tokens]
    return np.asarray(weights["model.norm.weight"] * rows / np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True) + 1e-6))


def probabilities(weights: dict[str, np.ndarray], prompt: list[int], answer: list[int]) -> np.ndarray:
    """π(. | token before), (tokens, vocabulary)."""
    logits = features(weights, [prompt[-1], *answer[:-1]]) @ weights["lm_head.weight"].T
    logits -= logits.max(-1, keepdims=True)
    return np.asarray(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))


def gradient_of_log(weights: dict[str, np.ndarray], prompt: list[int], answer: list[int], coefficients: np.ndarray) -> np.ndarray:
    """Σ_t coefficient_t ∇ log π(o_t | token before) by the matrix: (one-hot - π) times the fixed vector."""
    gaps = -probabilities(weights, prompt, answer)
    gaps[np.arange(len(answer)), answer] += 1
    return np.asarray((coefficients[:, None] * gaps).T @ features(weights, [prompt[-1], *answer[:-1]]))


# --- runs of it


class Parity:
    """Right when most bytes are even; and the share of even bytes, so that right answers differ as well."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        shares = [sum(ord(c) % 2 == 0 for c in a.completion) / max(1, len(a.completion)) for a in attempts]
        return [Score(float(share > 0.5) if self.exact else round(share * 8) / 8) for share in shares]


MIX = Mix((Part("accuracy", Parity(True), 1.0), Part("even", Parity(False), 0.5)))


def every_third_character(attempt: Attempt) -> list[JudgedStep]:
    """Steps for answers that are no text: one at every third character, right when that is even."""
    text = attempt.completion
    return [JudgedStep(end, text[end - 1], float(ord(text[end - 1]) % 2 == 0)) for end in range(3, len(text) + 1, 3)]


@dataclass
class Run:
    settings: GrpoSettings
    seen: Seen
    folder: Path
    summary: dict[str, Any]
    values: list[np.ndarray] = field(default_factory=list)
    sampled_by: list[np.ndarray] = field(default_factory=list)

    def logged(self, rollout: SeenRollout) -> list[dict[str, Any]]:
        return list(read_part(self.folder / "rollouts" / f"part-{rollout.step // 2:05d}.parquet"))

    def steps(self) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["kind"] == "step"]


def trained(policy: Path, folder: Path, settings: GrpoSettings, mix: Mix = MIX) -> Run:
    from transformers import Qwen3ForCausalLM

    import r1pipe.train.grpo as module
    import r1pipe.train.methods.steps as steps
    from r1pipe.train.methods.trainer import MethodTrainer
    from r1pipe.train.methods.value import ValueModel

    folder.mkdir(parents=True, exist_ok=True)
    run = Run(settings, Seen(), folder, {})

    def matrix_only(base: type) -> type:
        class Matrix(base):  # type: ignore[misc]
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                for name, parameter in self.model.named_parameters():
                    parameter.requires_grad_(name == "lm_head.weight")

        return Matrix

    look, generate = ValueModel.look, Qwen3ForCausalLM.generate

    def looking(self: Any, *arguments: Any) -> Any:
        found = look(self, *arguments)
        run.values.append(found.double().numpy().copy())
        return found

    def generating(self: Any, *arguments: Any, **named: Any) -> Any:
        if "max_new_tokens" not in named:  # not the comparison of sampler and trainer
            run.sampled_by.append(self.lm_head.weight.detach().double().numpy().copy())
        return generate(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GRPOTrainer", matrix_only(watching(run.seen)))
        patch.setattr(module, "MethodTrainer", matrix_only(watching(run.seen, MethodTrainer)))
        patch.setattr(steps, "judged_steps", every_third_character)
        patch.setattr(steps, "has_plan", lambda problem: True)
        patch.setattr(ValueModel, "look", looking)
        patch.setattr(Qwen3ForCausalLM, "generate", generating)
        step = Step("toy", "toy", lambda _: {}, SftSettings, writes={"model": "model"})
        launch = Launch(threads=1, micro_batch=4, keep_attempts=1000, checkpoint_every=6)
        ctx = StepContext(step, None, {"chat": SimpleNamespace(system="")}, launch, {}, {}, folder, 3)
        order = prompt_order(
            verifiable=list(range(40)), general=[], rollouts=settings.rollouts, questions=settings.questions_per_rollout,
            general_from=0, general_share=0.0, seed=3,
        )  # fmt: skip
        run.summary = module.train_grpo(
            ctx, settings, policy=policy, problems=PROBLEMS, order=order, mix=mix, system="", what="toy"
        )
    return run


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_softmax_policy(tmp_path_factory.mktemp("softmax"))


@pytest.fixture(scope="module")
def run_of(softmax: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    @cache
    def made(method: str) -> Run:
        settings = {**SIZES, "method": method}
        if method not in ("rft", "online-rft"):
            settings["kl"] = 0.3
        if method == "ppo":
            settings["ppo"] = {"gae_gamma": 0.97, "gae_lambda": 0.9, "value_learning_rate": 1e-2}
        return trained(softmax, tmp_path_factory.mktemp(method), GrpoSettings.model_validate(settings))

    return made


# --- what each token's gradient should be multiplied with, from the formulas


def groups(values: list[Any]) -> list[list[Any]]:
    return [values[start : start + 4] for start in range(0, len(values), 4)]


def advantages_of(run: Run, rollout: SeenRollout) -> list[np.ndarray]:
    """Each answer's advantage by token, from the rewards in the log."""
    rows, method = run.logged(rollout), run.settings.method
    totals = [row["total"] for row in rows]
    lengths = [len(answer) for answer in rollout.answers]
    if method in ("rft", "online-rft"):
        return [np.full(length, float(row["verdict"] == "right")) for row, length in zip(rows, lengths, strict=True)]
    if method == "grpo":
        made = [(np.array(group) - np.mean(group)) / (np.std(group, ddof=1) + 1e-4) for group in groups(totals)]
        return [np.full(length, value) for value, length in zip(np.concatenate(made), lengths, strict=True)]
    if method == "reinforce-loo":
        alone = [total - (sum(group) - total) / 3 for group in groups(totals) for total in group]
        return [np.full(length, value) for value, length in zip(alone, lengths, strict=True)]
    if method == "grpo-process":
        return by_steps(run, rollout, rows)
    return by_gae(run, rollout, totals)


def by_steps(run: Run, rollout: SeenRollout, rows: list[dict[str, Any]]) -> list[np.ndarray]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(run.folder / "model"))
    found: list[list[tuple[int, float]]] = []
    for row, answer in zip(rows, rollout.answers, strict=True):
        texts = [tokenizer.decode(answer[:count], skip_special_tokens=True) for count in range(1, len(answer) + 1)]
        steps = every_third_character(Attempt(Problem("x", "x"), row["completion"]))
        ends = [
            next(count for count, text in enumerate(texts, 1) if text[: step.end] == row["completion"][: step.end])
            for step in steps
        ]
        outcome = row["total"] / 1.5  # the weights of the two rewards
        found.append([*zip(ends, (step.score for step in steps), strict=True), (len(answer), outcome)])
    result = []
    for members in groups(found):
        pool = np.array([score for steps in members for _, score in steps])
        for steps in members:
            ends, scores = np.array([end for end, _ in steps]), np.array([score for _, score in steps])
            scaled = (scores - pool.mean()) / np.std(pool, ddof=1)
            result.append(np.array([scaled[ends >= place].sum() for place in range(1, steps[-1][0] + 1)]))
    return result


def by_gae(run: Run, rollout: SeenRollout, totals: list[float]) -> list[np.ndarray]:
    """A_t = Σ_k (γλ)^k δ_{t+k}, each sum written out."""
    assert run.settings.ppo is not None
    assert rollout.reference is not None
    gamma, lam, kl = run.settings.ppo.gae_gamma, run.settings.ppo.gae_lambda, run.settings.kl
    result = []
    for index, (prompt, answer) in enumerate(zip(rollout.prompts, rollout.answers, strict=True)):
        count = len(answer)
        now, reference = (
            np.log(probabilities(weights, prompt, answer)[np.arange(count), answer])
            for weights in (rollout.policy, rollout.reference)
        )
        rewards = -kl * (now - reference)
        rewards[-1] += totals[index]
        values = np.append(run.values[rollout.step // 2][index][:count], 0.0)
        deltas = rewards + gamma * values[1:] - values[:-1]
        result.append(np.array([sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, count)) for t in range(count)]))
    return result


@pytest.mark.parametrize("method", ["grpo", *OTHERS])
def test_the_gradient_that_is_applied_is_the_methods_coefficient_times_that_of_the_log_likelihood(
    method: str, run_of: Callable[[str], Run]
) -> None:
    run = run_of(method)
    made = {rollout.step: advantages_of(run, rollout) for rollout in run.seen.rollouts}
    assert [rollout.step for rollout in run.seen.rollouts] == [0, 2, 4]
    largest = 0.0
    for step in range(6):
        passes = [seen for seen in run.seen.passes if seen.step == step]
        rollout = run.seen.rollouts[step // 2]
        wanted = np.zeros_like(passes[0].policy["lm_head.weight"])
        for seen in passes:
            for prompt, answer in zip(seen.prompts, seen.answers, strict=True):
                pairs = list(zip(rollout.prompts, rollout.answers, strict=True))
                advantage = made[rollout.step][pairs.index((prompt, answer))]
                at = np.arange(len(answer)), answer
                now, old = (probabilities(weights, prompt, answer)[at] for weights in (seen.policy, rollout.policy))
                coefficient = advantage * (1.0 if method in ("rft", "online-rft") else now / old)
                if method in ("grpo", "grpo-process", "reinforce-loo"):
                    assert rollout.reference is not None
                    coefficient = coefficient + 0.3 * (probabilities(rollout.reference, prompt, answer)[at] / now - 1)
                share = 1 / (len(seen.answers) * len(passes) * len(answer))
                wanted -= share * gradient_of_log(seen.policy, prompt, answer, coefficient)
        (found,) = passes[-1].gradient.values()
        np.testing.assert_allclose(found, wanted, atol=CLOSE)
        largest = max(largest, float(np.abs(wanted).max()))
    assert largest > 1e-2
    moved = run.seen.rollouts[-1].policy["lm_head.weight"] - run.seen.rollouts[0].policy["lm_head.weight"]
    assert np.abs(moved).max() > 0.03


def test_rft_samples_from_the_input_model_throughout_and_the_others_from_the_policy(run_of: Callable[[str], Run]) -> None:
    for method in ("rft", "online-rft", "ppo"):
        run = run_of(method)
        start = run.seen.rollouts[0].policy["lm_head.weight"]
        assert len(run.sampled_by) == 3
        assert [np.array_equal(found, start) for found in run.sampled_by] == [True, method == "rft", method == "rft"]
        if method != "rft":
            now = [rollout.policy["lm_head.weight"] for rollout in run.seen.rollouts]
            assert all(np.array_equal(found, policy) for found, policy in zip(run.sampled_by, now, strict=True))


def test_centring_on_the_group_mean_gives_the_gradient_of_leaving_one_out_times_a_factor(softmax: Path, tmp_path: Path) -> None:
    plain = {**SIZES, "steps": 2, "refresh_reference": 0, "kl": 0.0}
    alone = trained(softmax, tmp_path / "alone", GrpoSettings.model_validate({**plain, "method": "reinforce-loo"}))
    centred = trained(softmax, tmp_path / "centred", GrpoSettings.model_validate({**plain, "advantage_scale": "none"}))
    one, other = (next(iter([p for p in run.seen.passes if p.step == 0][-1].gradient.values())) for run in (alone, centred))
    np.testing.assert_allclose(other, one * 3 / 4, atol=CLOSE)  # (G - 1) / G with G = 4
    assert np.abs(one).max() > 1e-2


def test_the_values_are_zero_at_first_and_every_step_teaches_them(run_of: Callable[[str], Run]) -> None:
    run = run_of("ppo")
    assert [bool(np.abs(values).max() > 1e-3) for values in run.values] == [False, True, True]
    lines = run.steps()
    assert all(line["value_loss"] > 0 for line in lines)
    assert [("kl" in line, "value_explained" in line) for line in lines] == [(True, step % 2 == 0) for step in range(6)]
    assert lines[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert lines[2]["kl"] > 1e-4
    objective = run.summary["objective"]
    assert (objective["method"], objective["kl"], objective["advantages_by"]) == ("ppo", 0.3, "r1pipe")


def test_a_value_model_learns_what_is_to_come_and_goes_on_bit_for_bit_from_its_checkpoint(tmp_path: Path) -> None:
    import torch

    from r1pipe.train.methods.value import ValueModel
    from r1pipe.train.settings import OptimizerSettings

    base = make_tiny_model(tmp_path / "base")
    ids = torch.arange(5, 29).reshape(2, 12)
    mask, returns, counted = (
        torch.ones_like(ids),
        torch.tensor([[1.0] * 4, [-0.5] * 4]),
        torch.tensor([[1.0] * 4, [1.0] * 3 + [0.0]]),
    )

    def made() -> ValueModel:
        return ValueModel(base, torch.float32, "cpu", 1e-2, OptimizerSettings())

    def taught(model: ValueModel, times: int) -> list[float]:
        losses = []
        for _ in range(times):
            losses.append(sum(float(model.learn(ids, mask, returns, counted, 0.5)) for _ in range(2)) / 2)
            model.step(1.0, "toy")
        return losses

    one, other = made(), made()
    assert not one.look(ids, mask, 4, 1).any()
    losses = taught(one, 20)
    assert losses[0] == pytest.approx((4 * 1.0 + 3 * 0.25) / 7 / 2)  # half the mean squared error over the seven tokens counted
    assert losses[-1] < losses[0] / 20
    torch.testing.assert_close(one.look(ids, mask, 4, 1), one.look(ids, mask, 4, 2))
    before = torch.random.get_rng_state()
    one.save(tmp_path)
    other.load(tmp_path)
    assert taught(one, 3) == taught(other, 3)
    assert torch.equal(one.look(ids, mask, 4, 2), other.look(ids, mask, 4, 2))
    made()
    assert torch.equal(torch.random.get_rng_state(), before)  # its making draws nothing from the run's generator
    with pytest.raises(TrainingError, match="the value model is not there"):
        other.load(base)


# --- going on


def settings_of(method: str) -> GrpoSettings:
    fills = {"kl": 0.0, "refresh_reference": 0} if method in ("rft", "online-rft") else {}
    return GrpoSettings.model_validate({**{key: getattr(GRPO, key) for key in GRPO.model_fields_set}, "method": method, **fills})


class Sometimes:
    """Accuracy that is right for a third of the answers, whatever a model writes; crashes at a given call."""

    def __init__(self, crash_at: int = -1) -> None:
        self.calls, self.crash_at = 0, crash_at

    def score(self, attempts: list[Attempt]) -> list[Score | None]:
        self.calls += 1
        if self.calls == self.crash_at:
            raise Crash
        return [Score(float(sum(map(ord, a.completion)) % 3 == 0)) for a in attempts]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize("method", HEAVY)
def test_a_method_that_crashed_and_was_resumed_ends_with_the_same_weights(
    method: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    import r1pipe.train.methods.steps as steps

    monkeypatch.setattr(steps, "judged_steps", every_third_character)
    monkeypatch.setattr(steps, "has_plan", lambda problem: True)
    settings = settings_of(method)

    def mix(crash_at: int = -1) -> Mix:
        return Mix((Part("accuracy", Sometimes(crash_at), 1.0),))

    grpo(context(tmp_path / "whole"), base, settings, mix=mix())
    with pytest.raises(Crash):
        grpo(context(tmp_path / "broken"), base, settings, mix=mix(crash_at=4))  # after the checkpoint of step 6
    value = tmp_path / "broken" / "checkpoints" / "checkpoint-6" / "value.safetensors"
    assert value.is_file() == (method == "ppo")
    assert method != "ppo" or float(load_file(str(value))["step/head.bias"]) == 6  # one step of its optimizer for each of ours
    grpo(context(tmp_path / "broken"), base, settings, mix=mix())
    digest = weights_digest(tmp_path / "whole" / "model")
    assert weights_digest(tmp_path / "broken" / "model") == digest != weights_digest(base)
    lines = [
        [{k: v for k, v in json.loads(line).items() if k != "step_seconds"} for line in path.read_text().splitlines()]
        for path in (tmp_path / "whole" / "metrics.jsonl", tmp_path / "broken" / "metrics.jsonl")
    ]
    told = [[line for line in found if line["kind"] in ("step", "rollout")] for found in lines]
    assert told[0] == told[1]
    assert all("coefficient" in line for line in told[0] if line["kind"] == "step" and line["step"] % 2)


@pytest.mark.heavy
def test_a_checkpoint_whose_value_model_was_lost_is_passed_over(base: Path, tmp_path: Path) -> None:
    settings, mix = settings_of("ppo"), Mix((Part("accuracy", Sometimes(), 1.0),))
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, settings, mix=Mix((Part("accuracy", Sometimes(4), 1.0),)))
    (tmp_path / "checkpoints" / "checkpoint-6" / "value.safetensors").unlink()
    grpo(context(tmp_path), base, settings, mix=mix)
    assert "value.safetensors is missing" in (tmp_path / "metrics.jsonl").read_text()


def test_a_checkpoint_of_another_method_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        grpo(context(tmp_path), base, GRPO, crash_at=3)
    with pytest.raises(TrainingError, match=r"method: None -> 'reinforce-loo'"):
        grpo(context(tmp_path), base, settings_of("reinforce-loo"))


def test_steps_that_nobody_could_judge_are_refused_before_training(base: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="none of 40 does"):
        grpo(context(tmp_path), base, settings_of("grpo-process"))


def test_a_step_scoring_model_reads_the_answer_up_to_the_end_of_each_sentence(base: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    from r1pipe.engines.text import judged_ids, load_tokenizer
    from r1pipe.rewards import Row
    from r1pipe.train.methods.choice import ProcessSettings
    from r1pipe.train.methods.steps import StepScorer
    from r1pipe.train.scorer import score_ids

    torch.manual_seed(2)
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1), load_tokenizer(base)
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.r1pipe_scale = {"mean": 0.01, "spread": 0.05}
    model.save_pretrained(str(tmp_path / "steps"))
    tokenizer.save_pretrained(str(tmp_path / "steps"))
    settings = ProcessSettings(steps="model", model=str(tmp_path / "steps"))
    text = "<think>\nI add. 先算加法：3。That is all.\n</think>\n\nIt is 3. Yes."
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    one = Attempt(Problem("x", "1+2="), text, tokens=len(ids))
    row = Row({"accuracy": Score(1.0), "even": Score(0.5), "off": None}, 1.25)
    mix = Mix((*MIX.parts, Part("off", Parity(True), 3.0)))
    found = StepScorer(settings, tokenizer, mix, "")([one, one], [row, Row({}, None)], [ids, ids])
    assert found[1] == []  # could not be judged
    ends = ["<think>\nI add. ", "<think>\nI add. 先算加法：3。", text[: text.index("\n</think>") + 1]]
    assert [tokenizer.decode(ids[:count]) for count, _ in found[0][:-1]] == ends
    raw = score_ids(model, tokenizer.pad_token_id, [judged_ids(tokenizer, "1+2=", "", end) for end in ends])
    wanted = [(max(-2.0, min(2.0, (value - 0.01) / 0.05)) + 2) / 4 for value in raw]
    assert [score for _, score in found[0][:-1]] == pytest.approx(wanted, abs=1e-5)
    assert found[0][-1] == (len(ids), pytest.approx(1.25 / 1.5))
    chosen = settings_of("grpo-process").model_copy(update={"process": settings, "steps": 2})
    grpo(context(tmp_path / "run"), base, chosen, mix=Mix((Part("accuracy", Sometimes(), 1.0),)))
    assert weights_digest(tmp_path / "run" / "model") != weights_digest(base)


# --- a stage


def stage(folder: Path, method: str, problems: Path, policy: Path, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    config = reasoning_rl.Config.model_validate(
        {"steps": 4, "questions_per_step": 4, "group": 4, "minibatches": 2, "max_completion_tokens": 64, "learning_rate": 1e-3,
         "refresh_reference": 0 if method in ("rft", "online-rft") else 2, "method": method}
    )  # fmt: skip
    step = Step("reasoning-rl", "2-reasoning-rl", reasoning_rl.run, reasoning_rl.Config, writes={"model": "model"})
    shared = {"chat": ChatSection(), "rewards": RewardsSection()}
    inputs = {"policy": policy, "problems": problems}
    ctx = StepContext(
        step, config, shared, Launch(checkpoint_every=2, threads=1), inputs, {"policy": "p", "problems": "q"}, folder, 5, stop
    )
    return reasoning_rl.run(ctx)


@pytest.mark.heavy
@pytest.mark.parametrize("method", OTHERS)
def test_reasoning_rl_runs_with_every_method_and_stops_and_goes_on_exactly(method: str, tmp_path: Path) -> None:
    write_table(tmp_path / "problems", map(problem_row, nano_problems(40, 3)), PROBLEM_COLUMNS)
    policy = locate_base("nano")
    summary = stage(tmp_path / "whole", method, tmp_path / "problems", policy)
    assert summary["objective"]["method"] == method
    with pytest.raises(Stopped):
        stage(tmp_path / "stopped", method, tmp_path / "problems", policy, stop=lambda: True)
    stage(tmp_path / "stopped", method, tmp_path / "problems", policy)
    assert (
        weights_digest(tmp_path / "stopped" / "model") == weights_digest(tmp_path / "whole" / "model") != weights_digest(policy)
    )
    if method == "grpo-process":
        lines = map(json.loads, (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines())
        steps = [line for line in lines if line["kind"] == "step" and "steps_written" in line]
        assert all(0 < line["step_right"] < 1 and line["steps_written"] > 0.3 for line in steps)
