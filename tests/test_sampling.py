"""Sampling: shards, rounds, what is counted, what one bad answer costs, and that a resumed step is the same step."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import ParquetFile
from sampling_helpers import BAD, PAUSE, Slow, Stub, answer, context, problems, shards

from r1pipe.data.tables import part_path, read_table
from r1pipe.errors import ArtifactError, EngineError, Stopped
from r1pipe.rewards import RewardSpec
from r1pipe.stages import sampling
from r1pipe.stages.keeping import KeepSection, why_dropped
from r1pipe.stages.rounds import RATE_LABELS, rate_label
from r1pipe.stages.sampling import sample
from r1pipe.stages.sections import RewardsSection

ADAPTIVE = {"samples": 6, "adaptive": {"enough": 1, "hopeless_after": 4}}


def attempts(folder: Path) -> list[dict[str, Any]]:
    return list(read_table(folder / "attempts"))


def usable(rows: list[dict[str, Any]]) -> set[str]:
    return {row["id"] for row in rows if not why_dropped(row, KeepSection())}


# --- a fixed number


def test_every_problem_is_asked_the_same_number_of_times_and_all_is_accounted_for(tmp_path: Path) -> None:
    asked = problems(40)
    summary = sample(context(tmp_path / "step", asked, samples=3))
    rows = attempts(tmp_path / "step")
    assert [(row["id"], row["sample"]) for row in rows] == [(problem.id, n) for problem in asked for n in range(3)]
    assert summary["owed"] == summary["attempts"] == len(rows) == 120
    verdicts = Counter("errors" if row["error"] else "unjudged" if row["verdict"] == "none" else row["verdict"] for row in rows)
    assert summary["verdicts"] == verdicts
    assert set(verdicts) == {"right", "wrong", "unjudged", "errors"}
    assert summary["tokens"] == sum(row["tokens"] for row in rows)
    assert (summary["problems"], summary["shards"]) == (40, 5)


def test_the_statistics_of_a_problem_are_what_its_rows_say(tmp_path: Path) -> None:
    sample(context(tmp_path / "step", problems(40), samples=4))
    rows, found = attempts(tmp_path / "step"), list(read_table(tmp_path / "step" / "by_problem"))
    assert len(found) == 40
    for one in found:
        own = [row for row in rows if row["id"] == one["id"]]
        right, wrong = (sum(row["verdict"] == verdict for row in own) for verdict in ("right", "wrong"))
        assert (one["tried"], one["right"], one["wrong"], one["tokens"]) == (4, right, wrong, sum(row["tokens"] for row in own))
        assert one["tried"] == one["right"] + one["wrong"] + one["unjudged"] + one["errors"]
        assert one["pass_rate"] == (right / (right + wrong) if right + wrong else None)
        assert (one["ended"], one["usable"]) == ("all samples", None)
    assert {one["pass_rate"] for one in found} > {None, 0.0, 1.0}


def test_a_question_that_cannot_be_asked_is_a_row_with_its_reason_and_never_wrong(tmp_path: Path) -> None:
    sample(context(tmp_path / "step", problems(40), samples=2))
    bad = [row for row in attempts(tmp_path / "step") if row["question"].startswith(BAD)]
    assert len(bad) == 4
    assert {(row["verdict"], row["total"], row["finish"], row["error"]) for row in bad} == {
        ("unjudged", None, "error", "the prompt has 99,999 tokens, and 4,096 fit")
    }


def test_shards_and_rounds_have_seeds_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    original = Stub.generate

    def noted(self: Stub, questions: Any, asked: Any) -> Any:
        seeds.append(asked.seed)
        return original(self, questions, asked)

    monkeypatch.setattr(Stub, "generate", noted)
    sample(context(tmp_path / "fixed", problems(40), samples=2))
    assert len(seeds) == len(set(seeds)) == 5
    sample(context(tmp_path / "rounds", problems(40), **ADAPTIVE))
    assert len(seeds) == len(set(seeds)) + 5  # the first round of a shard is seeded as the shard is
    assert len(seeds) > 20


def test_the_answers_of_a_problem_differ(tmp_path: Path) -> None:
    sample(context(tmp_path / "step", problems(16), samples=6))
    texts: dict[str, set[str]] = {}
    for row in attempts(tmp_path / "step"):
        texts.setdefault(row["id"], set()).add(row["completion"])
    assert sum(len(several) > 2 for several in texts.values()) > 10


def test_an_engine_that_gives_too_few_answers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Stub, "generate", lambda self, questions, asked: iter([[answer("What is 1 + 1?", 1, 1)]] * len(questions))
    )
    with pytest.raises(EngineError, match="the engine gave 8 completions for 8 questions, where 2 for each of 8"):
        sample(context(tmp_path / "step", problems(8), samples=2))


def test_a_problem_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is in the table of problems twice"):
        sample(context(tmp_path / "step", [*problems(3), *problems(1)]))


# --- rounds


def test_rounds_stop_where_there_is_enough_and_where_it_is_hopeless(tmp_path: Path) -> None:
    summary = sample(context(tmp_path / "step", problems(60), **ADAPTIVE))
    rows = attempts(tmp_path / "step")
    for one in read_table(tmp_path / "step" / "by_problem"):
        own = sorted((row for row in rows if row["id"] == one["id"]), key=lambda row: row["sample"])
        assert [row["sample"] for row in own] == list(range(one["tried"]))
        before = own[:-1]
        assert not usable(before)  # it would have been asked no more
        if one["ended"] == "enough":
            assert usable(own[-1:])
            assert one["usable"] == 1
        elif one["ended"] == "hopeless":
            assert one["tried"] == 4
            assert one["right"] == 0
        else:
            assert (one["ended"], one["tried"]) == ("all samples", 6)
            assert one["right"] > 0  # right, and never readable
    assert set(summary["problems_ended"]) == {"enough", "hopeless", "all samples"}
    assert summary["attempts"] == len(rows) == sum(summary["verdicts"].values())


def test_enough_means_different_answers(tmp_path: Path) -> None:
    sample(context(tmp_path / "step", problems(40), samples=12, adaptive={"enough": 3, "per_round": 2}))
    rows = attempts(tmp_path / "step")
    ended = Counter()
    for one in read_table(tmp_path / "step" / "by_problem"):
        own = [row for row in rows if row["id"] == one["id"] and not why_dropped(row, KeepSection())]
        assert one["usable"] == len({row["completion"] for row in own})
        ended[one["ended"]] += 1
        assert (one["ended"] == "enough") == (one["usable"] >= 3)
    assert ended["enough"] > 5


def test_rounds_keep_as_many_problems_as_a_fixed_number_for_fewer_tokens(tmp_path: Path) -> None:
    asked = problems(120)
    fixed = sample(context(tmp_path / "fixed", asked, samples=4))
    rounds = sample(context(tmp_path / "rounds", asked, samples=4, adaptive={}))
    kept = [len(usable(attempts(tmp_path / name))) for name in ("fixed", "rounds")]
    assert abs(kept[0] - kept[1]) <= 0.1 * kept[0]  # other seeds, the same chance
    assert rounds["tokens"] < 0.75 * fixed["tokens"]


@pytest.mark.parametrize("budget", [1, 600, 3000, 5500])
def test_a_budget_of_tokens_is_kept_and_every_shard_has_its_share(tmp_path: Path, budget: int) -> None:
    asked = problems(64)
    summary = sample(context(tmp_path / "step", asked, samples=8, adaptive={"budget_tokens": budget}))
    assert summary["tokens"] < budget + 8 * 64  # each of 8 shards may be off by one answer
    assert summary["problems_ended"]["budget"] > 0
    parts = shards(tmp_path / "step")
    assert all(parts[f"attempts/part-{number:05d}.parquet"] for number in range(8))
    if budget > 1000:
        assert summary["tokens"] > 0.8 * budget


def test_without_a_setting_a_step_is_sampled_as_in_the_paper() -> None:
    assert sampling.SampleConfig().adaptive is None


@pytest.mark.parametrize(
    ("rate", "label"),
    [(None, "not judged"), (0.0, "0"), (1.0, "1"), (0.05, "0.0–0.1"), (0.3, "0.3–0.4"), (0.7, "0.7–0.8"), (0.99, "0.9–1.0")],
)
def test_a_pass_rate_has_its_bar(rate: float | None, label: str) -> None:
    assert rate_label(rate) == label
    assert label in RATE_LABELS


# --- going on


SETTINGS = {"fixed": {"samples": 3}, "rounds": ADAPTIVE, "budget": {"samples": 6, "adaptive": {"budget_tokens": 2500}}}


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_step_that_was_stopped_goes_on_to_the_same_shards(tmp_path: Path, kind: str) -> None:
    asked, settings = problems(40), SETTINGS[kind]
    whole = sample(context(tmp_path / "whole", asked, **settings))
    count = 0

    def stop() -> bool:
        nonlocal count
        count += 1
        return count > 4

    with pytest.raises(Stopped, match="stopped after"):
        sample(context(tmp_path / "step", asked, stop=stop, **settings))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "step" / "attempts").glob("*.parquet")}
    assert 0 < len(before) < 5 or kind != "fixed"
    resumed = sample(context(tmp_path / "step", asked, **settings))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert shards(tmp_path / "step") == shards(tmp_path / "whole")
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(bytes(content))


def swap(path: Path) -> None:
    other = path.with_name("part-00003.parquet")
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("table", ["attempts", "by_problem"])
@pytest.mark.parametrize("harm", [cut, spoil, swap, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_shard_that_is_torn_altered_or_another_is_owed_again(tmp_path: Path, table: str, harm: Any) -> None:
    asked = problems(40)
    sample(context(tmp_path / "step", asked, samples=2))
    before = shards(tmp_path / "step")
    harm(part_path(tmp_path / "step" / table, 1))
    untouched = part_path(tmp_path / "step" / "attempts", 2).stat().st_mtime_ns
    sample(context(tmp_path / "step", asked, samples=2))
    assert shards(tmp_path / "step") == before
    assert part_path(tmp_path / "step" / "attempts", 2).stat().st_mtime_ns == untouched


def test_rows_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    tally = sampling.ShardTally(metrics=None, progress=tmp_path / "p", shards=1, attempts=3)  # type: ignore[arg-type]
    tally.verdicts.update(right=1, wrong=1)
    with pytest.raises(ArtifactError, match="1 right \\+ 1 wrong = 2, 3 attempts are on disk and 4 are owed"):
        tally.summary("rejection-sft/sample", 4)
    tally.verdicts["errors"] = 1
    with pytest.raises(ArtifactError, match="3 attempts are on disk and 4 are owed"):
        tally.summary("rejection-sft/sample", 4)
    assert tally.summary("rejection-sft/sample", 3)["owed"] == 3


@pytest.mark.parametrize("settings", [{"samples": 2}, {"samples": 2, "adaptive": {"enough": 2}}], ids=["fixed", "rounds"])
def test_answers_are_scored_while_the_next_are_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setitem(os.environ, PAUSE, "0.2")
    slow = RewardSpec(name="sampling_helpers:Slow", options={"seconds": 0.15})
    begin = time.monotonic()
    summary = sample(context(tmp_path / "step", problems(48), rewards=RewardsSection(format=slow), **settings))
    took, seconds = time.monotonic() - begin, summary["seconds"]
    assert Slow().seconds
    assert seconds["scoring"] >= 6 * 0.15
    assert seconds["waiting"] < 0.5 * seconds["scoring"]
    assert took < seconds["generating"] + 0.6 * seconds["scoring"] + 1


def test_writing_ten_times_the_rows_takes_ten_times_as_long_and_rewrites_nothing(tmp_path: Path) -> None:
    seconds = []
    for count in (1_000, 10_000):
        folder, rows = tmp_path / str(count), [{"id": str(n), "text": "x" * 500} for n in range(count)]
        begin, marks = time.process_time(), {}
        for number, start in enumerate(range(0, count, 250)):
            written = sampling.write_part(folder, number, rows[start : start + 250], {"id": "string", "text": "string"})
            marks[written] = written.stat()
        seconds.append(time.process_time() - begin)
        assert all(
            (now := path.stat()).st_ino == then.st_ino and now.st_mtime_ns == then.st_mtime_ns for path, then in marks.items()
        )
        assert sorted(folder.iterdir()) == sorted(marks)
    assert seconds[1] < 20 * seconds[0] + 0.5


@pytest.mark.parametrize("width", [80, 140])
def test_the_statistics_are_looked_at_with_counts_by_reason_and_bars_of_pass_rates(tmp_path: Path, width: int) -> None:
    from test_cli_text import shown, without_styles

    from r1pipe.views.inspect import table_view
    from r1pipe.views.tables import Filter, select

    sample(context(tmp_path / "step", problems(40), **ADAPTIVE))
    folder = tmp_path / "step" / "by_problem"
    found = select(folder, Filter(), 3)
    rows = list(read_table(folder))
    assert found.counts["ended"] == Counter(row["ended"] for row in rows)
    assert found.counts["pass_rate"] == Counter(rate_label(row["pass_rate"]) for row in rows)
    text = without_styles(shown(table_view("by_problem", found, width, "shard", Filter(), None, "again"), width))
    assert "pass rate" in text
    assert "█" in text
    assert f"{rows[0]['right']} right of {rows[0]['tried']} tried" in " ".join(text.split())
    one = select(folder, Filter(id=rows[5]["id"]), 3)
    assert [row.row for row in one.rows] == [rows[5]]


def test_a_shard_that_was_altered_in_a_text_is_owed_again(tmp_path: Path) -> None:
    first = context(tmp_path / "run", problems(40), samples=2)
    sample(first)
    whole = shards(tmp_path / "run")
    part = next((tmp_path / "run" / "attempts").glob("part-*.parquet"))
    place = next(
        column
        for column in map(ParquetFile(part).metadata.row_group(0).column, range(20))
        if column.path_in_schema == "completion"
    )
    altered = bytearray(part.read_bytes())
    altered[(place.dictionary_page_offset or place.data_page_offset) + place.total_compressed_size // 2] ^= 1
    part.write_bytes(altered)
    sample(context(tmp_path / "run", problems(40), samples=2))
    assert shards(tmp_path / "run") == whole
