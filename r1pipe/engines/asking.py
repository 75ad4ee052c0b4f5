"""Asking a scoring server over HTTP, as patiently as the engine over HTTP does: see `r1pipe.engines.openai_engine`."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from r1pipe.engines.openai_engine import LONGEST_PAUSE, LONGEST_WISH, OF_ONE_REQUEST, PASSING, Refused, wished_pause
from r1pipe.errors import EngineError

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Client:
    """How a server is asked.

    Attributes:
        url: its address, without a slash at its end.
        key: sent as a bearer token; empty for none.
        retries: how often a request is tried again.
        first_pause: seconds before the first retry; it doubles from there.
        timeout: seconds without a byte after which a connection counts as lost.
        check: what to look at when the server turns everything down.
    """

    url: str
    key: str = ""
    retries: int = 6
    first_pause: float = 1.0
    timeout: float = 900.0
    check: str = "check the address"

    def ask(self, path: str, body: Mapping[str, Any], read: Callable[[bytes], Answer | Refused]) -> Answer | Refused:
        """The answer to one request as `read` reads it, tried as often as allowed; Refused when it concerns this request (not
        passing), or was given up (passing).

        Raises:
            EngineError: a failure that concerns every request.
        """
        pause, why = self.first_pause, ""
        for attempt in range(self.retries + 1):
            answer = self._post(path, body, read)
            if not isinstance(answer, Refused):
                return answer
            if not answer.passing:
                if answer.alone:
                    return answer
                raise EngineError(f"{self.url}: {answer.why}", self.check)
            why = answer.why
            if attempt < self.retries:
                # spread, so that clients do not come back together; not from the generator that training draws from
                own = min(pause, LONGEST_PAUSE) * random.Random().uniform(0.5, 1.0)
                time.sleep(own if answer.pause is None else min(answer.pause, LONGEST_WISH))
                pause *= 2
        return Refused(f"{why}, after {self.retries} retries", True, True)

    def _post(self, path: str, body: Mapping[str, Any], read: Callable[[bytes], Answer | Refused]) -> Answer | Refused:
        """Send one request and read the answer."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return read(response.read())
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(2000).decode("utf-8", "replace").strip()
            why = f"status {error.code}{': ' + told[:200] if told else ''}"
            return Refused(
                why, error.code in PASSING, error.code in OF_ONE_REQUEST, wished_pause(error.headers.get("Retry-After"))
            )
        except (OSError, http.client.HTTPException) as error:  # URLError, a reset, a time limit, an answer that breaks off
            return Refused(f"no answer ({getattr(error, 'reason', None) or error or type(error).__name__})", True, True)
