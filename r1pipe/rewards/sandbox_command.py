"""The command line of a sandbox server: what it can see, and what stands in the way where it cannot be had."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any, Literal

SandboxMode = Literal["bubblewrap", "none"]
_FILES = tuple(f"sandbox_{name}.py" for name in ("server", "kernel", "tester", "watch", "handle", "program", "wire"))
_INSIDE = "/sandbox"


class SandboxError(Exception):
    """No sandbox can be had here; the text says what is missing."""


def server_command(mode: SandboxMode, limits: dict[str, Any], control: int, folder: str) -> tuple[list[str], dict[str, str]]:
    """The command line of a server and its whole environment."""
    settings = {"isolated": mode != "none", "limits": limits, "user": 1_879_048_192 + os.getpid() % 65536, "group": 65534}
    sources = Path(__file__).resolve().parent
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    serve = [python, "-s", "-P", "-B", "-m", "r1pipe.rewards.sandbox_server", str(control), json.dumps(settings)]
    environment = {
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PATH": "/usr/bin:/bin",
    }
    if mode == "none":
        package = Path(folder) / "code" / "r1pipe" / "rewards"
        package.mkdir(parents=True)
        for name in _FILES:
            (package / name).symlink_to(sources / name)
        work = Path(folder) / "work"
        work.mkdir()
        return serve, {**environment, "PYTHONPATH": str(Path(folder) / "code"), "HOME": str(work), "TMPDIR": str(work)}
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        machine = f"{sys.platform} on {platform.machine()}"
        raise SandboxError(f"the sandbox needs Linux on x86_64 or aarch64, this is {machine}")
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise SandboxError("bubblewrap (the command bwrap) is not installed: apt-get install bubblewrap, or what your system has")
    options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-user"]
    options += ["--new-session", "--die-with-parent", "--clearenv"]
    for name, value in {**environment, "PYTHONPATH": _INSIDE}.items():
        options += ["--setenv", name, value]
    library = str(Path(sys.base_prefix) / "lib")
    shown = {path: path for path in ("/usr/lib", "/usr/lib64", "/usr/lib32", "/etc/ld.so.cache", "/usr/share/zoneinfo", library)}
    shown[python] = python
    shown |= {f"{_INSIDE}/r1pipe/rewards/{name}": str(sources / name) for name in _FILES}
    devices = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
    folders = {str(parent) for path in (*shown, *devices) for parent in Path(path).parents if str(parent) != "/"}
    for path in sorted(folders):  # bubblewrap would make them for their owner alone
        options += ["--perms", "0755", "--dir", path]
    for path in ("/lib", "/lib64", "/lib32"):
        options += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    for path in sorted(shown):
        options += ["--ro-bind-try", shown[path], path]
    for packages in sorted({*_installed_packages(), "/usr/lib/python3/dist-packages"}):
        options += ["--tmpfs", packages] if os.path.isdir(packages) else []
    for device in devices:
        options += ["--dev-bind", device, device]
    options += ["--proc", "/proc", "--dir", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]
    return [bubblewrap, *options, *serve], environment


def _installed_packages() -> set[str]:
    """Folders of packages installed beside the interpreter: not part of what programs may use."""
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix, "installed_base": sys.base_prefix}
    return {sysconfig.get_path(name, vars=base) for name in ("purelib", "platlib")}


def explain(error: str) -> str:
    """What a failure to isolate means and what helps."""
    lowered = error.lower()
    if (
        "namespace" in lowered
        or "operation not permitted" in lowered
        or "permission denied" in lowered
        or "no space left" in lowered
    ):
        return (
            f"no namespaces here ({error}). Allow user namespaces (sysctl user.max_user_namespaces,"
            " kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or start the container with a"
            " seccomp profile that allows them"
        )
    return error
