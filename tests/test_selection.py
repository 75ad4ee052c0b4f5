"""The selection of stage 3: what is kept, in which order, why the rest is not, and that it can be broken off anywhere."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from r1pipe.data.chat import split_response
from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import (
    ATTEMPT_COLUMNS,
    PROBLEM_COLUMNS,
    TRACE_COLUMNS,
    attempt_row,
    problem_row,
    read_table,
    write_part,
    write_table,
)
from r1pipe.engines.base import Completion, Sampling
from r1pipe.errors import ArtifactError, Stopped
from r1pipe.recipe import Launch
from r1pipe.stages.keeping import pick_best, why_dropped
from r1pipe.stages.rejection_sft import SelectConfig, select
from r1pipe.stages.selection import work as workers
from r1pipe.stages.selection.judging import verdict_of
from r1pipe.stages.selection.writing import Layout

QUESTION = "A shop sells {n} red and {m} blue pencils on Monday and twice as many on Tuesday. How many pencils is that in all?"
WORDS = "so we add then take away half of what is left and look at the rest again before one more step is made here now"


def thinking(rng: random.Random, size: int = 60) -> str:
    return " ".join(f"{rng.choice(WORDS.split())} {rng.randint(1, 99)}" for _ in range(size // 2)) + "."


def attempt(name: str, sample: int = 0, text: str = "I add.", verdict: str = "right", **changes: Any) -> dict[str, Any]:
    """One attempt as a row; `text` is its thinking."""
    problem = Problem(
        id=name, question=changes.pop("question", f"{name}?"), answer="2", domain=changes.pop("domain", "maths"),
        checker=changes.pop("checker", "maths"), source=changes.pop("source", "book"),
    )  # fmt: skip
    value = {"right": 1.0, "wrong": 0.0, "unjudged": None}[verdict]
    whole = changes.pop("whole", f"<think>\n{text}\n</think>\n\nIt is \\boxed{{2}}.")
    one = Attempt(problem, whole, finish=changes.pop("finish", "stop"), tokens=changes.pop("tokens", len(text)))
    scores = {"accuracy": Score(value), "language": Score(changes.pop("language", 1.0))}
    return {**attempt_row(one, sample, scores, 1.0, verdict), **changes}


def general_row(number: int, **changes: Any) -> dict[str, Any]:
    row = {**problem_row(Problem(id=f"g{number}", question=f"Greeting {number}", domain="chat", source="people", checker="none"))}
    return {**row, "thinking": f"I greet {number}.", "summary": "Hello!", "origin": "given", **changes}


def context_of(folder: Path, **settings: Any) -> Any:
    inputs = {"attempts": folder / "attempts", "general_traces": folder / "general"}
    if (folder / "evaluation").is_dir():
        inputs["evaluation"] = folder / "evaluation"
    return SimpleNamespace(
        config=SelectConfig(**settings), seed=1, folder=folder, launch=Launch(), inputs=inputs,
        input_digests=dict.fromkeys(inputs, "digest"), stop_requested=lambda: False,
        output=lambda name: folder / ("report.json" if name == "report" else name),
    )  # fmt: skip


def write_inputs(
    folder: Path,
    parts: Sequence[Sequence[dict[str, Any]]],
    general: Sequence[dict[str, Any]] = (),
    evaluation: Sequence[str] = (),
) -> None:
    for number, rows in enumerate(parts):
        write_part(folder / "attempts", number, rows, ATTEMPT_COLUMNS)
    write_table(folder / "general", general, TRACE_COLUMNS)
    if evaluation:
        rows = [problem_row(Problem(id=f"e{number}", question=text)) for number, text in enumerate(evaluation)]
        write_table(folder / "evaluation", rows, PROBLEM_COLUMNS)


def selected(folder: Path) -> list[dict[str, Any]]:
    return list(read_table(folder / "selection"))


def reasons_of(folder: Path) -> dict[tuple[str, int], str]:
    return {(row["id"], row["sample"]): row["reason"] for row in read_table(folder / "ledger")}


def many(seed: int, problems: int = 40, samples: int = 4) -> list[dict[str, Any]]:
    """Attempts of every kind."""
    rng = random.Random(seed)
    rows = []
    for number in range(problems):
        for sample in range(samples):
            changes: dict[str, Any] = {"verdict": rng.choice(["right", "right", "right", "wrong", "unjudged"])}
            kind = rng.randrange(10)
            if kind == 0:
                changes["finish"] = "length"
            elif kind == 1:
                changes["language"] = 0.5
            elif kind == 2:
                changes["whole"] = "It is \\boxed{2}."
            elif kind == 3:
                changes["error"] = "the worker died"
            text = "I add the same." if kind == 4 else thinking(rng)
            rows.append(attempt(f"p{number}", sample, text, tokens=rng.randint(5, 9), domain=rng.choice("ab"), **changes))
    return rows


def by_hand(rows: list[dict[str, Any]], general: list[dict[str, Any]], config: SelectConfig, seed: int) -> list[tuple[str, str]]:
    """The selection as lists in memory: (id, thinking) in order. Knows nothing of overlap, copies and mixes."""
    by_problem: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if not why_dropped(row, config):
            by_problem.setdefault(row["id"], []).append(row)
    kept = [row for usable in by_problem.values() for row, reason in pick_best(usable, config.keep_per_problem) if not reason]
    traces = [(row["id"], split_response(row["completion"]).thinking or "") for row in kept]
    others = [(row["id"], row["thinking"]) for row in general]
    wanted = round(len(kept) * config.general_share / (1 - config.general_share))
    random.Random(f"select {seed}").shuffle(others)
    selection = [*traces, *others[:wanted]]
    random.Random(f"order {seed}").shuffle(selection)
    return selection


@pytest.mark.parametrize(("seed", "keep"), [(1, 1), (2, 2), (3, 3)])
def test_the_selection_is_the_one_made_by_hand_in_the_same_order(tmp_path: Path, seed: int, keep: int) -> None:
    rows, general = many(seed), [general_row(number) for number in range(30)]
    write_inputs(tmp_path, [rows[:70], rows[70:110], rows[110:]], general)
    context = context_of(tmp_path, keep_per_problem=keep, overlap_words=0, near_duplicate=0)
    report = select(context)
    assert [(row["id"], row["thinking"]) for row in selected(tmp_path)] == by_hand(rows, general, context.config, 1)
    assert sum(report["reasons"].values()) == report["attempts"] == len(rows)
    assert sum(report["general_reasons"].values()) == len(general)
    assert not (tmp_path / "work").exists()


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "it's [1] *?"
    write_inputs(folder, [[attempt("a")], [attempt("b", text="I see.")]], [general_row(0)])
    assert select(context_of(folder, general_share=0.0))["rows"] == 2


def test_the_ledger_has_one_line_and_one_reason_for_every_row(tmp_path: Path) -> None:
    rows, general = many(5), [general_row(number) for number in range(30)]
    write_inputs(tmp_path, [rows[:99], rows[99:]], general)
    report = select(context_of(tmp_path))
    ledger = list(read_table(tmp_path / "ledger"))
    sampled = [row for row in ledger if row["origin"] == "rejection sampling"]
    assert [(row["id"], row["sample"]) for row in sampled] == [(row["id"], row["sample"]) for row in rows]
    assert len(ledger) == len(rows) + len(general)
    assert all((row["reason"] == "") == (row["position"] >= 0) == (row["outcome"] == "kept") for row in ledger)
    chosen = selected(tmp_path)
    assert {row["position"]: row["id"] for row in ledger if row["position"] >= 0} == {
        n: row["id"] for n, row in enumerate(chosen)
    }
    assert {row["outcome"] for row in sampled} == {"kept", "dropped", "unjudged", "error"}
    assert report["rows"] == len(chosen) == report["kept"] + report["general"]


def test_rows_of_problems_that_repeat_each_other_are_dropped_as_copies(tmp_path: Path) -> None:
    rng = random.Random(3)
    text, other = thinking(rng, 200), thinking(rng, 200)
    words = text.split()
    lightly = " ".join([*words[:50], "well", *words[50:]]).replace("so", "So")
    asked = QUESTION.format(n=12, m=30)
    rows = [
        attempt("a", text=text, question=asked),
        attempt("b", text=text.upper().replace(" ", "  "), question=asked.replace("?", " ?")),
        attempt("c", text=lightly, question=asked + " Please answer."),
        attempt("d", text=other, question=asked),
    ]
    write_inputs(tmp_path, [rows])
    select(context_of(tmp_path, general_share=0.0))
    assert reasons_of(tmp_path) == {
        ("a", 0): "", ("b", 0): "duplicate of another row", ("c", 0): "near copy of another row", ("d", 0): "",
    }  # fmt: skip


def test_several_answers_of_a_problem_are_not_near_copies_of_each_other(tmp_path: Path) -> None:
    rng = random.Random(4)
    text, other = thinking(rng, 200), thinking(rng, 220)
    rows = [
        attempt("a", 0, text, tokens=5), attempt("a", 1, text, tokens=6), attempt("a", 2, text + " I am sure.", tokens=7),
        attempt("a", 3, other, tokens=8), attempt("a", 4, thinking(rng, 240), tokens=9),
    ]  # fmt: skip
    write_inputs(tmp_path, [rows])
    select(context_of(tmp_path, keep_per_problem=2, general_share=0.0))
    assert list(reasons_of(tmp_path).values()) == [
        "", "same thinking as another of the problem", "near copy of another of the problem", "", "more than 2 of the problem",
    ]  # fmt: skip


def test_rows_that_share_a_passage_with_an_evaluation_item_are_dropped_and_the_passage_is_named(tmp_path: Path) -> None:
    rng = random.Random(6)
    item = QUESTION.format(n=17, m=23)
    chinese = "小明有三十六只母鸡，每三只卖掉一只，每只卖4元，问最后一共得到多少元钱？"
    rows = [
        attempt("a", question=item.upper(), text=thinking(rng)),
        attempt("b", text=f"This is like the one I know: {item} {thinking(rng)}"),
        attempt("c", text=thinking(rng), question=chinese.replace("，", " ")),
        attempt("d", text=thinking(rng), question=QUESTION.format(n=18, m=24)),
        attempt("e", text=thinking(rng), question="Compute 2 + 2"),
    ]
    general = [general_row(0), general_row(1, summary=item)]
    write_inputs(tmp_path, [rows], general, [item, chinese, "Compute 2+2."])
    report = select(context_of(tmp_path, general_share=0.5))
    reasons = reasons_of(tmp_path)
    assert [reasons[name, 0] for name in "abcde"] == [*["overlaps an evaluation item"] * 3, "", "overlaps an evaluation item"]
    assert reasons["g1", 0] == "overlaps an evaluation item"
    assert report["evaluation_items"] == 3
    notes = {row["id"]: row["note"] for row in read_table(tmp_path / "ledger")}
    assert notes["a"].startswith("item 0: a shop sells 17 red and 23 blue")
    assert notes["d"] == ""


def test_the_mix_takes_its_numbers_best_of_each_problem_first(tmp_path: Path) -> None:
    rng = random.Random(7)
    rows = [attempt(f"m{n}", s, thinking(rng), tokens=s + 1) for n in range(20) for s in range(2)]
    rows += [attempt(f"c{n}", 0, thinking(rng), domain="programs", checker="code") for n in range(3)]
    rows += [attempt(f"x{n}", 0, thinking(rng), domain="poems", checker="none") for n in range(2)]
    write_inputs(tmp_path, [rows], [general_row(number) for number in range(9)])
    mix = {"maths": 50, "code": 20, "general": 10}
    report = select(context_of(tmp_path, keep_per_problem=2, mix=mix, mix_scale=0.5))
    assert report["mix"] == {
        "maths": {"wanted": 25, "found": 40, "taken": 25}, "code": {"wanted": 10, "found": 3, "taken": 3},
        "general": {"wanted": 5, "found": 9, "taken": 4},
    }  # fmt: skip
    assert report["domains"] == {"maths": 25, "chat": 4, "programs": 3}
    maths = [key for key, reason in reasons_of(tmp_path).items() if key[0].startswith("m") and not reason]
    assert sum(sample == 0 for _, sample in maths) == 20
    assert report["reasons"]["over the mix's number of maths"] == 15
    assert report["reasons"]["no part of the mix"] == 2
    assert report["general_reasons"] == {"over the share of general rows": 5, "kept": 4}


def test_another_seed_draws_other_general_rows_and_another_order_and_the_same_seed_the_same(tmp_path: Path) -> None:
    rows, general = many(8), [general_row(number) for number in range(30)]
    found = []
    for place, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(place)
        write_inputs(folder, [rows], general)
        context = context_of(folder)
        context.seed = seed
        select(context)
        found.append([row["id"] for row in selected(folder)])
    assert found[0] == found[1] != found[2]
    assert {name for name in found[0] if name[0] == "p"} == {name for name in found[2] if name[0] == "p"}


def test_general_rows_can_go_without_their_thinking(tmp_path: Path) -> None:
    write_inputs(tmp_path, [[attempt("a")]], [general_row(number, summary=f"Hi {number}") for number in range(4)])
    select(context_of(tmp_path, general_share=0.5, general_thinking="none"))
    assert [row["thinking"] for row in selected(tmp_path) if row["origin"] == "general data"] == [""]


def test_a_selection_made_by_several_processes_is_the_same_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, general = many(9), [general_row(number) for number in range(30)]
    tables = []
    for name in ("one", "two"):
        folder = tmp_path / name
        write_inputs(folder, [rows[start : start + 40] for start in range(0, len(rows), 40)], general)
        if name == "two":
            monkeypatch.setattr(workers, "WORTH_A_PROCESS", 4096)
            monkeypatch.setattr(Layout, "of", classmethod(lambda cls, rows, size: cls(rows, 7)))
        context = context_of(folder)
        context.launch = Launch(threads=2)
        select(context)
        tables.append((selected(folder), list(read_table(folder / "ledger")), json.loads((folder / "report.json").read_text())))
    assert tables[0] == tables[1]
    assert len(list((tmp_path / "two/selection").glob("*.parquet"))) > 1


def test_a_worker_that_is_done_takes_the_next_part_and_never_ends_the_others() -> None:
    def work(part: int) -> int:
        time.sleep(0.3 if part == 0 else 0)
        return part

    with ThreadPoolExecutor(2) as pool:
        done = list(workers.each(pool, work, [(part,) for part in range(40)], lambda: False))
    assert sorted(done) == list(range(40))
    assert done[-1] == 0


def test_a_stopped_selection_owes_only_the_parts_that_it_did_not_read(tmp_path: Path) -> None:
    rows, general = many(10), [general_row(number) for number in range(30)]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        write_inputs(folder, [rows[start : start + 20] for start in range(0, len(rows), 20)], general)
    select(context_of(whole))
    context = context_of(broken)
    asked = iter([False] * 4 + [True] * 100)
    context.stop_requested = lambda: next(asked)
    with pytest.raises(Stopped, match="stopped after reading 4 of 9 parts"):
        select(context)
    read = {path: path.stat().st_mtime_ns for path in (broken / "work/attempts").glob("*.parquet")}
    assert len(read) == 4
    kept: dict[Path, int] = {}

    def watch() -> bool:
        kept.update({path: path.stat().st_mtime_ns for path in read})
        return False

    context.stop_requested = watch
    select(context)
    assert kept == read
    assert (selected(broken), reasons_of(broken)) == (selected(whole), reasons_of(whole))


def test_what_an_attempt_with_other_settings_left_is_not_used(tmp_path: Path) -> None:
    write_inputs(tmp_path, [[attempt("a", language=0.9)], [attempt("b")]])
    context = context_of(tmp_path, general_share=0.0)
    asked = iter([False, True, True])
    context.stop_requested = lambda: next(asked)
    with pytest.raises(Stopped):
        select(context)
    report = select(context_of(tmp_path, general_share=0.0, min_language=0.8))
    assert report["reasons"] == {"kept": 2}


def test_a_torn_part_of_the_attempts_is_named(tmp_path: Path) -> None:
    write_inputs(tmp_path, [[attempt("a")], [attempt("b")]])
    path = tmp_path / "attempts/part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArtifactError, match=r"attempts/part-00001.parquet cannot be read"):
        select(context_of(tmp_path))


def test_the_card_states_tokens_sources_licences_and_pass_rates(tmp_path: Path) -> None:
    rows = [
        attempt("a", 0, tokens=10),
        attempt("a", 1, "Now I add.", "wrong"),
        attempt("b", 0, "I see it.", tokens=30, source="x|y"),
    ]
    write_inputs(tmp_path, [rows], [general_row(0)])
    report = select(context_of(tmp_path, general_share=0.34, licences={"book": "CC BY 4.0"}))
    assert report["tokens"] == {"maths": {"rows": 2, "mean": 20.0, "median": 10, "p95": 30, "most": 30, "total": 40}}
    assert report["pass_rate_histogram"] == {"0.5–0.6": 1, "1": 1}
    text = (tmp_path / "selection/README.md").read_text()
    assert "| book | 1 | CC BY 4.0 |" in text
    assert "| x\\|y | 1 | not stated |" in text
    assert "| maths | 2 | 20.0 | 10 | 30 | 30 |" in text


# --- a model as a judge


class Scripted:
    """An engine that answers by what the request holds."""

    prefix = ""
    asked: list[str] = []

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        for question in questions:
            Scripted.asked.append(question)
            reply = next((reply for mark, reply in REPLIES.items() if f"mark {mark}" in question), "no idea")
            yield [Completion(reply, 5, "length" if "cut" in question else "stop")]

    def close(self) -> None:
        """Nothing to give back."""


REPLIES = {
    "one": '{"analysis": "the same", "verdict": "correct"}',
    "two": '<think>hm</think>\n```json\n{"analysis": "another {value}", "verdict": "Incorrect"}\n```',
    "three": '{"verdict": "maybe"}',
    "four": '{"verdict": "correct"',
}


def open_scripted(model: str, **options: Any) -> Scripted:
    return Scripted()


def judged(tmp_path: Path, **settings: Any) -> Callable[[], dict[str, Any]]:
    rng = random.Random(11)
    names = ["one", "two", "three", "four", "five"]
    rows = [attempt(name, 0, verdict="unjudged", whole=f"<think>\n{thinking(rng)}\n</think>\n\nmark {name}") for name in names]
    rows += [attempt("six", 0, thinking(rng)), attempt("seven", 0, "I cut", "unjudged", finish="length")]
    write_inputs(tmp_path, [rows[:3], rows[3:]])
    judge = {"engine": f"{__name__}:open_scripted", "model": "big", "rows_per_shard": 2, **settings}
    return lambda: select(context_of(tmp_path, general_share=0.0, judge=judge))


def test_a_model_judges_what_no_rule_could_and_its_share_is_recorded(tmp_path: Path) -> None:
    Scripted.asked = []
    report = judged(tmp_path)()
    assert len(Scripted.asked) == 5
    assert reasons_of(tmp_path) == {
        ("one", 0): "", ("two", 0): "judged wrong by a model", ("three", 0): "unjudged", ("four", 0): "unjudged",
        ("five", 0): "unjudged", ("six", 0): "", ("seven", 0): "unjudged",
    }  # fmt: skip
    judge = report["judge"]
    assert (judge["asked"], judge["right"], judge["wrong"], judge["unjudged"]) == (5, 1, 1, 3)
    assert (judge["kept"], judge["share_of_kept"]) == (1, 0.5)
    assert judge["why_unjudged"] == {
        "the reply names no verdict": 1, "the reply holds no JSON object": 2,
    }  # fmt: skip
    origins = {row["id"]: row["origin"] for row in selected(tmp_path)}
    assert origins == {"one": "rejection sampling, judged by big", "six": "rejection sampling"}


def test_verdicts_on_disk_are_not_asked_for_again(tmp_path: Path) -> None:
    run = judged(tmp_path)
    first = run()
    Scripted.asked = []
    assert run() == first
    assert Scripted.asked == []


@pytest.mark.parametrize(
    ("text", "finish", "verdict", "note"),
    [
        ('{"analysis": "a", "verdict": "correct"}', "stop", "right", "a"),
        ('Here: {"verdict": "INCORRECT"} as asked', "stop", "wrong", ""),
        ('{"verdict": true}', "stop", "unjudged", "the reply names no verdict"),
        ('["correct"]', "stop", "unjudged", "the reply holds no JSON object"),
        ("{" * 5000 + "}" * 5000, "stop", "unjudged", "the reply is not JSON"),
        ('{"verdict": "correct"}', "length", "unjudged", "the reply was cut off"),
        ('{"verdict": "correct"}', "error", "unjudged", "the request failed"),
        ("", "stop", "unjudged", "the reply holds no JSON object"),
    ],
)
def test_a_malformed_verdict_is_unjudged_and_never_wrong(text: str, finish: str, verdict: str, note: str) -> None:
    assert verdict_of(Completion(text, 1, finish)) == (verdict, note)


def test_a_judge_needs_a_model() -> None:
    with pytest.raises(ValueError, match='the engine "openai" needs a model'):
        SelectConfig(judge={"engine": "openai"})
