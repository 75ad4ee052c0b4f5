"""The family of methods: what fits which, coefficients against what a person works out, the rule for steps, memory and cost."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from r1pipe.data.nano.problems import problems
from r1pipe.data.nano.solutions import work, worked_trace
from r1pipe.data.rows import Attempt, Problem
from r1pipe.opening import open_recipe
from r1pipe.pipeline import locate_base
from r1pipe.rewards.steps import has_plan, judged_steps
from r1pipe.stages import mixed_rl
from r1pipe.train.methods.choice import METHODS
from r1pipe.train.methods.coefficients import (
    generalised_advantages,
    leave_one_out,
    right_or_not,
    sum_of_later_steps,
    token_rewards,
    z_scored_steps,
)
from r1pipe.train.methods.costs import costs_of, costs_without_method
from r1pipe.train.settings import GrpoSettings
from r1pipe.views.costs import cost_lines

# --- what fits


@pytest.mark.parametrize("method", METHODS)
def test_one_setting_swaps_the_method_of_the_embedded_recipe(method: str) -> None:
    _, recipe = open_recipe("nano")
    config = recipe.configs["reasoning-rl"]
    written = {name: getattr(config, name) for name in ("steps", "questions_per_step", "group", "minibatches", "learning_rate",
               "temperature", "max_completion_tokens")}  # fmt: skip
    chosen = type(config).model_validate({**written, "refresh_reference": 16, "method": method})
    assert chosen.kl == (0.0 if method in ("rft", "online-rft") else 0.001)
    assert (chosen.ppo is not None, chosen.process is not None) == (method == "ppo", method == "grpo-process")
    assert type(config).model_validate(chosen.model_dump()) == chosen  # what is written down can be read again


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "dpo"}, "'grpo', 'rft'"),
        ({"method": "rft", "kl": 0.1}, 'kl = 0.1 does not fit method = "rft", which .* no KL term: set kl = 0'),
        ({"method": "online-rft", "kl": 0.001}, "no KL term"),
        ({"method": "rft", "clip": 0.2}, "compares no policies"),
        ({"method": "rft", "preset": "dapo"}, "clip = 0.2"),
        ({"method": "online-rft", "clip_high": 12.0}, "set clip_high = left out"),
        ({"method": "online-rft", "loss": "cispo"}, "learns from likelihoods"),
        ({"method": "rft", "flat_groups": "leave-out"}, "all right, too"),
        ({"method": "rft", "overlong_share": 0.2}, "no reward is taken away"),
        ({"method": "reinforce-loo", "advantage_scale": "group"}, "divides by nothing"),
        ({"method": "grpo-process", "advantage_scale": "batch"}, "deviation of the group's steps"),
        ({"method": "grpo-process", "ratio": "sequence"}, "each token an advantage of its own"),
        ({"method": "ppo", "advantage_scale": "group"}, 'set advantage_scale = "none" or "batch"'),
        ({"method": "ppo", "ratio": "sequence"}, "each token an advantage of its own"),
        ({"method": "ppo", "ppo": {"gae_lambda": 1.5}}, "less than or equal to 1"),
        ({"method": "ppo", "ppo": {"gae_gamma": 0}}, "greater than 0"),
        ({"method": "ppo", "ppo": None}, "needs its settings"),
        ({"ppo": {"gae_lambda": 0.95}}, 'those of method = "ppo", and method is "grpo"'),
        ({"method": "rft", "process": {"steps": "rule"}}, 'those of method = "grpo-process"'),
        ({"method": "grpo-process", "process": {"steps": "model"}}, "name the folder"),
        ({"method": "grpo-process", "process": {"model": "x"}}, "is not asked"),
    ],
)
def test_settings_that_do_not_fit_a_method_are_refused_in_words(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        GrpoSettings.model_validate({"steps": 160, **settings})


def test_methods_that_need_a_right_answer_are_refused_where_general_prompts_join() -> None:
    for method in ("rft", "online-rft", "grpo-process"):
        with pytest.raises(ValidationError, match=r"general prompts .* have none"):
            mixed_rl.Config.model_validate({"method": method})
        assert mixed_rl.Config.model_validate({"method": method, "general_share": 0.0}).method == method
    assert mixed_rl.Config.model_validate({"method": "ppo"}).ppo is not None


# --- coefficients


def test_rft_takes_right_answers_and_nothing_else() -> None:
    assert right_or_not(["right", "wrong", "unjudged", "none", "right"]) == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_centring_on_the_group_mean_is_leaving_one_out_times_a_factor() -> None:
    generator = np.random.default_rng(0)
    for group in (2, 3, 8, 16):
        rewards = generator.normal(size=2 * group)
        mine = leave_one_out(rewards.tolist(), group)
        centred = (rewards.reshape(2, group) - rewards.reshape(2, group).mean(axis=1, keepdims=True)).reshape(-1)
        np.testing.assert_allclose(centred, np.array(mine) * (group - 1) / group, atol=1e-12)
        others = [np.delete(rewards[start : start + group], at).mean() for start in (0, group) for at in range(group)]
        np.testing.assert_allclose(mine, rewards - others, atol=1e-12)


def test_leaving_one_out_passes_over_answers_that_could_not_be_judged() -> None:
    assert leave_one_out([1.0, None, 0.0, 2.0], 4) == [0.0, 0.0, -1.5, 1.5]
    assert leave_one_out([0.7, None, None, None], 4) == [0.0] * 4
    assert leave_one_out([0.1] * 8, 8) == [0.0] * 8  # exactly


def test_step_scores_are_pooled_over_the_group_and_summed_from_the_token_on() -> None:
    # four scores of two answers: 1, 0 and 1, 1: mean 0.75, sample deviation 0.5
    made = z_scored_steps([[(2, 1.0), (5, 0.0)], [(3, 1.0), (4, 1.0)]], 2)
    assert made == [[(2, 0.5), (5, -1.5)], [(3, 0.5), (4, 0.5)]]
    assert sum_of_later_steps(made[0], 6).tolist() == [-1.0, -1.0, -1.5, -1.5, -1.5, 0.0]
    assert sum_of_later_steps(made[1], 6).tolist() == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]


def test_equal_step_scores_say_nothing_and_groups_do_not_mix() -> None:
    made = z_scored_steps([[(1, 0.7), (2, 0.7)], [(2, 0.7)], [(1, 1.0)], [(1, 0.0)]], 2)
    assert made[:2] == [[(1, 0.0), (2, 0.0)], [(2, 0.0)]]
    assert [score for steps in made[2:] for _, score in steps] == pytest.approx([0.5**0.5, -(0.5**0.5)])
    assert z_scored_steps([[], [(1, 1.0)]], 2) == [[], [(1, 0.0)]]


def test_process_supervision_with_the_answer_as_its_only_step_is_outcome_supervision() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0]
    made = [sum_of_later_steps(steps, 3) for steps in z_scored_steps([[(3, reward)] for reward in rewards], 4)]
    wanted = (np.array(rewards) - 0.5) / np.std(rewards, ddof=1)
    np.testing.assert_allclose(torch.stack(made).numpy(), np.repeat(wanted[:, None], 3, axis=1))


def one(*numbers: float) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def test_gae_is_what_a_person_works_out() -> None:
    # three tokens, rewards 0, 0, 1, values 0.5, 0.4, 0.8; gamma 0.9, lambda 0.5
    # deltas: 0 + 0.9 × 0.4 - 0.5 = -0.14; 0 + 0.9 × 0.8 - 0.4 = 0.32; 1 - 0.8 = 0.2
    # A_3 = 0.2; A_2 = 0.32 + 0.45 × 0.2 = 0.41; A_1 = -0.14 + 0.45 × 0.41 = 0.0445
    made = generalised_advantages(one(0, 0, 1), one(0.5, 0.4, 0.8), one(1, 1, 1), 0.9, 0.5)
    np.testing.assert_allclose(made[0].numpy(), [0.0445, 0.41, 0.2], atol=1e-12)


def test_with_lambda_one_gae_telescopes_to_the_discounted_return_less_the_value() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(4, 7, dtype=torch.float64, generator=generator) for _ in range(2))
    mask = torch.tensor([[1.0] * length + [0.0] * (7 - length) for length in (7, 5, 1, 0)], dtype=torch.float64)
    rewards = rewards * mask
    for gamma in (1.0, 0.9):
        made = generalised_advantages(rewards, values, mask, gamma, 1.0)
        for row, length in enumerate((7, 5, 1, 0)):
            for place in range(7):
                later = sum(gamma ** (t - place) * float(rewards[row, t]) for t in range(place, length))
                wanted = later - float(values[row, place]) if place < length else 0.0
                assert float(made[row, place]) == pytest.approx(wanted, abs=1e-12)
    # and with lambda 0 it is the one-step error
    made = generalised_advantages(rewards, values, mask, 0.9, 0.0)
    assert float(made[0, 2]) == pytest.approx(float(rewards[0, 2] + 0.9 * values[0, 3] - values[0, 2]), abs=1e-12)


def test_with_lambda_one_and_no_values_every_token_gets_the_answers_reward() -> None:
    made = generalised_advantages(one(0, 0, 0.75), one(0, 0, 0), one(1, 1, 1), 1.0, 1.0)
    assert made.tolist() == [[0.75, 0.75, 0.75]]


def test_the_kl_is_taken_off_each_token_and_the_reward_comes_with_the_last() -> None:
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    kl = torch.tensor([[0.5, -0.5, 1.0], [2.0, 9.0, 9.0], [9.0, 9.0, 9.0]], dtype=torch.float64)
    made = token_rewards(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), kl, mask, 0.1)
    np.testing.assert_allclose(made.numpy(), [[-0.05, 0.05, 0.9], [1.8, 0, 0], [0, 0, 0]], atol=1e-12)


# --- the rule for steps

SUM = Problem("s", "What is 12+5-3?", "14", check={"plan": [[12, "+", 5], [None, "-", 3]]})


def marks(text: str, problem: Problem = SUM) -> list[float]:
    return [step.score for step in judged_steps(Attempt(problem, text))]


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        ("First I add: 12+5=17. Then I subtract: 17-3=14. ", [1, 1]),
        ("先算加法：12+5=17。再算减法：17-3=14。", [1, 1]),
        ("12 + 5 = 17. 17 - 3 = 14. Let me check: 14+3=17, yes.", [1, 1, 1]),
        ("First I add: 12+5=16. Then I subtract: 16-3=13. ", [0, 0]),  # what follows from a slip is wrong as well
        ("12+5=16. Wait, 12+5=17. 17-3=14.", [0, 1, 1]),  # until it is put right
        ("12+5=17. 17-3=15.", [1, 0]),
        ("1+1=2. 1+1=2. 1+1=2.", [0, 0, 0]),  # true and beside the point
        ("12+5=17. 12+5=17. 17-3=14.", [1, 0, 1]),  # said twice
        ("12+5=17. 17-5=12. 17-5=12. 17-3=14.", [1, 1, 0, 1]),  # one look back
        ("17-5=12. 12+5=17.", [0, 1]),  # nothing to look back to
        ("I guess.", []),
        ("9" * 5000, []),
    ],
)
def test_a_step_is_right_when_it_is_the_next_one_of_the_plan(thinking: str, wanted: list[float]) -> None:
    assert marks(f"<think>\n{thinking}\n</think>\n\nThe answer is \\boxed{{14}}.") == wanted
    assert marks(thinking) == wanted  # the template may have opened the thinking, and the limit may have cut it off


def test_steps_are_looked_for_in_the_thinking_only_and_end_where_they_end() -> None:
    text = "<think>\nFirst I add: 12+5=17. \n</think>\n\nAs 17-3=14 the answer is \\boxed{14}."
    (step,) = judged_steps(Attempt(SUM, text))
    assert text[: step.end].endswith("12+5=17")
    assert step.claim == "12+5=17"


def test_every_worked_solution_of_the_built_in_problems_is_right_in_every_step() -> None:
    domains = set()
    for number, problem in enumerate(problems(400, 5)):
        assert has_plan(problem)
        for reflect in (False, True):
            thinking, _ = worked_trace(problem, random.Random(number), reflect)
            found = [step.score for step in judged_steps(Attempt(problem, f"<think>\n{thinking}\n</think>\n\nx"))]
            assert found, (problem.question, thinking)
            assert set(found) == {1.0}, (problem.question, thinking, found)
        domains.add((problem.domain, problem.language))
    assert len(domains) == 8


def test_every_solution_with_a_slip_has_a_step_that_is_wrong() -> None:
    for number, problem in enumerate(problems(400, 6)):
        rng = random.Random(number)
        worked = work(problem, rng, (problem.language,), slip=True)
        found = [step.score for step in judged_steps(Attempt(problem, "".join(worked.sentences)))]
        right = work(problem, random.Random(number), (problem.language,))
        if worked.sentences != right.sentences:
            assert 0.0 in found or worked.answer == right.answer, (problem.question, worked, found)


def test_a_problem_without_a_plan_has_no_steps() -> None:
    plain = Problem("p", "What is 1+1?", "2")
    assert not has_plan(plain)
    assert marks("<think>\n1+1=2\n</think>\n\n2", plain) == []


# --- what it keeps and costs


@pytest.mark.parametrize(
    ("settings", "trained", "frozen", "passes", "bytes_a_parameter"),
    [
        ({}, ("policy",), ("reference",), 5, 20),
        ({"kl": 0.0}, ("policy",), (), 4, 16),
        ({"minibatches": 1}, ("policy",), ("reference",), 4, 20),
        ({"method": "rft"}, ("policy",), ("input model",), 4, 20),
        ({"method": "online-rft"}, ("policy",), (), 4, 16),
        ({"method": "grpo-process"}, ("policy",), ("reference",), 5, 20),
        ({"method": "reinforce-loo"}, ("policy",), ("reference",), 5, 20),
        ({"method": "ppo"}, ("policy", "value model"), ("reference",), 9, 36),
        ({"method": "ppo", "lora": {}}, ("policy", "value model"), (), 9, 20),
    ],
)
def test_what_a_method_keeps_in_memory_and_what_an_answer_costs(
    settings: dict[str, Any], trained: tuple[str, ...], frozen: tuple[str, ...], passes: int, bytes_a_parameter: int
) -> None:
    costs = costs_of(GrpoSettings.model_validate({"steps": 160, "refresh_reference": 0, **settings}))
    assert (costs.trained, costs.frozen, costs.passes) == (trained, frozen, passes)
    assert costs.bytes_for(1000) == 1000 * bytes_a_parameter


def test_a_value_model_about_doubles_the_memory_and_the_plan_says_so_before_anything_starts() -> None:
    settings = GrpoSettings.model_validate({"steps": 160, "method": "ppo"})
    ratio = costs_of(settings).bytes_for(1) / costs_without_method(settings).bytes_for(1)
    assert 1.5 < ratio < 2.1
    said = " ".join(cost_lines(settings, locate_base("nano")))
    assert "policy and value model trained, reference kept = 31.9 MB for 885,824 parameters in float32" in said
    assert "the value model is as large as the policy and trained beside it: 1.8 times the memory of GRPO" in said
    plain = cost_lines(GrpoSettings(steps=160), None)
    assert plain == ["method grpo: policy trained, reference kept; an answer costs its sampling and 5 forward passes"]


def test_every_method_says_where_answers_come_from_and_what_they_are_multiplied_with() -> None:
    for (name, facts), (other, facts_too) in itertools.combinations(METHODS.items(), 2):
        assert (facts.answers, facts.coefficient) != (facts_too.answers, facts_too.coefficient), (name, other)
