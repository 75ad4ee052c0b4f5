"""The report: one file, nothing from outside, nothing that a text could do to it, and the numbers of the run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_helpers import copy_of_finished, environment, finished_folder, r1pipe

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import ATTEMPT_COLUMNS, attempt_row, write_part
from r1pipe.report.curves import Chart, Line, at_k_charts, charts_of, points
from r1pipe.report.evaluation import read_checkpoint
from r1pipe.report.judges import judges
from r1pipe.report.markup import Markup, h, json_block, table
from r1pipe.report.samples import samples_data
from r1pipe.views.numbers import Series

HOSTILE_HTML = (
    "</script><script>window.broken = 1</script>",
    "<!--<script>",
    "<img src=x onerror='window.broken = 2'>",
    "</div></section><style>* { display: none }</style>",
    '"><svg onload=window.broken=3> \u2028 \u202e &lt;b&gt; {{content}} {{title}}',
    "]]> \x00 \ud800 \x1b[31m 漢字",
)


class Page(HTMLParser):
    """A page taken apart as a browser would."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "input", "hr"):
            self.open.append(tag)
        if tag in ("script", "style"):
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.scripts[-1] += data
        else:
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(next(text for text in self.scripts if text.startswith('{"charts"')))
        return found


def written(folder: Path, *arguments: str) -> str:
    out = folder / "page.html"
    done = r1pipe(folder, "report", *arguments, "--out", str(out))
    assert done.code == 0, done.err
    return out.read_text(encoding="utf-8")


@cache
def page_of_finished() -> str:
    return written(finished_folder())


def test_the_page_is_one_file_that_loads_nothing() -> None:
    text = page_of_finished()
    page = Page(text)
    assert not page.open
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name) or ""
            assert not value or value.startswith("#") or value == "data:,", (tag, name, value)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert not re.findall(r"@import|url\(", text)
    assert len(text.encode()) < 5_000_000


def test_the_policy_forbids_everything_but_the_pages_own_scripts() -> None:
    text = page_of_finished()
    page = Page(text)
    policy = next(a["content"] or "" for tag, a in page.elements if tag == "meta" and a.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    inline = [text for text in page.scripts if not text.startswith('{"charts"')]
    assert len(inline) == 3
    for script in inline:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_the_page_shows_what_the_run_says() -> None:
    page = Page(page_of_finished())
    words = " ".join(page.text.split())
    for expected in (
        "run nano", "9 of 9 steps done", "Dev3 learns from what Dev2 wrote", "The paper’s own numbers", "Another model", "79.8",
        "Rewards by part", "KL to the reference", "mixed language", "What became of each attempt", "Settings of reasoning-rl",
        "helpfulness 0.91 held out",
    ):  # fmt: skip
        assert expected in words, expected
    titles = [chart["title"] for chart in page.data["charts"]]
    assert titles.count("Rewards by part") == 2
    rewards = next(chart for chart in page.data["charts"] if chart["title"] == "Rewards by part")
    assert [line["name"] for line in rewards["lines"]] == ["accuracy", "format", "language"]
    assert rewards["lines"][0]["values"] == [round(0.2 + 0.6 * step / 12, 5) for step in range(1, 13)]


def test_the_looks_at_held_out_problems_are_told_drawn_and_listed() -> None:
    text = page_of_finished()
    assert "The sign of hacking held from step 12 on" in text
    assert "The best look without the sign is that at step 4." in text
    assert "Looks at held-out problems in mixed-rl/train" in text
    assert "Held out: accuracy and preference, mixed-rl/train" in text
    shown = r1pipe(finished_folder(), "inspect", "mixed-rl/train", columns=160).out
    for words in ("hacking watch", "held out accuracy", "best step", "held-out accuracy"):
        assert words in shown, words


def test_reward_models_are_told_with_their_held_out_accuracy_and_the_signal_of_each_reward_is_drawn() -> None:
    found = {
        "rows": 676, "held_out": 161, "accuracy": 0.9689, "accuracy_interval": [0.9294, 0.9867], "length_correlation": -0.27,
        "length_matched": {"rows": 52, "accuracy": 0.9615, "accuracy_interval": [0.8702, 0.9894]},
        "by_group": {"en": {"rows": 97, "accuracy": 0.9691}}, "calibration": {"error": 0.0421},
    }  # fmt: skip
    place: Any = SimpleNamespace(
        step=SimpleNamespace(name="mixed-rl/reward-models"), manifest=SimpleNamespace(summary={"helpfulness": found})
    )
    page = Page(str(judges([place])))
    assert "0.969 0.929–0.987" in page.text
    assert "0.962 0.870–0.989" in page.text
    assert "mixed-rl/reward-models" not in page.text, "the step is named from the second round on"
    assert not str(judges([SimpleNamespace(step=place.step, manifest=None)]))  # type: ignore[list-item]
    series = {"signal.accuracy": Series([1, 2], [0.9, 0.2]), "signal.helpfulness": Series([1, 2], [None, 0.8])}
    (chart,) = charts_of(series)
    assert chart.title == "Signal by part"
    assert [line.name for line in chart.lines] == ["signal by accuracy", "signal by helpfulness"]


def test_every_chart_has_a_place_words_and_a_table() -> None:
    page = Page(page_of_finished())
    names = {attributes.get("id") for _, attributes in page.elements}
    for number, chart in enumerate(page.data["charts"]):
        assert {f"chart-{number}", f"chart-{number}-words", f"chart-{number}-legend"} <= names
        assert chart["title"] in page.text
        assert all(len(line["values"]) == len(chart["x"]) for line in chart["lines"])


def test_every_control_has_a_name_and_every_table_a_caption() -> None:
    page = Page(page_of_finished())
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption") > 5
    assert all(a.get("scope") for tag, a in page.elements if tag == "th")
    assert all(a.get("aria-label") for tag, a in page.elements if a.get("tabindex") == "0")
    assert next(a for tag, a in page.elements if tag == "html")["lang"] == "en"


# --- hostile texts


def hostile_run(folder: Path) -> Path:
    """A run whose evaluation is full of markup."""
    copy_of_finished(folder)
    for number in range(5):
        rows = []
        for index, text in enumerate(HOSTILE_HTML):
            shown = text.encode("utf-8", "replace").decode()
            problem = Problem(f"id {index} {shown}", f"question {shown}", shown, domain=shown, language=shown[:2], level=shown)
            score: dict[str, Score | None] = {"accuracy": Score(1.0, shown), shown: Score(0.5, shown)}
            attempt = Attempt(problem, f"<think>\n{shown}\n</think>\n\n{shown}", tokens=7)
            rows.append(attempt_row(attempt, 0, score, 1.0, ("right", "wrong")[(number + index) % 2]))
        write_part(folder / "runs/nano/5-evaluate/attempts", number, rows, ATTEMPT_COLUMNS)
    report = folder / "runs/nano/3-rejection-sft/select/report.json"
    found = json.loads(report.read_bytes())
    report.write_text(json.dumps({**found, "reasons": dict.fromkeys(HOSTILE_HTML[:5], 1), "domains": {HOSTILE_HTML[0]: 3}}))
    return folder


def test_no_text_becomes_markup(tmp_path: Path) -> None:
    text = written(hostile_run(tmp_path))
    page, calm = Page(text), Page(page_of_finished())
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in calm.elements}
    assert len(page.scripts) == len(calm.scripts)
    assert not page.open
    assert "window.broken" not in "".join(script for script in page.scripts if not script.startswith('{"charts"'))
    assert "{{content}}" in page.text + json.dumps(page.data)
    samples = page.data["samples"]["problems"]
    assert samples[0]["question"] == f"question {HOSTILE_HTML[0]}"
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\u202e" in json.dumps(page.data)  # shown as an escape, not obeyed


