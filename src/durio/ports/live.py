"""Live events, sent as things happen; they are hints, never records.

Events are not stored and never waited for: an event that a slow subscriber misses is lost.
Without subscribers a worker only checks for them once a second.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Subscriber(Protocol):
    """One reader of live events."""

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """Return the events that came in, one JSON object each.

        The list is empty after the timeout. `{"event":"live.missed","events":3}` stands for
        three events that were lost.
        """
        ...


class Live(Protocol):
    """Publishes events and subscribes to them."""

    def publish(self, events: Sequence[bytes]) -> bool:
        """Send these events to all subscribers; return whether there are any.

        Never waits, never raises. Without events this only checks. Callers build events
        only while the result is True, and check at most once a second, because it reads
        shared state.
        """
        ...

    def subscribe(self) -> AbstractAsyncContextManager[Subscriber]:
        """Receive what all processes on this store publish from now on."""
        ...
