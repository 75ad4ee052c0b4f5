"""A program under test, from the side of the tests: its process, what it prints, and the eye on its limits.

Runs in the sandbox. At every tick processor time, memory and the number of processes are summed over all that the program has
started, because the kernel's own limits are for each process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from types import CodeType
from typing import Any

from r1pipe.rewards import sandbox_program
from r1pipe.rewards.sandbox_handle import Handle, handle_number, put_back, raised
from r1pipe.rewards.sandbox_kernel import Usage, starved_seconds, usage
from r1pipe.rewards.sandbox_wire import Unpacker, WireError, decode, encode, pack

TICK = 0.05
"""Seconds between two looks at what the program's processes use."""
STDERR_KEPT = 4096
NOT_STARTED = 97
"""The exit code of the first process of a program's namespaces when the program could not be isolated."""


class Stop(Exception):
    """The verdict is known."""

    def __init__(self, outcome: str, note: str) -> None:
        super().__init__(outcome, note)
        self.outcome, self.note = outcome, note


def short_text(text: str) -> str:
    """The text, or its beginning, for a note."""
    return text if len(text) <= 80 else text[:77] + "..."


class Program:
    """A running program and the eye on it; a context manager that ends it."""

    def __init__(self, server: socket.socket, limits: dict[str, Any], source: str, mode: str, text: bytes = b"") -> None:
        self.server, self.limits, self.serving = server, limits, mode == "serve"
        self.output, self.errors = bytearray(), bytearray()
        self.messages: list[Any] = []
        self.unpacker = Unpacker()
        self.names: set[str] = set()
        self.printed = 0
        self.ended: dict[str, Any] = {}
        self.where, self.wall_end, self.cpu_end, self.starved, self.next_look = "loading", 0.0, 0.0, 0.0, 0.0
        self.used = Usage()
        ours, theirs = socket.socketpair()
        self.questions = ours.detach()
        null = os.open("/dev/null", os.O_RDWR)
        self.readers: dict[int, bytearray] = {}
        self.stdin = -1
        files = [null, null, null, theirs.fileno()]
        if not self.serving:
            files[0], self.stdin = os.pipe()
            for place, store in ((1, self.output), (2, self.errors)):
                reader, files[place] = os.pipe()
                self.readers[reader] = store
            os.set_blocking(self.stdin, False)
        self.text = memoryview(text)
        socket.send_fds(server, [mode.encode()], files)
        for file in {null, *files[:3]}:
            os.close(file)
        theirs.close()
        answer = json.loads(server.recv(1024))
        if "started" not in answer:
            raise Stop("sandbox error", f"no process for the program: {answer.get('error')}")
        self.process: int = answer["started"]
        self.start_clock("loading")
        os.set_blocking(self.questions, False)
        self.outbox = memoryview(pack({"source": source}))

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            self.kill()
        for file in (self.questions, self.stdin, *self.readers):
            if file >= 0:
                os.close(file)

    def kill(self) -> None:
        """End the program and all that it started; returns when they are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        self.ended = json.loads(self.server.recv(1024))

    def start_clock(self, where: str) -> None:
        """Time limits count from here."""
        self.where = where
        self.wall_end = time.monotonic() + self.limits["wall_seconds"]
        self.starved = self.used.starved + starved_seconds("self")
        self.cpu_end = self.used.seconds + self.limits["cpu_seconds"]

    def pump(self) -> None:
        """Move bytes for at most a tick and look at the limits."""
        poll = select.poll()
        poll.register(self.server, select.POLLIN)
        if self.questions >= 0:
            poll.register(self.questions, select.POLLIN | (select.POLLOUT if self.outbox else 0))
        if self.stdin >= 0:
            poll.register(self.stdin, select.POLLOUT)
        for reader in self.readers:
            poll.register(reader, select.POLLIN)
        for file, _ in poll.poll(TICK * 1000):
            if file == self.server.fileno():
                self.ended = json.loads(self.server.recv(1024))
            elif file == self.questions:
                self.move_questions()
            elif file == self.stdin:
                self.move_input()
            else:
                self.move_output(file)
        self.look()

    def move_questions(self) -> None:
        """Bytes to and from the program's process."""
        try:
            if self.outbox:
                self.outbox = self.outbox[os.write(self.questions, self.outbox) :]
            data = os.read(self.questions, 1 << 16)
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            data = b""
        if data:
            self.messages += self.unpacker.feed(data)
        else:
            os.close(self.questions)
            self.questions = -1

    def move_input(self) -> None:
        """The test's input to the program; closed when all is written or nobody reads."""
        try:
            if self.text:
                self.text = self.text[os.write(self.stdin, self.text[:65536]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.text = memoryview(b"")
        if not self.text:
            os.close(self.stdin)
            self.stdin = -1

    def move_output(self, reader: int) -> None:
        """What the program printed, up to the limit."""
        data = os.read(reader, 1 << 16)
        store = self.readers[reader]
        if not data:
            os.close(reader)
            del self.readers[reader]
            return
        store += data
        self.printed += len(data)
        if self.printed > self.limits["output_bytes"]:
            raise Stop("output limit", f"{self.where}: more than {self.limits['output_bytes']} bytes of output")
        if store is self.errors:
            del store[:-STDERR_KEPT]

    def look(self) -> None:
        """Raise Stop when a limit is passed."""
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + TICK
        if not self.ended:
            self.used = usage(self.process, self.limits["memory_bytes"])
        starved = self.used.starved + starved_seconds("self")
        if now > self.wall_end + starved - self.starved:
            raise Stop("time", f"{self.where}: not ended after {self.limits['wall_seconds']:g} s")
        if now > self.limits["total_end"]:
            if starved > self.limits["total_seconds"] / 2:
                raise Stop("sandbox error", f"{self.where}: the machine was busy with other things for {starved:.0f} s")
            raise Stop("time", f"{self.where}: the tests were not over after {self.limits['total_seconds']:g} s")
        if self.used.seconds > self.cpu_end:
            raise Stop("time", f"{self.where}: more than {self.limits['cpu_seconds']:g} s of processor time")
        if self.used.memory > self.limits["memory_bytes"]:
            raise Stop("memory", f"{self.where}: {self.used.memory >> 20} MiB, at most {self.limits['memory_bytes'] >> 20}")
        if self.used.processes > self.limits["processes"] + 2:
            most = self.limits["processes"]
            raise Stop("runtime error", f"{self.where}: {self.used.processes - 2} processes, at most {most}")

    def wait_for_end(self) -> None:
        """Until a script has ended and its output is read; raises Stop unless it ended well."""
        while not self.ended or self.readers:
            self.pump()
        self.judge_exit()

    def judge_exit(self) -> None:
        """Raise Stop unless the program ended by itself and well."""
        code, note = self.ended["exit"], self.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        compiled = next((message["compile"] for message in self.messages if "compile" in message), "")
        if code == sandbox_program.EXIT_COMPILE and compiled:
            raise Stop("compile error", compiled)
        if self.ended["cpu"] >= self.cpu_end or code in (128 + signal.SIGXCPU, -signal.SIGXCPU):
            raise Stop("time", f"{self.where}: more than {self.limits['cpu_seconds']:g} s of processor time")
        if code == sandbox_program.EXIT_MEMORY:
            raise Stop("memory", f"{self.where}: out of memory")
        if code == NOT_STARTED:
            raise Stop("sandbox error", "the program's process could not be isolated")
        if code != 0:
            raise Stop("runtime error", f"{self.where}: {short_text(note) or f'exit code {code}'}")

    def receive(self) -> Any:
        """The next message of the program's process; raises Stop if it ends first."""
        while not self.messages:
            if self.ended and self.questions < 0:
                self.judge_exit()
                raise Stop("runtime error", f"{self.where}: the program left before the tests were over")
            self.pump()
        return self.messages.pop(0)

    def load(self) -> None:
        """Wait until the program is loaded; raises Stop if it cannot be."""
        message = self.receive()
        if "compile" in message:
            raise Stop("compile error", str(message["compile"]))
        if "loaded" not in message:
            outcome = "memory" if message.get("raised") == "MemoryError" else "runtime error"
            raise Stop(outcome, f"loading: {short_text(str(message.get('note')))}")
        self.names = {str(name) for name in message["loaded"]}

    def ask(self, question: dict[str, Any], arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        """One question to the program; what it raises is raised here."""
        question["args"] = [encode(argument, handle_number) for argument in arguments]
        question["kwargs"] = {"d": [[key, encode(value, handle_number)] for key, value in (keywords or {}).items()]}
        self.outbox = memoryview(pack(question))
        reply = self.receive()
        if not isinstance(reply, dict):
            raise WireError("not an answer")
        if "raised" in reply:
            raise raised(str(reply["raised"]), str(reply.get("note")))

        def stand_in(number: int) -> Handle:
            return Handle(self, {"object": number})

        if "callable" in reply:
            return stand_in(int(reply["callable"]))
        for argument, after in zip(arguments, reply.get("args", ()), strict=False):
            put_back(argument, decode(after, stand_in))
        return decode(reply["value"], stand_in)

    def get(self, name: str) -> Any:
        """A name of the program: a stand-in for a function or class, a copy of plain data."""
        return self.ask({"ask": "get", "name": name})

    def namespace(self, codes: list[CodeType]) -> dict[str, Any]:
        """The names of the program that the tests use."""
        used: set[str] = set()
        while codes:
            code, *codes = codes
            used.update(code.co_names)
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        return {"__name__": "tests", **{name: self.get(name) for name in sorted(used & self.names)}}
