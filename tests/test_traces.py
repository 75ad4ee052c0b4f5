"""The cold-start builder: what is kept, what is rewritten, what is refused, and what a kill costs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openai_server import Served, serving

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import ATTEMPT_COLUMNS, TRACE_COLUMNS, attempt_row, read_examples, read_table, write_table
from r1pipe.errors import ArtifactError, DataError, EngineError, Stopped
from r1pipe.pipeline import load
from r1pipe.recipe import Launch
from r1pipe.rewards import Mix
from r1pipe.stage import StepContext
from r1pipe.stages import traces
from r1pipe.stages.rewriting import plain_summary
from r1pipe.stages.sections import RewardsSection
from r1pipe.stages.traces import Config, build

RULES = Mix.build(RewardsSection().rules)
THOUGHT = "We add the two numbers of the question: 40+2=42. Wait, we check it again: 42-2=40, yes."
MINE = "I add the two numbers of the question: 40+2=42. Wait, I check it again: 42-2=40, yes."
MIXED = "We add the two numbers 两个数相加: 40+2=42. 好的，答案是 42."


def problem(number: int = 0, language: str = "en") -> Problem:
    return Problem(id=f"p{number:03d}", question="What is 40+2?", answer="42", language=language, domain="arithmetic")


def attempts(*texts: str, finish: str = "stop", first: int = 0, asked: Problem | None = None) -> list[dict[str, Any]]:
    """Scored attempts at one problem, as zero/sample writes them."""
    made = [Attempt(asked or problem(first), text, finish=finish, tokens=len(text)) for text in texts]
    return [
        attempt_row(attempt, number, row.parts, row.total, row.verdict)
        for number, (attempt, row) in enumerate(zip(made, RULES.score(made), strict=True))
    ]


def response(thinking: str = THOUGHT, summary: str = "<answer>42</answer>") -> str:
    return f"<think> {thinking} </think> {summary}"


def context(folder: Path, rows: list[dict[str, Any]], stop: Any = lambda: False, **settings: Any) -> StepContext:
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "attempts", rows, ATTEMPT_COLUMNS)
    step = load("r1-full").step("zero/build")
    config = Config.model_validate(settings)
    shared = {"rewards": RewardsSection()}
    return StepContext(step, config, shared, Launch(), {"attempts": folder / "attempts"}, {}, folder / "step", 1, stop)


def built(ctx: StepContext) -> tuple[list[dict[str, Any]], dict[tuple[str, int], dict[str, Any]], dict[str, Any]]:
    report = build(ctx)
    ledger = {(row["id"], row["sample"]): row for row in read_table(ctx.output("ledger"))}
    assert json.loads(ctx.output("report").read_text()) == {k: v for k, v in report.items() if k != "verdict_version"}
    return list(read_table(ctx.output("traces"))), ledger, report


def server_settings(served: Served, monkeypatch: pytest.MonkeyPatch, **rewrite: Any) -> dict[str, Any]:
    monkeypatch.setenv("OPENAI_BASE_URL", served.url)
    return {"rewrite": {"engine": "openai", "model": "m", **rewrite}}


def is_summary(body: dict[str, Any]) -> bool:
    return "Write the solution" in body["messages"][-1]["content"]


def test_every_attempt_has_one_outcome_and_one_reason(tmp_path: Path) -> None:
    rows = [
        *attempts(response(), response("We add: 40+2=42. Good."), response(), response(summary="<answer>41</answer>"), "42"),
        *attempts(response(MIXED), first=1),
        *attempts(response(), finish="error", first=2),
        *attempts(response(), finish="length", first=3),
        *attempts(response(), asked=Problem(id="p004", question="?", answer="", checker="nobody")),
    ]
    kept, ledger, report = built(context(tmp_path, rows))
    outcomes = {key: (row["outcome"], row["reason"]) for key, row in ledger.items()}
    assert outcomes == {
        ("p000", 0): ("dropped", "more than 1 of the problem"),
        ("p000", 1): ("kept", ""),
        ("p000", 2): ("dropped", "more than 1 of the problem"),
        ("p000", 3): ("dropped", "wrong"),
        ("p000", 4): ("dropped", "format: no thinking tags"),
        ("p001", 0): ("dropped", "mixed language"),
        ("p002", 0): ("error", "error while sampling"),
        ("p003", 0): ("dropped", "cut off"),
        ("p004", 0): ("unjudged", "unjudged"),
    }
    assert report["attempts"] == len(rows) == report["kept"] + report["dropped"] + report["unjudged"] + report["error"]
    assert (report["kept"], report["dropped"], report["unjudged"], report["error"]) == (1, 6, 1, 1)
    assert sum(report["reasons"].values()) == len(rows) - report["kept"]
    assert report["rewriting"].startswith("skipped, no engine is set")
    assert kept[0].keys() == TRACE_COLUMNS.keys()
    assert "6 dropped" in (tmp_path / "step" / "traces" / "README.md").read_text()


def test_cold_start_reads_the_traces_and_they_hold_no_answer_tags(tmp_path: Path) -> None:
    ctx = context(tmp_path, attempts(response()))
    kept, _, report = built(ctx)
    assert (kept[0]["thinking"], kept[0]["summary"]) == (THOUGHT, "The answer is \\boxed{42}.")
    assert kept[0]["origin"] == "R1-Zero, thinking as sampled, summary answer alone"
    assert read_examples(ctx.output("traces")) == [
        ("What is 40+2?", f"<think>\n{THOUGHT}\n</think>\n\nThe answer is \\boxed{{42}}.")
    ]
    assert report["summaries"] == {"answer alone": 1}


@pytest.mark.parametrize(
    ("language", "summary", "expected"),
    [
        ("en", "<answer>42</answer>", "The answer is \\boxed{42}."),
        ("en", "\\boxed{42}", "The answer is \\boxed{42}."),
        ("en", "It is \\boxed{42}, by adding.", "It is \\boxed{42}, by adding."),
        ("en", "答案是\\boxed{42}。", "The answer is \\boxed{42}."),
        ("zh", "The answer is \\boxed{42}.", "答案是\\boxed{42}。"),
        ("zh", "<answer>一共\\boxed{42}个</answer>", "一共\\boxed{42}个"),
        ("fr", "<answer>42</answer>", "\\boxed{42}"),
    ],
)
def test_a_summary_is_made_where_there_is_only_the_answer_or_the_wrong_language(
    language: str, summary: str, expected: str, tmp_path: Path
) -> None:
    thinking = {"en": THOUGHT, "zh": "把两个数相加：40+2=42。", "fr": "40+2=42"}[language]
    kept, _, _ = built(context(tmp_path, attempts(response(thinking, summary), asked=problem(language=language))))
    assert [row["summary"] for row in kept] == [expected]


def test_a_program_is_never_put_in_a_box(tmp_path: Path) -> None:
    from r1pipe.stages.rewriting import Draft, _in_language, _is_bare

    draft = Draft(Problem(id="c", question="q", checker="code", language="zh"), "t", "```python\nprint(1)\n```")
    assert not _is_bare(draft)
    assert _in_language(draft, 1.0)
    assert "boxed" in plain_summary(draft)  # only ever asked for checkers with a box


def test_without_an_engine_mixed_thinking_is_dropped_and_with_one_it_is_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = attempts(response(MIXED))
    with pytest.raises(DataError, match=r"nothing is left of 1 attempts: \{'mixed language': 1\}"):
        build(context(tmp_path / "without", rows))
    with serving(lambda body, number: "It is \\boxed{42}." if is_summary(body) else MINE) as served:
        kept, ledger, report = built(context(tmp_path / "with", rows, **server_settings(served, monkeypatch)))
    assert (kept[0]["thinking"], kept[0]["summary"]) == (MINE, "It is \\boxed{42}.")
    assert ledger["p000", 0]["thinking_from"] == "translated"
    assert report["rewriting"] == "by m (openai)"
    asked = served.bodies[0]["messages"][-1]["content"]
    assert "entirely in English" in asked
    assert MIXED in asked


def test_readable_attempts_come_before_mixed_ones_of_the_same_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*attempts(response(MIXED[:-3]), response(THOUGHT)), *attempts(response(MIXED), first=1)]
    with serving(lambda body, number: "It is \\boxed{42}." if is_summary(body) else MINE) as served:
        _, ledger, _ = built(context(tmp_path, rows, **server_settings(served, monkeypatch)))
    assert {key: row["outcome"] for key, row in ledger.items()} == {
        ("p000", 0): "dropped", ("p000", 1): "kept", ("p001", 0): "kept",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rewritten", "note"),
    [
        (MIXED, "thinking not taken: mixed language"),
        (
            "I add 40 and 2, and that gives 43 in the end, as I can see when I count it out.",
            "thinking not taken: no longer comes to the answer",
        ),
        ("So 42.", "thinking not taken: steps were lost"),
        ("I add the numbers. " * 20 + "It is 42", "thinking not taken: repetition"),
        ("", "thinking not taken: empty"),
        ("<think>a</think> " + MINE + " </think> <think>", "thinking not taken: format: 2 opening tags"),
        ((400, "too long", {}), "thinking not taken: the request failed (status 400: too long)"),
    ],
)
def test_a_rewritten_trace_that_breaks_a_rule_is_not_taken_and_the_original_stays(
    rewritten: Any, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda body, number: "It is \\boxed{42}." if is_summary(body) else rewritten) as served:
        kept, ledger, report = built(context(tmp_path, attempts(response()), **server_settings(served, monkeypatch)))
    assert kept[0]["thinking"] == THOUGHT
    assert kept[0]["summary"] == "It is \\boxed{42}."
    assert ledger["p000", 0]["notes"] == note
    assert report["not_taken"] == {note.split(" (")[0]: 1}


def test_a_summary_that_is_wrong_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda body, number: "It is \\boxed{41}." if is_summary(body) else MINE) as served:
        kept, ledger, _ = built(context(tmp_path, attempts(response()), **server_settings(served, monkeypatch)))
    assert (kept[0]["thinking"], kept[0]["summary"]) == (MINE, "The answer is \\boxed{42}.")
    assert ledger["p000", 0]["notes"] == "summary not taken: wrong"


def test_mixed_thinking_whose_translation_fails_is_dropped_with_both_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*attempts(response(MIXED)), *attempts(response(), first=1)]
    with serving(lambda body, number: MIXED if MIXED in body["messages"][-1]["content"] else MINE) as served:
        _, ledger, report = built(context(tmp_path, rows, **server_settings(served, monkeypatch)))
    assert ledger["p000", 0]["outcome"] == "dropped"
    assert ledger["p000", 0]["reason"] == "mixed language; thinking not taken: mixed language"
    assert (report["kept"], report["dropped"], report["reasons"]) == (1, 1, {"mixed language": 1})


def many(count: int) -> list[dict[str, Any]]:
    return [row for number in range(count) for row in attempts(response(f"{THOUGHT} Case {number}."), first=number)]


def test_a_killed_builder_asks_only_for_its_unfinished_shards_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Stands for the moment of a kill: nothing after it runs."""

    rows, answers = many(10), lambda body, number: "It is \\boxed{42}." if is_summary(body) else MINE + f" {body['seed']}."
    with serving(answers) as served:
        settings = server_settings(served, monkeypatch, rows_per_shard=3)
        whole = built(context(tmp_path / "whole", rows, **settings))
        asked = len(served.bodies)
        real, written = traces.write_part, []

        def write_and_die(folder: Path, number: int, *rest: Any) -> Path:
            if number == 2 and not written:
                written.append(number)
                raise Killed
            return real(folder, number, *rest)

        monkeypatch.setattr(traces, "write_part", write_and_die)
        with pytest.raises(Killed):
            build(context(tmp_path / "killed", rows, **settings))
        torn = tmp_path / "killed" / "step" / "drafts" / "part-00001.parquet"
        torn.write_bytes(torn.read_bytes()[:100])
        before = len(served.bodies)
        again = built(context(tmp_path / "killed", rows, **settings))
    assert again == whole
    assert len(served.bodies) - before == asked - 2 * 3  # of four shards, the first alone was whole


