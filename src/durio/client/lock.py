"""`app.lock(name)`: one holder at a time, over all workers of the App."""

from durio.client.held_record import HeldRecord
from durio.client.lock_block import LockBlock, LockClient
from durio.model.errors import StoreError
from durio.model.lock import LockHolder, load_holder, lock_timeout, locks_kind

PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS = 0.05, 1.0


class Lock(LockBlock):
    """A lock that one block holds at a time, in any process: see `App.lock`."""

    __module__ = "durio"

    def __init__(
        self, client: LockClient, name: str, holder: LockHolder, wait_seconds: float
    ) -> None:
        super().__init__(client, locks_kind(client.name), name, holder)
        self._wait_seconds = wait_seconds

    async def _acquire(self, held: HeldRecord) -> bool:
        """Try until it is free, with growing pauses; raise LockTimeout at the end."""
        clock, pause = self.client.clock, PAUSE_MIN_SECONDS
        started = clock.monotonic()
        standing = await held.take(self.new_body())
        while standing is not None:
            waited = clock.monotonic() - started
            if waited >= self._wait_seconds:
                raise lock_timeout(
                    self.name,
                    load_holder(standing.body),
                    token=standing.version,
                    now=clock.now(),
                    waited_seconds=waited,
                )
            left = self._wait_seconds - waited
            await clock.sleep(min(left, pause * (0.5 + clock.random())))
            pause = min(2 * pause, PAUSE_MAX_SECONDS)
            # A read costs less than a write that is refused.
            standing = await held.standing() or await held.take(self.new_body())
        return True

    async def _end(self, held: HeldRecord, error: BaseException | None) -> bool:
        del error
        try:
            return await held.end(None)
        except StoreError:
            if not held.is_held:
                raise
            return True  # the block had it to its end; it is free within 30 s
