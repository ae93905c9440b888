"""Live events of a store: live_events.py describes how they are sent."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from durio.model.errors import StoreUnavailable
from durio.ports.live import Subscriber
from durio.stores.sqlite.context import SqliteCapability


class SqliteLive(SqliteCapability):
    def publish(self, events: Sequence[bytes]) -> bool:
        with suppress(StoreUnavailable):  # a closed store has no subscribers
            return self.context.live_events.publish(events)
        return False

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[Subscriber]:
        subscriber = self.context.live_events.subscribe()
        try:
            yield subscriber
        finally:
            subscriber.close()
