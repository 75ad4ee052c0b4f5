"""`inspect --sql`: queries over the run's tables, and no way from there to anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import finished_folder, r1pipe
from pyarrow.parquet import ParquetFile

from r1pipe.data.tables import read_table, write_part
from r1pipe.opening import open_run
from r1pipe.views.sql import SqlError, query, sql_json, view_names


@pytest.fixture(scope="module")
def views() -> dict[str, Path]:
    opened = open_run(str(finished_folder() / "runs/nano"))
    return view_names(opened, [opened.pipeline.step("rejection-sft/sample")])


def test_every_table_of_the_run_is_there_by_name(views: dict[str, Path]) -> None:
    assert {"prepare_problems", "rejection_sft_sample_attempts", "reasoning_rl_rollouts", "evaluate_attempts"} <= set(views)
    assert views["attempts"] == views["rejection_sft_sample_attempts"]
    for name, folder in views.items():
        assert query(f"SELECT count(*) FROM {name}", views)[1] == [(sum(1 for _ in read_table(folder)),)]


def test_counts_agree_with_the_table(views: dict[str, Path]) -> None:
    rows = list(read_table(views["attempts"]))
    columns, found = query("SELECT verdict, count(*) AS n, sum(tokens) FROM attempts GROUP BY ALL ORDER BY verdict", views)
    assert columns[:2] == ["verdict", "n"]
    for verdict, count, tokens in found:
        own = [row for row in rows if row["verdict"] == verdict]
        assert (count, tokens) == (len(own), sum(row["tokens"] for row in own))
    assert query("SELECT DISTINCT part FROM attempts ORDER BY ALL", views)[1] == [(0,), (1,), (2,)]


def test_scores_are_read_as_json_and_tables_are_joined(views: dict[str, Path]) -> None:
    text = """WITH a AS (SELECT id, CAST(scores->'accuracy'->>0 AS DOUBLE) AS value FROM attempts)
              SELECT count(*) FROM a JOIN prepare_problems USING (id) WHERE value = 1"""
    known = {row["id"] for row in read_table(views["prepare_problems"])}
    right = [row for row in read_table(views["attempts"]) if (json.loads(row["scores"])["accuracy"] or [None])[0] == 1]
    assert query(text, views)[1] == [(sum(row["id"] in known for row in right),)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM read_blob('{folder}/*')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/out.csv''')",
        "COPY attempts TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{folder}/out.parquet'",
        "EXPORT DATABASE '{folder}/all'",
        "ATTACH '{folder}/own.db'",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW attempts",
        "INSERT INTO attempts SELECT * FROM attempts",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '90%'",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY attempts TO '{folder}/out.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'",
        "EXPLAIN COPY (SELECT 1) TO '{folder}/out.csv'",
        "SELECT getenv('HOME')",
        "PREPARE p AS SELECT 1",
        "",
        "  -- nothing",
        "SELEC 1",
    ],
)
def test_nothing_else_can_be_read_and_nothing_written(tmp_path: Path, views: dict[str, Path], text: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a,b\nhidden,1\n")
    with pytest.raises(SqlError):
        query(text.format(secret=secret, folder=tmp_path), views)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.txt"]


def test_the_tables_themselves_cannot_be_overwritten(tmp_path: Path, views: dict[str, Path]) -> None:
    part = views["attempts"] / "part-00000.parquet"
    before = part.read_bytes()
    for text in (f"COPY (SELECT 1) TO '{part}'", f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{part}'"):
        with pytest.raises(SqlError):
            query(text, views)
    assert part.read_bytes() == before


def test_variables_of_the_program_are_no_tables(views: dict[str, Path]) -> None:
    import pyarrow

    secret = pyarrow.table({"a": [1]})
    assert secret.num_rows == 1
    with pytest.raises(SqlError, match="secret"):
        query("SELECT * FROM secret", views)


def test_the_command_shows_a_table_or_json_and_names_what_there_is() -> None:
    folder = finished_folder()
    text = "SELECT verdict, count(*) AS n FROM attempts GROUP BY ALL ORDER BY n DESC"
    shown = r1pipe(folder, "inspect", "rejection-sft/sample", "--sql", text)
    assert shown.code == 0, shown.err
    assert "verdict" in shown.out
    assert "3 rows" in shown.out
    data = json.loads(r1pipe(folder, "inspect", "rejection-sft/sample", "--sql", text, "--json").out)
    assert sum(row["n"] for row in data) == 120
    refused = r1pipe(folder, "inspect", "--sql", "SELECT * FROM attemps")
    assert refused.code == 2
    assert "rejection_sft_sample_attempts" in refused.err
    hostile = r1pipe(folder, "inspect", "rejection-sft/sample", "--sql", "SELECT completion FROM attempts")
    assert hostile.code == 0
    assert not [character for character in hostile.out if ord(character) < 32 and character != "\n"]


def test_rows_of_one_problem_are_found_by_its_id() -> None:
    folder = finished_folder()
    name = next(read_table(folder / "runs/nano/3-rejection-sft/sample/attempts"))["id"]
    data = json.loads(r1pipe(folder, "inspect", "rejection-sft/sample", "--id", name, "--limit", "99", "--json").out)
    assert data["matching"] == len(data["rows"]) > 0
    assert {row["id"] for row in data["rows"]} == {name}


def test_a_query_over_a_part_that_was_altered_is_refused_and_one_over_other_columns_is_not(tmp_path: Path) -> None:
    columns = {"id": "string", "tokens": "int64", "text": "string"}
    rows = [{"id": str(n), "tokens": n * 7919 % 1009, "text": "abc" * n} for n in range(300)]
    part = write_part(tmp_path / "table", 0, rows, columns)
    views = {"table_of_mine": tmp_path / "table"}
    assert query("SELECT sum(tokens) FROM table_of_mine", views)[1] == [(sum(row["tokens"] for row in rows),)]
    place = ParquetFile(part).metadata.row_group(0).column(1)
    whole = bytearray(part.read_bytes())
    whole[(place.dictionary_page_offset or place.data_page_offset) + place.total_compressed_size // 2] ^= 1
    part.write_bytes(whole)
    with pytest.raises(SqlError, match=r"part-00000\.parquet cannot be read"):
        query("SELECT sum(tokens) FROM table_of_mine", views)
    assert query("SELECT count(*), max(id) FROM table_of_mine", views)[1] == [(300, "99")]


def test_columns_of_one_name_are_all_there_and_no_query_is_no_query(views: dict[str, Path]) -> None:
    names, rows = query("SELECT a.id, b.id, 1 AS id FROM attempts a JOIN attempts b USING(id) LIMIT 1", views)
    assert names == ["id", "id_2", "id_3"]
    assert len(sql_json(names, rows)[0]) == 3
    with pytest.raises(SqlError, match="one SELECT is wanted"):
        query("", views)