@pytest.mark.parametrize("text", HOSTILE_HTML)
def test_markup_only_comes_from_functions(text: str) -> None:
    shown = h("p", text, h("b", "bold"), Markup("<i>i</i>"), title=text, hidden=True, lang=None)
    tags = [tag for tag, _ in Page(str(shown)).elements]
    assert tags == ["p", "b", "i"]
    block = json_block({"text": text.encode("utf-8", "replace").decode()}, "data")
    assert block.count("<") == 2
    assert json.loads(Page(str(block)).scripts[0])["text"] == text.encode("utf-8", "replace").decode()
    assert [tag for tag, _ in Page(str(table([text], [[text]], text))).elements].count("td") == 0


# --- other runs


def test_a_run_that_is_not_finished_has_a_page_too(tmp_path: Path) -> None:
    assert r1pipe(tmp_path, "run-all", "--until", "reasoning-rl").code == 0
    page = Page(written(tmp_path))
    words = " ".join(page.text.split())
    assert "3 of 9 steps done" in words
    assert "not evaluated yet" in words
    assert page.data["samples"]["problems"] == []
    assert any(chart["title"] == "Rewards by part" for chart in page.data["charts"])


def test_two_runs_stand_on_one_page(tmp_path: Path) -> None:
    copy_of_finished(tmp_path)
    assert r1pipe(tmp_path, "fork", "nano", "longer", "--before", "mixed-rl", "--set", "mixed-rl.train.steps=36").code == 0
    assert r1pipe(tmp_path, "resume", "longer").code == 0
    page = Page(written(tmp_path, "longer", "--against", "nano"))
    words = " ".join(page.text.split())
    assert "Checkpoints of run nano" in words
    assert "mixed-rl.train.steps" in words
    assert "This run against run nano" in words
    mixed = [chart for chart in page.data["charts"] if any(line["other"] for line in chart["lines"])]
    assert mixed
    assert len(mixed[-1]["x"]) >= 10


