"""A server's process: never as root, in its own folder, ended by its pid."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.01
# Servers refuse to run as root: root switches to the first of these users that exists.
USERS = ("postgres", "nobody")


class ServerFailed(AssertionError):
    """A server did not start or did not end; its log is in the text."""


def account() -> pwd.struct_passwd | None:
    """Return the user to switch to; None if we are not root and keep our user."""
    if os.getuid() != 0:
        return None
    for name in USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerFailed(f"none of these users exists: {', '.join(USERS)}")


def own_folder(name: str) -> Path:
    """Return a new folder that belongs to the servers' user, with a short path for sockets."""
    folder = Path(tempfile.mkdtemp(prefix=f"durio-{name}-", dir="/tmp"))
    give(folder)
    return folder


def give(path: Path) -> None:
    """Change the owner to the servers' user."""
    user = account()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(command: Sequence[str], log: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Start it as the servers' user; its output goes to its log."""
    user = account()
    with log.open("ab") as said:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=surroundings(folder),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            start_new_session=True,  # Ctrl-C must reach only the tests
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it calls the kernel, no more
        )


def end_with_parent() -> None:
    """Make the kernel end the server if the tests are killed (Linux)."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def run(command: Sequence[str], log: Path, folder: Path) -> None:
    """Run a tool of the server to its end."""
    process = start(command, log, folder)
    if process.wait(START_SECONDS) != 0:
        raise ServerFailed(f"{command[0]} failed:\n{tail(log)}")


def surroundings(folder: Path) -> dict[str, str]:
    """Return the environment of a server, without our variables."""
    kept = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
    return {**kept, "HOME": str(folder)}


def until(
    is_ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path
) -> None:
    """Wait until it is ready; fail if the process ends first."""
    end = time.monotonic() + START_SECONDS
    while not is_ready():
        if process.poll() is not None:
            raise ServerFailed(f"it ended with {process.returncode}:\n{tail(log)}")
        if time.monotonic() > end:
            raise ServerFailed(f"not ready in {START_SECONDS:g} s:\n{tail(log)}")
        time.sleep(LOOK_SECONDS)


def end(process: "subprocess.Popen[bytes]", how: signal.Signals, log: Path) -> None:
    """Ask it to end; kill it when it does not."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired as error:
        kill(process)
        raise ServerFailed(f"it did not end by {how.name}:\n{tail(log)}") from error


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGKILL to the process and every process that it has started; wait for all."""
    pids = [process.pid, *children(process.pid)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
    end = time.monotonic() + STOP_SECONDS
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > end:
            raise ServerFailed(f"{pids} do not die")
        time.sleep(LOOK_SECONDS)


def children(parent: int) -> list[int]:
    """Return the processes that this one has started and that still run."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    return False


def tail(log: Path) -> str:
    """Return the end of its log."""
    with suppress(OSError):
        return log.read_text(errors="replace")[-4000:]
    return ""
