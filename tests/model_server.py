"""A model behind the OpenAI protocol for tests: the small server with a transformers engine inside, and vLLM's own server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from openai_server import serving

VLLM_SERVER = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip


@contextmanager
def small_server(model: Path) -> Iterator[str]:
    """URL of a server that answers with the model, says that it is vLLM, and refuses what is too long as vLLM does."""
    from r1pipe.engines.base import Sampling
    from r1pipe.engines.transformers_engine import open_engine

    engine = open_engine(model, system="", batch=8, dtype="float32")
    one_at_a_time = threading.Lock()

    def answer(body: dict[str, Any], number: int) -> Any:
        sampling = Sampling(
            1, body["temperature"], body["top_p"], body["max_tokens"], body["seed"], tuple(body.get("stop", ())),
            bool(body.get("logprobs")),
        )  # fmt: skip
        with one_at_a_time:
            (made,) = next(iter(engine.generate([body["messages"][-1]["content"]], sampling)))
        if made.finish == "error":
            return 400, json.dumps({"message": made.note}), {}
        content = [{"token": "", "logprob": value} for value in made.log_probs]
        choice = {
            "index": 0, "message": {"role": "assistant", "content": made.text}, "finish_reason": made.finish,
            "logprobs": {"content": content} if body.get("logprobs") else None,
            **({"token_ids": list(made.ids)} if body.get("return_token_ids") else {}),
        }  # fmt: skip
        return 200, json.dumps({"choices": [choice], "usage": {"completion_tokens": made.tokens}}), {}

    models = json.dumps({"data": [{"id": "nano", "owned_by": "vllm"}]})
    with serving(answer, pages={"/v1/models": models}) as served:
        yield served.url


@contextmanager
def vllm_server(model: Path, name: str, log: Path) -> Iterator[str]:
    """URL of vLLM's own server, started as a process and ended with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", name,
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "64",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **VLLM_SERVER}, start_new_session=True
        )
        try:
            deadline = time.monotonic() + 240
            while True:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"vLLM's server did not start:\n{log.read_text()[-3000:]}")
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
