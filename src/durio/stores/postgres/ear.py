"""The ear of a process: LISTEN on one connection, however many workers and loops it has.

Its home is the line of the heartbeat's loop, which no job can block; without one it is the
line of the loop that waits. When that loop ends the ear moves. What it hears it hears in
the thread of its home: whoever is told passes it on to the loop that waits.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import StoreError, StoreUnavailable
from durio.stores.postgres.driver import Connection, DriverError, Hear
from durio.stores.postgres.lines import Lines

AWAKE = "select 1"


@dataclass(slots=True, eq=False)
class Home:
    """The loop on whose line we listen, and what has been seen of that line."""

    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    tuned: set[str] = field(default_factory=set[str])
    connection: Connection | None = None
    line_lock: asyncio.Lock | None = None

    @property
    def is_up(self) -> bool:
        """Whether it can hear, as far as this side knows."""
        connection = self.connection
        return (
            is_alive(self.loop) and connection is not None and not connection.is_closed
        )


class Ear:
    """Hears channels, and finds itself a home."""

    def __init__(self, lines: Lines, missed: Callable[[], None]) -> None:
        """`missed` is called when something may have been said that nobody heard."""
        self._lines = lines
        self._missed = missed
        self._channels: dict[str, Hear] = {}
        self._home: Home | None = None
        self._offered: asyncio.AbstractEventLoop | None = None

    # --- what to hear, and where

    def tune(self, channel: str, hear: Hear) -> None:
        """Hear this one too, once settled; `hear` is called in the home's thread."""
        self._channels[channel] = hear

    def tune_out(self, channel: str) -> None:
        """No more, once settled."""
        self._channels.pop(channel, None)

    def offer(self, loop: asyncio.AbstractEventLoop) -> None:
        """A loop that no job can block; the first that lives is kept."""
        if self._offered is None or not is_alive(self._offered):
            self._offered = loop

    @property
    def is_settled(self) -> bool:
        """Whether everything is heard, and at the best home there is."""
        home = self._home
        if home is None or not home.is_up or home.tuned != set(self._channels):
            return False
        offered = self._offered
        return offered is None or offered is home.loop or not is_alive(offered)

    @property
    def is_up(self) -> bool:
        """Whether it can hear, as far as this side knows."""
        return self._home is not None and self._home.is_up

    @property
    def is_here(self) -> bool:
        """Whether its home is the line of the loop that asks."""
        home = self._home
        return home is not None and home.loop is asyncio.get_running_loop()

    @property
    def is_asking(self) -> bool:
        """Whether a call is under way on its line: an answer may bring rings along."""
        lock = None if self._home is None else self._home.line_lock
        return lock is not None and lock.locked()

    # --- settling

    async def settle(self) -> None:
        """Be at home and hear every channel; may raise what the store raises."""
        old, home = self._home, self._best_home()
        await run_on(home.loop, self._tune_at(home))
        self._home = home
        if old is not None and old is not home:
            await self._leave(old)

    async def leave(self) -> None:
        """Hear nothing any more."""
        home, self._home = self._home, None
        if home is not None:
            await self._leave(home)

    def forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._home = self._offered = None

    def _best_home(self) -> Home:
        home, best = self._home, self._offered
        if best is None or not is_alive(best):
            is_good = home is not None and is_alive(home.loop)
            best = home.loop if home and is_good else asyncio.get_running_loop()
        return home if home is not None and home.loop is best else Home(best)

    async def _tune_at(self, home: Home) -> None:
        """On its loop: listen to what is new, no more to what is not wanted."""
        async with home.lock:
            for channel, hear in list(self._channels.items()):
                if channel not in home.tuned:
                    await self._lines.listen(channel, hear, self._lost)
                    home.tuned.add(channel)
            for channel in home.tuned - set(self._channels):
                home.tuned.discard(channel)
                await self._lines.unlisten(channel)
            await self._look_at_line(home)

    async def _look_at_line(self, home: Home) -> None:
        """A line that was lost is opened, and listens, by this."""
        await self._lines.read(AWAKE)
        line = await self._lines.line()
        home.line_lock = line.lock
        async with line.lock:
            with suppress(DriverError):  # lost again: seen at the next look
                home.connection = await line.ready()

    def _lost(self) -> None:
        """In the home's thread: a new connection, and nobody heard what came between."""
        if self._home is not None:
            self._home.connection = None
        self._missed()

    async def _leave(self, old: Home) -> None:
        with suppress(StoreError):  # gone, and its LISTEN with it
            await run_on(old.loop, self._silence(old))

    async def _silence(self, old: Home) -> None:
        async with old.lock:
            for channel in list(old.tuned):
                old.tuned.discard(channel)
                await self._lines.unlisten(channel)


def is_alive(loop: asyncio.AbstractEventLoop) -> bool:
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
        raise ended() from error
    try:
        await asyncio.wrap_future(there)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ended() from error  # it was that loop which gave up, not us


def ended() -> StoreUnavailable:
    """The loop that was to listen is gone."""
    return StoreUnavailable(
        "the event loop that was to listen has ended",
        cure="Nothing to do: the next wait listens on a loop that lives.",
    )
