"""Live events: what happens, as it happens. They are hints, never records.

Events are not stored and never waited for: an event that a slow subscriber misses is
lost. Without subscribers a worker pays for one check per second.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Subscriber(Protocol):
    """One reader of live events."""

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """The events that came in, one JSON object each; empty when the time is over.

        `{"event":"live.missed","events":3}` stands for three that were lost.
        """
        ...


class Live(Protocol):
    """Publishing and subscribing."""

    def publish(self, events: Sequence[bytes]) -> bool:
        """Send these to all subscribers; returns whether there are any.

        Never waits, never raises. Without events this only checks. Callers build events
        only while the answer is True, and check at most once a second: it reads shared
        state.
        """
        ...

    def subscribe(self) -> AbstractAsyncContextManager[Subscriber]:
        """Receive what all processes on this store publish from now on."""
        ...
