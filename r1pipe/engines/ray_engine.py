"""Many machines: Ray Data hands blocks of questions to workers (`map_batches` actors) that each hold an engine.

Where the cluster is stands in `RAY_ADDRESS` (Ray's own name; without one a cluster of this machine is started), how it is used in
`R1PIPE_RAY` (JSON: workers, gpus and cpus of each, questions of a block, retries of a block); both belong in `[launch] env`. The
model's folder must be readable under its path on every machine, and r1pipe installed there.

Questions keep their numbers, so which worker answers, and how many there are, changes nothing of what comes out. A worker that
dies is started again and its block is given out again; the questions of a block that ends its worker each time are given out
alone, and the one that does it becomes completions with finish "error". Each call of `generate` starts workers, which load the
model: shards should keep them busy for long.
"""

from __future__ import annotations

import json
import os
import socket
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from r1pipe.engines.base import Completion, Engine, Sampling, failed
from r1pipe.engines.base import open_engine as open_inner
from r1pipe.engines.codec import open_codec
from r1pipe.errors import EngineError

ADDRESS, OPTIONS = "RAY_ADDRESS", "R1PIPE_RAY"
PASSED_ON = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "R1PIPE_VLLM",
)
"""What workers on other machines are told of this process's environment, besides VLLM_…."""
DIED, FAILED = "its worker died each time", "the worker's engine failed twice"
"""Why a question has no answer."""
LOCAL_STORE = 256 * 2**20
"""Bytes of the object store of a cluster of this machine: blocks are text."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a cluster is used.

    Attributes:
        workers: engines at once; 0: one for each GPU of the cluster, else one.
        gpus, cpus: of each worker; gpus -1: one where the cluster has any.
        block: questions that a worker is given at a time.
        retries: how often a block is given out again after its worker died.
    """

    workers: int = 0
    gpus: float = -1
    cpus: float = 1
    block: int = 64
    retries: int = 1


