"""Processes that a child of ours started: looked at, held still and killed by their id.

They are not ours to wait for. Before every signal we look whether the process still has
the parent that it had, so that an id that was given to somebody else meanwhile is safe.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, final

POLL_SECONDS = 0.005
WAIT_SECONDS = 5.0
STOPPED, ZOMBIE = "T", "Z"
# Asks the kernel for SIGTERM at our death, then becomes the command itself.
DIE_WITH_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)\n"
    "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])\n"
)


class ProcessStatus(NamedTuple):
    """A process as it is now."""

    parent: int
    states: str  # a letter for each of its threads, as `ps` has them


@final
class Descendant:
    """A process with the parent that it had when we first saw it."""

    def __init__(self, pid: int, parent: int) -> None:
        self.pid = pid
        self.parent = parent

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        seen = process_status(self.pid)
        return seen is not None and seen.parent == self.parent and not is_zombie(seen)

    def stop(self) -> None:
        """Hold it still: SIGSTOP; returns when it stands, or has ended."""
        self._send(signal.SIGSTOP)
        wait_until(lambda seen: set(seen.states) <= {STOPPED, ZOMBIE}, self.pid)

    def resume(self) -> None:
        """Let it run again: SIGCONT."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word: SIGKILL; returns when it is gone."""
        self._send(signal.SIGKILL)
        wait_until(lambda seen: seen.parent != self.parent or is_zombie(seen), self.pid)

    def _send(self, which: signal.Signals) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)


def find_descendant(pid: int, parents: Sequence[int]) -> Descendant | None:
    """The process, if one of these has started it and it still runs."""
    seen = process_status(pid)
    if seen is None or seen.parent not in parents or is_zombie(seen):
        return None
    return Descendant(pid, seen.parent)


def is_zombie(status: ProcessStatus) -> bool:
    """Whether only its exit code is left."""
    return set(status.states) == {ZOMBIE}


def wait_until(holds: Callable[[ProcessStatus], bool], pid: int) -> None:
    """Until it holds of a process, or there is none; a bounded time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (seen := process_status(pid)) is not None and not holds(seen):
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


if sys.platform == "linux":

    def process_status(pid: int) -> ProcessStatus | None:
        """From /proc, all threads; None: there is no such process."""
        folder = Path(f"/proc/{pid}")
        try:
            rows = [
                (task / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                for task in (folder / "task").iterdir()
            ]
        except OSError:
            return None
        return (
            ProcessStatus(int(rows[0][1]), "".join(row[0] for row in rows))
            if rows
            else None
        )

    def dies_with_parent(command: Sequence[str]) -> list[str]:
        """The command, ended by SIGTERM when this process dies, however it dies."""
        return [sys.executable, "-c", DIE_WITH_PARENT, str(os.getpid()), *command]

else:

    def process_status(pid: int) -> ProcessStatus | None:
        """From `ps`; None: there is no such process."""
        command = ["/bin/ps", "-o", "ppid=,stat=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        fields = told.stdout.split()
        return ProcessStatus(int(fields[0]), fields[1][0]) if len(fields) > 1 else None

    def dies_with_parent(command: Sequence[str]) -> list[str]:
        """The command itself: here no kernel ends it with us."""
        return list(command)
