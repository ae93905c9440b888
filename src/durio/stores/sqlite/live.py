"""What happens, as it happens, for whoever looks: see ear.py."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from durio.model.errors import StoreUnavailable
from durio.ports.live import Subscriber
from durio.stores.sqlite.context import SqliteCapability


class SqliteLive(SqliteCapability):
    """Telling and hearing."""

    def is_heard(self) -> bool:
        """Whether anybody listens."""
        with suppress(StoreUnavailable):  # closed: there is nothing to tell
            return self.context.live_events.has_subscribers()
        return False

    def tell(self, events: Sequence[bytes]) -> None:
        """Give these to everybody who listens; never waits, never raises."""
        with suppress(StoreUnavailable):
            self.context.live_events.publish(events)

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[Subscriber]:
        """Hear what all processes on this store tell from now on."""
        subscriber = self.context.live_events.subscribe()
        try:
            yield subscriber
        finally:
            subscriber.close()
