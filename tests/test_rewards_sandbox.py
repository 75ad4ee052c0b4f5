"""The sandbox against programs that want out: each is contained within its limits, and nothing of it is left."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from r1pipe.rewards.sandbox import CodeResult, Limits, SandboxPool, SandboxServer
from r1pipe.rewards.sandbox_command import SandboxError, explain, server_command

LIMITS = Limits(
    cpu_seconds=1.0, wall_seconds=4.0, total_seconds=120.0, memory_bytes=96 * 2**20, processes=16, file_bytes=2**20, open_files=64
)
MISSING = "" if shutil.which("bwrap") else "bubblewrap is not installed"
needs_bubblewrap = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    pool = SandboxPool("bubblewrap", LIMITS, size=1)
    yield pool
    pool.close()


def script(pool: SandboxPool, source: str, text: str = "", wanted: str = "ok") -> CodeResult:
    return pool.run({"kind": "stdio", "source": source, "tests": [{"input": text, "output": wanted}]})


def says(pool: SandboxPool, source: str) -> str:
    """What a program prints that tells about its surroundings: the note of the wrong answer quotes its first word."""
    result = script(pool, source, wanted="never")
    assert result.outcome == "wrong answer", result
    return result.note


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


ESCAPES = {
    "fork bomb": ("import os\nwhile True:\n try: os.fork()\n except OSError: pass", {"time", "runtime error", "memory"}),
    "fork bomb that exits at once": (
        "import os\nwhile True:\n try:\n  if os.fork(): os._exit(0)\n except OSError: pass",
        {"time", "wrong answer"},
    ),
    "thread bomb": (
        "import threading,time\nfor _ in range(9999): threading.Thread(target=time.sleep,args=(60,)).start()",
        {"runtime error", "time", "memory"},
    ),
    "endless loop": ("while True: pass", {"time"}),
    "sleep": ("import time; time.sleep(600)", {"time"}),
    "deaf to signals": (
        (
            "import signal\nfor s in range(1,65):\n try: signal.signal(s, signal.SIG_IGN)\n except "
            "(OSError, ValueError): pass\nwhile True: pass"
        ),
        {"time"},
    ),
    "stops itself": ("import os,signal; os.kill(os.getpid(), signal.SIGSTOP)", {"time"}),
    "endless output": ("while True: print('x'*65536)", {"output limit"}),
    "endless errors": ("import sys\nwhile True: print('x'*65536, file=sys.stderr)", {"output limit"}),
    "memory balloon": ("x=[]\nwhile True: x.append(bytearray(2**20))", {"memory"}),
    "memory in one piece": ("x = bytearray(10**10)", {"memory"}),
    "memory of children": (
        "import os,time\nfor _ in range(12):\n if not os.fork():\n  x=bytearray(40*2**20)\n  time.sleep(60)\ntime.sleep(60)",
        {"memory"},
    ),
    "shared memory": (
        "import mmap,os,time\nfor _ in range(12):\n if not os.fork():\n  m=mmap.mmap(-1, 40*2**20)\n  "
        "m.write(b'x'*len(m))\n  time.sleep(60)\n"
        "time.sleep(60)",
        {"memory"},
    ),
    "memory files": ("import os\nos.memfd_create('x')", {"runtime error"}),
    "long file": ("open('x','wb').write(bytes(2**22))", {"runtime error"}),
    "many files": ("for i in range(10**6): open(str(i),'w')", {"runtime error"}),
    "full folder": ("for i in range(99): open(str(i),'wb').write(bytes(2**20-1))", {"runtime error"}),
    "waits for input": ("input(); input()", {"runtime error"}),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n+1)\nf(0)", {"runtime error", "memory"}),
    "crash": ("import ctypes; ctypes.string_at(0)", {"runtime error"}),
    "internet socket": ("import socket; socket.create_connection(('127.0.0.1', 80))", {"runtime error"}),
    "unix socket": ("import socket; socket.socket(socket.AF_UNIX).connect('\\0abstract')", {"runtime error"}),
    "name server": ("import socket; socket.getaddrinfo('example.org', 80)", {"runtime error"}),
    "write to the system": ("open('/usr/lib/x','w')", {"runtime error"}),
    "write to the root": ("open('/x','w')", {"runtime error"}),
    "write over the harness": ("open('/sandbox/r1pipe/rewards/sandbox_wire.py','w')", {"runtime error"}),
    "symlink out": ("import os\nos.symlink('/etc/passwd','x')\nprint(open('x').read())", {"runtime error"}),
    "hard link out": ("import os\nos.link('/sandbox/r1pipe/rewards/sandbox_wire.py','x')", {"runtime error"}),
    "remount": (
        "import ctypes,os\nl=ctypes.CDLL(None,use_errno=True)\nassert l.mount(b'none',b'/tmp',b'tmpfs',0,None)==0",
        {"runtime error"},
    ),
    "own namespaces": ("import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000)==0", {"runtime error"}),
    "namespaces by clone": (
        (
            "import ctypes\nr=ctypes.CDLL(None).syscall(56 if __import__('platform').machine()=='x86_64' "
            "else 220, 0x10000000|17,0,0,0,0)\nassert r>=0"
        ),
        {"runtime error"},
    ),
    "ptrace": ("import ctypes\nassert ctypes.CDLL(None).ptrace(16, 1, 0, 0)==0", {"runtime error"}),
    "memory of the first process": (
        "import ctypes\nclass V(ctypes.Structure): _fields_=[('b',ctypes.c_void_p),('n',ctypes.c_size_t)]\n"
        "b=ctypes.create_string_buffer(8)\nl=ctypes.CDLL(None)\n"
        "assert l.process_vm_readv(1, ctypes.byref(V(ctypes.addressof(b),8)),1, ctypes.byref(V(ctypes.addressof(b),8)),1,0)>0",
        {"runtime error"},
    ),
    "become root": ("import os; os.setuid(0)", {"runtime error"}),
    "raise its limits": ("import resource; resource.setrlimit(resource.RLIMIT_NPROC,(999,999))", {"runtime error"}),
    "kill everybody": ("import os,signal\nos.kill(-1, signal.SIGKILL)", {"runtime error", "time", "wrong answer"}),
    "kill the parent": (
        "import os,signal,time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)",
        {"time", "runtime error"},
    ),
    "kernel keys": ("import ctypes\nassert ctypes.CDLL(None).syscall(250,0,-3,0)>=0", {"runtime error"}),
    "null byte": ("x = '\0'", {"compile error"}),
    "deep nesting": ("(" * 100_000, {"compile error"}),
    "huge constant": ("x = " + "9" * 100_000, {"compile error"}),
    "rubbish for standard output": ("import os\nos.close(1)\nprint('ok')", {"runtime error", "wrong answer"}),
}


@needs_bubblewrap
@pytest.mark.parametrize("name", ESCAPES)
def test_a_hostile_program_is_contained_and_leaves_nothing(sandbox: SandboxPool, name: str) -> None:
    source, outcomes = ESCAPES[name]
    started = time.monotonic()
    result = script(sandbox, source)
    assert result.outcome in outcomes, result
    assert time.monotonic() - started < LIMITS.total_seconds + 20
    assert len(descendants()) == 3  # bubblewrap, its first process, the idle server
    assert script(sandbox, "print('ok')").outcome == "passed"


@needs_bubblewrap
def test_a_detached_child_is_gone_and_does_not_delay_the_verdict(sandbox: SandboxPool) -> None:
    source = "import os,time\nif not os.fork():\n os.setsid()\n if not os.fork():\n  time.sleep(600)\n os._exit(0)\nprint('ok')"
    result = script(sandbox, source)
    assert result.outcome == "passed"
    assert result.seconds < 60
    assert len(descendants()) == 3


@needs_bubblewrap
def test_files_of_one_program_are_not_there_for_the_next(sandbox: SandboxPool) -> None:
    assert script(sandbox, "open('/tmp/left','w').write('x'); print('ok')").outcome == "passed"
    assert script(sandbox, "import os; print('ok' if os.listdir('/tmp') == [] else 'left')").outcome == "passed"


@needs_bubblewrap
def test_a_program_sees_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = secrets.token_hex(8)
    monkeypatch.setenv("MY_API_KEY", secret)
    pool = SandboxPool("bubblewrap", LIMITS, size=1)
    try:
        assert (
            script(
                pool, f"import os; print('ok' if {secret!r} not in str(os.environ) and len(os.environ) < 12 else 'seen')"
            ).outcome
            == "passed"
        )
    finally:
        pool.close()


@needs_bubblewrap
def test_a_program_cannot_read_the_users_files(sandbox: SandboxPool, tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("private")
    for path in (kept, Path(__file__), Path("/etc/passwd"), Path("/etc/hostname"), Path.home() / ".ssh"):
        assert script(sandbox, f"import os; print('seen' if os.path.exists({str(path)!r}) else 'ok')").outcome == "passed", path


@needs_bubblewrap
def test_a_program_sees_no_other_process_and_no_packages(sandbox: SandboxPool) -> None:
    assert (
        script(sandbox, "import os; print('ok' if os.listdir('/proc') == [] and os.getpid() < 10 else 'seen')").outcome
        == "passed"
    )
    assert script(sandbox, "try:\n import pip\nexcept ImportError: print('ok')").outcome == "passed"


@needs_bubblewrap
def test_the_process_limit_binds_even_when_the_host_user_is_root(sandbox: SandboxPool) -> None:
    source = (
        "import os,time\nn=0\ntry:\n for _ in range(200):\n  if not os.fork(): time.sleep(60)\n  "
        "n+=1\nexcept OSError: pass\nprint('ok' if n < 17 else n)"
    )
    assert script(sandbox, source).outcome == "passed"


@needs_bubblewrap
def test_a_connection_to_a_listener_of_the_host_fails(sandbox: SandboxPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = script(sandbox, f"import socket; socket.create_connection(('127.0.0.1', {port}), 1); print('ok')")
    assert result.outcome == "runtime error"


@needs_bubblewrap
def test_the_server_ends_with_its_host(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys,os,time\nsys.path.insert(0, sys.argv[1])\nfrom r1pipe.rewards.sandbox import *\n"
        "s=SandboxServer('bubblewrap', Limits())\nprint(s.process.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parents[1])], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        server = int(host.stdout.readline())
        assert psutil.pid_exists(server)
        host.kill()
        host.wait()
    deadline = time.monotonic() + 60
    while psutil.pid_exists(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(server)


@needs_bubblewrap
def test_a_killed_server_is_replaced_and_costs_no_verdict() -> None:
    pool = SandboxPool("bubblewrap", LIMITS, size=1)
    try:
        assert script(pool, "print('ok')").outcome == "passed"
        pool.idle[0].process.kill()
        pool.idle[0].process.wait()
        assert script(pool, "print('ok')").outcome == "passed"
    finally:
        pool.close()


def test_without_bubblewrap_nothing_runs_and_the_verdict_is_withheld(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = SandboxPool("bubblewrap", LIMITS, size=1).run({"kind": "stdio", "source": "print('ok')", "tests": []})
    assert result.outcome == "sandbox error"
    assert "apt-get install bubblewrap" in result.note


def test_where_namespaces_are_forbidden_the_error_says_what_to_allow() -> None:
    assert "user.max_user_namespaces" in explain("bwrap: No permissions to create new namespace")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="dokcer"):
        SandboxPool("dokcer")  # type: ignore[arg-type]


def test_without_isolation_limits_still_hold_and_strays_are_ended() -> None:
    server = SandboxServer("none", LIMITS)
    try:

        def run(source: str) -> CodeResult:
            return server.run({"kind": "stdio", "source": source, "tests": [{"input": "", "output": "ok"}]})

        before = len(descendants())
        assert run("print('ok')").outcome == "passed"
        assert run("while True: pass").outcome == "time"
        assert run("while True: print('x'*65536)").outcome == "output limit"
        stray = "import os,time\nif not os.fork():\n os.setsid()\n if not os.fork(): time.sleep(600)\n os._exit(0)\nprint('ok')"
        assert run(stray).outcome == "passed"
        assert len(descendants()) == before
        assert run("import os; print('ok' if 'PATH' in os.environ and len(os.environ) < 12 else 'seen')").outcome == "passed"
    finally:
        server.close()
    assert descendants() == [] or all(process.pid != server.process.pid for process in descendants())


@needs_bubblewrap
def test_the_command_shows_the_sandbox_only_the_interpreter_and_system_libraries() -> None:
    command, environment = server_command("bubblewrap", {}, 3, "")
    shown = [command[index + 2] for index, word in enumerate(command) if word.startswith("--ro-bind")]
    home = str(Path.home())
    assert all(
        path.startswith(("/usr/", "/lib", "/etc/ld.so.cache", "/sandbox/")) or "python" in path or path.endswith("/lib")
        for path in shown
    )
    assert home not in shown
    assert set(environment) <= {"LANG", "PYTHONUTF8", "PYTHONHASHSEED", "OMP_NUM_THREADS", "HOME", "TMPDIR", "PATH"}
    assert "--unshare-net" in command
    assert "--new-session" in command


def test_a_sandbox_error_is_raised_by_a_server_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxError, match="seccomp profile"):
        SandboxServer("bubblewrap", LIMITS)
