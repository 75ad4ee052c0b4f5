"""What the sandbox asks of the kernel: a system call filter, bare namespaces, no capabilities, limits, and what processes use.

Runs in the sandbox.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from typing import Any, NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK = os.sysconf("SC_CLK_TCK")
NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PROCESSES = 0x20000, 0x8000000, 0x10000000, 0x20000000
MOUNT_READ_ONLY, MOUNT_NO_SUID, MOUNT_NO_DEVICES, MOUNT_NO_EXEC, MOUNT_RECURSIVE, MOUNT_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
SET_PARENT_DEATH_SIGNAL, SET_DUMPABLE, SET_SECCOMP, DROP_FROM_BOUNDING_SET, SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = (
    1,
    4,
    22,
    24,
    36,
    38,
)
INSIDE_ID = 1000

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "audit": 0xC000003E, "clone": 56, "clone3": 435, "socket": 41, "capset": 126, "ptrace": 101, "unshare": 272, "setns": 308,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "keyctl": 250, "add_key": 248, "request_key": 249, "process_vm_readv": 310, "process_vm_writev": 311,
        "io_uring_setup": 425,
        "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175,
        "finit_module": 313, "fsopen": 430, "open_tree": 428, "move_mount": 429, "mount_setattr": 442, "pidfd_getfd": 438,
        "process_madvise": 440, "kcmp": 312, "msgget": 68, "semget": 64, "mq_open": 240,
    },
    "aarch64": {
        "audit": 0xC00000B7, "clone": 220, "clone3": 435, "socket": 198, "capset": 91, "ptrace": 117, "unshare": 97, "setns": 268,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
        "keyctl": 219, "add_key": 217, "request_key": 218, "process_vm_readv": 270, "process_vm_writev": 271,
        "io_uring_setup": 425,
        "memfd_create": 279, "memfd_secret": 447, "shmget": 194, "open_by_handle_at": 265, "kexec_load": 104, "init_module": 105,
        "finit_module": 273, "fsopen": 430, "open_tree": 428, "move_mount": 429, "mount_setattr": 442, "pidfd_getfd": 438,
        "process_madvise": 440, "kcmp": 272, "msgget": 186, "semget": 190, "mq_open": 180,
    },
}  # fmt: skip
_NEVER = [name for name in NUMBERS["x86_64"] if name not in ("audit", "clone", "clone3", "socket", "capset")]


def filter_program(machine: str) -> bytes:
    """The system call filter as BPF: calls of `_NEVER` and namespaces by clone give EPERM, sockets EACCES, clone3 ENOSYS."""
    numbers = NUMBERS[machine]
    load, equal, test_bits, answer = 0x20, 0x15, 0x45, 0x06
    allow, kill, error = 0x7FFF0000, 0x80000000, 0x00050000
    lines: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, numbers["audit"]),
        (answer, 0, 0, kill),
        (load, 0, 0, 0),
    ]
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


def install_filter(libc: Any, instructions: bytes) -> None:
    """Put the system call filter on this process and all that it starts. Raises OSError."""
    lines = ctypes.create_string_buffer(instructions)
    if libc.prctl(SET_SECCOMP, 2, struct.pack("@HP", len(instructions) // 8, ctypes.addressof(lines)), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


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
    if libc.syscall(NUMBERS[platform.machine()]["capset"], header, bytes(24)):
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


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


class Usage(NamedTuple):
    """What a process and all below it use.

    Attributes:
        seconds: processor time.
        memory: bytes.
        processes: their number.
        starved: seconds that one of them could have run and had no processor, because the machine was busy with other things.
    """

    seconds: float = 0.0
    memory: int = 0
    processes: int = 0
    starved: float = 0.0


def starved_seconds(process: int | str) -> float:
    """Seconds that a process has waited for a processor; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{process}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def usage(root: int, most: int) -> Usage:
    """What a process and all below it use, from /proc; `most` bytes are allowed."""
    parents: dict[int, int] = {}
    numbers: dict[int, tuple[float, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
        numbers[int(name)] = (sum(map(int, fields[11:15])) / _CLOCK, int(fields[21]) * _PAGE)
    below = []
    for process in numbers:
        above = process
        while above not in (root, 0, 1) and above in parents:
            above = parents[above]
        if above == root:
            below.append(process)
    shared = numbers[root][1] if root in numbers else 0  # every program is a fork of the server, as its root is
    memory = sum(max(0, numbers[process][1] - shared) for process in below)
    if memory > most:
        memory = sum(map(_proportional_memory, below))
    starved = max(map(starved_seconds, below), default=0.0)
    return Usage(sum(numbers[process][0] for process in below), memory, len(below), starved)


def _proportional_memory(process: int) -> int:
    """Bytes of a process, each shared page divided among those that share it; slow, so only for the doubtful case."""
    try:
        with open(f"/proc/{process}/smaps_rollup") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except OSError:  # it has just ended
        return 0
