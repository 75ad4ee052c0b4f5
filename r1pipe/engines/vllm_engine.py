"""vLLM in this process.

What vLLM is built with stands in the environment, under the names that vLLM reads, and in `R1PIPE_VLLM` (JSON, arguments of
`vllm.LLM`, e.g. `{"tensor_parallel_size": 8}`): none of it changes what is asked for. Set them in `[launch] env`; what is not set
is chosen here. On a processor: float32 unless the launch says otherwise, no compiling, one process, a cache of a gibibyte (unset,
vLLM takes 15 GB for a model of a megabyte), and the threads of the launch.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from r1pipe.engines.base import Completion, Sampling
from r1pipe.engines.codec import Codec, open_codec
from r1pipe.engines.needs import check_vllm
from r1pipe.engines.text import pick_dtype
from r1pipe.errors import EngineError

OPTIONS = "R1PIPE_VLLM"
QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
ON_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a second process would import everything once more
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # OMP_NUM_THREADS, which the launch sets, counts
    "TORCHDYNAMO_DISABLE": "1",  # together with enforce_eager: compiling takes longer than it saves
}
BATCH = 256
"""Sequences at once when the launch says nothing."""
_open: list[Any] = []
_closed: list[Any] = []
"""Engines of this process in use, and those closed: they share vLLM's record of devices, which one that ends takes along."""


class VllmEngine:
    """A model in vLLM; `fits` tokens of a sequence fit into its cache."""

    def __init__(self, llm: Any, codec: Codec, fits: int) -> None:
        self.llm = llm
        self.codec = codec
        self.fits = fits
        self.prefix = codec.prefix
        _open.append(llm)

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """See `Engine.generate`. All questions are handed over at once; vLLM keeps its batch full.

        Raises:
            EngineError: the cache is too small for what is asked.
        """
        from vllm import SamplingParams

        jobs, results = self.codec.jobs(questions, sampling)
        longest = max((len(job.prompt) + job.most for job in jobs), default=0)
        if longest > self.fits:
            raise EngineError(
                f"prompt and completion may come to {longest:,} tokens and vLLM's cache holds {self.fits:,}",
                f"give it memory (VLLM_CPU_KVCACHE_SPACE in GiB on a processor, gpu_memory_utilization in {OPTIONS} on a GPU), "
                "or lower max_tokens",
            )
        asked = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=job.most,
                seed=job.seed,
                stop=list(sampling.stop) or None,
                stop_token_ids=list(self.codec.ends),
                logprobs=0 if sampling.log_probs else None,  # of the chosen token alone
                detokenize=bool(sampling.stop),
            )
            for job in jobs
        ]
        made = self.llm.generate([{"prompt_token_ids": job.prompt} for job in jobs], asked, use_tqdm=False) if jobs else []
        for job, output in zip(jobs, made, strict=True):
            results.setdefault(job.question, []).append(self._completion(output.outputs[0], sampling))
        yield from (results[place] for place in range(len(questions)))

    def _completion(self, output: Any, sampling: Sampling) -> Completion:
        if output.finish_reason not in ("stop", "length"):
            return Completion("", len(output.token_ids), "error", f"vLLM ended it with {output.finish_reason!r}")
        ids = list(output.token_ids)
        log_probs = [found[token].logprob for token, found in zip(ids, output.logprobs or (), strict=False)]
        return self.codec.completion(ids, log_probs, output.finish_reason == "stop", sampling.stop)

    def close(self) -> None:
        """End the engine and give its memory back; one that runs within this process ends with the last of them."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        _open.remove(self.llm)
        _closed.append(self.llm)
        del self.llm
        if _open and os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0":
            return
        while _closed:
            _closed.pop().llm_engine.engine_core.shutdown()
        gc.collect()
        if not _open:
            cleanup_dist_env_and_memory()


def prepare_environment(environment: MutableMapping[str, str], on_cpu: bool) -> None:
    """Set what vLLM reads before it is imported, where the user has set nothing."""
    for name, value in {**QUIET, **(ON_CPU if on_cpu else {})}.items():
        environment.setdefault(name, value)


def engine_arguments(environment: Mapping[str, str], on_cpu: bool, batch: int | None, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `vllm.LLM`: ours, then the user's.

    Raises:
        EngineError: R1PIPE_VLLM is no JSON object.
    """
    ours = {
        "dtype": str(dtype).removeprefix("torch."),
        "max_num_seqs": batch or BATCH,
        "max_model_len": -1,  # as long as the model goes and the cache holds
        "enforce_eager": on_cpu,
        "disable_log_stats": True,
        "seed": 0,  # every completion has a seed of its own
    }
    if on_cpu:
        # A prompt read in parts makes vLLM wind the completion's random state back, which a processor's has no way to do.
        ours["enable_chunked_prefill"] = False
    text = environment.get(OPTIONS, "").strip() or "{}"
    try:
        given = json.loads(text)
    except ValueError as error:
        raise EngineError(f"{OPTIONS} is no JSON: {error}: {text[:80]!r}", 'e.g. {"tensor_parallel_size": 8}') from error
    if not isinstance(given, dict):
        raise EngineError(f"{OPTIONS} is {text[:80]!r}, and not an object", 'e.g. {"tensor_parallel_size": 8}')
    return {**ours, **given}


def open_engine(model: Path | str, *, system: str, batch: int | None, dtype: str) -> VllmEngine:
    """Load a model folder.

    Raises:
        EngineError: vLLM is not there, has another version, or could not start.
    """
    check_vllm()
    on_cpu = not torch.cuda.is_available()
    prepare_environment(os.environ, on_cpu)
    arguments = engine_arguments(os.environ, on_cpu, batch, pick_dtype(dtype))
    codec = open_codec(Path(model), system)
    from vllm import LLM

    try:
        llm = LLM(model=os.fspath(model), **arguments)
    except (ValueError, RuntimeError, TypeError) as error:
        told = str(error).strip().split("\n")[0]
        raise EngineError(
            f"vLLM could not load {model}: {told}",
            f"its settings stand in VLLM_… and {OPTIONS} ([launch] env); the step's log has the rest",
        ) from error
    settings = llm.llm_engine.model_config
    positions = getattr(settings.hf_text_config, "max_position_embeddings", None) or settings.max_model_len
    return VllmEngine(llm, replace(codec, positions=int(positions)), int(settings.max_model_len))
