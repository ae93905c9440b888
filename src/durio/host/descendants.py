"""Stop, resume and kill processes that a child of ours started, by their id.

We are not their parent and cannot wait for them. Before every signal we check that the
process still has the same parent, so that a reused process id is never signalled.
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
# Requests SIGTERM from the kernel when the parent dies, then becomes the command.
DIE_WITH_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)\n"
    "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])\n"
)


class ProcessStatus(NamedTuple):
    parent: int
    states: str  # one letter per thread, as `ps` shows them


@final
class Descendant:
    """A process with the parent that it had when first seen."""

    def __init__(self, pid: int, parent: int) -> None:
        self.pid = pid
        self.parent = parent

    @property
    def is_running(self) -> bool:
        """Whether the process still runs under that parent."""
        seen = process_status(self.pid)
        return seen is not None and seen.parent == self.parent and not is_zombie(seen)

    def stop(self) -> None:
        """Send SIGSTOP; return when all its threads are stopped, or it has ended."""
        self._send(signal.SIGSTOP)
        wait_until(lambda seen: set(seen.states) <= {STOPPED, ZOMBIE}, self.pid)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL; return when the process has ended."""
        self._send(signal.SIGKILL)
        wait_until(lambda seen: seen.parent != self.parent or is_zombie(seen), self.pid)

    def _send(self, which: signal.Signals) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)


def find_descendant(pid: int, parents: Sequence[int]) -> Descendant | None:
    """Return the process, if one of these started it and it still runs."""
    seen = process_status(pid)
    if seen is None or seen.parent not in parents or is_zombie(seen):
        return None
    return Descendant(pid, seen.parent)


def is_zombie(status: ProcessStatus) -> bool:
    """Whether only the exit code of the process is left."""
    return set(status.states) == {ZOMBIE}


def wait_until(holds: Callable[[ProcessStatus], bool], pid: int) -> None:
    """Wait until `holds` is true of a process or it has ended, at most WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (seen := process_status(pid)) is not None and not holds(seen):
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


if sys.platform == "linux":

    def process_status(pid: int) -> ProcessStatus | None:
        """Return a process's parent and the state of its threads; None if there is none."""
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
        """Return the command, wrapped so that it gets SIGTERM when this process dies."""
        return [sys.executable, "-c", DIE_WITH_PARENT, str(os.getpid()), *command]

else:

    def process_status(pid: int) -> ProcessStatus | None:
        """Return a process's parent and the state of its threads; None if there is none."""
        command = ["/bin/ps", "-o", "ppid=,stat=", "-p", str(pid)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        fields = result.stdout.split()
        return ProcessStatus(int(fields[0]), fields[1][0]) if len(fields) > 1 else None

    def dies_with_parent(command: Sequence[str]) -> list[str]:
        """Return the command unchanged: this kernel has no such feature."""
        return list(command)
