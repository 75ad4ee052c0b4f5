"""`r1pipe report --serve`: the report on this machine's own address, made anew while the run goes on.

Only this machine can reach it: it listens on the loopback address, and answers requests only that name it so (a page elsewhere
that points a name of its own at this address gets nothing). It reads the run and changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from r1pipe.errors import R1PipeError, StateError
from r1pipe.opening import open_run
from r1pipe.report.build import build

ADDRESS = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost")
PATIENCE = 10.0
"""Seconds that a page stays as it is although the run has news: making one takes a second or more."""


@dataclass(slots=True)
class Pages:
    """The page of a run, made when somebody asks for it and there is news.

    Attributes:
        run: folder of the run; other: of the one that it is compared with.
        clock: seconds that only go forward.
    """

    run: Path
    other: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _version: str = ""
    _since: float = float("-inf")
    _made: tuple[str, bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def version(self) -> str:
        """Changes when the page would: at most once in `PATIENCE` seconds."""
        with self._lock:
            return self._current()

    def page(self) -> bytes:
        """The page as it is now.

        Raises:
            R1PipeError: the run cannot be read just now.
        """
        with self._lock:
            version = self._current()
            if self._made is None or self._made[0] != version:
                other = open_run(os.fspath(self.other)) if self.other is not None else None
                text = build(open_run(os.fspath(self.run)), other, live=True)
                self._made = (version, text.encode())
            return self._made[1]

    def _current(self) -> str:
        if self.clock() - self._since >= PATIENCE:
            found = state_of([self.run, *([self.other] if self.other is not None else [])])
            if found != self._version:
                self._version, self._since = found, self.clock()
        return self._version


def state_of(runs: Sequence[Path]) -> str:
    """A short text that changes when something that the page shows does: sizes and times of records and metrics."""
    digest = hashlib.sha256()
    for run in runs:
        for pattern in ("recipe.toml", "*/manifest.json", "*/*/manifest.json", "*/metrics*.jsonl", "*/*/metrics*.jsonl"):
            for path in sorted(run.glob(pattern)):
                stat = path.stat()
                digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


class Handler(BaseHTTPRequestHandler):
    """Answers for one server; `pages` is set on the server."""

    server_version = "r1pipe"
    sys_version = ""

    def do_GET(self) -> None:
        """The page, and its version."""
        server = self.server
        assert isinstance(server, Server)
        if (self.headers.get("Host") or "").rpartition(":")[0] not in OWN_NAMES:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"this page is for this machine only\n")
            return
        path = urlsplit(self.path).path
        try:
            if path == "/":
                self._answer(HTTPStatus.OK, "text/html", server.pages.page())
            elif path == "/version":
                self._answer(HTTPStatus.OK, "text/plain", server.pages.version().encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is only the report, at /\n")
        except (R1PipeError, FileNotFoundError) as error:  # a step may be replaced while it is read
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n".encode("utf-8", "backslashreplace"))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: requests come every few seconds."""


class Server(ThreadingHTTPServer):
    """A server on the loopback address."""

    daemon_threads = True

    def __init__(self, port: int, pages: Pages) -> None:
        super().__init__((ADDRESS, port), Handler)
        self.pages = pages

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{ADDRESS}:{self.server_port}/"


def open_server(port: int, pages: Pages) -> Server:
    """A server that is ready; `serve_forever` runs it.

    Args:
        port: 0 takes any that is free.

    Raises:
        StateError: the port is taken.
    """
    try:
        return Server(port, pages)
    except OSError as error:
        raise StateError(f"port {port} of this machine cannot be used: {error.strerror}", "choose another with --port") from error
