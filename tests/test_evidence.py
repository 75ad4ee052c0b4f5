"""Checkpoints by name, evaluation on files, export and chat, with a random model small enough to run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import copy_of_finished, finished_folder, r1pipe
from tiny import make_tiny_model

from r1pipe.checkpoints import checkpoints_of, find_checkpoint
from r1pipe.data.tables import read_table
from r1pipe.errors import DataError
from r1pipe.opening import Opened, load
from r1pipe.pipeline import load as load_pipeline
from r1pipe.rewards import Accuracy
from r1pipe.rewards.base import Attempt
from r1pipe.rewards.benchmarks import read_benchmark
from r1pipe.rundir import RunDir
from r1pipe.stages.evaluate import summarise

QUICK = ("--samples", "2", "--max-tokens", "6", "--temperature", "1.0")


@cache
def models() -> Path:
    """A folder with two models, `one` and `two`."""
    import atexit
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="r1pipe-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for seed, name in enumerate(("one", "two")):
        make_tiny_model(folder / name, seed)
    return folder


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- benchmarks


@pytest.mark.parametrize(
    ("row", "checker", "answer", "right"),
    [
        ({"question": "Ann has 5 + 7 pens?", "answer": "5 + 7 = <<5+7=12>>12\n#### 12"}, "maths", "12", "\\boxed{12}"),
        ({"problem": "Half?", "answer": "\\frac{1}{2}", "level": 5, "subject": "Algebra"}, "maths", "\\frac{1}{2}", "It is 0.5."),
        ({"problem": "Root?", "solution": "It is \\boxed{\\sqrt{2}}.", "level": 3}, "maths", "\\sqrt{2}", "\\boxed{\\sqrt2}"),
        ({"question": "几?", "answer_number": 18, "answer": None}, "maths", "18", "\\boxed{18}"),
        ({"question": "Which?", "choices": ["red", "blue", "green", "grey"], "answer": 2}, "choice", "C", "The answer is C"),
        ({"id": 60, "problem": "2024 AIME?", "answer": "204"}, "maths", "204", "\\boxed{204}"),
    ],
)  # fmt: skip
def test_benchmarks_are_read_in_the_form_that_they_have(
    tmp_path: Path, row: dict[str, Any], checker: str, answer: str, right: str
) -> None:
    (problem,) = read_benchmark(write_rows(tmp_path / "set.jsonl", [row]))
    assert (problem.checker, problem.answer) == (checker, answer)
    scores = Accuracy().score([Attempt(problem, f"<think>\nx\n</think>\n\n{right}"), Attempt(problem, "\\boxed{777}")])
    assert [score.value if score else None for score in scores] == [1.0, 0.0]


def test_programs_keep_their_tests(tmp_path: Path) -> None:
    rows = [
        {
            "task_id": 1,
            "text": "Write a function that doubles.",
            "code": "def d(x): return 2*x",
            "test_list": ["assert d(2) == 4"],
        },
        {"task_id": "HumanEval/0", "prompt": "def f(x):\n", "test": "def check(c): assert c(1) == 1", "entry_point": "f"},
    ]
    first, second = read_benchmark(write_rows(tmp_path / "code.jsonl", rows))
    assert (first.checker, second.checker) == ("code", "code")
    assert first.check["test_list"] == ["assert d(2) == 4"]
    assert second.check["entry_point"] == "f"
    assert first.question == "Write a function that doubles."


def test_choices_stand_below_the_question_when_it_does_not_name_them(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": ["red", "blue"], "answer": 0}
    (problem,) = read_benchmark(write_rows(tmp_path / "set.jsonl", [row]))
    assert problem.question == "Which?\nA. red\nB. blue"
    assert problem.level == ""


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"q": "x", "answer": "1"}], "holds a question"),
        ([{"question": "x", "result": "1"}], "--gold"),
        ([{"id": 1, "question": "x", "answer": "1"}, {"id": 1, "question": "y", "answer": "2"}], "the same problem as"),
        ([], "no rows"),
    ],
)
def test_a_file_that_is_no_benchmark_is_named(tmp_path: Path, rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(DataError) as caught:
        read_benchmark(write_rows(tmp_path / "set.jsonl", rows))
    assert words in str(caught.value)


# --- checkpoints by name


def opened_run() -> Opened:
    run = RunDir(finished_folder() / "runs/nano")
    pipeline = load_pipeline("r1")
    _, recipe = load(run.recipe_path.read_text(), "recipe")
    return Opened(run, pipeline, recipe)


def test_a_run_knows_its_checkpoints() -> None:
    assert [one.name for one in checkpoints_of(opened_run())] == ["Base", "Dev1", "Dev2", "Dev3", "R1"]
    root = str(finished_folder() / "runs/nano")
    assert find_checkpoint("dev2", root).name == "Dev2"
    assert find_checkpoint(f"{root}/R1").folder.name == "model"
    assert find_checkpoint(str(models() / "one")).name == "one"


def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    done = r1pipe(finished_folder(), "export", "dev9", str(tmp_path / "x"))
    assert done.code == 2
    assert "no finished checkpoint 'dev9'" in done.err
    assert "Dev1, Dev2, Dev3, R1" in done.err
    done = r1pipe(finished_folder(), "export", "./nowhere", str(tmp_path / "x"))
    assert "with a config.json" in done.err


# --- eval


def problems_file(folder: Path, count: int) -> Path:
    rows = [{"id": f"p{n}", "question": f"{n} + 1?", "answer": str(n + 1), "level": n % 2} for n in range(count)]
    return write_rows(folder / "sums.jsonl", rows)


def test_an_evaluation_goes_on_where_it_was_stopped_and_gives_the_same(tmp_path: Path) -> None:
    file = problems_file(tmp_path, 70)
    command = ("eval", str(models() / "one"), str(models() / "two"), "--on", str(file), *QUICK, "--json")
    first = r1pipe(tmp_path, *command)
    assert first.code == 0, first.err
    folder = tmp_path / "evals/sums"
    results = json.loads(first.out)
    assert results == json.loads((folder / "results.json").read_bytes())
    assert list(results["checkpoints"]) == ["one", "two"]
    assert results["checkpoints"]["one"]["pass_at_1"] == summarise(list(read_table(folder / "one/attempts")))["pass_at_1"]
    assert [line["k"] for line in results["checkpoints"]["one"]["at_k"]["pass"]] == [1, 2]
    assert results["comparisons"][0]["problems"] == 70
    torn = folder / "two/attempts/part-00001.parquet"
    before = torn.read_bytes()
    torn.unlink()
    again = r1pipe(tmp_path, *command)
    assert json.loads(again.out) == results
    assert again.err.count("two: 70 of 70") == 1
    assert "one:" not in again.err  # nothing of it was owed
    assert len(torn.read_bytes()) == len(before)


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    file = problems_file(tmp_path, 3)
    model = str(models() / "one")
    assert r1pipe(tmp_path, "eval", model, "--on", str(file), *QUICK).code == 0
    done = r1pipe(tmp_path, "eval", model, "--on", str(file), *QUICK, "--seed", "5")
    assert done.code == 1
    assert "sampling.seed: 0 there, 5 now" in done.err
    joined = r1pipe(tmp_path, "eval", str(models() / "two"), "--on", str(file), *QUICK)
    assert joined.code == 0, joined.err
    assert set(json.loads((tmp_path / "evals/sums/settings.json").read_bytes())["checkpoints"]) == {"one", "two"}
    shown = r1pipe(tmp_path, "eval", model, "--on", str(file), *QUICK)
    assert "pass@1" in shown.out
    assert "3 problems" in shown.out


def test_an_evaluation_stands_also_in_the_form_of_the_harness(tmp_path: Path) -> None:
    file = problems_file(tmp_path, 6)
    done = r1pipe(tmp_path, "eval", str(models() / "one"), "--on", str(file), *QUICK, "--json")
    assert done.code == 0, done.err
    ours = json.loads(done.out)["checkpoints"]["one"]
    (path,) = (tmp_path / "evals/sums/lm-eval/one").glob("results_*.json")
    results = json.loads(path.read_bytes())
    numbers = results["results"]["sums"]
    assert numbers["exact_match,none"] == pytest.approx(ours["pass_at_1"], abs=1e-12)
    assert numbers["pass@2,none"] == pytest.approx(ours["at_k"]["pass"][1]["mean"], abs=1e-12)
    assert results["n-samples"]["sums"] == {"original": 6, "effective": 6}
    for key in ("versions", "n-shot", "configs", "higher_is_better"):
        assert list(results[key]) == ["sums"]
    assert results["configs"]["sums"]["generation_kwargs"]["temperature"] == 1.0
    (samples,) = path.parent.glob("samples_sums_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert samples.stem.rpartition("_")[2] == path.stem.rpartition("_")[2]
    assert [len(line["resps"][0]) for line in lines] == [2] * 6
    assert sum(line["exact_match"] for line in lines) / 6 == pytest.approx(numbers["exact_match,none"])
    assert r1pipe(tmp_path, "eval", str(models() / "one"), "--on", str(file), *QUICK).code == 0
    assert len(list(path.parent.glob("results_*.json"))) == 1


def test_the_harness_own_table_reads_the_results(tmp_path: Path) -> None:
    utils = pytest.importorskip("lm_eval.utils")
    file = problems_file(tmp_path, 6)
    assert r1pipe(tmp_path, "eval", str(models() / "one"), "--on", str(file), *QUICK).code == 0
    (path,) = (tmp_path / "evals/sums/lm-eval/one").glob("results_*.json")
    table = utils.make_table(json.loads(path.read_bytes()))
    assert "|sums|" in table.replace(" ", "")
    assert "|exact_match|" in table.replace(" ", "")


# --- export


def test_an_exported_model_loads_elsewhere_and_gives_the_same_greedy_answers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from r1pipe.engines.base import Sampling, open_engine

    target = tmp_path / "exported"
    done = r1pipe(tmp_path, "export", str(models() / "one"), str(target))
    assert done.code == 0, done.err
    questions = ["What is 2 + 3?", "几加几？", "x"]
    engine = open_engine("transformers", models() / "one", system="", batch=None, dtype="float32")
    here = [found[0].text for found in engine.generate(questions, Sampling(1, 0.0, 1.0, 24))]
    tokenizer, model = AutoTokenizer.from_pretrained(target), AutoModelForCausalLM.from_pretrained(target)
    there = []
    for question in questions:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        made = model.generate(**asked, do_sample=False, max_new_tokens=24)
        there.append(tokenizer.decode(made[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))
    assert there == here


def test_the_card_says_where_a_checkpoint_comes_from(tmp_path: Path) -> None:
    target = tmp_path / "exported"
    done = r1pipe(finished_folder(), "export", "r1", str(target), "--json")
    assert done.code == 0, done.err
    assert set(json.loads(done.out)["files"]) >= {"README.md", "lineage.json", "model.safetensors", "generation_config.json"}
    card = (target / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    for words in (
        "value: 0.8500",
        "| mixed-rl/train | R1 |",
        "| rejection-sft/select |",
        "| problems | 60 |",
        "mixed language",
        "0.820 to 0.880",
    ):
        assert words in card, words
    from huggingface_hub import ModelCard

    read = ModelCard.load(target / "README.md").data.eval_results
    assert read is not None
    assert {one.metric_type: one.metric_value for one in read} == {"pass_at_1": 0.85, "format": 0.925, "language": 0.9}
    assert all(one.dataset_name == "held-out problems of the run" for one in read)
    lineage = json.loads((target / "lineage.json").read_bytes())
    steps = [record["step"] for record in lineage["steps"]]
    assert steps[0] == "prepare"
    assert steps[-1] == "mixed-rl/train"
    assert "evaluate" not in steps
    assert all("host" not in record for record in lineage["steps"])
    assert str(finished_folder()) not in json.dumps(lineage)
    assert json.loads((target / "generation_config.json").read_bytes())["temperature"] == 1.0


def test_nothing_is_overwritten_and_nothing_altered_is_exported(tmp_path: Path) -> None:
    copy_of_finished(tmp_path)
    target = tmp_path / "exported"
    target.mkdir()
    (target / "mine").write_text("x")
    done = r1pipe(tmp_path, "export", "r1", str(target))
    assert done.code == 1
    assert "not empty" in done.err
    weights = tmp_path / "runs/nano/4-mixed-rl/train/model/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    done = r1pipe(tmp_path, "export", "r1", str(tmp_path / "new"))
    assert done.code == 1
    assert "was altered" in done.err
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob(".new*"))


# --- chat


def test_checkpoints_answer_side_by_side(tmp_path: Path) -> None:
    asked = ("chat", str(models() / "one"), str(models() / "two"), "--ask", "hi", "--max-tokens", "8", "--temperature", "0")
    wide = r1pipe(tmp_path, *asked, columns=120)
    assert wide.code == 0, wide.err
    assert any("one" in line and "two" in line for line in wide.out.splitlines())
    narrow = r1pipe(tmp_path, *asked, columns=50)
    assert not any("one" in line and "two" in line for line in narrow.out.splitlines())
    assert narrow.out.count("tokens") == 2
    assert "Loading" not in narrow.err + wide.err
