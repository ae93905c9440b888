"""What happens, as it happens, for whoever looks: see ears.py."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from durio.model.errors import StoreUnavailable
from durio.ports.live import Listener
from durio.stores.postgres.desk import AtDesk


class PostgresLive(AtDesk):
    """Telling and hearing."""

    def is_heard(self) -> bool:
        """Whether anybody listens."""
        with suppress(StoreUnavailable):  # closed: there is nothing to tell
            return self.desk.ears.is_heard()
        return False

    def tell(self, events: Sequence[bytes]) -> None:
        """Give these to everybody who listens; never waits, never raises."""
        with suppress(StoreUnavailable):
            self.desk.ears.tell(events)

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[Listener]:
        """Hear what all processes on this store tell from now on."""
        ears = self.desk.ears
        ear = await ears.open_ear()
        try:
            yield ear
        finally:
            await ears.close_ear(ear)
