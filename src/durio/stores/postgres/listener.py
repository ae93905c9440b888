"""The ear of a process: LISTEN on one connection, however many workers and loops it has.

Its home is the line of the heartbeat's loop, which no job can block; without one it is the
line of the loop that waits. When that loop ends the ear moves. What it hears it hears in
the thread of its home: whoever is told passes it on to the loop that waits.

Is LISTEN real? Say something to ourselves, and see it arrive.

Behind PgBouncer in transaction mode LISTEN succeeds and nothing ever comes; a connection
that a firewall forgot is as silent. So a nonce is sent now and then, by another connection
than the one that listens: a pooler may hand a process its own words as part of an answer,
which proves nothing.
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

PING = "select 1"


@dataclass(slots=True, eq=False)
class ListenerLoop:
    """The loop on whose line we listen, and what has been seen of that line."""

    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    channels: set[str] = field(default_factory=set[str])
    connection: Connection | None = None
    connection_lock: asyncio.Lock | None = None

    @property
    def is_up(self) -> bool:
        """Whether it can hear, as far as this side knows."""
        connection = self.connection
        return (
            is_loop_running(self.loop)
            and connection is not None
            and not connection.is_closed
        )


class NotificationListener:
    """Hears channels, and finds itself a home."""

    def __init__(self, connections: Connections, on_gap: Callable[[], None]) -> None:
        """`missed` is called when something may have been said that nobody heard."""
        self._connections = connections
        self._on_gap = on_gap
        self._channels: dict[str, NotificationCallback] = {}
        self._current: ListenerLoop | None = None
        self._offered: asyncio.AbstractEventLoop | None = None

    # --- what to hear, and where

    def add_channel(self, channel: str, callback: NotificationCallback) -> None:
        """Hear this one too, once settled; `hear` is called in the home's thread."""
        self._channels[channel] = callback

    def remove_channel(self, channel: str) -> None:
        """No more, once settled."""
        self._channels.pop(channel, None)

    def offer_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """A loop that no job can block; the first that lives is kept."""
        if self._offered is None or not is_loop_running(self._offered):
            self._offered = loop

    @property
    def is_listening(self) -> bool:
        """Whether everything is heard, and at the best home there is."""
        home = self._current
        if home is None or not home.is_up or home.channels != set(self._channels):
            return False
        offered = self._offered
        return offered is None or offered is home.loop or not is_loop_running(offered)

    @property
    def is_up(self) -> bool:
        """Whether it can hear, as far as this side knows."""
        return self._current is not None and self._current.is_up

    @property
    def is_on_this_loop(self) -> bool:
        """Whether its home is the line of the loop that asks."""
        home = self._current
        return home is not None and home.loop is asyncio.get_running_loop()

    @property
    def is_in_call(self) -> bool:
        """Whether a call is under way on its line: an answer may bring rings along."""
        lock = None if self._current is None else self._current.connection_lock
        return lock is not None and lock.locked()

    # --- settling

    async def ensure_listening(self) -> None:
        """Be at home and hear every channel; may raise what the store raises."""
        old, home = self._current, self._best_loop()
        await run_on(home.loop, self._apply_channels(home))
        self._current = home
        if old is not None and old is not home:
            await self._stop_on(old)

    async def stop(self) -> None:
        """Hear nothing any more."""
        home, self._current = self._current, None
        if home is not None:
            await self._stop_on(home)

    def forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._current = self._offered = None

    def _best_loop(self) -> ListenerLoop:
        home, best = self._current, self._offered
        if best is None or not is_loop_running(best):
            is_good = home is not None and is_loop_running(home.loop)
            best = home.loop if home and is_good else asyncio.get_running_loop()
        return home if home is not None and home.loop is best else ListenerLoop(best)

    async def _apply_channels(self, current: ListenerLoop) -> None:
        """On its loop: listen to what is new, no more to what is not wanted."""
        async with current.lock:
            for channel, hear in list(self._channels.items()):
                if channel not in current.channels:
                    await self._connections.listen(channel, hear, self._on_lost)
                    current.channels.add(channel)
            for channel in current.channels - set(self._channels):
                current.channels.discard(channel)
                await self._connections.unlisten(channel)
            await self._check_connection(current)

    async def _check_connection(self, current: ListenerLoop) -> None:
        """A line that was lost is opened, and listens, by this."""
        await self._connections.read(PING)
        line = await self._connections.connection()
        current.connection_lock = line.lock
        async with line.lock:
            with suppress(DriverError):  # lost again: seen at the next look
                current.connection = await line.ready()

    def _on_lost(self) -> None:
        """In the home's thread: a new connection, and nobody heard what came between."""
        if self._current is not None:
            self._current.connection = None
        self._on_gap()

    async def _stop_on(self, old: ListenerLoop) -> None:
        with suppress(StoreError):  # gone, and its LISTEN with it
            await run_on(old.loop, self._unlisten_all(old))

    async def _unlisten_all(self, old: ListenerLoop) -> None:
        async with old.lock:
            for channel in list(old.channels):
                old.channels.discard(channel)
                await self._connections.unlisten(channel)


def is_loop_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it still turns."""
    return not loop.is_closed() and loop.is_running()


async def run_on(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> None:
    """Await a coroutine here that runs on another loop of this process."""
    if loop is asyncio.get_running_loop():
        await work
        return
    try:
        there = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError as error:  # closed a moment ago
        work.close()
        raise loop_ended() from error
    try:
        await asyncio.wrap_future(there)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise loop_ended() from error  # it was that loop which gave up, not us


def loop_ended() -> StoreUnavailable:
    """The loop that was to listen is gone."""
    return StoreUnavailable(
        "the event loop that was to listen has ended",
        cure="Nothing to do: the next wait listens on a loop that lives.",
    )


LISTEN_CHECK_SECONDS = 1.0
LISTEN_CHECK_TRIES = 3  # a word that met an answer on its way is said again
NONCES_MAX = 16

SendNonce = Callable[[str], Awaitable[None]]


class ListenCheck:
    """One question at a time: does what we say come back?"""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nonces: list[str] = []
        self._arrived: asyncio.Future[None] | None = None

    async def run(self, send: SendNonce) -> bool:
        """Say it, a few times within a second; whether it came back."""
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
        """In whatever thread hears it."""
        arrived = self._arrived
        if arrived is not None and nonce in self._nonces:
            with suppress(RuntimeError):  # that loop is closed: nobody asks any more
                arrived.get_loop().call_soon_threadsafe(complete, arrived)


def complete(future: "asyncio.Future[None]") -> None:
    """Set a future that may have been set or cancelled meanwhile."""
    if not future.done():
        future.set_result(None)
