"""Is LISTEN real? Say something to ourselves, and see it arrive.

Behind PgBouncer in transaction mode LISTEN succeeds and nothing ever comes; a connection
that a firewall forgot is as silent. So a nonce is sent now and then, by another connection
than the one that listens: a pooler may hand a process its own words as part of an answer,
which proves nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from durio.ports.clock import Clock

PATIENCE_SECONDS = 1.0
TURNS = 3  # a word that met an answer on its way is said again
NONCES_MAX = 16

Say = Callable[[str], Awaitable[None]]


class Proof:
    """One question at a time: does what we say come back?"""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nonces: list[str] = []
        self._arrived: asyncio.Future[None] | None = None

    async def give(self, say: Say) -> bool:
        """Say it, a few times within a second; whether it came back."""
        arrived = asyncio.get_running_loop().create_future()
        self._arrived = arrived
        try:
            for _ in range(TURNS):
                nonce = self._clock.new_id().hex()
                self._nonces = [*self._nonces, nonce][-NONCES_MAX:]
                await say(nonce)
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_SECONDS / TURNS):
                        await asyncio.shield(arrived)
                if arrived.done():
                    return True
        finally:
            self._arrived = None
        return False

    def hear(self, nonce: str) -> None:
        """In whatever thread hears it."""
        arrived = self._arrived
        if arrived is not None and nonce in self._nonces:
            with suppress(RuntimeError):  # that loop is closed: nobody asks any more
                arrived.get_loop().call_soon_threadsafe(settle, arrived)


def settle(future: "asyncio.Future[None]") -> None:
    """Set a future that may have been set or cancelled meanwhile."""
    if not future.done():
        future.set_result(None)
