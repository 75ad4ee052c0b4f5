"""Views without a terminal: lineage, arithmetic, recipes to edit, the checkpoint table, progress and its picture."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import finished_folder
from rich.cells import cell_len
from scripted_chain import HOSTILE
from test_cli_text import shown, without_styles

from r1pipe.manifest import Manifest, read_manifest
from r1pipe.opening import open_recipe, packaged_recipes
from r1pipe.pipeline import load
from r1pipe.recipe import apply_sets, load_recipe
from r1pipe.rundir import RunDir
from r1pipe.views import lineage
from r1pipe.views.amounts import amounts
from r1pipe.views.lines import plain_lines, progress_line
from r1pipe.views.live import picture
from r1pipe.views.made import made
from r1pipe.views.numbers import Series, collect
from r1pipe.views.recipes import defaults, field_docs, with_defaults
from r1pipe.views.results import results_view
from r1pipe.views.watch import Watch

R1 = load("r1")


def manifest_of(step: str) -> Manifest:
    run = RunDir(finished_folder() / "runs/nano")
    return read_manifest(run.manifest_path(R1.step(step)))


# --- lineage


def test_the_lineage_is_the_papers() -> None:
    assert lineage.chains(R1) == [["Base", "Dev1", "Dev2"], ["Base", "Dev3", "R1"]]


def test_dev3_starts_from_the_base_and_only_learns_from_dev2() -> None:
    links = {link.name: link for link in lineage.links(R1)}
    assert (links["Dev3"].parent, links["Dev3"].learns_from) == ("Base", ("Dev2",))
    assert (links["R1"].parent, links["R1"].learns_from) == ("Dev3", ())


# --- arithmetic


def sentences(step: str, *sets: str) -> str:
    text = apply_sets(packaged_recipes()["nano"].read_text(), sets, R1)
    recipe = load_recipe(text, R1)
    return " ".join(amounts(R1.step(step), recipe.configs[step], recipe.launches[step]))


def test_rollouts_and_answers_are_counted_as_the_trainer_counts_them() -> None:
    words = sentences(
        "reasoning-rl", "reasoning-rl.steps=60", "reasoning-rl.minibatches=2",
        "reasoning-rl.questions_per_step=16", "reasoning-rl.group=8", "reasoning-rl.max_completion_tokens=100",
        "reasoning-rl.refresh_reference=20", "launch.micro_batch=128",
    )  # fmt: skip
    # 60 / 2 = 30 rollouts; 16 * 2 questions * 8 answers = 256; 256 * 30 = 7,680; 7,680 * 100 = 768,000
    assert "60 steps = 30 rollouts × 2 minibatches" in words
    assert "32 questions × 8 answers = 256 answers a rollout, 7,680 in all, at most 768,000 tokens" in words
    assert "every 20 steps, 2 times" in words  # after steps 20 and 40; the one after step 60 would be of no use
    assert "passes" not in words


def test_a_batch_that_needs_several_passes_says_so() -> None:
    words = sentences("reasoning-rl", "reasoning-rl.questions_per_step=16", "reasoning-rl.group=8", "launch.micro_batch=48")
    assert "(a batch of 128 = 4 passes × 32 rows)" in words  # 32 is the largest size up to 48 that divides 128


def test_a_batch_that_cannot_be_split_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ValueError, match=r"128 = 42 × 3 \+ 2"):
        sentences("reasoning-rl", "reasoning-rl.questions_per_step=16", "reasoning-rl.group=8", "launch.processes=3")


def test_the_switch_to_preference_rewards_falls_on_a_rollout() -> None:
    words = sentences(
        "mixed-rl/train",
        "mixed-rl.train.steps=24",
        "mixed-rl.train.minibatches=2",
        "mixed-rl.train.preference_from_step=11",
        "mixed-rl.train.refresh_reference=0",
    )
    assert "join at step 12 of 24" in words


def test_an_objective_beside_the_papers_is_named_with_what_the_recipe_keeps_of_its_own() -> None:
    assert "objective" not in sentences("reasoning-rl")
    words = sentences("reasoning-rl", "reasoning-rl.preset=dr-grpo", "reasoning-rl.kl=0.001", "reasoning-rl.clip=0.2")
    assert "the objective is that of preset dr-grpo, but for kl=0.001, which the recipe sets" in words
    words = sentences("reasoning-rl", "reasoning-rl.preset=dapo", "reasoning-rl.kl=0", "reasoning-rl.clip=0.2")
    assert "the objective is that of preset dapo" in words
    assert "the recipe sets" not in words


def test_adapters_are_named() -> None:
    for step in ("reasoning-rl", "cold-start"):
        assert "adapters" not in sentences(step)
        assert "adapters of rank 8 are trained" in sentences(step, f"{step}.lora.rank=8")


def test_without_a_kl_term_no_reference_is_replaced() -> None:
    assert "the reference is replaced" in sentences("reasoning-rl")
    assert "the reference is replaced" not in sentences("reasoning-rl", "reasoning-rl.kl=0")


def test_sampling_and_evaluation_are_products() -> None:
    words = sentences(
        "rejection-sft/sample", "rejection-sft.sample.problems=1000", "rejection-sft.sample.samples=3",
        "rejection-sft.sample.problems_per_shard=256", "rejection-sft.sample.max_tokens=10",
    )  # fmt: skip
    assert words == "1,000 problems × 3 samples = 3,000 answers in 4 shards, at most 30,000 tokens"
    words = sentences("evaluate", "evaluate.problems=100", "evaluate.general=20", "evaluate.samples=2", "evaluate.max_tokens=10")
    assert words == "5 checkpoints × 120 questions × 2 samples = 1,200 answers, at most 12,000 tokens"


# --- recipes


@pytest.mark.parametrize("name", packaged_recipes())
def test_a_recipe_to_edit_means_the_same_as_the_recipe(name: str) -> None:
    text = packaged_recipes()[name].read_text()
    pipeline, _ = open_recipe(name)
    commented = with_defaults(text, pipeline)
    assert {k: v for k, v in tomllib.loads(commented).items() if v} == {k: v for k, v in tomllib.loads(text).items() if v}


@pytest.mark.parametrize("name", packaged_recipes())
def test_every_commented_default_can_be_uncommented(name: str) -> None:
    text = packaged_recipes()[name].read_text()
    pipeline, recipe = open_recipe(name)
    live = re.sub(r"^# (\w+ = (?!.*\(not set\)).*)$", r"\1", with_defaults(text, pipeline), flags=re.MULTILINE)
    assert live.count("\n#") < with_defaults(text, pipeline).count("\n#")
    again = load_recipe(live, pipeline)
    assert again.configs == recipe.configs
    assert again.launches == recipe.launches


def test_every_setting_is_in_the_recipe_to_edit() -> None:
    pipeline, _ = open_recipe("nano")
    text = with_defaults(packaged_recipes()["nano"].read_text(), pipeline)
    section = text.split("[reasoning-rl]")[1].split("\n[")[0]
    for name in R1.step("reasoning-rl").config.model_fields:
        assert re.search(rf"^(# )?{name} =", section, re.MULTILINE), name


def test_meanings_come_from_the_settings_classes_and_their_parents() -> None:
    config = R1.step("reasoning-rl").config
    assert field_docs(config)["group"] == "Answers per question."
    assert any("Answers per question" in line for line in defaults(config, set()))


# --- results


def test_the_checkpoint_table_fits_80_columns_with_interval_and_gaps() -> None:
    row: dict[str, Any] = {
        "pass_at_1": 0.603, "pass_at_1_interval": [0.551, 0.655], "unjudged": 3, "format": 0.975, "language": 0.93,
        "tokens": 27.4, "helpfulness": -0.42, "safety": None, "reflection": 0.0078, "domains": {"arithmetic [/b] (en)": 0.6},
    }  # fmt: skip
    results = {
        "sampling": {"samples": 4, "temperature": 1.0, "top_p": 1.0},
        "problems": 256,
        "checkpoints": {"base": row, "r1": row},
    }
    text = without_styles(shown(results_view(results, domains=True), 80))
    assert max(cell_len(line) for line in text.split("\n")) <= 80
    for words in (
        "Base",
        "R1",
        "0.603",
        "0.551–0.655",
        "0.975",
        "0.930",
        "27.4",
        "-0.42",
        "0.01",
        "–",
        "6 answers could not be judged",
        "[/b] (en)",
    ):
        assert words in " ".join(text.split())


# --- one line of what a step made


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("prepare", "60 problems, 60 traces, 60 general, 60 general traces and 4 more tables"),
        ("rejection-sft/sample", "120 attempts: 70 right, 5 unjudged, 45 wrong"),
        ("rejection-sft/select", "kept 50 of 120 attempts, 8 general rows"),
        ("mixed-rl/reward-models", "helpfulness 0.91 held out  safety 0.91 held out"),
        ("evaluate", "pass@1 0.20 → 0.35 → 0.80 → 0.70 → 0.85"),
    ],
)
def test_what_a_step_made_is_one_line(step: str, words: str) -> None:
    assert made(manifest_of(step).summary) == words


def test_training_says_how_its_numbers_went() -> None:
    series = collect(
        [{"step": 1, "loss": 2.0, "rewards": {"accuracy": 0.3}}, {"step": 2, "loss": 1.0, "rewards": {"accuracy": 0.5}}]
    )
    assert made({"rows": 400, "steps": 2}, series) == "400 rows  accuracy 0.30 → 0.50"


def test_training_without_rewards_shows_its_loss() -> None:
    assert made({"rows": 400}, collect([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}])) == "400 rows  loss 2.00 → 1.00"


def test_a_step_that_comes_again_replaces_what_it_said() -> None:
    lines = [{"step": n, "loss": float(n)} for n in (1, 2, 3)] + [{"step": n, "loss": 10.0 * n} for n in (2, 3)]
    assert collect(lines)["loss"] == Series([1, 2, 3], [1.0, 20.0, 30.0])


# --- progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def watching(clock: Clock, path: Path = Path("nowhere")) -> Watch:
    states = {step.name: "todo" for step in R1.steps}
    return Watch("nano", R1.steps, states, lambda step: path, clock)


def test_time_left_is_what_the_step_says_less_what_went_by() -> None:
    clock = Clock()
    watch = watching(clock)
    watch.begin(R1.step("reasoning-rl"), 1)
    watch.report(R1.step("reasoning-rl"), {"done": 1, "total": 10, "seconds_left": 90.0})
    clock.now += 20
    assert watch.seconds_left() == 70.0
    clock.now += 200
    assert watch.seconds_left() == 0.0


def test_without_a_word_time_left_follows_the_pace() -> None:
    clock = Clock()
    watch = watching(clock)
    watch.begin(R1.step("rejection-sft/sample"), 1)
    assert watch.seconds_left() is None
    watch.report(R1.step("rejection-sft/sample"), {"done": 2, "total": 12})
    assert watch.seconds_left() is None
    clock.now += 30
    watch.report(R1.step("rejection-sft/sample"), {"done": 5, "total": 12})
    assert watch.seconds_left() == 70.0  # 3 units in 30 s; 7 are left


def test_an_attempt_that_goes_on_shows_what_the_earlier_one_wrote(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "rollout", "step": 1, "rewards": {"accuracy": 0.5}}\n')
    watch = watching(Clock(), path)
    watch.begin(R1.step("reasoning-rl"), 2)
    assert watch.series["rewards.accuracy"].values == [0.5]


def test_a_sample_stays_long_enough_to_be_read() -> None:
    clock = Clock()
    watch = watching(clock)
    watch.begin(R1.step("reasoning-rl"), 1)
    for second in range(10):
        clock.now += 1
        watch.report(
            R1.step("reasoning-rl"), {"done": second, "total": 10, "sample": {"question": "q", "completion": str(second)}}
        )
    assert watch.sample == ("q", "8")  # shown at 0 and again after 8 s


def busy(clock: Clock, text: str) -> Watch:
    """A watch in the middle of stage 2, with text in every place that a step may fill."""
    watch = watching(clock)
    watch.states["prepare"] = "done"
    step = R1.step("reasoning-rl")
    watch.begin(step, 3)
    names = ("accuracy", "format", "language", "safety", "helpfulness")
    for number in range(1, 50):
        rewards = dict.fromkeys(names, number / 50) | {text[:50]: 0.1}
        watch.line(step, {"kind": "rollout", "step": number, "rewards": rewards, "tokens_mean": 31.5, "flat_share": 0.3})
        watch.line(step, {"kind": "step", "step": number, "loss": 8e-5, "kl": 2e-3})
        clock.now += 10
        sample = {"question": text, "completion": text}
        watch.report(step, {"done": number, "total": 60, "unit": text, "note": text, "sample": sample})
    return watch


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_picture_fits_and_steers_nothing(text: str, width: int) -> None:
    sent = without_styles(shown(picture(busy(Clock(), text), width, 50), width))
    assert max(cell_len(line) for line in sent.split("\n")) <= width
    assert not [character for character in sent if ord(character) < 32 and character != "\n"]
    assert "reasoning-rl → Dev2" in sent


def test_the_picture_leaves_the_sample_out_where_there_is_no_room() -> None:
    watch = busy(Clock(), "hello world")
    assert "hello world" in without_styles(shown(picture(watch, 80, 40), 80)).split("total")[-1]
    lines = without_styles(shown(picture(watch, 80, 20), 80)).rstrip("\n").split("\n")
    assert len(lines) <= 20


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capsys.readouterr().out.splitlines()


def test_plain_lines_come_on_changes_and_otherwise_seldom(printed: Callable[[], list[str]]) -> None:
    clock = Clock()
    watch = watching(clock)
    step, manifest = R1.step("cold-start"), manifest_of("cold-start")
    with plain_lines(watch) as observer:
        observer.on_step_begin(step, 1)
        for number in range(1, 101):
            clock.now += 0.2
            observer.on_progress(step, {"done": number, "total": 100, "loss": 2.0 / number})
        observer.notice("stopping")
        observer.on_step_end(step, manifest)
    lines = printed()
    assert lines[0] == "[2/9] cold-start -> Dev1: begins"
    assert lines[-2:] == ["note  stopping", "[2/9] cold-start -> Dev1: done in " + lines[-1].split("done in ")[1]]
    assert len(lines) == 3 + 3 + 1  # begin, notice, end; every 5 s of 20 s, the last at 20.0 s


def test_a_progress_line_says_where_how_long_and_how_well() -> None:
    clock = Clock()
    watch = watching(clock)
    step = R1.step("reasoning-rl")
    watch.begin(step, 1)
    clock.now += 61
    watch.line(
        step,
        {"kind": "rollout", "step": 12, "rewards": {"accuracy": 0.41}, "tokens_mean": 31.0, "flat_share": 0.25, "unjudged": 2},
    )
    watch.report(step, {"done": 12, "total": 60, "unit": "step", "seconds_left": 240.0, "kl": 0.002})
    assert progress_line(watch) == (
        "[3/9] reasoning-rl step 12 of 60, 1 min 01 s, about 4 min 00 s left: "
        "accuracy 0.410  tokens 31.0  no signal 0.250  unjudged 2  KL 0.002"
    )
