"""What a supervisor asks of the machine, and what worker processes tell it.

A supervisor knows its workers only by what they tell and by how they end. It never loads
the user's code and never opens the store, so neither can break it.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

ProcessMessageKind = Literal["ready", "beat", "draining", "ordered", "failed"]


class ProcessMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a worker process tells whoever started it.

    ready: it has a lease and claims; beat: it lives; draining: it claims no more;
    ordered: somebody asked it, through the store, to drain; failed: why it ends.
    """

    word: ProcessMessageKind
    running: int = 0
    grace_seconds: float = 0.0  # ready: what running jobs get; draining: what is left
    lease_seconds: float = 0.0  # ready: silent for so long, it has lost its jobs
    tasks: int = 0  # ready: how many it knows
    rss_bytes: int = 0
    wants_recycle: bool = False  # beat: it has done enough, or grown too large
    error: dict[str, str] | None = None  # failed: what, code, cure, traceback


SendProcessMessage = Callable[[ProcessMessage], None]


class WorkerProcess(Protocol):
    """One worker process, as its supervisor sees it. A dead one takes no notice."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def signal(self, name: str) -> None:
        """Send it a signal: SIGTERM or SIGINT."""
        ...

    def kill(self) -> None:
        """End it without a word, and what it started."""
        ...

    def look_for_deaths(self) -> None:
        """Tell it to look for deaths on this host now."""
        ...


class Fleet(Protocol):
    """Starts worker processes."""

    def start(
        self, on_message: SendProcessMessage, on_exit: Callable[[int], None]
    ) -> WorkerProcess:
        """Start one: what it tells is heard, then, once, how it ended.

        A signal is a negative number. Neither is called before this returns. Raises
        OSError when the machine has no room for another process.
        """
        ...


class ServiceNotifier(Protocol):
    """Whoever started the supervisor itself, and wants to know how it is."""

    @property
    def every_seconds(self) -> float:
        """How often `alive` is wanted; infinite: never."""
        ...

    def ready(self, status: str) -> None:
        """Jobs are claimed now."""
        ...

    def status(self, text: str) -> None:
        """How things are, in words."""
        ...

    def reloading(self) -> None:
        """Workers are being replaced; `ready` follows."""
        ...

    def stopping(self) -> None:
        """The end has begun."""
        ...

    def alive(self) -> None:
        """Still here, and the workers are heard."""
        ...