def test_a_builder_that_is_asked_to_stop_stops_between_shards_and_goes_on(tmp_path: Path) -> None:
    rows, calls = many(6), Counter[str]()

    def stop() -> bool:
        calls["asked"] += 1
        return calls["asked"] == 2

    settings = {"rewrite": {"rows_per_shard": 2}}
    with pytest.raises(Stopped, match="build stopped after 1 of 3 shards"):
        build(context(tmp_path, rows, stop, **settings))
    kept, _, report = built(context(tmp_path, rows, **settings))
    assert (report["kept"], len(kept)) == (6, 6)
    assert [json.loads(line)["step"] for line in (tmp_path / "step" / "metrics.jsonl").read_text().splitlines()] == [0, 1, 2]


def test_a_server_that_goes_away_stops_the_builder_and_what_it_wrote_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda body, number: (401, "expired", {}) if number >= 4 else MINE) as served:
        settings = server_settings(served, monkeypatch, rows_per_shard=2)
        with pytest.raises(EngineError, match="status 401: expired"):
            build(context(tmp_path, many(6), **settings))
    assert [path.name for path in (tmp_path / "step" / "drafts").iterdir()] == ["part-00000.parquet"]


def test_at_most_so_many_traces_are_drawn_and_the_others_are_accounted_for(tmp_path: Path) -> None:
    kept, ledger, report = built(context(tmp_path, many(10), most=4))
    assert len(kept) == 4
    assert report["reasons"] == {"more than 4 in all": 6}
    _, again, _ = built(context(tmp_path / "again", many(10), most=4))
    assert ledger == again


