"""The sandbox for programs that a model wrote, seen from the host: starts servers, gives them jobs, and ends them.

A server is Python under bubblewrap (`sandbox_server`): no network, nothing of the host's files but the interpreter and the system
libraries, read-only; nothing of the host's processes or environment. It runs one attempt's tests at a time; a pool keeps as many
servers as there are jobs at once. What is enforced, and how, is in docs/sandbox.md.

Where namespaces cannot be had, nothing runs: the jobs come back as "sandbox error", unjudged, with what is missing. Only the
mode "none" runs programs without isolation, and whoever sets it lets the model's programs do whatever this user can do on this
machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import IO, Any, Literal, cast

from r1pipe.rewards.sandbox_command import SandboxError, SandboxMode, explain, server_command
from r1pipe.rewards.sandbox_wire import Unpacker, WireError, pack

Outcome = Literal[
    "passed", "compile error", "wrong answer", "time", "memory", "runtime error", "output limit", "sandbox error"
]  # fmt: skip
DANGER = (
    'sandbox = "none": programs written by the model run as you, with your files, your network and your keys in reach.'
    " A model under training writes anything. Do this only on a machine that you would throw away."
)
"""What the user is told before anything runs without isolation."""
_START_SECONDS = 60.0
_GRACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Attributes:
        cpu_seconds: processor time for one test, all its processes together.
        wall_seconds: time on the clock for one test, sleeping included, less the time that the program waited for a processor.
        total_seconds: time on the clock for all tests of one attempt.
        memory_bytes: resident memory of all processes of a program together.
        processes: processes and threads of a program.
        file_bytes: the longest file; all files together may have four times as many.
        open_files: files open in one process.
        output_bytes: what a program may print in one test.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float = 20.0
    total_seconds: float = 120.0
    memory_bytes: int = 512 * 2**20
    processes: int = 32
    file_bytes: int = 16 * 2**20
    open_files: int = 128
    output_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What became of a program.

    Attributes:
        outcome: "passed", or why not; "sandbox error" says nothing about the program and is never counted against it.
        note: the test and the reason, in a few words.
        passed: tests passed before the first failure.
        seconds: time on the clock.
    """

    outcome: Outcome
    note: str
    passed: int = 0
    seconds: float = 0.0


