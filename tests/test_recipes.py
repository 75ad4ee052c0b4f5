"""The recipe `paper` against the numbers of the paper, typed in from it (arXiv 2501.12948v2)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from r1pipe.errors import ArtifactError
from r1pipe.opening import open_recipe
from r1pipe.pipeline import locate_base
from r1pipe.train.settings import GrpoSettings
from r1pipe.views.amounts import amounts

RL = ("zero/train", "reasoning-rl", "mixed-rl/train")
SFT = ("cold-start", "rejection-sft/train")

PAPER: list[tuple[tuple[str, ...], str, Any, str]] = [
    (RL, "learning_rate", 3e-6, "2.1, 3.2.1"),
    (RL, "kl", 0.001, "2.1, 3.2.1"),
    (RL, "group", 16, "2.1, 3.2.1: 16 outputs a question"),
    (RL, "questions_per_step", 32, "2.1, 3.2.1: 32 unique questions"),
    (RL, "answers_per_step", 512, "2.1: a batch of 512"),
    (RL, "minibatches", 16, "2.1, 3.2.1: 16 minibatches, one inner epoch"),
    (RL, "questions_per_rollout", 512, "2.1: 8,192 outputs of 16 a question"),
    (RL, "refresh_reference", 400, "2.1, 3.2.1"),
    (RL, "max_completion_tokens", 32768, "2.1"),
    (RL, "top_p", 1.0, "nothing is said of a nucleus"),
    (("zero/train", "reasoning-rl"), "temperature", 1.0, "2.1, 3.2.1"),
    (("mixed-rl/train",), "temperature", 0.7, "3.2.2"),
    (("reasoning-rl", "mixed-rl/train"), "clip", 10.0, "3.2.1; stage 4 keeps most parameters"),
    (("zero/train",), "steps", 10400, "2.1"),
    (("zero/train",), "raised_completion_tokens", 65536, "2.1"),
    (("zero/train",), "raise_from_step", 8200, "2.1: at step 8.2k"),
    (("mixed-rl/train",), "preference_from_step", 1300, "3.2.2: the last 400 of 1,700 steps"),
    (SFT, "learning_rate", 5e-5, "B.4.2"),
    (SFT, "final_learning_rate_share", pytest.approx(5e-6 / 5e-5), "B.4.2: to 5e-6"),
    (SFT, "batch", 128, "B.4.2"),
    (SFT, "max_tokens", 32768, "B.4.2"),
    (SFT, "epochs", 2, "B.4.2: 2 to 3"),
    (("mixed-rl/reward-models",), "helpfulness.batch", 256, "3.1"),
    (("mixed-rl/reward-models",), "helpfulness.learning_rate", 6e-6, "3.1"),
    (("mixed-rl/reward-models",), "helpfulness.epochs", 1, "3.1"),
    (("mixed-rl/reward-models",), "helpfulness.max_tokens", 8192, "3.1"),
    (("mixed-rl/reward-models",), "safety.batch", 256, "3.1: as the helpfulness model"),
    (("mixed-rl/reward-models",), "safety.learning_rate", 6e-6, "3.1"),
    (("mixed-rl/reward-models",), "safety.epochs", 1, "3.1"),
    (("mixed-rl/reward-models",), "safety.max_tokens", 8192, "3.1"),
    (("prepare",), "problems.count", 26_000 + 17_000 + 22_000 + 15_000, "Table 4"),
    (("prepare",), "general.count", 66_000, "Table 4"),
    (("prepare",), "pairs.count", 66_000, "3.1"),
    (("prepare",), "labels.count", 106_000, "3.1"),
    (("rejection-sft/select",), "general_share", 200 / 800, "B.3.3: about 200k of 800k"),
    (
        ("rejection-sft/select",),
        "mix",
        {"maths": 395_285, "code": 211_129, "stem": 10_124, "logic": 10_395, "general": 177_812},
        "Table 5",
    ),
    (("rejection-sft/select",), "mix_scale", 1.0, "Table 5"),
    (("rejection-sft/select",), "overlap_words", 10, "D.1"),
    (("rejection-sft/select",), "allow_code_blocks", False, "B.3.3"),
    (("evaluate",), "temperature", 0.6, "D.1"),
    (("evaluate",), "top_p", 0.95, "D.1"),
    (("evaluate",), "max_tokens", 32768, "D.1"),
    (("evaluate",), "samples", 16, "D.1: MATH-500"),
]


@pytest.mark.parametrize(("steps", "key", "value", "source"), PAPER, ids=[f"{key} ({steps[0]})" for steps, key, _, _ in PAPER])
def test_the_recipe_paper_has_the_papers_number(steps: tuple[str, ...], key: str, value: Any, source: str) -> None:
    _, recipe = open_recipe("paper")
    for step in steps:
        found: Any = recipe.configs[step]
        for part in key.split("."):
            found = getattr(found, part)
        assert found == value, f"{step} {key}: {source}"


def test_the_papers_mix_adds_up() -> None:
    _, recipe = open_recipe("paper")
    assert sum(recipe.configs["rejection-sft/select"].wanted().values()) == 804_745  # the table's own total


def test_the_papers_rollouts_switches_and_limits_come_out() -> None:
    pipeline, recipe = open_recipe("paper")
    mixed = recipe.configs["mixed-rl/train"]
    assert abs(mixed.steps - 1700) <= 16 > abs(mixed.switch_step - 1300)
    assert mixed.steps - mixed.switch_step == 400
    zero = recipe.configs["zero/train"]
    assert abs(zero.raise_step - 8200) < 16
    words = " ".join(amounts(pipeline.step("zero/train"), zero, recipe.launches["zero/train"]))
    assert "512 questions × 16 answers = 8,192 answers a rollout" in words
    assert "the length limit is raised from 32,768 to 65,536 tokens at step 8208" in words
    # 513 rollouts at 32,768 tokens, 137 at 65,536
    assert f"at most {8192 * (513 * 32768 + 137 * 65536):,} tokens" in words


def test_the_recipe_paper_trains_with_the_papers_objective() -> None:
    _, recipe = open_recipe("paper")
    for step in RL:
        settings = recipe.configs[step]
        assert isinstance(settings, GrpoSettings)
        # DeepSeekMath Eq. 3: mean over an answer's tokens, z-score within the group, token ratios; nothing masked or left out
        assert (settings.loss, settings.advantage_scale, settings.ratio) == ("grpo", "group", "token")
        assert (settings.advantage_floor, settings.flat_groups, settings.truncated, settings.overlong_share) == (
            0,
            "keep",
            "score",
            0,
        )
    rewards = recipe.shared["rewards"]
    assert [spec.weight for spec in rewards.rules] == [1.0, 1.0, 1.0]  # Eq. 4, 7 and 8
    assert recipe.configs["zero/train"].language.weight == 0.0  # R1-Zero has accuracy and format only
    assert recipe.configs["zero/train"].template == "conversation"  # Table 1


def test_the_recipe_modern_is_its_preset() -> None:
    from r1pipe.train.presets import PRESETS

    _, recipe = open_recipe("modern")
    for step in ("reasoning-rl", "mixed-rl/train"):
        settings = recipe.configs[step]
        assert {key: getattr(settings, key) for key in PRESETS["modern"]} == PRESETS["modern"]
        assert settings.max_completion_tokens * settings.overlong_share == 4096  # DAPO section 4


def test_a_recipe_that_leaves_its_base_open_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="leaves its base model open"):
        locate_base("")


def test_every_test_that_a_document_names_exists() -> None:
    tests = Path(__file__).parent
    there = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in tests.glob("test_*.py")), re.MULTILINE))
    there |= {path.stem for path in tests.glob("test_*.py")}
    for document in (tests.parent / "docs" / name for name in ("training.md", "data.md", "paper.md", "benchmarks.md")):
        named = set(re.findall(r"\btest_\w+", document.read_text()))
        assert named <= there, (document.name, sorted(named - there))
