"""Scoring: in a process of its own beside generation where there is much to score, else in the step's process.

A thread of the step's own process would take turns with the engine for the interpreter, and what it scores in a second the
engine would lose. Small steps are scored by such a thread all the same: starting a process would take longer. An engine that
uses this machine's whole processor is better left alone while it generates: both at once took longer than one after the other.
What scoring needs (language model, checkers) is loaded while the engine is.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from r1pipe.data.rows import Attempt, Problem
from r1pipe.data.tables import attempt_row
from r1pipe.errors import EngineError
from r1pipe.rewards import Mix

WORTH_A_PROCESS = 2_000
"""Attempts for which a process is started."""
ENDED = 2
"""So often it is started again when it was ended from outside: by a person, or because the machine had no memory left."""
READY_KINDS = 64
"""Kinds of problems that are tried while the engine loads, at most."""
READY_ANSWER = "<think>\nLet us see what this is about.\n</think>\n\nThe answer is \\boxed{1}."
_PARENT_CHECK_SECONDS = 1.0
_mix: list[Mix] = []
"""The rewards of this process, when it is one that scores."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Made:
    """An attempt as it comes from the engine: its number among those at the problem, and why it could not be made, if so."""

    attempt: Attempt
    sample: int
    error: str = ""


def scored_rows(mix: Mix, attempts: Sequence[Made]) -> Rows:
    """Attempts with their scores as rows; what the engine could not make is not scored, and its row says why."""
    scored = mix.score([made.attempt for made in attempts])
    return [
        attempt_row(made.attempt, made.sample, row.parts, None if made.error else row.total, row.verdict, made.error)
        for made, row in zip(attempts, scored, strict=True)
    ]


@contextmanager
def scorer(mix: Mix, problems: Sequence[Problem], samples: int, alone: bool) -> Iterator[Callable[[Sequence[Made]], Rows]]:
    """What turns attempts into rows, for a step that asks so many problems so often.

    Args:
        alone: nothing is generated while answers are scored.
    """
    if len(problems) * samples < WORTH_A_PROCESS:
        yield partial(scored_rows, mix)
    elif alone or not _can_be_sent(mix):
        loading = threading.Thread(target=get_ready, args=(mix, kinds_of(problems)), daemon=True)
        loading.start()

        def score(attempts: Sequence[Made]) -> Rows:
            loading.join()
            return scored_rows(mix, attempts)

        yield score
    else:
        process = ScoringProcess(mix)
        process.pool.submit(_get_ready, kinds_of(problems))
        try:
            yield process.rows
        finally:
            process.close()


def kinds_of(problems: Sequence[Problem]) -> list[Problem]:
    """A problem of each checker, language and data set."""
    kinds = {(problem.checker, problem.language, str(problem.check.get("dataset", ""))): problem for problem in problems}
    return list(kinds.values())[:READY_KINDS]


def get_ready(mix: Mix, problems: Sequence[Problem]) -> None:
    """Load what scoring answers to such problems needs, by scoring one to each with the built-in rewards; a person's own may
    count how often they are asked. What is wrong with a reward shows with the first real answers."""
    attempts = [Attempt(problem, READY_ANSWER, "", "stop", 0) for problem in problems]
    Mix(tuple(part for part in mix.parts if type(part.reward).__module__.startswith("r1pipe."))).score(attempts)


class ScoringProcess:
    """A process that holds the rewards; one that was ended from outside is started again, and its attempts are scored anew."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self.ended = 0
        self.pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        from multiprocessing import get_context

        # started afresh: what is forked from a process with an engine inherits locks that other threads of it hold
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin, initargs=(os.getpid(),))
        pool.submit(_hold, self.mix)  # begins now; not with the start, whose pipe nobody reads if it is killed just then
        return pool

    def rows(self, attempts: Sequence[Made]) -> Rows:
        """See `scored_rows`.

        Raises:
            EngineError: the process was ended again and again. What the rewards raise comes through.
        """
        while True:
            try:
                return self.pool.submit(_score, list(attempts)).result()
            except BrokenProcessPool as broken:
                self.ended += 1
                if self.ended > ENDED:
                    raise EngineError(
                        f"the process that scores answers was ended {self.ended} times, at last over {len(attempts)} of them",
                        "if the machine is out of memory, lower problems_per_shard; then r1pipe resume",
                    ) from broken
                print(f"the process that scores answers was ended; started again ({self.ended} of {ENDED} times)", flush=True)
                self.pool.shutdown(wait=False)
                self.pool = self._start()

    def close(self) -> None:
        """End it after what it is at, and at once: its own helpers end when their input closes, and are not waited for."""
        with suppress(BrokenProcessPool):
            self.pool.submit(_leave)
        self.pool.shutdown(wait=True)


def _leave() -> None:
    os._exit(0)


def _get_ready(problems: list[Problem]) -> None:
    get_ready(_mix[0], problems)


def _score(attempts: list[Made]) -> Rows:
    return scored_rows(_mix[0], attempts)


def _can_be_sent(mix: Mix) -> bool:
    """Whether a process can be given the rewards: an own one may hold what cannot be, such as a lock or an open file."""
    try:
        pickle.dumps(mix)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        print(f"answers are scored in the step's own process: the rewards cannot be sent to another one ({error})", flush=True)
        return False
    return True


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at Ctrl-C the step decides
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _hold(mix: Mix) -> None:
    _mix[:] = [mix]


def _follow(parent: int) -> None:
    """End when the parent is gone: nobody would read what is scored."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
