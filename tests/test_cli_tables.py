"""Tables on the command line: filters choose what they say, counts agree with the rows, rows are shown whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import finished_folder, r1pipe
from scripted_chain import HOSTILE, attempts
from test_cli_text import shown, without_styles

from r1pipe.data.tables import ATTEMPT_COLUMNS, read_table, write_part, write_table
from r1pipe.errors import ArtifactError
from r1pipe.views.rows import row_in_full, row_json, rows_view
from r1pipe.views.tables import Filter, FilterError, part_labels, parts_of, read_row, scores_in, select


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("step") / "attempts"
    for part in range(3):
        write_part(folder, part, attempts(40, 0.5, part * 40), ATTEMPT_COLUMNS)
    return folder


def all_rows(folder: Path) -> list[dict[str, object]]:
    return list(read_table(folder))


def test_without_a_filter_every_row_counts_and_the_first_are_shown(table: Path) -> None:
    found = select(table, Filter(), 5)
    assert (found.total, found.matching) == (120, 120)
    assert [row.number for row in found.rows] == [0, 1, 2, 3, 4]
    assert sum(found.counts["verdict"].values()) == 120


@pytest.mark.parametrize("verdict", ["right", "wrong", "unjudged"])
def test_a_verdict_filter_agrees_with_the_table(table: Path, verdict: str) -> None:
    wanted = [number for number, row in enumerate(all_rows(table)) if row["verdict"] == verdict]
    found = select(table, Filter(verdict=verdict), 1000)
    assert [row.number for row in found.rows] == wanted
    assert found.counts["verdict"] == {verdict: len(wanted)}


def test_filters_are_joined_by_and(table: Path) -> None:
    wanted = [
        n
        for n, row in enumerate(all_rows(table))
        if row["domain"] == "words" and row["language"] == "zh" and row["verdict"] == "right"
    ]
    found = select(table, Filter(domain="words", language="zh", verdict="right"), 1000)
    assert [row.number for row in found.rows] == wanted != []


def test_a_reward_that_does_not_apply_or_was_not_judged_never_passes_a_limit(table: Path) -> None:
    rows = all_rows(table)
    values = [(n, (json.loads(str(row["scores"]))["language"] or [None])[0]) for n, row in enumerate(rows)]
    below = [n for n, value in values if value is not None and value < 0.8]
    assert [row.number for row in select(table, Filter(reward="language", below=0.8), 1000).rows] == below != []
    unjudged = select(table, Filter(verdict="unjudged"), 1000)
    everything = select(table, Filter(reward="accuracy", above=-1), 1000)
    assert unjudged.matching > 0
    assert everything.matching == 120 - unjudged.matching


def test_number_columns_are_filtered_too(table: Path) -> None:
    wanted = [n for n, row in enumerate(all_rows(table)) if 30 < row["tokens"] < 40]  # type: ignore[operator]
    assert [row.number for row in select(table, Filter(reward="tokens", above=30, below=40), 1000).rows] == wanted != []


def test_text_is_found_in_what_the_model_wrote(table: Path) -> None:
    found = select(table, Filter(find="[/red]"), 1000)
    assert found.matching > 0
    assert all("[/red]" in row.row["completion"] for row in found.rows)


def test_one_part_can_be_chosen_by_number_or_as_the_last(table: Path) -> None:
    assert [row.number for row in select(table, Filter(part="1"), 2).rows] == [40, 41]
    assert [row.number for row in select(table, Filter(part="last"), 2).rows] == [80, 81]


def test_parts_of_an_evaluation_are_named_after_checkpoints() -> None:
    folder = finished_folder() / "runs/nano/5-evaluate/attempts"
    assert part_labels(folder, parts_of(folder)) == ["base", "dev1", "dev2", "dev3", "r1"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Filter(reward="fromat", below=1), "did you mean 'format'"),
        (Filter(reward="domain", below=1), "no row of attempts has a reward 'domain'"),
        (Filter(part="9"), "its parts are 0, 1, 2"),
    ],
)
def test_a_filter_on_what_is_not_there_is_refused_with_what_is(table: Path, wanted: Filter, words: str) -> None:
    with pytest.raises(FilterError) as caught:
        select(table, wanted, 5)
    assert words in str(caught.value)


def test_a_filter_on_a_column_that_the_table_lacks_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "pairs", [{"question": "q", "n": 1}], {"question": "string", "n": "int64"})
    with pytest.raises(FilterError, match="no column 'verdict'"):
        select(tmp_path / "pairs", Filter(verdict="right"), 5)
    with pytest.raises(FilterError, match="no rewards"):
        select(tmp_path / "pairs", Filter(below=1), 5)


def test_a_row_is_found_by_its_number_over_all_parts(table: Path) -> None:
    assert read_row(table, 85).row == all_rows(table)[85]
    with pytest.raises(FilterError, match="its rows are 0 to 119"):
        read_row(table, 120)


def test_a_torn_part_is_named(tmp_path: Path) -> None:
    write_part(tmp_path / "attempts", 0, attempts(3, 0.5), ATTEMPT_COLUMNS)
    path = tmp_path / "attempts/part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ArtifactError, match=r"attempts/part-00000.parquet cannot be read"):
        select(tmp_path / "attempts", Filter(), 5)


@pytest.mark.parametrize("width", [40, 80, 119, 120, 160])
def test_rows_with_hostile_text_fit_every_width_and_steer_nothing(table: Path, width: int) -> None:
    rows = select(table, Filter(), 20).rows
    sent = without_styles(shown(rows_view(rows, width, "rollout"), width))
    assert not [character for character in sent if ord(character) < 32 and character != "\n"]
    assert "\u202e" not in sent
    from rich.cells import cell_len

    assert max(cell_len(line) for line in sent.split("\n")) <= width


def test_a_row_in_full_leaves_nothing_out(table: Path) -> None:
    number = next(n for n, row in enumerate(all_rows(table)) if "x" * 3000 in str(row["completion"]))
    sent = without_styles(shown(row_in_full(read_row(table, number)), 80))
    assert sent.count("x") >= 3000
    found = read_row(table, number)
    for reward, _, note, applies in scores_in(found.row):
        assert reward in sent
        assert note in sent or not applies


def test_json_of_a_row_opens_its_columns(table: Path) -> None:
    data = row_json(select(table, Filter(verdict="wrong", reward="format", above=0.5), 1).rows[0])
    assert data["scores"]["accuracy"]["value"] == 0.0
    assert "wanted" in data["scores"]["accuracy"]["note"]
    assert isinstance(data["thinking"], str)
    assert data["faults"] == []
    assert data["check"] == {}


def test_inspect_prints_rows_counts_and_json(tmp_path: Path) -> None:
    folder = finished_folder()
    text = r1pipe(folder, "inspect", "rejection-sft/sample/attempts", "--verdict", "wrong", "--limit", "2")
    assert text.code == 0
    assert "120 rows" in text.out
    assert "verdict   wrong" in text.out
    data = json.loads(r1pipe(folder, "inspect", "rejection-sft/sample", "--verdict", "wrong", "--limit", "3", "--json").out)
    assert data["artifact"] == "rejection-sft/sample/attempts"
    assert [row["verdict"] for row in data["rows"]] == ["wrong"] * 3
    assert data["matching"] == data["counts"]["verdict"]["wrong"]
    one = json.loads(r1pipe(folder, "inspect", "evaluate/attempts", "--row", "81", "--json").out)
    assert (one["row"], one["part"]) == (81, "r1")


def test_hostile_text_survives_json(tmp_path: Path) -> None:
    done = r1pipe(finished_folder(), "inspect", "reasoning-rl/rollouts", "--limit", "200", "--json", PYTHONIOENCODING="ascii")
    rows = json.loads(done.out)["rows"]
    assert {text for text in HOSTILE if any(text in row["completion"] for row in rows)} == set(HOSTILE)


def test_a_terminal_without_unicode_gets_escapes_and_no_crash() -> None:
    done = r1pipe(finished_folder(), "inspect", "reasoning-rl/rollouts", "--limit", "50", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert done.out.isascii()


def test_a_filter_without_a_match_says_what_the_table_holds() -> None:
    done = r1pipe(finished_folder(), "inspect", "reasoning-rl", "--domain", "geometry")
    assert done.code == 0
    assert "no row matches" in done.out
    assert "arithmetic" in done.out
