"""A sampling step without a model: an engine whose answers follow from question and seed, and everything around it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from r1pipe.data.rows import Attempt, Problem, Score
from r1pipe.data.tables import PROBLEM_COLUMNS, content_id, problem_row, read_part, write_table
from r1pipe.engines.base import Completion, Sampling
from r1pipe.errors import EngineError
from r1pipe.pipeline import load
from r1pipe.recipe import Launch
from r1pipe.stage import StepContext
from r1pipe.stages.sampling import SampleConfig
from r1pipe.stages.sections import ChatSection, RewardsSection

ENGINE, SERVED = "sampling_helpers:open_stub", "sampling_helpers:open_served"
BAD = "a question that no model can be asked"
STEP = load("r1").step("rejection-sft/sample")
PAUSE = "R1PIPE_TEST_PAUSE"


def number(*parts: object, below: int = 1 << 30) -> int:
    """A number that follows from its arguments."""
    return int(hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest(), 16) % below


def problems(count: int, symbolic: bool = False) -> list[Problem]:
    """Sums, of very different difficulty for the stub; every 17th cannot be asked, every 13th cannot be judged."""
    made = []
    for n in range(count):
        question, answer = f"What is {n} + {n}?", str(2 * n)
        if symbolic:
            question, answer = f"Add up k + {n} for k from 1 to m.", f"\\sum_{{k=1}}^{{m}} (k+{n})"  # a scorer's process decides
        if n % 17 == 16:
            question = f"{BAD} ({n})"
        checker = "nobody" if n % 13 == 12 else "maths"
        made.append(Problem(content_id(question, answer), question, answer, checker, domain=("sums", "words")[n % 2]))
    return made


def difficulty(question: str) -> int:
    """Right answers of ten, on average."""
    return (0, 2, 5, 8, 10)[number("difficulty", question, below=5)]


@dataclass
class Stub:
    """The engine. Every call is noted."""

    prefix: str = ""

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        time.sleep(float(os.environ.get(PAUSE, "0")))
        for question in questions:
            yield [answer(question, sampling.seed, sample) for sample in range(sampling.samples)]

    def close(self) -> None:
        """Nothing is held."""


def answer(question: str, seed: int, sample: int) -> Completion:
    """A completion that follows from its arguments."""
    if question.startswith(BAD):
        return Completion("", 0, "error", "the prompt has 99,999 tokens, and 4,096 fit")
    luck = number("luck", question, seed, sample, below=10)
    right = luck < difficulty(question)
    kind = number("kind", question, seed, sample, below=10)
    numbers = question.removeprefix("What is ").rstrip("?").split(" + ")
    if question.startswith("Add up"):
        said = f"\\frac{{m(m+1)}}{{2}}+{int(numbers[1].split()[0]) + (not right)}m"
    else:
        said = str(sum(map(int, numbers)) + (not right))
    thought = f"First I add the two numbers, take {luck} of ten as a guess, and find {said} in the end."
    text = f"<think>\n{thought}\n</think>\n\nIt is \\boxed{{{said}}}."
    if number("untidy", question, below=12) == 0:  # never in the form that is asked for, however right
        return Completion(f"It is \\boxed{{{said}}}.", 10, "stop")
    if kind == 0:
        return Completion(thought, 60, "length")
    return Completion(text, 20 + luck, "stop")


def open_stub(model: Path, *, system: str, batch: int | None, dtype: str) -> Stub:
    """See `r1pipe.engines.base.open_engine`."""
    return Stub()


@dataclass
class Served:
    """The same answers, from a process of its own that may die."""

    process: subprocess.Popen[str]
    prefix: str = ""

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for question in questions:
            time.sleep(float(os.environ.get(PAUSE, "0")))
            try:
                self.process.stdin.write("\n")
                self.process.stdin.flush()
                alive = self.process.stdout.readline()
            except BrokenPipeError:
                alive = ""
            if not alive:
                raise EngineError("the engine's process has ended", "r1pipe resume")
            yield [answer(question, sampling.seed, sample) for sample in range(sampling.samples)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def open_served(model: Path, *, system: str, batch: int | None, dtype: str) -> Served:
    """Start the process."""
    echo = "import sys\nfor line in sys.stdin:\n    print(flush=True)"
    return Served(subprocess.Popen([sys.executable, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


@dataclass(frozen=True)
class Slow:
    """A reward that takes its time, so that one can see what goes on meanwhile."""

    seconds: float = 0.1

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        time.sleep(self.seconds)
        return [Score(1.0)] * len(attempts)


def context(
    folder: Path, asked: Sequence[Problem], stop: Any = lambda: False, rewards: Any = None, **settings: Any
) -> StepContext:
    """A step with these problems in a folder; the same folder again is the same step resumed."""
    source = folder.parent / f"{folder.name}-problems"
    if not source.exists():
        write_table(source, map(problem_row, asked), PROBLEM_COLUMNS)
    folder.mkdir(parents=True, exist_ok=True)
    config = SampleConfig.model_validate({"engine": ENGINE, "max_tokens": 64, "problems_per_shard": 8, **settings})
    shared = {"chat": ChatSection(), "rewards": rewards or RewardsSection()}
    return StepContext(STEP, config, shared, Launch(), {"problems": source, "policy": folder}, {}, folder, 3, stop)


def shards(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Every part of both tables, with its rows."""
    return {
        f"{table}/{path.name}": read_part(path)
        for table in ("attempts", "by_problem")
        for path in sorted((folder / table).glob("part-*.parquet"))
    }


@contextmanager
def small_disk(folder: Path, room: str) -> Iterator[Path]:
    """A file system of its own with so much room, mounted at a folder; the test is skipped where this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def enlarge(disk: Path, room: str) -> None:
    """Give a small disk more room."""
    subprocess.run(["mount", "-o", f"remount,size={room}", str(disk)], check=True)
