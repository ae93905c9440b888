"""The worker processes of a supervisor, and their messages.

A supervisor knows its workers only by their messages and exit codes. It never loads the
user's code and never opens the store, so neither can break it.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

ProcessMessageKind = Literal["ready", "beat", "draining", "ordered", "failed"]


class ProcessMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a worker process to the process that started it.

    ready: it has a lease and claims jobs; beat: it is alive; draining: it claims no more
    jobs; ordered: a command through the store told it to drain; failed: why it ends.
    """

    word: ProcessMessageKind
    running: int = 0
    grace_seconds: float = (
        0.0  # ready: the grace of running jobs; draining: the rest of it
    )
    lease_seconds: float = (
        0.0  # ready: after this long without a beat its jobs are lost
    )
    tasks: int = 0  # ready: how many tasks it knows
    rss_bytes: int = 0
    wants_recycle: bool = False  # beat: it reached its maximum of jobs or memory
    error: dict[str, str] | None = None  # failed: what, code, cure, traceback


SendProcessMessage = Callable[[ProcessMessage], None]


class WorkerProcess(Protocol):
    """One worker process, as its supervisor sees it; calls on a dead one do nothing."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def signal(self, name: str) -> None:
        """Send the process a signal: SIGTERM or SIGINT."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to the process and all processes that it started."""
        ...

    def look_for_deaths(self) -> None:
        """Make the process look for dead workers on this host now."""
        ...


class Fleet(Protocol):
    """Starts worker processes."""

    def start(
        self, on_message: SendProcessMessage, on_exit: Callable[[int], None]
    ) -> WorkerProcess:
        """Start a worker; it calls `on_message` for each message, then `on_exit` once.

        A signal is a negative exit code. Neither is called before this returns. Raises
        OSError when the machine has no room for another process.
        """
        ...


class ServiceNotifier(Protocol):
    """The service manager that started the supervisor and follows its state."""

    @property
    def every_seconds(self) -> float:
        """The interval in which `alive` must be called; infinite means never."""
        ...

    def ready(self, status: str) -> None:
        """Report that the service claims jobs now."""
        ...

    def status(self, text: str) -> None:
        """Report free text about the service's state."""
        ...

    def reloading(self) -> None:
        """Report that workers are being replaced; `ready` follows."""
        ...

    def stopping(self) -> None:
        """Report that the service has begun to stop."""
        ...

    def alive(self) -> None:
        """Report that the supervisor is alive and its workers send messages."""
        ...
