"""Logic problems: Reasoning Gym's own scorers by the name of the data set; exact structures where there is no data set.

`Problem.check` holds `dataset` and `entry` (the item as Reasoning Gym made it, JSON values). The answer is the last
`<answer>` block, else the last box, else the last fenced block, else what follows "the answer is", else the whole summary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from r1pipe.data.chat import answer_block
from r1pipe.rewards.base import Score
from r1pipe.rewards.extract import final_answer, last_box, unmarked
from r1pipe.rewards.gym import DECIDED, FULL_MARKS, REQUIRED, refused
from r1pipe.rewards.maths.judge import short
from r1pipe.rewards.service import Pool, shared_pool
from r1pipe.rewards.structure import canonical, same_structure

SECONDS = 10.0
"""Wall time for one scorer; some rebuild a board."""
MAX_ANSWER_CHARS = 20_000
_FENCE = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_KINDS: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Request:
    """An answer to judge: gold answer (may be empty), summary, and the problem's `check`."""

    gold: str
    summary: str
    check: Mapping[str, Any] = field(default_factory=dict)


def answer_of(summary: str, lines: int = 1) -> str:
    """The final answer of a summary; with `lines` over 1 the gold answer is a grid, and all lines of it are wanted."""
    block = answer_block(summary)
    if block is not None:
        return block.strip()
    box = last_box(summary)
    if box is not None:
        return box
    fenced = _FENCE.findall(summary[-MAX_ANSWER_CHARS:]) if "```" in summary else []
    if fenced:
        return str(fenced[-1]).strip("\n")
    if lines > 1:
        _, announced, rest = summary.rpartition("nswer:")
        return rest.strip() if announced and rest.strip() else summary.strip()
    found = final_answer(summary)
    return found.text if found.rule in ("phrase", "hash") else unmarked(summary.strip()) or summary.strip()


def check(requests: Sequence[Request], pool: Pool | None = None, seconds: float = SECONDS) -> list[Score]:
    """One score per request: 1.0 right, 0.0 wrong, None unjudged, each with a note."""
    scores: list[Score | None] = [None] * len(requests)
    asked: list[tuple[int, str, dict[str, Any], str]] = []
    names = {str(r.check["dataset"]) for r in requests if r.check.get("dataset")}
    unknown = sorted(names - _KINDS.keys() - DECIDED.keys())
    if unknown:
        pool = pool or shared_pool()
        found = pool.map("r1pipe.rewards.gym:exact", [(name,) for name in unknown], seconds)
        _KINDS.update({name: outcome.value for name, outcome in zip(unknown, found, strict=True) if outcome.value})
    for index, request in enumerate(requests):
        outcome = _cheap(request)
        if isinstance(outcome, Score):
            scores[index] = outcome
        else:
            asked.append((index, str(request.check["dataset"]), *outcome))
    if asked:
        pool = pool or shared_pool()
        for (index, *_), score in zip(asked, _ask(asked, pool, seconds), strict=True):
            scores[index] = score
    return [score if score is not None else Score(None, "not judged") for score in scores]


def _cheap(request: Request) -> Score | tuple[dict[str, Any], str]:
    """The verdict that needs no scorer, else the entry and the answer to ask about."""
    dataset = request.check.get("dataset")
    if not dataset:
        return _structure(request)
    kind = "own" if dataset in DECIDED else _KINDS.get(str(dataset), "")
    if kind in ("", "unknown"):
        return Score(None, f"Reasoning Gym has no data set {dataset!r}" if kind else "Reasoning Gym could not be asked")
    entry = request.check.get("entry")
    entry = json.loads(entry) if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or "metadata" not in entry or "answer" not in entry:
        return Score(None, "the problem has no Reasoning Gym entry with answer and metadata")
    gold = entry["answer"]
    if gold is not None and not str(gold).strip():
        return Score(None, "the gold answer is empty")
    answer = answer_of(request.summary, lines=str(gold or "").count("\n") + 1)
    if not answer.strip():
        return Score(0.0, "empty answer")
    if len(answer) > MAX_ANSWER_CHARS:
        return Score(0.0, f"answer of {len(answer)} characters; read up to {MAX_ANSWER_CHARS}")
    said = f"answered {short(answer)}" + (f", wanted {short(str(gold))}" if gold is not None else "")
    if gold is not None and canonical(str(gold)) in (canonical(answer), canonical(request.summary)):
        return Score(1.0, said)
    if str(dataset) in DECIDED:
        return Score(1.0 if DECIDED[str(dataset)](answer, entry) else 0.0, said)
    if kind == "exact":
        return Score(0.0, said)
    required = REQUIRED.get(str(dataset))
    if required is not None and not required(answer, entry):
        return Score(0.0, said)
    why = refused(str(dataset), answer)
    return Score(0.0, f"{said}: {why}") if why else (entry, answer)


def _structure(request: Request) -> Score:
    if not request.gold.strip():
        return Score(None, "the gold answer is empty")
    answer = answer_of(request.summary, lines=request.gold.strip().count("\n") + 1)
    if not answer.strip():
        return Score(0.0, "empty answer")
    said = f"answered {short(answer)}, wanted {short(request.gold)}"
    same = same_structure(request.gold, answer) or canonical(request.summary) == canonical(request.gold)
    return Score(1.0 if same else 0.0, said)


def _ask(asked: Sequence[tuple[int, str, dict[str, Any], str]], pool: Pool, seconds: float) -> list[Score]:
    """Ask the scorers. When one fails on an answer but not on the gold answer, the answer was to blame and is wrong."""
    function = "r1pipe.rewards.gym:score"
    outcomes = pool.map(function, [(dataset, entry, answer) for _, dataset, entry, answer in asked], seconds)
    failed = [index for index, outcome in enumerate(outcomes) if outcome.failure and asked[index][2]["answer"] is not None]
    golds = pool.map(function, [(asked[i][1], asked[i][2], str(asked[i][2]["answer"])) for i in failed], seconds)
    gold_scores = {index: outcome.value for index, outcome in zip(failed, golds, strict=True)}
    scores = []
    for index, ((_, dataset, entry, answer), outcome) in enumerate(zip(asked, outcomes, strict=True)):
        if not outcome.failure:
            value = float(outcome.value)
            scores.append(
                Score(1.0 if value >= FULL_MARKS else 0.0, f"answered {short(answer)}: the scorer of {dataset} says {value:.3g}")
            )
        elif (gold_scores.get(index) or 0.0) >= FULL_MARKS or (
            entry["answer"] is None and outcome.failure not in ("time", "memory", "crash")
        ):
            scores.append(Score(0.0, f"answered {short(answer)}: the scorer of {dataset} failed ({outcome.failure})"))
        else:
            scores.append(Score(None, f"the scorer of {dataset} failed ({outcome.failure})"))
    return scores
