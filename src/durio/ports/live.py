"""Live events: what happens, as it happens. They are hints, never records.

Nothing is stored and nothing waits: an event that a slow subscriber misses is gone. Without
subscribers a worker pays for one look a second.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Subscriber(Protocol):
    """One reader of live events."""

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """What came in, one JSON object each; none when the time is over.

        `{"event":"live.missed","events":3}` stands for three that did not get through.
        """
        ...


class Live(Protocol):
    """Publishing and subscribing."""

    def publish(self, events: Sequence[bytes]) -> bool:
        """Give these to all subscribers; whether there are any. Never waits, never raises.

        Without events this only asks. Callers build events only while the answer is True,
        and ask once a second at most: it is a look at shared state.
        """
        ...

    def subscribe(self) -> AbstractAsyncContextManager[Subscriber]:
        """Receive what all processes on this store publish from now on."""
        ...
