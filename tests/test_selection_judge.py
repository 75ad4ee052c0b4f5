"""A model as a judge in the selection, through real engines: a model of this machine that can only babble, and a server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openai_server import Answer, serving
from test_selection import attempt, context_of, reasons_of, selected, write_inputs
from tiny import make_tiny_model

from r1pipe.data.tables import read_table
from r1pipe.stages.rejection_sft import select

ANSWERS = {"a": "two", "b": "three", "c": "2 (that is, one and one)", "d": "refuse this", "e": "say nothing of it"}
"""Problem -> what its attempt answers; the reference is 2, and no rule reads any of these."""


def given(folder: Path) -> None:
    texts = {name: f"<think>\nI add {name}.\n</think>\n\nIt is {answer}." for name, answer in ANSWERS.items()}
    rows = [attempt(name, verdict="unjudged", whole=text) for name, text in texts.items()]
    write_inputs(folder, [[*rows, attempt("f")], [attempt("g", verdict="wrong")]])


@pytest.mark.slow
def test_a_judge_that_can_only_babble_leaves_every_row_unjudged_with_its_reason(tmp_path: Path) -> None:
    given(tmp_path)
    model = str(make_tiny_model(tmp_path / "judge"))
    judge = {"engine": "transformers", "model": model, "temperature": 1.0, "max_tokens": 8, "rows_per_shard": 2}
    report = select(context_of(tmp_path, general_share=0.0, judge=judge))
    asked = report["judge"]
    assert (asked["asked"], asked["right"], asked["wrong"], asked["unjudged"], asked["kept"]) == (5, 0, 0, 5, 0)
    assert sum(asked["why_unjudged"].values()) == 5
    assert asked["why_unjudged"].keys() <= {"the reply was cut off", "the reply holds no JSON object"}
    verdicts = list(read_table(tmp_path / "verdicts"))
    assert [(row["id"], row["verdict"]) for row in verdicts] == [(name, "unjudged") for name in ANSWERS]
    assert all(row["note"] in asked["why_unjudged"] for row in verdicts)
    assert any(row["reply"] for row in verdicts)
    assert reasons_of(tmp_path) == {**{(name, 0): "unjudged" for name in ANSWERS}, ("f", 0): "", ("g", 0): "wrong"}


def verdict(body: dict[str, Any], number: int) -> Answer:
    """A judge that reads: the reference answer is 2, in figures or in words."""
    request = body["messages"][-1]["content"]
    found = re.search(r"Reference answer:\n(.*?)\n\nAnswer to be judged:\n(.*)", request, re.DOTALL)
    assert found is not None
    reference, answer = found.groups()
    if "refuse" in answer:
        return 400, "no such request", {}
    if "nothing" in answer:
        return "I would rather not say."
    same = {"2": "two"}[reference] in answer or re.search(rf"\b{reference}\b", answer)
    return json.dumps({"analysis": f"{answer} against {reference}", "verdict": "correct" if same else "incorrect"})


def test_verdicts_of_a_server_decide_and_its_refusals_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(tmp_path)
    judge = {"engine": "openai", "model": "big", "rows_per_shard": 2, "max_tokens": 99}
    with serving(verdict) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        report = select(context_of(tmp_path, general_share=0.0, judge=judge))
    assert len(served.bodies) == 5
    assert {(body["model"], body["temperature"], body["max_tokens"]) for body in served.bodies} == {("big", 0.0, 99)}
    assert reasons_of(tmp_path) == {
        ("a", 0): "", ("b", 0): "judged wrong by a model", ("c", 0): "", ("d", 0): "unjudged", ("e", 0): "unjudged", ("f", 0): "",
        ("g", 0): "wrong",
    }  # fmt: skip
    notes = {row["id"]: row["note"] for row in read_table(tmp_path / "verdicts")}
    assert notes["a"] == "It is two. against 2"
    assert (notes["d"], notes["e"]) == ("the request failed", "the reply holds no JSON object")
    replies = {row["id"]: row["reply"] for row in read_table(tmp_path / "verdicts")}
    assert "no such request" in replies["d"]
    assert report["judge"]["why_unjudged"] == {"the request failed": 1, "the reply holds no JSON object": 1}
    assert (report["judge"]["kept"], report["judge"]["share_of_kept"]) == (2, pytest.approx(2 / 3))
    origins = {row["id"]: row["origin"] for row in selected(tmp_path)}
    judged = "rejection sampling, judged by big"
    assert origins == {"a": judged, "c": judged, "f": "rejection sampling"}
