"""From TRL's rollouts to our rewards and back: the bridge, and the record of what every rollout looked like.

TRL calls one reward function a rollout with all answers of a process, groups in a row. The function decodes the token ids
itself (so that rewards see exactly what was sampled), scores them with the recipe's mix, returns the totals (None for a row
that could not be judged, which TRL leaves out of its group) or, where a recipe asks for what TRL cannot do with totals, the
advantages made of them; and writes down the rollout: means per reward, shares of groups without signal, lengths, and the
attempts themselves, always with the totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from accelerate.utils import gather_object

from r1pipe.data.chat import split_response
from r1pipe.data.reflection import reflection_count
from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import ATTEMPT_COLUMNS, attempt_row, part_path, write_part
from r1pipe.errors import TrainingError
from r1pipe.intervals import mean
from r1pipe.metrics import MetricsWriter
from r1pipe.rewards import Mix, Row
from r1pipe.rewards.base import CUT
from r1pipe.rewards.mix import TOTAL_STEP
from r1pipe.train.advantages import signal_shares
from r1pipe.train.pool import PromptPool

SHOWN_ATTEMPTS = 4
"""Answers of a batch that are shown when a guard stops the run, spread over its groups."""
EXACT = 2**24
"""Whole numbers up to here are exact in single precision, in which the trainer adds up the totals of a group."""
FLAT = ("flat_share", "flat_right", "flat_wrong")
"""Shares of groups without signal: all, all answers right, all wrong."""


@dataclass
class RolloutScorer:
    """The reward function of a run, as TRL wants it: callable, with a `__name__`.

    Attributes:
        problems: all problems of the stage; the data set's `row` column points into it.
        mix: the recipe's rewards.
        tokenizer: decodes completions; special tokens are dropped, thinking tags are ordinary text.
        prefix: what the template opens for the model.
        group: answers per question.
        minibatches: optimizer steps per rollout.
        folder: where rollout tables go.
        keep: how many attempts of a rollout are kept (whole groups).
        metrics: the step's metrics.
        live: latest numbers for the progress file.
        main_process: whether this process writes.
        shape: totals and attempts of this process -> what TRL is told; None tells it the totals.
        ends: ids of the tokens that end an answer.
        pool: told which prompts were answered right.
        observe: told of each rollout's line once the rollout is on the disk; raises when going on would be wrong.
    """

    problems: Sequence[Problem]
    mix: Mix
    tokenizer: Any
    prefix: str
    group: int
    minibatches: int
    folder: Path
    keep: int
    metrics: MetricsWriter
    live: dict[str, Any]
    main_process: bool
    shape: Callable[[list[float | None], list[Attempt]], list[float | None]] | None = None
    ends: frozenset[int] = frozenset()
    pool: PromptPool | None = None
    observe: Callable[[Mapping[str, Any]], None] = lambda line: None
    __name__: str = "total"
    _last: tuple[int, Sequence[Attempt], Sequence[Row]] | None = None

    def __call__(
        self, *, completion_ids: list[list[int]], row: list[int], trainer_state: Any, **columns: Any
    ) -> list[float | None]:
        """Totals of all answers of this process, in order."""
        step = int(trainer_state.global_step)
        ends = self.ends or {self.tokenizer.eos_token_id}
        attempts = [
            Attempt(
                problem=self.problems[index],
                completion=self.tokenizer.decode(ids, skip_special_tokens=True),
                prefix=self.prefix,
                finish="stop" if ids and ids[-1] in ends else "length",
                tokens=len(ids),
            )
            for ids, index in zip(completion_ids, row, strict=True)
        ]
        rows = self.mix.score(attempts, step)
        if all(scored.total is None for scored in rows):
            notes = sorted({score.note for scored in rows for score in scored.parts.values() if score and score.value is None})
            raise TrainingError(
                f"no answer of the rollout at step {step} could be judged: {'; '.join(notes[:3])}", "look at the checker's notes"
            )
        self._last = (step, attempts, rows)
        if self.pool is not None:
            answered = gather_object([(at, one.verdict) for at, one in zip(row, rows, strict=True)])
            self.pool.record(step // self.minibatches, answered)
        if self.main_process:
            self._record(attempts, rows, step)
        totals = [scored.total for scored in rows]
        if self.shape is None:
            self._refuse_large(totals)
            return totals
        columns["log_metric"]("total", mean([total for total in totals if total is not None]))
        return self.shape(totals, attempts)

    def latest(self) -> tuple[Sequence[Attempt], Sequence[Row]]:
        """This process's answers of the rollout that was scored last, and what the mix says of them."""
        if self._last is None:
            raise ValueError("no rollout was scored yet")
        return self._last[1:]

    def _refuse_large(self, totals: Sequence[float | None]) -> None:
        """Totals whose sum over a group is not exact would give equal rewards advantages (`r1pipe.rewards.mix.quantise`)."""
        most, largest = EXACT * TOTAL_STEP / self.group, max(abs(total) for total in totals if total is not None)
        if largest > most:
            raise TrainingError(
                f"a total of {largest:,.6g} is too large: with {self.group} answers a question, equal totals above {most:,.6g} "
                "do not cancel in single precision, and would be trained on",
                f"divide the weights of the rewards by {math.ceil(largest / most)} or more",
            )

    def evidence(self) -> dict[str, Any]:
        """The rollout that was scored last, for whoever must show it: number, table, problems, some of the answers."""
        if self._last is None:
            return {}
        step, attempts, rows = self._last
        number = step // self.minibatches
        chosen = sorted({index * len(rows) // SHOWN_ATTEMPTS for index in range(SHOWN_ATTEMPTS)})
        return {
            "rollout": number,
            "table": f"{self.folder.name}/{part_path(self.folder, number).name}" if self.keep else "",
            "problems": [attempt.problem.id for attempt in attempts[:: self.group]],
            "attempts": [
                {
                    "problem": attempts[index].problem.id,
                    "question": attempts[index].problem.question,
                    "completion": attempts[index].completion,
                    "finish": attempts[index].finish,
                    "tokens": attempts[index].tokens,
                    "total": rows[index].total,
                    "scores": {name: score.value for name, score in rows[index].parts.items() if score is not None},
                }
                for index in chosen
            ],
        }

    def _record(self, attempts: list[Attempt], rows: list[Row], step: int) -> None:
        line = {"kind": "rollout", "step": step, **rollout_numbers(attempts, rows, self.group, self.mix.weights)}
        self.metrics.write(line)
        self.live.update(
            {
                "rewards": line["rewards"],
                "tokens": line["tokens_mean"],
                "flat_groups": line["flat_share"],
                "flat_right": line["flat_right"],
                "flat_wrong": line["flat_wrong"],
                "truncated": line["truncated_share"],
                "domains": line["domains"],
            }
        )
        best = max(range(len(rows)), key=lambda index: (rows[index].total or 0.0, -index))
        self.live["sample"] = {"question": attempts[best].problem.question, "completion": attempts[best].completion}
        kept = min(len(attempts), -(-self.keep // self.group) * self.group) if self.keep else 0
        if kept:
            table = [
                attempt_row(attempt, index % self.group, scored.parts, scored.total, scored.verdict)
                for index, (attempt, scored) in enumerate(zip(attempts[:kept], rows[:kept], strict=True))
            ]
            write_part(self.folder, step // self.minibatches, table, ATTEMPT_COLUMNS)
        self.observe(line)


def rollout_numbers(attempts: Sequence[Attempt], rows: Sequence[Row], group: int, weights: Mapping[str, float]) -> dict[str, Any]:
    """The numbers of one rollout.

    Returns:
        rewards: mean per reward over the rows where it applies and was judged; reward_spreads: their standard deviations (times
        the weight what each can add to the spread of a total, so that one reward which rules the others is seen); total_mean;
        unjudged: rows left out; cut: answers of which a reward model read the beginning only; tokens_mean; truncated_share;
        what the thinking is like (`thinking_numbers`); flat_share: share of groups whose totals are all equal (they teach
        nothing), and of those flat_right and flat_wrong (every accuracy 1, every accuracy 0); signal: each reward's share in what
        tells the answers of a group apart (see `signal_shares`); domains: right,
        flat_share, flat_right, flat_wrong and groups by domain.
    """
    names = list(rows[0].parts)
    judged: dict[str, list[float]] = {name: [] for name in names}
    for scored in rows:
        for name, score in scored.parts.items():
            if score is not None and score.value is not None:
                judged[name].append(score.value)
    groups = [range(start, min(start + group, len(rows))) for start in range(0, len(rows), group)]
    domains: dict[str, dict[str, list[float]]] = {}
    flat, flat_right, flat_wrong = 0, 0, 0
    for members in groups:
        totals = {rows[index].total for index in members if rows[index].total is not None}
        verdicts = {rows[index].verdict for index in members}
        is_flat = len(totals) <= 1
        flat += is_flat
        flat_right += is_flat and verdicts == {"right"}
        flat_wrong += is_flat and verdicts == {"wrong"}
        entry = domains.setdefault(attempts[members[0]].problem.domain, {name: [] for name in ("right", *FLAT)})
        entry["right"] += [
            float(rows[index].verdict == "right") for index in members if rows[index].verdict in ("right", "wrong")
        ]
        for name, found in zip(
            FLAT, (is_flat, is_flat and verdicts == {"right"}, is_flat and verdicts == {"wrong"}), strict=True
        ):
            entry[name].append(float(found))
    return {
        "rewards": {name: mean(values) for name, values in judged.items()},
        "reward_spreads": {name: pstdev(values) if values else None for name, values in judged.items()},
        "total_mean": mean([scored.total for scored in rows if scored.total is not None]),
        "answers": len(rows),
        "unjudged": sum(scored.total is None for scored in rows),
        "cut": sum(CUT in score.note for scored in rows for score in scored.parts.values() if score is not None),
        "tokens_mean": fmean(attempt.tokens for attempt in attempts),
        "tokens_total": sum(attempt.tokens for attempt in attempts),
        "truncated_share": fmean(float(attempt.finish == "length") for attempt in attempts),
        **thinking_numbers(attempts, rows),
        "flat_share": flat / len(groups),
        "flat_right": flat_right / len(groups),
        "flat_wrong": flat_wrong / len(groups),
        "signal": signal_shares([row.parts for row in rows], [row.total for row in rows], weights, group),
        "domains": {
            name: {"right": mean(entry["right"]), **{key: mean(entry[key]) for key in FLAT}, "groups": len(entry["flat_share"])}
            for name, entry in sorted(domains.items())
        },
    }


def thinking_numbers(attempts: Sequence[Attempt], rows: Sequence[Row]) -> dict[str, Any]:
    """What the thinking of a rollout is like; the paper draws these over the steps (v2 Fig. 1, C.2, B.6).

    Returns:
        thinking_characters: mean length of the thinking where there is any; reflection: reflection words per answer;
        mixed_share: share of the answers with thinking that the language reward gives less than 1, whatever its weight; None when
        no language reward is in the mix.
    """
    lengths = []
    mixed: list[float] = []
    for attempt, scored in zip(attempts, rows, strict=True):
        thinking = split_response(attempt.text).thinking
        if not thinking:
            continue
        lengths.append(float(len(thinking)))
        language = scored.parts.get("language")
        if language is not None and language.value is not None:
            mixed.append(float(language.value < 1.0))
    return {
        "thinking_characters": mean(lengths),
        "reflection": fmean(float(reflection_count(attempt)) for attempt in attempts),
        "mixed_share": mean(mixed),
    }
