"""Preference scores from a server over HTTP, as a reward: for reward models that do not fit beside the policy.

The protocol is vLLM's `/classify` (`vllm serve MODEL --runner pooling`): the conversation goes there as chat messages, so that
the server's own chat template renders it, and one number comes back; answers in the form of `/pooling` and `/score` are read too.
Nothing
of the training is sent, and where the server is does not change what is made: `url` may be left to the environment
(`R1PIPE_SCORE_URL`, in `[launch] env`), and a key is read from `R1PIPE_SCORE_KEY` only.

A server that is down stops the run at the next rollout, after retries; the last checkpoint is whole. What concerns one answer
only is
unjudged: it keeps its rule rewards. A run that is judged by a server repeats exactly only if the server does.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from r1pipe.data.chat import messages
from r1pipe.data.rows import Attempt, Score
from r1pipe.engines.asking import FIRST_PAUSE, RETRIES, Client, Refused
from r1pipe.errors import EngineError
from r1pipe.rewards.base import CUT
from r1pipe.rewards.preference import PreferenceKind, standardised, to_judge

URL, KEY = "R1PIPE_SCORE_URL", "R1PIPE_SCORE_KEY"


@dataclass(frozen=True, slots=True)
class ScoreServer:
    """A reward model on a server; applies to prompts of its kind only.

    Attributes:
        model: the name under which it is served.
        kind: "helpfulness" sends the summary, "safety" the whole response.
        system: system text of the prompt.
        url: the server's address; empty: `R1PIPE_SCORE_URL` says.
        path: what is asked there.
        output: which of several numbers is the score; a server that gives several is refused without it.
        mean, spread: of the raw scores on answers like these; rewards are in units of the spread.
        max_characters: longer texts are cut at their end before they are sent, and the note says so.
        at_once: requests that are open at a time.
        retries, first_pause, timeout: see `Client`.
    """

    model: str
    kind: PreferenceKind
    system: str = ""
    url: str = ""
    path: str = "/classify"
    output: int | None = None
    mean: float = 0.0
    spread: float = 1.0
    max_characters: int = 24_000
    at_once: int = 8
    retries: int = RETRIES
    first_pause: float = FIRST_PAUSE
    timeout: float = 300.0

    def __post_init__(self) -> None:
        if self.spread <= 0:
            raise ValueError(f"spread is {self.spread}; it must be above 0")
        if self.max_characters < 1:
            raise ValueError(f"max_characters is {self.max_characters}; it must be at least 1")

    def score(self, attempts: Sequence[Attempt]) -> list[Score | None]:
        """Standardised scores; None for prompts of another kind, value None where the server could not judge.

        Raises:
            EngineError: the server turns down every request, or none was answered.
        """
        result, texts = to_judge(attempts, self.kind)
        if not texts:
            return result
        client = self._client()
        with ThreadPoolExecutor(max_workers=self.at_once) as pool:
            answers = list(pool.map(lambda one: self._ask(client, attempts[one[0]].problem.question, one[1]), texts))
        gone = [answer for answer in answers if isinstance(answer, Refused) and answer.passing]
        if len(gone) == len(answers):
            raise EngineError(
                f"{client.url} scored none of {len(answers)} answers; the first: {gone[0].why}",
                "look at the server's log, then `r1pipe resume`",
            )
        for (index, text), answer in zip(texts, answers, strict=True):
            if isinstance(answer, Refused):
                result[index] = Score(None, f"not scored: {answer.why}")
                continue
            cut = f", {CUT} {self.max_characters} characters" if len(text) > self.max_characters else ""
            result[index] = Score(
                standardised(answer, self.mean, self.spread), f"{self.kind} {(answer - self.mean) / self.spread:+.2f}{cut}"
            )
        return result

    def _client(self) -> Client:
        url = (self.url or os.environ.get(URL, "")).strip().rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise EngineError(
                f"the reward 'score-server' needs the server's address and has {url!r}",
                f'set it where the step is launched: [launch] env = {{ {URL} = "http://localhost:8001" }}',
            )
        return Client(
            url,
            os.environ.get(KEY, ""),
            self.retries,
            self.first_pause,
            self.timeout,
            f"check the address, {KEY} and the model's name",
        )

    def _ask(self, client: Client, question: str, text: str) -> float | Refused:
        turns = [*messages(question, self.system), {"role": "assistant", "content": text[: self.max_characters]}]
        body = {"model": self.model, "messages": turns, "add_generation_prompt": False, "use_activation": False}
        return client.ask(self.path, body, self._read)

    def _read(self, answer: bytes) -> float | Refused:
        """The score in an answer: `probs` of /classify (logits, since no activation is asked for), `data` of /pooling,
        `score`."""
        try:
            row: dict[str, Any] = json.loads(answer)["data"][0]
            found: Any = next(row[name] for name in ("probs", "data", "score") if name in row)
            while isinstance(found, list):
                if len(found) > 1 and self.output is None:
                    return Refused(
                        f"the model gives {len(found)} numbers an answer: set output to the one that is the score", False, False
                    )
                found = found[(self.output or 0) if len(found) > 1 else 0]
            value = float(found)
            if not math.isfinite(value):
                raise ValueError("the score is not finite")
        except (ValueError, LookupError, TypeError, StopIteration) as error:
            return Refused(f"an answer without a score ({type(error).__name__}: {answer[:120]!r})", True, True)
        return value