def test_an_attempt_that_is_in_the_table_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="sample 0 of problem p000 is in the attempts twice"):
        build(context(tmp_path, [*attempts(response()), *attempts(response())]))


def test_a_ledger_that_does_not_add_up_is_refused() -> None:
    line = {"outcome": "kept", "reason": "", "thinking_from": "", "summary_from": "", "notes": ""}
    with pytest.raises(ArtifactError, match="do not add up"):
        traces.account({("p", 0): line}, [], "")
    with pytest.raises(ArtifactError, match="do not add up"):
        traces.account({("p", 0): {**line, "outcome": "lost"}}, [], "")


def test_an_engine_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match='engine "openai" needs a model'):
        Config.model_validate({"rewrite": {"engine": "openai"}})


@pytest.mark.slow
def test_a_model_of_this_machine_that_can_only_babble_changes_nothing_but_the_ledger(tmp_path: Path) -> None:
    from tiny import make_tiny_model

    rewrite = {"engine": "transformers", "model": str(make_tiny_model(tmp_path / "model")), "max_tokens": 8}
    kept, ledger, report = built(context(tmp_path, attempts(response()), rewrite=rewrite))
    assert (kept[0]["thinking"], kept[0]["summary"]) == (THOUGHT, "The answer is \\boxed{42}.")
    assert ledger["p000", 0]["notes"].startswith("thinking not taken: ")
    assert "summary not taken: " in ledger["p000", 0]["notes"]
    assert report["rewriting"].endswith("(transformers)")