def test_writing_a_report_does_not_make_a_run_the_one_worked_on_last(tmp_path: Path) -> None:
    copy_of_finished(tmp_path)
    run = tmp_path / "runs/nano"
    before = run.stat().st_mtime_ns
    done = r1pipe(tmp_path, "report", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert Path(tmp_path / said["path"]).stat().st_size == said["bytes"]
    assert run.stat().st_mtime_ns == before
    assert (run / "report.html").is_file()


def test_a_run_that_is_not_there_is_named() -> None:
    done = r1pipe(finished_folder(), "report", "nano", "--against", "nowhere")
    assert done.code != 0
    assert "nowhere" in done.err


def test_evaluations_that_were_put_into_the_run_are_drawn_too(tmp_path: Path) -> None:
    copy_of_finished(tmp_path)
    place = tmp_path / "runs/nano/evals/many"
    place.mkdir(parents=True)
    lines = [{"k": k, "mean": 0.5, "low": 0.4, "high": 0.6} for k in (1, 2, 4, 8)]
    row = {"at_k": {"pass": lines, "majority": lines}}
    sampling = {"samples": 8, "temperature": 0.7}
    results = {"benchmark": "held-out <b>", "sampling": sampling, "checkpoints": {"Dev1": row, "Dev2": row}}
    (place / "results.json").write_text(json.dumps(results))
    (place.parent / "broken").mkdir()
    (place.parent / "broken/results.json").write_text("{")
    page = Page(written(tmp_path))
    assert "held-out <b>, 8 samples at temperature 0.7" in page.text
    passed = next(chart for chart in page.data["charts"] if chart["title"] == "Pass@k")
    assert [line["name"] for line in passed["lines"]] == ["Dev1", "Dev2"]
    assert passed["x"] == [1, 2, 4, 8]


def test_the_page_says_where_a_run_departs_from_the_papers_numbers() -> None:
    text = page_of_finished()
    assert "<caption><span>Differences from the paper</span></caption>" in text
    assert '<th scope="row">reasoning-rl · learning_rate</th><td>0.001</td><td>3e-06</td>' in text
    assert "reasoning-rl · clip</th>" not in text  # ten here as there


# --- pieces


def rows_for(samples: int, right: int, name: str = "p", text: str = "<think>\na\n</think>\n\nb") -> list[dict[str, Any]]:
    problem = Problem(name, f"question {name}", "1")
    verdicts = ["right"] * right + ["wrong"] * (samples - right)
    return [attempt_row(Attempt(problem, text, tokens=5), index, {}, 1.0, verdict) for index, verdict in enumerate(verdicts)]


def test_curves_over_k_need_four_samples_and_carry_their_intervals() -> None:
    two = read_checkpoint("r1", {}, rows_for(2, 1))
    eight = read_checkpoint("r1", {}, [*rows_for(8, 2, "a"), *rows_for(8, 6, "b")])
    assert at_k_charts({"R1": two.curves}) == []
    passed, majority = at_k_charts({"R1": eight.curves})
    assert passed.data()["x"] == [1, 2, 4, 8]
    line = passed.data()["lines"][0]
    assert line["values"][0] == pytest.approx(0.5)
    assert line["values"][3] == 1.0
    assert all(low <= value <= high for low, value, high in zip(line["low"], line["values"], line["high"], strict=True))
    assert majority.title == "Maj@k"


def test_a_chart_says_in_words_what_its_lines_do() -> None:
    chart = Chart("t", "a", (Line("x", [(1, 0.5), (2, 0.9), (3, 0.7)]), Line("gone", [(1, None)])))
    assert chart.in_words() == "x from 0.500 to 0.700, between 0.500 and 0.900"
    two = Chart("t", "a", (Line("x", [(1, 0.5), (2, 0.7)]), Line("x", [(1, 0.1), (2, 0.25)], other=True)))
    assert two.in_words() == "x from 0.500 to 0.700 (other run to 0.250)"


def test_long_curves_are_thinned_and_gaps_stay() -> None:
    series = Series(list(range(5000)), [float(step) for step in range(5000)])
    assert len(points(series)) == 600
    short = Series([1, 2, 3], [1.0, None, float("nan")])
    assert points(short) == [(1.0, 1.0), (2.0, None), (3.0, None)]
    assert charts_of({"kl": Series([1, 2], [0.0, 0.0])}) == []


def test_samples_keep_within_their_budget_and_long_ones_are_cut() -> None:
    rows = [row for number in range(30) for row in rows_for(6, 3, f"p{number}", "x " * 10_000)]
    found = samples_data([read_checkpoint("r1", {}, rows)], budget=200_000)
    assert 0 < len(found["problems"]) < 30
    assert found["left_out"] == 30 - len(found["problems"])
    assert found["samples_left_out"]
    assert len(json.dumps(found["problems"])) < 210_000
    assert "12,000 characters left out" in "".join(found["problems"][0]["samples"][0][0]["text"])


PROGRAM = """
import sys
from r1pipe.cli import main
try:
    main(["report", "--out", sys.argv[1]])
except SystemExit as left:
    assert not left.code
assert "torch" not in sys.modules
"""


def test_a_report_loads_no_trainer(tmp_path: Path) -> None:
    folder = finished_folder()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "x.html")]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
