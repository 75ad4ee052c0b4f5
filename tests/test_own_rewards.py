"""Rewards of the user's own are tried before anything trains: on a right answer, one without tags, nothing, and one cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import r1pipe

from r1pipe.data.rows import Problem
from r1pipe.rewards import Accuracy, FormatReward
from r1pipe.rewards.mix import Part
from r1pipe.rewards.trial import trial_attempts

BEGIN = """
from r1pipe.rewards import Score
class Own:
    def score(self, attempts):
"""
BROKEN = {
    "raises": ("        return [Score(float(len(a.text) / len(a.completion.split()))) for a in attempts]",
               r"reward 'Own' raises ZeroDivisionError: .* (own_raises.py, line 5) on ''"),
    "short": ("        return [Score(1.0)]", "reward 'Own' returned 1 scores for 4 attempts"),
    "floats": ("        return [1.0 for a in attempts]", "reward 'Own' gave 1.0 for problem"),
    "nothing": ("        pass", "reward 'Own' gives no scores: 'NoneType' object is not iterable"),
    "words": ("        return [Score('high') for a in attempts]", "reward 'Own' gives no scores: must be real number, not str"),
    "endless": ("        return [Score(float('inf')) for a in attempts]", "reward 'Own' gave inf for problem"),
}  # fmt: skip


def test_the_answers_that_are_tried_are_right_bare_empty_and_cut_off() -> None:
    right, bare, nothing, cut = attempts = trial_attempts(Problem(id="1", question="What is 6 × 7?", answer="42"))
    assert [score and score.value for score in Accuracy().score(attempts)] == [1.0, 1.0, 0.0, 0.0]
    assert [score and score.value for score in FormatReward().score(attempts)] == [1.0, 0.0, 0.0, 0.0]
    assert (nothing.text, cut.finish, right.problem.answer) == ("", "length", "42")
    assert "<think>" not in bare.text
    assert Part("format", FormatReward(), 1.0).name == "format"


@pytest.mark.parametrize("name", BROKEN)
def test_an_own_reward_that_cannot_score_is_told_by_check_and_before_a_run_begins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    code, words = BROKEN[name]
    (tmp_path / f"own_{name}.py").write_text(BEGIN + code + "\n")
    reward = f'rewards.language={{ name = "own_{name}:Own" }}'
    refused = r1pipe(tmp_path, "run-all", "--set", reward, columns=300)
    assert refused.code == 2
    first, _, last = words.partition(".*")
    assert first in refused.err
    assert last in refused.err
    assert not (tmp_path / "runs").exists()


def test_check_says_what_an_own_reward_gives_to_a_right_answer_of_the_runs_own_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_good.py").write_text(
        BEGIN + "        return [Score(float('17' in a.text), a.problem.question) for a in attempts]\n"
    )
    (tmp_path / "mine.jsonl").write_text(json.dumps({"question": "What is 8 + 9?", "answer": "17", "checker": "maths"}) + "\n")
    assert r1pipe(tmp_path, "init", "my.toml").code == 0
    text = (tmp_path / "my.toml").read_text().replace('language = { name = "language" }', 'language = { name = "own_good:Own" }')
    text = text.replace('problems = { source = "nano", count = 6000 }', 'problems = { source = "mine.jsonl" }')
    assert "own_good" in text
    assert "mine.jsonl" in text
    (tmp_path / "my.toml").write_text(text)
    facts = json.loads(r1pipe(tmp_path, "check", "my.toml", "--json").out)
    found = next(fact for fact in facts["facts"] if fact["name"] == "rewards")
    assert found["found"].endswith("; Own gives 1 to a right answer (What is 8 + 9?)")
