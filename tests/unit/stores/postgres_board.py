"""A stand-in for the lines to PostgreSQL that knows LISTEN and NOTIFY, and nothing else.

What is said takes half a millisecond to arrive. It can be told to swallow everything, as a
pooler does, or to fail.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import StoreUnavailable
from durio.stores.postgres.bell import LOOK_AROUND
from durio.stores.postgres.ears import DROP_EAR, FIND_EARS, KEEP_EAR
from durio.stores.postgres.ringing import RING

ON_THE_WAY_SECONDS = 0.0005

Hear = Callable[[str], None]


class Wire:
    """A connection that may be cut."""

    is_closed = False


@dataclass(eq=False)
class LoopLine:
    """What one loop has: a connection, and what is heard on it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wire: Wire = field(default_factory=Wire)
    heard: dict[str, tuple[Hear, Callable[[], None]]] = field(default_factory=dict)

    async def ready(self) -> Wire:
        if self.wire.is_closed:
            self.wire = Wire()
            for _, missed in self.heard.values():
                missed()
        return self.wire


@dataclass(eq=False)
class Board:
    """The server: everybody who listens, and all that was said, with its time."""

    lines: "list[BoardLines]" = field(default_factory=list)
    said: list[tuple[float, str, str]] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    control: tuple[Any, ...] = (None, 0, [])  # an order, cancels, paused lanes
    busy: list[str] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    swallows: bool = False
    fails: bool = False

    def new(self) -> "BoardLines":
        """The lines of one more process."""
        self.lines.append(BoardLines(self))
        return self.lines[-1]

    def words(self, sign: str = "+") -> list[str]:
        """What was said so far with this sign, without who said it."""
        return [word[12:] for _, _, word in self.said if word[12:13] == sign]


class BoardLines:
    """What a Bell asks of `Lines`."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.is_pooled = False
        self.now = None
        self.by_loop: dict[asyncio.AbstractEventLoop, LoopLine] = {}
        self.listens = 0

    async def line(self) -> LoopLine:
        return self.by_loop.setdefault(asyncio.get_running_loop(), LoopLine())

    async def listen(
        self, channel: str, hear: Hear, missed: Callable[[], None]
    ) -> None:
        if self.board.fails:
            raise StoreUnavailable("the board is down")
        self.listens += 1
        (await self.line()).heard[channel] = (hear, missed)

    async def unlisten(self, channel: str) -> None:
        (await self.line()).heard.pop(channel, None)

    async def read(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        line = await self.line()
        async with line.lock:
            await asyncio.sleep(0)  # noqa: TID251 - a turn, no time passes
            if self.board.fails:
                raise StoreUnavailable("the board is down")
            await line.ready()
            return self.answer(sql, args)

    def answer(self, sql: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        board = self.board
        if sql == RING:
            self.notify(*args)
        elif sql == LOOK_AROUND:
            board.looks.append(asyncio.get_running_loop().time())
            return [(*board.control, board.busy)]
        elif sql == KEEP_EAR:
            board.rows.add(args[0])
        elif sql == DROP_EAR:
            board.rows.discard(args[0])
        elif sql == FIND_EARS:
            return [(row,) for row in board.rows if row != args[0]]
        return []

    def notify(self, channel: str, payloads: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for payload in payloads:
            self.board.said.append((loop.time(), channel, payload))
        if not self.board.swallows:
            loop.call_later(ON_THE_WAY_SECONDS, self.deliver, channel, payloads)

    def deliver(self, channel: str, payloads: list[str]) -> None:
        for lines in self.board.lines:
            for loop, line in list(lines.by_loop.items()):
                if channel in line.heard and not line.wire.is_closed:
                    hear, _ = line.heard[channel]
                    for payload in payloads:
                        loop.call_soon_threadsafe(hear, payload)