class Worker:
    """An actor: an engine, opened once, and again after it failed."""

    def __init__(self, name: str, model: str, system: str, batch: int | None, dtype: str, sampling: dict[str, Any]) -> None:
        self.arguments = (name, model, system, batch, dtype)
        self.sampling = Sampling(**{**sampling, "stop": tuple(sampling["stop"])})
        self.engine: Engine | None = self._open()

    def _open(self) -> Engine:
        name, model, system, batch, dtype = self.arguments
        return open_inner(name, model, system=system, batch=batch, dtype=dtype)

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Answer one block: a row with the number of its first question, and the questions and completions as JSON."""
        first, questions = int(rows["first"][0]), json.loads(rows["questions"][0])
        made = self._answer(questions, replace(self.sampling, first=self.sampling.first + first))
        return {"first": [first], "completions": [json.dumps([[asdict(one) for one in several] for several in made])]}

    def _answer(self, questions: list[str], sampling: Sampling) -> list[list[Completion]]:
        """The block; where that fails, question by question with a new engine, and what fails again is written down."""
        try:
            return list(self._opened().generate(questions, sampling))
        except Exception:  # whatever it was, it concerns one block, and shows again below
            traceback.print_exc()
            self.engine = None
        rows: list[list[Completion]] = []
        for place, question in enumerate(questions):
            try:
                rows += self._opened().generate([question], replace(sampling, first=sampling.first + place))
            except Exception as error:
                traceback.print_exc()
                self.engine = None
                rows.append(failed(f"{FAILED}: {type(error).__name__}: {error}", sampling.samples))
        return rows

    def _opened(self) -> Engine:
        self.engine = self.engine or self._open()
        return self.engine


class RayEngine:
    """Workers on a Ray cluster."""

    def __init__(self, name: str, model: Path, system: str, batch: int | None, dtype: str, options: Options, owned: bool) -> None:
        self.arguments = (name, os.fspath(model), system, batch, dtype)
        self.options = options
        self.owned = owned
        self.prefix = open_codec(model, system).prefix

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """See `Engine.generate`. All questions are finished before the first is given out.

        Raises:
            EngineError: no worker could open its engine, or none of the blocks was answered.
        """
        if not questions:
            return
        results = self._answered(range(0, len(questions), self.options.block), self.options.block, questions, sampling)
        if lost := [place for place in range(len(questions)) if place not in results]:
            print(f"{len(lost)} questions were lost with their workers; they are given out once more, one by one", flush=True)
            results |= self._answered(lost, 1, questions, sampling)
        rows = [results.get(place) or failed(DIED, sampling.samples) for place in range(len(questions))]
        broken = [row[0].note for row in rows if row[0].note == DIED or row[0].note.startswith(FAILED)]
        if len(broken) == len(rows):
            raise EngineError(
                f"no worker answered anything: {broken[0]}", "look at the logs of the workers, then `r1pipe resume`"
            )
        yield from rows

    def _answered(
        self, starts: Sequence[int], block: int, questions: Sequence[str], sampling: Sampling
    ) -> dict[int, list[Completion]]:
        """Place -> completions of the questions of the blocks that were answered.

        Raises:
            EngineError: Ray could not go on, or no worker could open its engine.
        """
        import ray

        items = [{"first": at, "questions": json.dumps(list(questions[at : at + block]))} for at in starts]
        there = float(ray.cluster_resources().get("GPU", 0))
        gpus = self.options.gpus if self.options.gpus >= 0 else float(there >= 1)
        workers = self.options.workers or (max(1, int(there // gpus)) if gpus else 1)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_errored_blocks = -1  # a block that is lost is looked after here, and does not end the others
        answered = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            Worker,
            fn_constructor_args=(*self.arguments, asdict(sampling)),
            batch_size=1,
            # a worker has one block at a time: what takes it down takes nothing else along
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(items)), max_tasks_in_flight_per_actor=1),
            num_cpus=self.options.cpus,
            num_gpus=gpus,
            max_task_retries=self.options.retries,
        )
        results: dict[int, list[Completion]] = {}
        try:
            for row in answered.iter_rows():
                made = [[_completion(one) for one in several] for several in json.loads(row["completions"])]
                results.update(enumerate(made, int(row["first"])))
        except ray.exceptions.RayError as error:
            told = [line for line in str(error).strip().split("\n") if line.strip()]
            raise EngineError(
                f"Ray could not go on: {told[-1] if told else type(error).__name__}", "its log has the rest"
            ) from error
        return results

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        import ray

        if self.owned:
            ray.shutdown()


def _completion(row: dict[str, Any]) -> Completion:
    return Completion(**{**row, "ids": tuple(row["ids"]), "log_probs": tuple(row["log_probs"])})


def read_options(environment: Mapping[str, str]) -> Options:
    """What R1PIPE_RAY says.

    Raises:
        EngineError: no JSON object, or unknown names.
    """
    text = environment.get(OPTIONS, "").strip() or "{}"
    known = [field.name for field in fields(Options)]
    try:
        given = json.loads(text)
    except ValueError as error:
        raise EngineError(f"{OPTIONS} is no JSON: {error}: {text[:80]!r}", 'e.g. {"workers": 8, "gpus": 1}') from error
    if not isinstance(given, dict) or not given.keys() <= set(known):
        raise EngineError(f"{OPTIONS} is {text[:80]!r}; it is an object of {', '.join(known)}", 'e.g. {"workers": 8, "gpus": 1}')
    return Options(**given)


def connect(environment: Mapping[str, str]) -> bool:
    """Join the cluster that the environment names, or start one of this machine; returns whether it was started here.

    Raises:
        EngineError: nobody answers at the address.
    """
    import ray

    if ray.is_initialized():
        return False
    address = environment.get(ADDRESS, "").strip()
    passed = {name: environment[name] for name in environment if name in PASSED_ON or name.startswith("VLLM_")}
    common: dict[str, Any] = {"runtime_env": {"env_vars": passed}, "logging_level": "warning", "log_to_driver": True}
    if not address:
        ray.init(address="local", include_dashboard=False, object_store_memory=LOCAL_STORE, **common)
        return True
    try:
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        if colon:
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray itself would try for minutes
        ray.init(address=address, **common)
    except (OSError, RuntimeError, ValueError) as error:
        told = str(error).strip().split("\n")[0]
        raise EngineError(
            f"no Ray cluster answers at {ADDRESS}={address}: {told}", "`ray status` shows whether it runs"
        ) from error
    return True


def open_workers(name: str, model: Path | str, system: str, batch: int | None, dtype: str) -> RayEngine:
    """Workers that hold the engine of that name."""
    import ray.data  # noqa: F401  (so that a missing part of Ray shows here)

    options = read_options(os.environ)
    owned = connect(os.environ)
    return RayEngine(name, Path(model).absolute(), system, batch, dtype, options, owned)


def open_engine(model: Path | str, *, system: str, batch: int | None, dtype: str) -> RayEngine:
    """Workers that hold vLLM."""
    return open_workers("vllm", model, system, batch, dtype)


def open_transformers(model: Path | str, *, system: str, batch: int | None, dtype: str) -> RayEngine:
    """Workers that hold a transformers model."""
    return open_workers("transformers", model, system, batch, dtype)
