"""A server that speaks the OpenAI protocol (vLLM, SGLang, llama.cpp, a hosted one) as an engine.

Where the server is does not change what is made, so it stands in the environment under the names that every such client reads:
`OPENAI_BASE_URL` (set it in `[launch] env`) and `OPENAI_API_KEY` (set it in the shell: a recipe is copied and published). The
server renders prompts with its own chat template, and ends a completion at its model's end tokens.

Every completion is a request with a seed of its own. Log-probabilities are asked for when they are wanted; token ids are a
vLLM server's own addition, and asked for only where a vLLM server answers.

A bounded number of requests is open at a time. What may pass (429, 5xx, a lost connection) is tried again after a pause that
doubles, or after what the server asks for; what concerns one request only (too long, refused) becomes a completion with finish
"error" and its reason; what concerns all of them (a wrong key, an unknown model, nobody there) stops with an error.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from r1pipe.data.chat import join_response, messages
from r1pipe.engines.asking import FIRST_PAUSE, RETRIES, Client, Refused, headers
from r1pipe.engines.base import Completion, Sampling, completion_seed, failed, unusable
from r1pipe.errors import EngineError

URL, KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
AT_ONCE = 8
"""Requests that are open at a time when the launch says nothing."""


def server_url(environment: Mapping[str, str]) -> str:
    """Base URL of the server, without a slash at its end.

    Raises:
        EngineError: none is named, or it is no URL.
    """
    url = environment.get(URL, "").strip().rstrip("/")
    if not url:
        raise EngineError(
            f"the engine 'openai' needs a server and {URL} is not set",
            f'set it where the step is launched: [launch] env = {{ {URL} = "http://localhost:8000/v1" }}',
        )
    if not url.startswith(("http://", "https://")):
        raise EngineError(f"{URL} is {url!r}, which is no http:// or https:// address", "e.g. http://localhost:8000/v1")
    return url


@dataclass(frozen=True)
class OpenAiEngine:
    """A model on a server.

    Attributes:
        url: base URL, e.g. "http://localhost:8000/v1".
        model: the name under which it is served.
        key: sent as a bearer token; empty for none.
        system: system text of every prompt.
        at_once: requests that are open at a time.
        retries: how often a request is tried again.
        first_pause: seconds before the first retry; it doubles from there.
        timeout: seconds without a byte after which a connection counts as lost.
    """

    url: str
    model: str
    key: str = ""
    system: str = ""
    at_once: int = AT_ONCE
    retries: int = RETRIES
    first_pause: float = FIRST_PAUSE
    timeout: float = 900.0
    prefix: str = ""

    def generate(self, questions: Sequence[str], sampling: Sampling) -> Iterator[list[Completion]]:
        """See `Engine.generate`. A request that fails for good is a completion with finish "error".

        Raises:
            EngineError: a failure that concerns every request, nobody listens any more, or all of them were tried as often as
                allowed and given up.
        """
        bad = {place: why for place, question in enumerate(questions) if (why := unusable(question))}
        ids = sampling.log_probs and len(bad) < len(questions) and self._is_vllm()
        with ThreadPoolExecutor(max_workers=self.at_once) as pool:
            futures = {
                place: [
                    pool.submit(self._complete, question, sampling, completion_seed(sampling, place, one), ids)
                    for one in range(sampling.samples)
                ]
                for place, question in enumerate(questions)
                if place not in bad
            }
            try:
                results = {place: [future.result() for future in several] for place, several in futures.items()}
            except BaseException:
                _cancel(list(futures.values()))
                raise
        gone = [one for several in results.values() for one, gave_up in several if gave_up]
        if gone and len(gone) == len(results) * sampling.samples:
            raise EngineError(
                f"{self.url} answered none of {len(gone)} requests; the first: {gone[0].note}",
                "look at the server's log, then `r1pipe resume`",
            )
        for place in range(len(questions)):
            yield failed(bad[place], sampling.samples) if place in bad else [one for one, _ in results[place]]

    def close(self) -> None:
        """Nothing is held between requests."""

    def _is_vllm(self) -> bool:
        """Whether the server says that it is vLLM, which gives token ids."""
        request = urllib.request.Request(f"{self.url}/models", headers=headers(self.key))
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return any(model.get("owned_by") == "vllm" for model in json.loads(response.read())["data"])
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
            return False  # a server without this page is another one; whether it answers shows with the first request

    def _complete(self, question: str, sampling: Sampling, seed: int, ids: bool) -> tuple[Completion, bool]:
        """One completion, tried as often as allowed, and whether that was given up."""
        body = {
            "model": self.model, "messages": messages(question, self.system), "temperature": sampling.temperature,
            "top_p": sampling.top_p, "max_tokens": sampling.max_tokens, "seed": seed, "stream": False,
            **({"stop": list(sampling.stop)} if sampling.stop else {}), **({"logprobs": True} if sampling.log_probs else {}),
            **({"return_token_ids": True} if ids else {}),
        }  # fmt: skip
        hint = f"check {URL}, {KEY} and the model's name"
        client = Client(self.url, self.key, self.retries, self.first_pause, self.timeout, hint)
        answer = client.ask("/chat/completions", body, read_completion)
        if isinstance(answer, Completion):
            return answer, False
        if answer.nobody:  # that says nothing of this request: one more of them left out would be lost for good
            raise EngineError(f"{self.url}: {answer.why}", "start the server, then `r1pipe resume`")
        return Completion("", 0, "error", answer.why), answer.passing


def _cancel(futures: Sequence[Sequence[Future[tuple[Completion, bool]]]]) -> None:
    for several in futures:
        for future in several:
            future.cancel()


def read_completion(answer: bytes) -> Completion | Refused:
    """The completion in a server's answer; thinking that the server has split off is put back in tags."""
    try:
        data = json.loads(answer)
        choice = data["choices"][0]
        message = choice["message"]
        text, finish = message.get("content") or "", choice.get("finish_reason")
        thinking = message.get("reasoning_content") or message.get("reasoning") or ""
        tokens = int((data.get("usage") or {}).get("completion_tokens") or 0)
        ids = tuple(int(token) for token in choice.get("token_ids") or ())
        log_probs = tuple(float(one["logprob"]) for one in (choice.get("logprobs") or {}).get("content") or ())
        if not isinstance(text, str) or not isinstance(thinking, str):
            raise TypeError("content is no text")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Refused(f"an answer that is no completion ({type(error).__name__}: {answer[:120]!r})", True, True)
    if finish not in ("stop", "length"):
        return Completion("", tokens, "error", f"the server ended it with {finish!r}")
    return Completion(join_response(thinking, text) if thinking else text, tokens, finish, ids=ids, log_probs=log_probs)


def open_engine(model: Path | str, *, system: str, batch: int | None, dtype: str) -> OpenAiEngine:
    """The model of that name on the server that the environment names; `dtype` is the server's affair."""
    return OpenAiEngine(server_url(os.environ), str(model), os.environ.get(KEY, ""), system=system, at_once=batch or AT_ONCE)
