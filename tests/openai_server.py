"""A small real HTTP server that speaks the OpenAI protocol; what it answers is a function of the request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | tuple[int, str, dict[str, str]]
"""A completion's text, or (status, body, headers)."""


@dataclass
class Served:
    """What the server saw: bodies and headers in the order of arrival, and how many requests were open at once at most."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def completion(text: str, finish: str = "stop", **message: Any) -> str:
    """The body of a good answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": len(text.split())}})


@contextmanager
def serving(
    answer: Callable[[dict[str, Any], int], Answer], hold: float = 0.0, pages: dict[str, str] | None = None
) -> Iterator[Served]:
    """Serve until the block ends. `answer` gets the request's body and its number; `hold` seconds pass before it is sent.
    `pages` are what GET finds, by path."""
    seen = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with seen.lock:
                number = len(seen.bodies)
                seen.bodies.append(body)
                seen.headers.append({**dict(self.headers), "path": self.path})
                seen.open += 1
                seen.most_open = max(seen.most_open, seen.open)
            time.sleep(hold)
            made = answer(body, number)
            status, text, headers = made if isinstance(made, tuple) else (200, completion(made), {})
            with seen.lock:
                seen.open -= 1
            payload = text.encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(payload)), "Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def do_GET(self) -> None:
            payload = (pages or {}).get(self.path, "").encode()
            self.send_response(200 if payload else 404)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *arguments: Any) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
