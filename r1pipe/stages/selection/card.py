"""What the selection says of itself: the report's numbers, and the data card beside the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r1pipe.stages.keeping import ERROR
from r1pipe.stages.rounds import rate_label
from r1pipe.stages.selection.choosing import DECIDED, file_of, lines_of, quoted
from r1pipe.stages.selection.reading import ATTEMPTS, GENERAL
from r1pipe.stages.selection.writing import FROM_GENERAL, FROM_SAMPLING

NOT_STATED = "not stated"


def write_ledger(connection: Any, work: Path, target: Path) -> None:
    """One line a row of both tables, in their order: what became of it, and the one reason."""

    def lines(kind: str, origin: str) -> str:
        decided = file_of(work / f"{kind}-{DECIDED}")
        return f"""SELECT l.place, '{origin}' AS origin, id, sample, verdict, judged, domain, language, source, tokens, note,
            CASE WHEN l.reason <> '' THEN l.reason ELSE coalesce(d.reason, '') END AS reason, coalesce(d.position, -1) AS position
            FROM {lines_of(work, kind)} l LEFT JOIN {decided} d ON l.place = d.place"""

    connection.execute(
        f"""COPY (
            SELECT id, sample, origin,
                CASE reason WHEN '' THEN 'kept' WHEN 'unjudged' THEN 'unjudged' WHEN '{ERROR}' THEN 'error' ELSE 'dropped' END
                    AS outcome,
                reason, note, verdict, judged, domain, language, source, tokens, position
            FROM ({lines(ATTEMPTS, FROM_SAMPLING)} UNION ALL {lines(GENERAL, FROM_GENERAL)})
            ORDER BY origin DESC, place
        ) TO '{quoted(str(target))}' (FORMAT parquet, COMPRESSION zstd)"""
    )


def counts(connection: Any, ledger: Path) -> dict[str, Any]:
    """The numbers of the report that the ledger holds."""
    table = file_of(ledger)
    sampled, kept = f"origin = '{FROM_SAMPLING}'", "position >= 0"

    def grouped(column: str, where: str) -> dict[str, int]:
        rows = connection.sql(
            f"SELECT {column} AS name, count(*) AS number FROM {table} WHERE {where} GROUP BY name ORDER BY number DESC, name"
        ).fetchall()
        return {str(name): int(number) for name, number in rows}

    rates = connection.sql(
        f"""SELECT rate, count(*) AS number, sum((rate > 0)::INT) AS solved
            FROM (SELECT avg((verdict = 'right')::INT) AS rate FROM {table} WHERE {sampled} GROUP BY id)
            GROUP BY rate ORDER BY rate"""
    ).fetchall()
    histogram: Counter[str] = Counter()
    for rate, number, _ in rates:
        histogram[rate_label(rate)] += number
    lengths = connection.sql(
        f"""SELECT domain, count(*), avg(tokens), quantile_disc(tokens, [0.5, 0.95]), max(tokens), sum(tokens)
            FROM {table} WHERE {kept} AND {sampled} GROUP BY domain ORDER BY count(*) DESC, domain"""
    ).fetchall()
    [(problems_kept,)] = connection.sql(f"SELECT count(DISTINCT id) FROM {table} WHERE {sampled} AND {kept}").fetchall()
    reasons = grouped("CASE reason WHEN '' THEN 'kept' ELSE reason END", sampled)
    return {
        "attempts": sum(reasons.values()),
        "reasons": reasons,
        "general_reasons": grouped("CASE reason WHEN '' THEN 'kept' ELSE reason END", f"NOT {sampled}"),
        "domains": grouped("domain", kept),
        "languages": grouped("language", kept),
        "sources": grouped("source", kept),
        "problems": sum(number for _, number, _ in rates),
        "problems_solved": int(sum(solved for _, _, solved in rates)),
        "problems_kept": int(problems_kept),
        "pass_rate_histogram": dict(histogram),
        "tokens": {
            domain: {"rows": rows, "mean": mean, "median": middle[0], "p95": middle[1], "most": most, "total": int(total)}
            for domain, rows, mean, middle, most, total in lengths
        },
        "judged_by_model": {
            "asked": sum(grouped("judged", f"{sampled} AND judged <> ''").values()),
            "kept": sum(grouped("judged", f"{sampled} AND judged <> '' AND {kept}").values()),
        },
    }  # fmt: skip


def card(report: Mapping[str, Any]) -> str:
    """The data card of the selection."""

    def lines(key: str) -> list[str]:
        return [f"- {name}: {count}" for name, count in (report.get(key) or {}).items()]

    text = [
        "# Selection of stage 3", "",
        f"{report['rows']} rows: {report['kept']} by rejection sampling, {report['general']} general.",
        f"Problems tried: {report['problems']}, solved at least once: {report['problems_solved']}.", "",
        "Columns: `question`, `thinking`, `summary` (a response is the thinking in `<think>` tags, then the summary), what is "
        "needed to check an answer, `domain`, `language`, `source`, and `origin`.", "",
        "## What became of each attempt", "", *lines("reasons"), "",
        "## Domains", "", *lines("domains"), "",
    ]  # fmt: skip
    if tokens := report.get("tokens"):
        text += [
            "## Tokens of the sampled answers",
            "",
            "| domain | rows | mean | median | 95% | most |",
            "|---|---|---|---|---|---|",
        ]
        text += [
            f"| {_cell(name)} | {row['rows']} | {row['mean']:.1f} | {row['median']} | {row['p95']} | {row['most']} |"
            for name, row in tokens.items()
        ]
        text.append("")
    if mix := report.get("mix"):
        text += ["## The mix", "", "| domain | wanted | found | taken |", "|---|---|---|---|"]
        text += [f"| {_cell(name)} | {row['wanted']} | {row['found']} | {row['taken']} |" for name, row in mix.items()]
        text.append("")
    for title, key in (
        ("General rows", "general_reasons"),
        ("Languages", "languages"),
        ("Problems by pass rate", "pass_rate_histogram"),
    ):
        if report.get(key):
            text += [f"## {title}", "", *lines(key), ""]
    if sources := report.get("sources"):
        licences = report.get("licences") or {}
        text += ["## Sources", "", "| source | rows | licence |", "|---|---|---|"]
        text += [
            f"| {_cell(name or NOT_STATED)} | {count} | {_cell(licences.get(name, NOT_STATED))} |"
            for name, count in sources.items()
        ]
        text.append("")
    if judge := report.get("judge"):
        text += ["## Judged by a model", "", *[f"- {name.replace('_', ' ')}: {value}" for name, value in judge.items()], ""]
    return "\n".join(text)


def _cell(text: str) -> str:
    """Text that stays inside its cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
