"""Sampling and training give the same tokens the same probability, or the run does not start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import make_tiny_model, weights_digest
from train_helpers import GRPO, context, grpo

from r1pipe.errors import TrainingError

pytestmark = pytest.mark.slow

SHORT = GRPO.model_copy(update={"steps": 4, "refresh_reference": 0, "max_completion_tokens": 40})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"))


def agreements(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "agreement"]


def test_they_agree_at_the_start_and_looking_leaves_the_run_as_it_was(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import r1pipe.train.grpo

    grpo(context(tmp_path / "looked"), base, SHORT)
    (line,) = agreements(tmp_path / "looked")
    found = line["log_probs"]
    assert line["step"] == 0
    assert found["mean"] <= found["largest"] < 1e-5
    assert list(found["by_position"]) == ["8", "16", "32", "64"]
    assert found["tokens"] > 100
    monkeypatch.setattr(r1pipe.train.grpo, "check_agreement", lambda *_: {})
    grpo(context(tmp_path / "blind"), base, SHORT)
    assert agreements(tmp_path / "blind") == []
    assert weights_digest(tmp_path / "blind" / "model") == weights_digest(tmp_path / "looked" / "model")


@pytest.mark.parametrize("leak", [{"top_k": 5}, {"repetition_penalty": 1.5}])
def test_a_sampling_setting_that_the_trainer_does_not_know_of_stops_the_run(
    leak: dict[str, Any], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import r1pipe.train.grpo

    config = r1pipe.train.grpo.GRPOConfig
    monkeypatch.setattr(r1pipe.train.grpo, "GRPOConfig", lambda **options: config(**{**options, **leak}))
    with pytest.raises(TrainingError, match="sampling and training do not agree") as stopped:
        grpo(context(tmp_path), base, SHORT)
    assert "up to token 8" in stopped.value.problem
    assert not list((tmp_path / "checkpoints").glob("checkpoint-*"))


def test_a_nucleus_is_no_disagreement(base: Path, tmp_path: Path) -> None:
    grpo(context(tmp_path), base, SHORT.model_copy(update={"top_p": 0.9, "temperature": 0.7, "steps": 2}))
    assert agreements(tmp_path)[0]["log_probs"]["largest"] < 1e-5
