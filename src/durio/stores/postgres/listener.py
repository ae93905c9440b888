"""LISTEN on one connection per process, however many workers and event loops it has.

The listener uses the connection of the heartbeat's loop, which no job can block. Without a
heartbeat it uses the connection of a loop that waits. When that loop ends, the listener
moves to another. Callbacks run in the thread of the listener's loop. They pass
notifications on to the loops that wait.

`ListenCheck` tests that notifications arrive. Behind PgBouncer in transaction mode, LISTEN
succeeds and no notification ever arrives. A connection that a firewall has dropped is
silent too. So a nonce is sent from time to time, on another connection than the one that
listens. A pooler may return a process's own notification as part of a reply, which proves
nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import StoreError, StoreUnavailable
from durio.ports.clock import Clock
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import Connection, DriverError, NotificationCallback
from durio.stores.waiting import complete

PING = "select 1"


@dataclass(slots=True, eq=False)
class ListenerLoop:
    """The loop on whose connection the listener runs, and the state of that connection."""

    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    channels: set[str] = field(default_factory=set[str])
    connection: Connection | None = None
    connection_lock: asyncio.Lock | None = None

    @property
    def is_up(self) -> bool:
        """Whether the connection is open, as far as this process knows."""
        connection = self.connection
        return (
            is_loop_running(self.loop)
            and connection is not None
            and not connection.is_closed
        )


class NotificationListener:
    def __init__(self, connections: Connections, on_gap: Callable[[], None]) -> None:
        """Listen on these connections.

        `on_gap` is called when notifications may have been missed.
        """
        self._connections = connections
        self._on_gap = on_gap
        self._channels: dict[str, NotificationCallback] = {}
        self._current: ListenerLoop | None = None
        self._offered: asyncio.AbstractEventLoop | None = None

    # --- channels, and the loop

    def add_channel(self, channel: str, callback: NotificationCallback) -> None:
        """Add a channel; `ensure_listening` applies it.

        `callback` runs in the listener's thread.
        """
        self._channels[channel] = callback

    def remove_channel(self, channel: str) -> None:
        """Remove a channel; `ensure_listening` applies it."""
        self._channels.pop(channel, None)

    def offer_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Offer a loop that no job can block; the first one is kept while it runs."""
        if self._offered is None or not is_loop_running(self._offered):
            self._offered = loop

    @property
    def is_listening(self) -> bool:
        """Whether it listens to every channel, on the best loop that was offered."""
        current = self._current
        if (
            current is None
            or not current.is_up
            or current.channels != set(self._channels)
        ):
            return False
        offered = self._offered
        return (
            offered is None or offered is current.loop or not is_loop_running(offered)
        )

    @property
    def is_up(self) -> bool:
        """Whether the connection is open, as far as this process knows."""
        return self._current is not None and self._current.is_up

    @property
    def is_on_this_loop(self) -> bool:
        """Whether it uses the connection of the caller's loop."""
        current = self._current
        return current is not None and current.loop is asyncio.get_running_loop()

    @property
    def is_in_call(self) -> bool:
        """Whether a call is in progress, whose reply may contain notifications."""
        lock = None if self._current is None else self._current.connection_lock
        return lock is not None and lock.locked()

    # --- start and stop

    async def ensure_listening(self) -> None:
        """Listen to every channel, on the best loop; raises what the store raises."""
        old, current = self._current, self._best_loop()
        await run_on(current.loop, self._apply_channels(current))
        self._current = current
        if old is not None and old is not current:
            await self._stop_on(old)

    async def stop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            await self._stop_on(current)

    def forget(self) -> None:
        """Drop all state in a forked child: the connection belongs to the parent."""
        self._current = self._offered = None

    def _best_loop(self) -> ListenerLoop:
        current, best = self._current, self._offered
        if best is None or not is_loop_running(best):
            is_good = current is not None and is_loop_running(current.loop)
            best = current.loop if current and is_good else asyncio.get_running_loop()
        return (
            current
            if current is not None and current.loop is best
            else ListenerLoop(best)
        )

    async def _apply_channels(self, current: ListenerLoop) -> None:
        """Listen to new channels and stop listening to removed ones.

        This runs on the listener's loop.
        """
        async with current.lock:
            for channel, callback in list(self._channels.items()):
                if channel not in current.channels:
                    await self._connections.listen(channel, callback, self._on_lost)
                    current.channels.add(channel)
            for channel in current.channels - set(self._channels):
                current.channels.discard(channel)
                await self._connections.unlisten(channel)
            await self._check_connection(current)

    async def _check_connection(self, current: ListenerLoop) -> None:
        """Read something, which opens a lost connection again and restores its channels."""
        await self._connections.read(PING)
        guarded = await self._connections.connection()
        current.connection_lock = guarded.lock
        async with guarded.lock:
            with suppress(DriverError):  # lost again: the next check sees it
                current.connection = await guarded.ready()

    def _on_lost(self) -> None:
        """Report a gap; runs in the listener's thread.

        Notifications were missed before the reconnect.
        """
        if self._current is not None:
            self._current.connection = None
        self._on_gap()

    async def _stop_on(self, old: ListenerLoop) -> None:
        with suppress(StoreError):  # the connection is gone, and its LISTEN too
            await run_on(old.loop, self._unlisten_all(old))

    async def _unlisten_all(self, old: ListenerLoop) -> None:
        async with old.lock:
            for channel in list(old.channels):
                old.channels.discard(channel)
                await self._connections.unlisten(channel)


def is_loop_running(loop: asyncio.AbstractEventLoop) -> bool:
    return not loop.is_closed() and loop.is_running()


async def run_on(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> None:
    """Run the coroutine on another loop of this process, and wait for it here."""
    if loop is asyncio.get_running_loop():
        await work
        return
    try:
        there = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError as error:  # the loop was closed a moment ago
        work.close()
        raise loop_ended() from error
    try:
        await asyncio.wrap_future(there)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise loop_ended() from error  # the other loop was cancelled, not this task


def loop_ended() -> StoreUnavailable:
    return StoreUnavailable(
        "the event loop of the listener has ended",
        cure="Nothing to do: the next wait starts a listener on a running loop.",
    )


LISTEN_CHECK_SECONDS = 1.0
LISTEN_CHECK_TRIES = 3  # a nonce that came with a reply does not count
NONCES_MAX = 16

SendNonce = Callable[[str], Awaitable[None]]


class ListenCheck:
    """Tests that notifications arrive; one check at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nonces: list[str] = []
        self._arrived: asyncio.Future[None] | None = None

    async def run(self, send: SendNonce) -> bool:
        """Send up to 3 nonces within 1 s; return whether one of them arrived."""
        arrived = asyncio.get_running_loop().create_future()
        self._arrived = arrived
        try:
            for _ in range(LISTEN_CHECK_TRIES):
                nonce = self._clock.new_id().hex()
                self._nonces = [*self._nonces, nonce][-NONCES_MAX:]
                await send(nonce)
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        LISTEN_CHECK_SECONDS / LISTEN_CHECK_TRIES
                    ):
                        await asyncio.shield(arrived)
                if arrived.done():
                    return True
        finally:
            self._arrived = None
        return False

    def on_nonce(self, nonce: str) -> None:
        """Record a nonce; called in the listener's thread."""
        arrived = self._arrived
        if arrived is not None and nonce in self._nonces:
            # That loop is closed, and no check waits there.
            with suppress(RuntimeError):
                arrived.get_loop().call_soon_threadsafe(complete, arrived)