class SandboxServer:
    """One running server. Not for two threads at once."""

    def __init__(self, mode: SandboxMode, limits: Limits) -> None:
        self.mode, self.limits = mode, limits
        self.folder = tempfile.mkdtemp(prefix="r1pipe-") if mode == "none" else ""
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the server)
        self.control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            command, environment = server_command(mode, asdict(limits), inside.fileno(), self.folder)
            start = partial(_start, command, environment, inside.fileno(), self.errors)
            self.process = _starter(os.getpid()).submit(start).result()
        except OSError as error:
            raise SandboxError(f"{error.filename}: {error.strerror}") from error
        finally:
            inside.close()
        status = self._word(_START_SECONDS)
        if "error" in status:
            self.close()
            raise SandboxError(explain(str(status["error"])))

    def run(self, job: dict[str, Any]) -> CodeResult:
        """Run one job to its verdict. Raises SandboxError when this server is no longer usable."""
        started = time.monotonic()
        token = os.urandom(16).hex()
        ours, theirs = socket.socketpair()
        with ours:
            try:
                socket.send_fds(self.control, [b"job"], [theirs.fileno()])
            except OSError as error:
                raise SandboxError(f"the sandbox has ended: {error.strerror}") from error
            finally:
                theirs.close()
            answer = _exchange(ours, {**job, "token": token}, self.limits.total_seconds + _GRACE_SECONDS)
        status = self._word(_GRACE_SECONDS if answer is not None else 2 * _GRACE_SECONDS)
        if "error" in status:
            raise SandboxError(str(status["error"]))
        seconds = time.monotonic() - started
        if answer is None:
            ended = status.get("tester", 0)
            if ended in (-signal.SIGALRM, -signal.SIGKILL, -signal.SIGXCPU):
                return CodeResult("time", f"the tests were not over after {self.limits.total_seconds:g} s", 0, seconds)
            return CodeResult("sandbox error", f"the tests ended with {ended}", 0, seconds)
        outcome, passed = cast(Outcome, answer["outcome"]), int(answer["passed"])
        if outcome == "passed" and answer.get("token") != token:
            return CodeResult("sandbox error", "a verdict without its token", passed, seconds)
        return CodeResult(outcome, str(answer.get("note", "")), passed, seconds)

    def close(self) -> None:
        """End the server and everything in it."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE_SECONDS if self.mode == "none" else 0.2)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.errors.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _word(self, seconds: float) -> dict[str, Any]:
        """What the server says of itself; an error when it says nothing in time."""
        self.control.settimeout(seconds)
        try:
            message = self.control.recv(4096)
        except TimeoutError:
            return {"error": f"the sandbox said nothing for {seconds:g} s"}
        except OSError as error:
            return {"error": str(error)}
        if message:
            word: dict[str, Any] = json.loads(message)
            return word
        self.process.wait()
        self.errors.seek(0)
        return {"error": self.errors.read().decode("utf-8", "replace").strip()[-600:] or "the sandbox ended without a word"}


class SandboxPool:
    """Servers for several threads: each job takes an idle server or starts one, up to `size`."""

    def __init__(self, mode: SandboxMode = "bubblewrap", limits: Limits | None = None, size: int = 0) -> None:
        if mode not in ("bubblewrap", "none"):
            raise ValueError(f'sandbox "{mode}" is not "bubblewrap" or "none"')
        self.mode, self.limits = mode, limits or Limits()
        self.size = size or max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
        self.slots = threading.BoundedSemaphore(self.size)
        self.idle: list[SandboxServer] = []
        self.lock = threading.Lock()

    def run(self, job: dict[str, Any]) -> CodeResult:
        """One job; a server that breaks is replaced once. Never raises for what a program does."""
        with self.slots:
            reason = ""
            for _ in range(2):
                try:
                    server = self._take()
                except SandboxError as error:
                    return CodeResult("sandbox error", str(error))
                try:
                    result = server.run(job)
                except (SandboxError, WireError) as error:
                    reason = str(error)
                    server.close()
                except BaseException:
                    server.close()
                    raise
                else:
                    with self.lock:
                        self.idle.append(server)
                    return result
            return CodeResult("sandbox error", reason)

    def run_many(self, jobs: list[dict[str, Any]]) -> list[CodeResult]:
        """Jobs at once, results in their order."""
        if len(jobs) <= 1 or self.size == 1:
            return [self.run(job) for job in jobs]
        with ThreadPoolExecutor(min(self.size, len(jobs)), thread_name_prefix="sandbox") as threads:
            return list(threads.map(self.run, jobs))

    def close(self) -> None:
        """End all idle servers."""
        with self.lock:
            servers, self.idle = self.idle, []
        for server in servers:
            server.close()

    def _take(self) -> SandboxServer:
        with self.lock:
            if self.idle:
                return self.idle.pop()
        return SandboxServer(self.mode, self.limits)


def missing_for_isolation() -> str:
    """What is missing for the sandbox on this machine, in words; empty when a sandbox has been started and works."""
    try:
        SandboxServer("bubblewrap", Limits()).close()
    except SandboxError as error:
        return str(error)
    return ""


def _start(command: list[str], environment: dict[str, str], control: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command, env=environment, stdin=null, stdout=null, stderr=errors, pass_fds=[control], start_new_session=True, cwd="/"
    )


@lru_cache(maxsize=1)
def _starter(process: int) -> ThreadPoolExecutor:
    """The thread of this process that starts servers. They end with their parent, for the kernel a thread: so one that stays."""
    return ThreadPoolExecutor(1, thread_name_prefix="sandbox-starter")


def _exchange(job: socket.socket, message: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    """Send a job and wait for its verdict; None when there is none."""
    deadline = time.monotonic() + seconds
    unpacker = Unpacker()
    try:
        job.settimeout(seconds)
        job.sendall(pack(message))
        while True:
            job.settimeout(max(0.01, deadline - time.monotonic()))
            data = job.recv(65536)
            if not data:
                return None
            for answer in unpacker.feed(data):
                return answer if isinstance(answer, dict) else None
    except (OSError, WireError):
        return None
