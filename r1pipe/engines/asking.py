"""Asking a server over HTTP: what may pass is tried again, what concerns one request is told from what concerns all."""

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

from r1pipe.errors import EngineError

Answer = TypeVar("Answer")

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses that may pass."""
OF_ONE_REQUEST = frozenset({400, 413, 422})
"""Statuses that say something of the request, and nothing of the next one."""
RETRIES, FIRST_PAUSE = 6, 1.0
"""How often a request is tried again, and the seconds before the first time; they double from there."""
LONGEST_PAUSE = 60.0
LONGEST_WISH = 600.0
"""Seconds: longest pause of our own, and the longest that a server may ask for."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer without a completion: why, whether it may pass, whether it concerns this request only, the pause asked for, and
    whether nobody listens there at all."""

    why: str
    passing: bool
    alone: bool
    pause: float | None = None
    nobody: bool = False


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
    retries: int = RETRIES
    first_pause: float = FIRST_PAUSE
    timeout: float = 900.0
    check: str = "check the address"

    def ask(self, path: str, body: Mapping[str, Any], read: Callable[[bytes], Answer | Refused]) -> Answer | Refused:
        """The answer to one request as `read` reads it, tried as often as allowed; Refused when it concerns this request (not
        passing), or was given up (passing).

        Raises:
            EngineError: a failure that concerns every request.
        """
        pause, why, nobody = self.first_pause, "", False
        for attempt in range(self.retries + 1):
            answer = self._post(path, body, read)
            if not isinstance(answer, Refused):
                return answer
            if not answer.passing:
                if answer.alone:
                    return answer
                raise EngineError(f"{self.url}: {answer.why}", self.check)
            why, nobody = answer.why, answer.nobody
            if attempt < self.retries:
                # spread, so that clients do not come back together; not from the generator that training draws from
                own = min(pause, LONGEST_PAUSE) * random.Random().uniform(0.5, 1.0)
                time.sleep(own if answer.pause is None else min(answer.pause, LONGEST_WISH))
                pause *= 2
        return Refused(f"{why}, after {self.retries} retries", True, True, nobody=nobody)

    def _post(self, path: str, body: Mapping[str, Any], read: Callable[[bytes], Answer | Refused]) -> Answer | Refused:
        """Send one request and read the answer."""
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers(self.key))
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
            reason = getattr(error, "reason", None) or error
            nobody = isinstance(reason, ConnectionRefusedError)
            return Refused(f"no answer ({reason or type(error).__name__})", True, True, nobody=nobody)


def headers(key: str) -> dict[str, str]:
    """What every request carries."""
    return {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}


def wished_pause(header: str | None) -> float | None:
    """Seconds of a Retry-After header; None without one, or where it gives a date."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
