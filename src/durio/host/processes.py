"""Subprocesses: started, watched and ended, each by its own process id.

Every child has a process group of its own, so that a Ctrl-C in the terminal reaches only
its parent, which then ends the child properly. Children that still run when the block of
`Subprocesses` ends are killed and reaped, so that a parent leaves none behind.
"""

import asyncio
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self, final

from durio.host.signals import flush_streams

ABORT_SECONDS = 0.01
END_SECONDS = 5.0
TAIL_CHARS = 2_000


@final
class Subprocess:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self.pid = process.pid
        self.log = log

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, a signal as a negative number; None while the process runs."""
        return self._process.poll()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code once the process has ended.

        Returns None if it still runs after this time.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def tail(self) -> str:
        """Return the end of the output, for an error message."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return text[-TAIL_CHARS:].strip()


@final
class Subprocesses:
    """Starts processes; leaving the block ends those that still run."""

    def __init__(self) -> None:
        self.started: list[Subprocess] = []

    def start(
        self, command: Sequence[str], *, log: Path, environ: Mapping[str, str]
    ) -> Subprocess:
        """Start a command; its output is appended to `log`."""
        with log.open("ab") as stream:
            process = subprocess.Popen(  # noqa: S603 - our own programs
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**os.environ, **environ},
                process_group=0,
            )
        child = Subprocess(process, log)
        self.started.append(child)
        return child

    def end(self, seconds: float = END_SECONDS) -> None:
        """Send SIGTERM to all, wait this long, kill the rest."""
        running = [child for child in self.started if child.is_running]
        for child in running:
            child.resume()  # a stopped process would not handle SIGTERM
            child.terminate()
        deadline = time.monotonic() + seconds
        for child in running:
            if child.wait(max(0.0, deadline - time.monotonic())) is None:
                child.kill()
                child.wait(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.end(END_SECONDS if kind is None else ABORT_SECONDS)


def durio_command() -> list[str]:
    return [sys.executable, "-m", "durio"]


def exec_program(command: Sequence[str]) -> None:
    """Replace this process by another program, same process id. Never returns."""
    flush_streams()
    os.execv(command[0], list(command))  # noqa: S606 - our own program


def pause(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


def own_cpu_seconds() -> float:
    """Return user and system time of this process so far, all threads."""
    return time.process_time()


def own_rss_bytes() -> int:
    """Return the resident memory of this process now; without /proc, its maximum so far."""
    found = rss_bytes_of("self")
    if found is None:  # bytes on macOS, where there is no /proc
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found


def rss_bytes_of(pid: int | Literal["self"]) -> int | None:
    """Return the resident memory of a process now; None if unknown."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * resource.getpagesize()


def cpu_seconds_of(pid: int) -> float | None:
    """Return user and system time of a process so far; None if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The name is in parentheses and may contain any character; the times follow it.
        user, system = stat.rpartition(")")[2].split()[11:13]
    except (OSError, ValueError):
        return None
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop if it is installed; None for asyncio's own."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    return importlib.import_module("uvloop").new_event_loop
