"""The server inside the sandbox: starts one set of tests at a time, and programs for them, each in namespaces of its own.

    host ── control socket ── server ── tests of one attempt (own process)
                                 └──── first process of new namespaces ── program under test

The server never reads a job. It forks the process that does (`sandbox_tester`), and on its word forks programs from its own
clean memory, so that no program finds tests, expected values or tokens of any job in memory. Python is started once, modules
that programs often use are loaded once, and a program starts in the time of two forks. Around every program: a new user,
process, mount and IPC namespace (the network namespace of the sandbox has no interface at all), a private /tmp, an empty /proc,
no capabilities, a system call filter, resource limits. When the program ends, the kernel ends everything in its namespace.

Runs in the sandbox: `python -m r1pipe.rewards.sandbox_server FD SETTINGS`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import select
import signal
import socket
import sys
from typing import Any

from r1pipe.rewards import sandbox_kernel as kernel
from r1pipe.rewards import sandbox_program, sandbox_tester, sandbox_watch

PRELOADED = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions", "functools", "heapq", "itertools", "math",
    "operator", "queue", "random", "re", "statistics", "string", "threading", "typing",
)  # fmt: skip
FATAL = sandbox_watch.NOT_STARTED


class Server:
    """One sandbox: answers the host on the control socket until that closes."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.isolated: bool = settings["isolated"]
        self.limits: dict[str, Any] = settings["limits"]
        self.libc = ctypes.PyDLL(None, use_errno=True)
        self.filter = kernel.filter_program(platform.machine()) if self.isolated else b""
        if not self.isolated:  # bubblewrap sees to it otherwise
            self.libc.prctl(kernel.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if self.isolated and os.getuid() == 0:
            os.setgroups([])
            try:
                os.setresgid(*[settings["group"]] * 3)
                os.setresuid(*[settings["user"]] * 3)
            except OSError:  # a container that maps few ids has this one
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            self.libc.prctl(
                kernel.SET_DUMPABLE, 1, 0, 0, 0
            )  # its own files in /proc, the map of ids among them, are its own again
        self.user, self.group = os.getuid(), os.getgid()
        self.libc.prctl(kernel.SET_SUBREAPER, 1, 0, 0, 0)
        for name in PRELOADED:
            __import__(name)
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Say whether isolation works, then run jobs."""
        status = self.try_isolation()
        self.control.send(json.dumps(status).encode())
        if "error" in status:
            return
        while True:
            message, files, _, _ = socket.recv_fds(self.control, 1024, 1)
            if not message:
                return
            status = self.run_job(files[0])
            self.control.send(json.dumps(status).encode())

    def try_isolation(self) -> dict[str, Any]:
        """Start a program that ends at once."""
        null = os.open("/dev/null", os.O_RDWR)
        ours, theirs = socket.socketpair()
        try:
            process = self.start_program("none", [null, null, null, theirs.fileno()])
            ours.settimeout(10)
            theirs.close()
            word = ours.recv(200).decode()
            os.waitpid(process, 0)
            return (
                {"ready": True, "user": self.user} if word == "isolated" else {"error": word or "the first process ended early"}
            )
        except OSError as error:
            return {"error": f"{error.strerror}: {error.filename or 'new namespaces'}"}
        finally:
            os.close(null)
            ours.close()

    def run_job(self, job: int) -> dict[str, Any]:
        """Fork the tests of one job and serve their requests until they end; nothing of the job is left afterwards."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tester = os.fork()
        if tester == 0:
            self.become_tester(job, theirs, ours)
        os.close(job)
        theirs.close()
        program = 0
        try:
            while True:
                waited = [ours, self.control] + ([os.pidfd_open(program)] if program else [])
                ready, _, _ = select.select(waited, [], [])
                if program:
                    os.close(waited[2])  # type: ignore[arg-type]
                if self.control in ready:
                    os._exit(0)  # the host has gone or says nothing that could be meant during a job
                if program and len(ready) and waited[2] in ready:
                    _, status, usage = os.wait4(program, 0)
                    program = 0
                    self.sweep(tester)
                    report = {"exit": os.waitstatus_to_exitcode(status), "cpu": usage.ru_utime + usage.ru_stime}
                    ours.send(json.dumps(report).encode())
                elif ours in ready:
                    message, files, _, _ = socket.recv_fds(ours, 64, 4)
                    if not message:
                        break
                    try:
                        program = self.start_program(message.decode(), files)
                        answer: dict[str, Any] = {"started": program}
                    except OSError as error:
                        answer = {"error": f"{error.strerror}: {error.filename or 'fork'}"}
                    for file in files:
                        os.close(file)
                    ours.send(json.dumps(answer).encode())
        except OSError:  # the tester ended in the middle of a word
            pass
        finally:
            ours.close()
        _kill(tester)
        _, ended = os.waitpid(tester, 0)
        if program:
            _kill(program)
            os.waitpid(program, 0)
        self.sweep(0)
        return {"tester": os.waitstatus_to_exitcode(ended)}

    def sweep(self, spared: int) -> None:
        """End what a program left behind where there are no namespaces to do it: orphans become children of this process."""
        if self.isolated:
            return
        for _ in range(100):
            left = [child for child in _children(os.getpid()) if child != spared]
            if not left:
                return
            for child in left:
                _kill(child)
                os.waitpid(child, 0)

    def become_tester(self, job: int, ours: socket.socket, theirs: socket.socket) -> None:
        """The forked process that reads the job and judges."""
        code = FATAL
        try:
            theirs.close()
            self.control.close()
            self.libc.prctl(kernel.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            self.libc.prctl(kernel.SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            code = sandbox_tester.main(job, ours, self.limits)
        finally:
            os._exit(code)

    def start_program(self, mode: str, files: list[int]) -> int:
        """The first process of new namespaces, which runs the program as its child. `files`: stdin, stdout, stderr, questions."""
        if not self.isolated:
            first = os.fork()
        else:
            flags = kernel.NEW_USER | kernel.NEW_PROCESSES | kernel.NEW_MOUNTS | kernel.NEW_IPC | signal.SIGCHLD
            first = self.libc.syscall(kernel.NUMBERS[platform.machine()]["clone"], flags, 0, 0, 0, 0)
            if first < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "new namespaces")
        if first:
            return int(first)
        code = FATAL
        try:
            self.libc.prctl(kernel.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            for place, file in enumerate(files):
                os.dup2(file, 200 + place)
            for place in range(4):
                os.dup2(200 + place, place)
            os.closerange(4, 65536)
            if self.isolated:
                kernel.isolate(self.libc, self.user, self.group, self.limits["file_bytes"] * 4)
            code = self.run_program(mode)
        except OSError as error:
            if mode == "none":
                os.write(3, str(error).encode()[:200])
        finally:
            os._exit(code)

    def run_program(self, mode: str) -> int:
        """Fork the program and wait for it, as the first process of its namespace; the exit code, or 128 and the signal.

        `FATAL` only when the program was not started: it says so over a pipe, and an exit code of its own cannot.
        """
        reader, writer = os.pipe()
        program = os.fork()
        if program == 0:
            code = FATAL
            try:
                self.libc.prctl(kernel.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
                os.setsid()
                os.chdir("/tmp" if self.isolated else os.environ["TMPDIR"])
                kernel.limit_resources(self.limits)
                self.libc.prctl(kernel.SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
                if self.filter:
                    kernel.install_filter(self.libc, self.filter)
                os.write(writer, b"1")
                os.closerange(4, 16)
                if mode == "none":
                    os.write(3, b"isolated")
                    os._exit(0)
                code = sandbox_program.run(mode, 3)
            finally:
                os._exit(code & 0xFF)
        os.close(writer)
        os.closerange(0, 4)
        while True:
            process, status = os.wait()
            if process == program:
                code = os.waitstatus_to_exitcode(status)
                if not os.read(reader, 1):
                    return FATAL
                return 128 - code if code < 0 else 1 if code == FATAL else code


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(name))
    return found


def main() -> None:
    """Serve on the socket whose number is the first argument, with the settings of the second."""
    Server(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
