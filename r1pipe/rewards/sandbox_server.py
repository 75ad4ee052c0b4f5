"""The server inside the sandbox: starts one set of tests at a time, and programs for them, each in namespaces of its own.

    host ── control socket ── server ── tests of one attempt (own process)
                                 └──── first process of new namespaces ── program under test

The server never reads a job. It forks the process that does (`sandbox_tester`), and on its word forks programs from its own clean
memory, so that no program finds tests, expected values or tokens of any job in memory. Python is started once, modules that programs
often use are loaded once, and a program starts in the time of two forks. Around every program: a new user, process, mount and IPC
namespace (the network namespace of the sandbox has no interface at all), a private /tmp, an empty /proc, no capabilities, a system call
filter, resource limits. When the program ends, the kernel ends everything in its namespace.

Runs in the sandbox: `python -m r1pipe.rewards.sandbox_server FD SETTINGS`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
from typing import Any

from r1pipe.rewards import sandbox_program, sandbox_tester

PRELOADED = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions", "functools", "heapq", "itertools", "math",
    "operator", "queue", "random", "re", "statistics", "string", "threading", "typing",
)  # fmt: skip
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PROCESSES = 0x20000, 0x8000000, 0x10000000, 0x20000000
MOUNT_READ_ONLY, MOUNT_NO_SUID, MOUNT_NO_DEVICES, MOUNT_NO_EXEC, MOUNT_RECURSIVE, MOUNT_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
SET_PARENT_DEATH_SIGNAL, SET_DUMPABLE, SET_SECCOMP, DROP_FROM_BOUNDING_SET, SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 1, 4, 22, 24, 36, 38
INSIDE_ID = 1000
FATAL = 97
"""Exit code of a process that could not be isolated."""

_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "audit": 0xC000003E, "clone": 56, "clone3": 435, "socket": 41, "capset": 126, "ptrace": 101, "unshare": 272, "setns": 308,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "keyctl": 250, "add_key": 248, "request_key": 249, "process_vm_readv": 310, "process_vm_writev": 311, "io_uring_setup": 425,
        "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175,
        "finit_module": 313, "fsopen": 430, "open_tree": 428, "move_mount": 429, "mount_setattr": 442, "pidfd_getfd": 438,
        "process_madvise": 440, "kcmp": 312, "msgget": 68, "semget": 64, "mq_open": 240,
    },
    "aarch64": {
        "audit": 0xC00000B7, "clone": 220, "clone3": 435, "socket": 198, "capset": 91, "ptrace": 117, "unshare": 97, "setns": 268,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
        "keyctl": 219, "add_key": 217, "request_key": 218, "process_vm_readv": 270, "process_vm_writev": 271, "io_uring_setup": 425,
        "memfd_create": 279, "memfd_secret": 447, "shmget": 194, "open_by_handle_at": 265, "kexec_load": 104, "init_module": 105,
        "finit_module": 273, "fsopen": 430, "open_tree": 428, "move_mount": 429, "mount_setattr": 442, "pidfd_getfd": 438,
        "process_madvise": 440, "kcmp": 272, "msgget": 186, "semget": 190, "mq_open": 180,
    },
}  # fmt: skip
_NEVER = [name for name in _NUMBERS["x86_64"] if name not in ("audit", "clone", "clone3", "socket", "capset")]


def filter_program(machine: str) -> bytes:
    """The system call filter as BPF: calls of `_NEVER` and namespaces by clone give EPERM, sockets EACCES, clone3 ENOSYS."""
    numbers = _NUMBERS[machine]
    load, equal, test_bits, answer = 0x20, 0x15, 0x45, 0x06
    allow, kill, error = 0x7FFF0000, 0x80000000, 0x00050000
    lines: list[tuple[int, int, int, int]] = [(load, 0, 0, 4), (equal, 1, 0, numbers["audit"]), (answer, 0, 0, kill), (load, 0, 0, 0)]
    if machine == "x86_64":
        lines += [(0x35, 0, 1, 0x40000000), (answer, 0, 0, error | 38)]  # the x32 numbers of the same calls
    for name in _NEVER:
        lines += [(equal, 0, 1, numbers[name]), (answer, 0, 0, error | 1)]
    lines += [(equal, 0, 1, numbers["socket"]), (answer, 0, 0, error | 13)]
    lines += [(equal, 0, 1, numbers["clone3"]), (answer, 0, 0, error | 38)]
    new_namespaces = NEW_MOUNTS | NEW_IPC | NEW_USER | NEW_PROCESSES | 0x2000000 | 0x4000000 | 0x40000000
    lines += [(equal, 0, 3, numbers["clone"]), (load, 0, 0, 16), (test_bits, 0, 1, new_namespaces), (answer, 0, 0, error | 1)]
    lines += [(answer, 0, 0, allow)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def isolate(libc: Any, outer_id: int, outer_group: int, files_bytes: int) -> None:
    """Make the new namespaces of this process (the first in them) bare: ids, mounts, capabilities. Raises OSError."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{INSIDE_ID} {outer_id} 1")
    _write("/proc/self/gid_map", f"{INSIDE_ID} {outer_group} 1")

    def mount(target: bytes, flags: int, options: bytes) -> None:
        if libc.mount(b"tmpfs", target, b"tmpfs", flags, options):
            raise OSError(ctypes.get_errno(), f"mount {target.decode()}")

    if libc.mount(b"none", b"/", None, MOUNT_RECURSIVE | MOUNT_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount /")
    plain = MOUNT_NO_SUID | MOUNT_NO_DEVICES
    mount(b"/tmp", plain, f"size={files_bytes},nr_inodes=4096,mode=700".encode())
    mount(b"/proc", plain | MOUNT_NO_EXEC | MOUNT_READ_ONLY, b"size=4096,nr_inodes=2")
    drop_capabilities(libc)


def drop_capabilities(libc: Any) -> None:
    """No capabilities from here on, in this user namespace or any that it could make."""
    for capability in range(64):
        libc.prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    header = struct.pack("<Ii", 0x20080522, 0)
    if libc.syscall(_NUMBERS[platform.machine()]["capset"], header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def limit_resources(limits: dict[str, Any]) -> None:
    """The limits that the kernel keeps for each process; the tester watches what they add up to."""

    def limit(what: int, most: float) -> None:
        hard = resource.getrlimit(what)[1]
        most = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
        resource.setrlimit(what, (most, most))

    limit(resource.RLIMIT_AS, limits["memory_bytes"] + 256 * 2**20)
    limit(resource.RLIMIT_CPU, limits["cpu_seconds"] + 1)
    limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    limit(resource.RLIMIT_NOFILE, limits["open_files"])
    limit(resource.RLIMIT_NPROC, limits["processes"] + 1)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_MEMLOCK, 0)
    limit(resource.RLIMIT_MSGQUEUE, 0)


class Server:
    """One sandbox: answers the host on the control socket until that closes."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.isolated: bool = settings["isolated"]
        self.limits: dict[str, Any] = settings["limits"]
        self.libc = ctypes.PyDLL(None, use_errno=True)
        self.filter = filter_program(platform.machine()) if self.isolated else b""
        if self.isolated and os.getuid() == 0:
            os.setgroups([])
            try:
                os.setresgid(*[settings["group"]] * 3)
                os.setresuid(*[settings["user"]] * 3)
            except OSError:  # a container that maps few ids has this one
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            self.libc.prctl(SET_DUMPABLE, 1, 0, 0, 0)  # its own files in /proc, the map of ids among them, are its own again
        self.user, self.group = os.getuid(), os.getgid()
        self.libc.prctl(SET_SUBREAPER, 1, 0, 0, 0)
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
            return {"ready": True, "user": self.user} if word == "isolated" else {"error": word or "the first process ended early"}
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
            self.libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            self.libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            code = sandbox_tester.main(job, ours, self.limits)
        finally:
            os._exit(code)

    def start_program(self, mode: str, files: list[int]) -> int:
        """The first process of new namespaces, which runs the program as its child. `files`: stdin, stdout, stderr, questions."""
        if not self.isolated:
            first = os.fork()
        else:
            flags = NEW_USER | NEW_PROCESSES | NEW_MOUNTS | NEW_IPC | signal.SIGCHLD
            first = self.libc.syscall(_NUMBERS[platform.machine()]["clone"], flags, 0, 0, 0, 0)
            if first < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "new namespaces")
        if first:
            return int(first)
        code = FATAL
        try:
            self.libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            for place, file in enumerate(files):
                os.dup2(file, 200 + place)
            for place in range(4):
                os.dup2(200 + place, place)
            os.closerange(4, 65536)
            if self.isolated:
                isolate(self.libc, self.user, self.group, self.limits["file_bytes"] * 4)
            if mode == "none":
                os.write(3, b"isolated")
                os._exit(0)
            code = self.run_program(mode)
        except OSError as error:
            if mode == "none":
                os.write(3, str(error).encode()[:200])
        finally:
            os._exit(code)

    def run_program(self, mode: str) -> int:
        """Fork the program and wait for it, as the first process of its namespace; the exit code, or 128 and the signal."""
        program = os.fork()
        if program == 0:
            code = FATAL
            try:
                self.libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
                os.setsid()
                os.chdir("/tmp" if self.isolated else os.environ["TMPDIR"])
                limit_resources(self.limits)
                self.libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
                if self.filter:
                    lines = ctypes.create_string_buffer(self.filter)
                    instructions = struct.pack("@HP", len(self.filter) // 8, ctypes.addressof(lines))
                    if self.libc.prctl(SET_SECCOMP, 2, instructions, 0, 0):
                        os._exit(FATAL)
                code = sandbox_program.run(mode, 3)
            finally:
                os._exit(code & 0xFF)
        os.closerange(0, 4)
        while True:
            process, status = os.wait()
            if process == program:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


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
