"""Selection and evaluation: what is kept, what is counted, and how."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r1pipe.data.reflection import reflection_count
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import ATTEMPT_COLUMNS, TRACE_COLUMNS, attempt_row, read_table, write_table
from r1pipe.errors import DataError
from r1pipe.recipe import Launch
from r1pipe.stages import evaluate, rejection_sft
from r1pipe.stages.keeping import why_dropped
from r1pipe.stages.selection.card import card
from r1pipe.train.settings import GrpoSettings, LoraSettings, micro_batches

GOOD = "<think>\nFirst I add the two numbers.\n</think>\n\nIt is \\boxed{2}."


def attempt(
    text: str = GOOD, verdict: str = "right", name: str = "p", tokens: int = 10, language: float = 1.0, **changes: Any
) -> dict[str, Any]:
    one = Attempt(
        Problem(id=name, question="1+1?", answer="2", domain="arithmetic"),
        text,
        finish=changes.pop("finish", "stop"),
        tokens=tokens,
    )
    value = {"right": 1.0, "wrong": 0.0, "unjudged": None}[verdict]
    row = attempt_row(one, changes.pop("sample", 0), {"accuracy": Score(value), "language": Score(language)}, 1.0, verdict)
    return {**row, **changes}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (attempt(), ""),
        (attempt(verdict="wrong"), "wrong"),
        (attempt(verdict="unjudged"), "unjudged"),
        (attempt(error="worker died"), "error while sampling"),
        (attempt(finish="length"), "cut off"),
        (attempt("It is \\boxed{2}."), "format: no thinking tags"),
        (attempt(language=0.5), "mixed language"),
        (
            attempt(
                "<think>\n"
                + " ".join(f"word {chr(97 + n % 26)}{chr(97 + n // 26)}x" for n in range(400))
                + "\n</think>\n\n\\boxed{2}"
            ),
            "long paragraph",
        ),
        (attempt("<think>\nSo:\n```python\nx = 1\n```\n</think>\n\n\\boxed{2}"), "code block in the thinking"),
        (attempt("<think>\n" + "I add one and one again. " * 12 + "\n</think>\n\n\\boxed{2}"), "ends in a loop"),
        (attempt("<think>\n" + "I add one and one again. " * 12 + "Now I stop here.\n</think>\n\n\\boxed{2}"), "repetition"),
    ],
)
def test_every_dropped_attempt_has_one_reason(row: dict[str, Any], reason: str) -> None:
    assert why_dropped(row, rejection_sft.SelectConfig()) == reason


def run_select(tmp_path: Path, rows: list[dict[str, Any]], general: int = 10, **settings: Any) -> dict[str, Any]:
    write_table(tmp_path / "attempts", rows, ATTEMPT_COLUMNS)
    trace = {**dict.fromkeys(TRACE_COLUMNS, ""), "thinking": "I greet.", "summary": "Hello!", "check": "{}"}
    write_table(tmp_path / "general", [{**trace, "id": str(n)} for n in range(general)], TRACE_COLUMNS)
    context = SimpleNamespace(
        config=rejection_sft.SelectConfig(**settings), seed=1, folder=tmp_path, launch=Launch(), input_digests={},
        stop_requested=lambda: False,
        inputs={"attempts": tmp_path / "attempts", "general_traces": tmp_path / "general"},
        output=lambda name: tmp_path / ("report.json" if name == "report" else name),
    )  # fmt: skip
    return rejection_sft.select(context)  # type: ignore[arg-type]


def test_selection_accounts_for_every_attempt(tmp_path: Path) -> None:
    rows = [
        attempt(sample=0), attempt(sample=1), attempt(GOOD.replace("First", "Now"), sample=2), attempt(verdict="wrong", sample=3),
        attempt(name="q", verdict="wrong"), attempt(name="q", verdict="unjudged", sample=1),
    ]  # fmt: skip
    report = run_select(tmp_path, rows, general_share=0.5)
    assert sum(report["reasons"].values()) == report["attempts"] == 6
    assert report["reasons"] == {
        "wrong": 2, "unjudged": 1, "kept": 1, "same thinking as another of the problem": 1, "more than 1 of the problem": 1,
    }  # fmt: skip
    assert (report["problems"], report["problems_solved"]) == (2, 1)
    selected = list(read_table(tmp_path / "selection"))
    assert sorted(row["origin"] for row in selected) == ["general data", "rejection sampling"]
    assert "Selection of stage 3" in (tmp_path / "selection" / "README.md").read_text()


def test_selection_keeps_different_answers_shortest_first(tmp_path: Path) -> None:
    rows = [
        attempt(GOOD.replace("First", word), sample=n, tokens=tokens)
        for n, (word, tokens) in enumerate([("A", 9), ("B", 5), ("C", 7)])
    ]
    run_select(tmp_path, rows, keep_per_problem=2, general_share=0.0)
    assert sorted(row["thinking"][0] for row in read_table(tmp_path / "selection")) == ["B", "C"]


def test_selection_of_nothing_stops_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing is left of 2 attempts: \{'wrong': 2\}"):
        run_select(tmp_path, [attempt(verdict="wrong"), attempt(verdict="wrong", sample=1)])


def test_pass_at_1_is_the_mean_over_problems_of_the_share_right_and_leaves_the_unjudged_out() -> None:
    rows = [
        *[attempt(name="a", verdict=verdict, sample=n) for n, verdict in enumerate(["right", "right", "wrong", "wrong"])],
        *[
            attempt(name="b", verdict=verdict, sample=n)
            for n, verdict in enumerate(["right", "unjudged", "unjudged", "unjudged"])
        ],
    ]
    numbers = evaluate.summarise(rows)
    assert numbers["pass_at_1"] == pytest.approx((0.5 + 1.0) / 2)
    assert numbers["unjudged"] == 3
    assert numbers["domains"] == {"arithmetic (en)": pytest.approx(0.75)}


def test_reflection_words_are_counted_in_the_thinking_only() -> None:
    english = Attempt(Problem(id="1", question="q"), "<think>\nWait, that is wrong. Let me check.\n</think>\n\nbut wait")
    chinese = Attempt(Problem(id="1", question="q", language="zh"), "<think>\n等等，不对，再检查。\n</think>\n\n等等")
    assert reflection_count(english) == 3
    assert reflection_count(chinese) == 3


def test_sizes_that_do_not_divide_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(ValueError, match=r"1700 = 106 × 16 \+ 4; use 1696 or 1712"):
        GrpoSettings(steps=1700)
    with pytest.raises(ValueError, match=r"refresh_reference \(50\) .* every 16 steps: 50 = 3 × 16 \+ 2; use 48 or 64"):
        GrpoSettings(steps=1600, refresh_reference=50)
    with pytest.raises(ValueError, match=r"256 = 85 × 3 \+ 1"):
        micro_batches(256, 3, 64)


def test_the_papers_rollout_is_8192_answers_in_16_minibatches() -> None:
    paper = GrpoSettings(steps=1600)
    assert paper.answers_per_step == 512
    assert paper.questions_per_rollout * paper.group == 8192
    assert micro_batches(512, 8, 16) == (16, 4)


def test_adapters_may_have_their_reference_replaced() -> None:
    assert GrpoSettings(steps=1600, lora=LoraSettings()).refresh_reference == 400


def test_the_card_names_every_reason() -> None:
    report = {
        "rows": 3, "kept": 2, "general": 1, "problems": 2, "problems_solved": 1,
        "reasons": {"kept": 2, "wrong": 5}, "domains": {"arithmetic": 3},
    }  # fmt: skip
    text = card(report)
    assert "- wrong: 5" in text
