"""Runs a program under test, in a process that nothing else is in.

In the mode "stdio" the program is a script with its own standard input and output. In the mode "serve" it is loaded as a
module, and this process then answers what the tests ask: call a function, read an attribute, convert. It never sees the tests.
Runs in the sandbox."""

from __future__ import annotations

import atexit
import builtins
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from r1pipe.rewards.sandbox_wire import Unpacker, decode, encode, pack

FILENAME = "program.py"
COMPILE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
EXIT_ERROR, EXIT_MEMORY, EXIT_COMPILE = 1, 86, 87
"""Exit codes of a script: an exception, out of memory, does not compile."""
_MAIN = "__main__"


def last_line(error: BaseException) -> str:
    """An exception in one line, with the place in the program."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    line = next((frame.lineno for frame in frames if frame.filename == FILENAME), None)
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)[:200]
        line = error.lineno if isinstance(error, SyntaxError) else line
    except BaseException:  # the program's own exception may do anything in __str__
        text = ""
    return f"{type(error).__name__}{': ' + text if text else ''}{f' (line {line})' if line else ''}"


def run(mode: str, fd: int) -> int:
    """Run what comes over the socket `fd`; returns the exit code of the process. Standard streams are in place already."""
    channel = Channel(fd)
    source = channel.receive()["source"]
    main = ModuleType(_MAIN)
    main.__dict__["__builtins__"] = builtins
    sys.modules[_MAIN] = main
    sys.argv = [FILENAME]
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8", errors="replace")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", errors="replace")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), encoding="utf-8", errors="replace", line_buffering=True
    )
    sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    try:
        code = compile(source, FILENAME, "exec", dont_inherit=True)
    except COMPILE_ERRORS as error:
        channel.send({"compile": last_line(error)})
        return EXIT_COMPILE
    sys.set_int_max_str_digits(0)  # a right answer may have 10,000 digits; what takes too long meets the time limit
    if mode == "stdio":
        os.close(fd)
        return _script(code, main.__dict__)
    return _serve(code, main.__dict__, channel)


def _script(code: CodeType, namespace: dict[str, Any]) -> int:
    """The program as `python program.py` would run it, to its exit code."""
    result = 0
    try:
        exec(code, namespace)
    except SystemExit as leaving:
        result = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else EXIT_ERROR
    except MemoryError:
        result = EXIT_MEMORY
    except BaseException as error:
        print(last_line(error), file=sys.stderr)
        result = EXIT_ERROR
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does at its end
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException as error:
        print(last_line(error), file=sys.stderr)
        result = result or EXIT_ERROR
    return result


def _serve(code: CodeType, namespace: dict[str, Any], channel: Channel) -> int:
    """Load the program, then answer questions until the other side closes."""
    try:
        exec(code, namespace)
    except MemoryError:
        channel.send({"raised": "MemoryError", "note": "out of memory"})
        return EXIT_MEMORY
    except BaseException as error:
        channel.send({"raised": type(error).__name__, "note": last_line(error)})
        return EXIT_ERROR
    channel.send({"loaded": sorted(name for name in namespace if isinstance(name, str) and not name.startswith("__"))})
    objects: list[Any] = []

    def handle(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        arguments = decode(question["args"], objects.__getitem__)
        keywords = decode(question.get("kwargs", {"d": []}), objects.__getitem__)
        if "name" in question:
            target = namespace[question["name"]]
            if "args" in question and question["ask"] == "get":
                return {"callable": handle(target)} if callable(target) else {"value": encode(target, handle)}
        else:
            target = objects[question["object"]]
        value = ASKED[question["ask"]](target, arguments, keywords)
        reply = {"value": encode(value, handle)}
        if value is None and any(isinstance(argument, (list, dict, set, bytearray)) for argument in arguments):
            reply["args"] = [encode(argument, handle) for argument in arguments]  # what the call did to its arguments
        return reply

    while True:
        question = channel.receive()
        if question is None:
            return 0
        try:
            reply = pack(answer(question))
        except MemoryError:
            reply = pack({"raised": "MemoryError", "note": "out of memory"})
        except BaseException as error:
            reply = pack({"raised": type(error).__name__, "note": last_line(error)})
        channel.send_packed(reply)


ASKED: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "get": lambda target, args, kwargs: target,
    "call": lambda target, args, kwargs: target(*args, **kwargs),
    "attribute": lambda target, args, kwargs: getattr(target, args[0]),
    "item": lambda target, args, kwargs: target[args[0]],
    "iterate": lambda target, args, kwargs: iter(target),
    "length": lambda target, args, kwargs: len(target),
    "string": lambda target, args, kwargs: str(target),
    "equal": lambda target, args, kwargs: bool(target == args[0]),
    "less": lambda target, args, kwargs: bool(target < args[0]),
    "truth": lambda target, args, kwargs: bool(target),
}
"""What the tests may ask of an object of the program."""


class Channel:
    """The program's end of the socket."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.unpacker = Unpacker()
        self.waiting: list[Any] = []

    def receive(self) -> Any:
        """The next message; None when the other side has closed."""
        while not self.waiting:
            data = os.read(self.fd, 65536)
            if not data:
                return None
            self.waiting += self.unpacker.feed(data)
        return self.waiting.pop(0)

    def send(self, message: Any) -> None:
        """Send one message."""
        self.send_packed(pack(message))

    def send_packed(self, data: bytes) -> None:
        """Send a message that is packed already."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
