"""A record that one holder has: taken if it is free, renewed while it is used, then ended.

The record lives for 30 s by the store's clock, and each renewal, every 5 s, gives it 30 s more.
So a holder that dies or is paused loses it, and nobody has to clean up. A renewal needs the
version of the one before: a holder that comes back late gets a conflict, also when nobody
has taken the record meanwhile.

The **token** is the version of the record when it was taken. Versions come from one counter
of the store, so each later holder has a greater one. A holder cannot know that it still
holds: between its look and its write it may be paused. What it writes to must compare tokens.

`is_held` counts from before the last renewal was sent, so it never says yes for too long by
this machine's clock. A reply that was lost is found again: the record's body names its holder.
"""

import asyncio
from collections.abc import Callable

from durio.model.effects import Effects, Put
from durio.model.errors import StoreError
from durio.model.lock import HELD_SECONDS, RENEWAL_SECONDS
from durio.ports.clock import Clock
from durio.ports.commit import Committed
from durio.ports.records import Record
from durio.ports.store import Store

TRIES_MAX = 3  # of a write whose outcome is unknown
PAUSE_SECONDS = 0.1


class HeldRecord:
    """One use of a record by one holder."""

    def __init__(self, store: Store, clock: Clock, kind: str, name: str) -> None:
        self._store = store
        self._clock = clock
        self._kind = kind
        self._name = name
        self._body = b""
        self._version = 0
        self._until = 0.0  # monotonic
        self._renewing: asyncio.Task[None] | None = None
        self.token = 0
        self.is_lost = False

    @property
    def is_held(self) -> bool:
        """Whether the record is ours for certain, by this machine's monotonic clock."""
        return not self.is_lost and self._clock.monotonic() < self._until

    async def standing(self) -> Record | None:
        """Return the record as it stands; None if it is free."""
        found = await self._store.records(self._kind, [self._name])
        return found[0] if found else None

    async def take(self, body: bytes) -> Record | None:
        """Take the record; return the one that stands there if it is not free.

        The body names this use of the record, and no other.
        """
        self._body = body
        sent_at = self._clock.monotonic()
        answer = await self._commit(self._put(0))
        if answer.conflict is None:
            self._version = answer.versions[0]
        else:
            record = answer.conflict.record
            if record is None or record.body != self._body:
                return record
            self._version = record.version  # of a first try, whose reply was lost
        self.token = self._version
        self._until = sent_at + HELD_SECONDS
        return None

    def keep(self, on_lost: Callable[[], None]) -> None:
        """Renew the record until `end`; call `on_lost` once it is lost."""
        loop = asyncio.get_running_loop()
        self._renewing = loop.create_task(self._renew_forever(on_lost))

    async def end(self, body: bytes | None, ttl_seconds: float | None = None) -> bool:
        """Delete the record, or write its last form; return False if it was lost before."""
        await self._stop_renewing()
        if self.is_lost:
            return False
        last = Put(self._kind, self._name, body, ttl_seconds=ttl_seconds)
        for _ in range(TRIES_MAX):
            answer = await self._commit(last._replace(if_version=self._version))
            if answer.conflict is None:
                return True
            record = answer.conflict.record
            if record is None:  # of a first try, whose reply was lost; or it was lost
                return body is None and self.is_held
            if record.body == body:
                return True
            if record.body != self._body:
                return False
            self._version = record.version  # of a renewal, whose reply was lost
        return False

    # --- renewals

    async def _renew_forever(self, on_lost: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep(RENEWAL_SECONDS)
            if not await self.renew():
                self.is_lost = True
                on_lost()
                return

    async def renew(self) -> bool:
        """Renew once; return False if the record is lost, or must be taken for lost."""
        sent_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(max(0.0, self._until - sent_at)):
                answer = await self._store.commit(Effects(puts=[self._put()]))
        except (StoreError, TimeoutError):
            return self._clock.monotonic() < self._until
        if answer.conflict is None:
            self._version = answer.versions[0]
            self._until = sent_at + HELD_SECONDS
            return True
        record = answer.conflict.record
        if record is None or record.body != self._body:
            return False
        # Of a renewal whose reply was lost: the time counts from the next one.
        self._version = record.version
        return await self.renew()

    async def _stop_renewing(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])

    # --- writes

    def _put(self, version: int | None = None) -> Put:
        expected = self._version if version is None else version
        return Put(
            self._kind,
            self._name,
            self._body,
            if_version=expected,
            ttl_seconds=HELD_SECONDS,
        )

    async def _commit(self, put: Put) -> Committed:
        """Write, and repeat a write whose outcome is unknown."""
        for _ in range(TRIES_MAX - 1):
            try:
                return await self._store.commit(Effects(puts=[put]))
            except StoreError as error:
                if not error.unknown:
                    raise
            await self._clock.sleep(PAUSE_SECONDS)
        return await self._store.commit(Effects(puts=[put]))
