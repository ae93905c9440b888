"""What happens, as it happens, for whoever looks: a hint, never a record.

Nothing is stored and nobody waits: an event that a slow listener misses is gone. While
nobody listens it costs a worker one glance a second.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Subscriber(Protocol):
    """An open ear."""

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """What came in, one JSON object each; none when the time is over.

        `{"event":"live.missed","events":3}` stands for three that did not get through.
        """
        ...


class Live(Protocol):
    """Telling and hearing."""

    def is_heard(self) -> bool:
        """Whether anybody listens: asked once a second, before anything is built."""
        ...

    def tell(self, events: Sequence[bytes]) -> None:
        """Give these to everybody who listens; never waits, never raises."""
        ...

    def listen(self) -> AbstractAsyncContextManager[Subscriber]:
        """Hear what all processes on this store tell from now on."""
        ...
