"""A stand-in for the lines to PostgreSQL that knows LISTEN and NOTIFY, and nothing else.

What is said takes half a millisecond to arrive. It can be told to swallow everything, as a
pooler does, or to fail.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import StoreUnavailable
from durio.stores.postgres.live_events import (
    DROP_SUBSCRIBER,
    FIND_SUBSCRIBERS,
    KEEP_SUBSCRIBER,
)
from durio.stores.postgres.notify import NOTIFY
from durio.stores.postgres.wakeups import POLL_WORKER

ON_THE_WAY_SECONDS = 0.0005

OnPayload = Callable[[str], None]


class FakeSocket:
    """A connection that may be cut."""

    is_closed = False


@dataclass(eq=False)
class FakeLoopConnection:
    """What one loop has: a connection, and what is heard on it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    socket: FakeSocket = field(default_factory=FakeSocket)
    listeners: dict[str, tuple[OnPayload, Callable[[], None]]] = field(
        default_factory=dict
    )

    async def ready(self) -> FakeSocket:
        if self.socket.is_closed:
            self.socket = FakeSocket()
            for _, missed in self.listeners.values():
                missed()
        return self.socket


@dataclass(eq=False)
class FakeServer:
    """The server: everybody who listens, and all that was said, with its time."""

    clients: "list[FakeConnections]" = field(default_factory=list)
    notified: list[tuple[float, str, str]] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    control: tuple[Any, ...] = (None, 0, [])  # an order, cancels, paused lanes
    busy: list[str] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    swallows: bool = False
    fails: bool = False

    def new(self) -> "FakeConnections":
        """The lines of one more process."""
        self.clients.append(FakeConnections(self))
        return self.clients[-1]

    def payloads(self, sign: str = "+") -> list[str]:
        """What was said so far with this sign, without who said it."""
        return [word[12:] for _, _, word in self.notified if word[12:13] == sign]


class FakeConnections:
    """What a Bell asks of `Lines`."""

    def __init__(self, board: FakeServer) -> None:
        self.server = board
        self.is_pooled = False
        self.now = None
        self.by_loop: dict[asyncio.AbstractEventLoop, FakeLoopConnection] = {}
        self.listens = 0

    async def connection(self) -> FakeLoopConnection:
        return self.by_loop.setdefault(asyncio.get_running_loop(), FakeLoopConnection())

    async def listen(
        self, channel: str, callback: OnPayload, on_gap: Callable[[], None]
    ) -> None:
        if self.server.fails:
            raise StoreUnavailable("the board is down")
        self.listens += 1
        (await self.connection()).listeners[channel] = (callback, on_gap)

    async def unlisten(self, channel: str) -> None:
        (await self.connection()).listeners.pop(channel, None)

    async def read(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        line = await self.connection()
        async with line.lock:
            await asyncio.sleep(0)  # noqa: TID251 - a turn, no time passes
            if self.server.fails:
                raise StoreUnavailable("the board is down")
            await line.ready()
            return self.answer(sql, args)

    def answer(self, sql: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        board = self.server
        if sql == NOTIFY:
            self.notify(*args)
        elif sql == POLL_WORKER:
            board.looks.append(asyncio.get_running_loop().time())
            return [(*board.control, board.busy)]
        elif sql == KEEP_SUBSCRIBER:
            board.rows.add(args[0])
        elif sql == DROP_SUBSCRIBER:
            board.rows.discard(args[0])
        elif sql == FIND_SUBSCRIBERS:
            return [(row,) for row in board.rows if row != args[0]]
        return []

    def notify(self, channel: str, payloads: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for payload in payloads:
            self.server.notified.append((loop.time(), channel, payload))
        if not self.server.swallows:
            loop.call_later(ON_THE_WAY_SECONDS, self.deliver, channel, payloads)

    def deliver(self, channel: str, payloads: list[str]) -> None:
        for lines in self.server.clients:
            for loop, line in list(lines.by_loop.items()):
                if channel in line.listeners and not line.socket.is_closed:
                    hear, _ = line.listeners[channel]
                    for payload in payloads:
                        loop.call_soon_threadsafe(hear, payload)
