"""One connection through the fault proxy: two ways, each read, delayed, cut or forwarded.

Bytes are read at one end, wait in a bounded queue until they are due, and are written at
the other end. Every fault is applied where they leave, so that bytes in transit are
affected too. A cut lets what was forwarded before it arrive (the receiver sees an end of
stream) and resets the sender; nothing behind the cut ever arrives.
"""

import asyncio
import random
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

CHUNK_BYTES = 64 * 1024
QUEUE_CHUNKS = 256  # read ahead on one way of one connection
TAIL_BYTES = 1024  # of what was forwarded: the longest pattern that can be found
SLICES_PER_SECOND = 50  # for a throttled connection


class Way(StrEnum):
    """A direction, as the client sees it."""

    UP = "up"  # from client to server
    DOWN = "down"


class Cut(StrEnum):
    """Where a connection is cut."""

    BYTES = "after so many bytes"
    BEFORE = "before the pattern"
    AFTER = "after the pattern"
    REPLY = "before the reply"  # the pattern arrives, its answer does not


@dataclass(eq=False)
class Trap:
    """A cut that waits for its pattern or number of bytes."""

    cut: Cut
    pattern: bytes = b""
    bytes_range: tuple[int, int] = (0, 0)  # drawn for each connection
    way: Way = Way.UP
    skip: int = 0  # occurrences to skip first
    times: int | None = 1  # how often it cuts; None: until healed


@dataclass(frozen=True)
class Event:
    """Something that the proxy did or saw."""

    what: str
    link: int  # 0: the whole proxy
    way: Way | None
    size: int
    seconds: float  # since the proxy began


class Journal:
    """Events in order; waiters are woken."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()

    def note(
        self, what: str, link: int = 0, way: Way | None = None, size: int = 0
    ) -> None:
        """Record an event."""
        seconds = time.monotonic() - self._began
        with self._changed:
            self.events.append(Event(what, link, way, size, seconds))
            self.counts[what] += 1
            self._changed.notify_all()

    def count(self, what: str, number: int) -> None:
        """Count an event that happens too often to be recorded."""
        with self._changed:
            self.counts[what] += number
            self._changed.notify_all()

    def wait_for(self, what: str, number: int, seconds: float) -> None:
        """Wait until it has been counted this often."""
        with self._changed:
            there = self._changed.wait_for(lambda: self.counts[what] >= number, seconds)
        assert there, f"{self.counts[what]} of {number} {what!r} within {seconds:g} s"


@dataclass
class Weather:
    """The faults in force; read and changed on the proxy's loop only."""

    delay: dict[Way, tuple[float, float]] = field(
        default_factory=dict[Way, tuple[float, float]]
    )
    rate: dict[Way, float] = field(default_factory=dict[Way, float])  # bytes a second
    holes: set[Way] = field(default_factory=set[Way])
    frozen: set[Way] = field(default_factory=set[Way])
    traps: list[Trap] = field(default_factory=list[Trap])
    healed: asyncio.Event = field(default_factory=asyncio.Event)
    free_at: dict[Way, float] = field(default_factory=dict[Way, float])

    async def pause(self, seconds: float | None) -> None:
        """Wait, but not longer than until all faults are healed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.healed.wait(), seconds)

    async def turn(self, way: Way, size: int) -> None:
        """Wait for a turn in the throughput that all connections share."""
        rate = self.rate.get(way)
        if rate is not None:
            now = asyncio.get_running_loop().time()
            self.free_at[way] = max(now, self.free_at.get(way, 0.0)) + size / rate
            await self.pause(self.free_at[way] - now)

    def slice_bytes(self, way: Way) -> int:
        rate = self.rate.get(way)
        return CHUNK_BYTES if rate is None else max(1, int(rate / SLICES_PER_SECOND))


class Ended(Exception):
    """The connection is over: cut at this end, or reset at both."""

    def __init__(self, sink: socket.socket | None = None) -> None:
        super().__init__("the connection is over")
        self.sink = sink  # may still read what was forwarded


RESET = None  # in a queue: the source was reset
Item = tuple[float, bytes | None]


class Stream:
    """One way of a connection."""

    def __init__(
        self, link: "Link", way: Way, source: socket.socket, sink: socket.socket
    ) -> None:
        self.link, self.way, self.source, self.sink = link, way, source, sink
        self.queue: asyncio.Queue[Item] = asyncio.Queue(QUEUE_CHUNKS)
        # Two random sources, so that drawing a jitter does not move a cut.
        self.chance = random.Random(f"{link.seed} {link.number} {way}")  # noqa: S311
        self.luck = random.Random(f"cuts {link.seed} {link.number} {way}")  # noqa: S311
        self.forwarded = 0
        self.tail = b""
        self.drawn: dict[Trap, int] = {}  # bytes until it cuts, on this connection

    @property
    def weather(self) -> Weather:
        return self.link.weather

    async def read(self) -> None:
        """Read from the source into the queue, with the time at which data may go on."""
        loop = asyncio.get_running_loop()
        data: bytes | None = b"..."
        while data:
            try:
                data = await loop.sock_recv(self.source, CHUNK_BYTES)
            except OSError:
                data = RESET
            delay, jitter = self.weather.delay.get(self.way, (0.0, 0.0))
            wait = delay + (jitter * self.chance.random() if jitter else 0.0)
            await self.queue.put((loop.time() + wait, data))  # nothing overtakes

    async def write(self) -> None:
        """Write from the queue to the sink, with the faults in force."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self.queue.get()
            if due > loop.time() and self.way in self.weather.delay:
                await self.weather.pause(due - loop.time())
            if self.way in self.weather.frozen:
                await self.weather.pause(None)
            if self.way in self.weather.holes:
                await self.swallow(data)
            elif data is RESET:
                self.link.journal.note("passed a reset on", self.link.number, self.way)
                raise Ended
            elif data:
                await self.forward(data)
            else:
                self.sink.shutdown(socket.SHUT_WR)
                return

    async def swallow(self, data: bytes | None) -> None:
        """Drop the data; not even an end of the stream is noticed."""
        self.link.is_damaged = True
        journal, number = self.link.journal, self.link.number
        if data:
            journal.count(f"swallowed {self.way}", len(data))
            return
        journal.note("swallowed an end", number, self.way)
        await self.weather.pause(None)
        raise Ended

    async def forward(self, data: bytes) -> None:
        if self.way is Way.DOWN and self.link.reply_is_lost:
            self.link.journal.note(Cut.REPLY, self.link.number, self.way, len(data))
            raise Ended
        trap, where = self.first_trap(data)
        await self.send(data[:where])
        if trap is not None:
            self.link.journal.note(trap.cut, self.link.number, self.way, self.forwarded)
            raise Ended(self.sink)

    async def send(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        while data:
            part = data[: self.weather.slice_bytes(self.way)]
            await self.weather.turn(self.way, len(part))
            if self.way in self.weather.frozen:  # both may happen while we wait
                await self.weather.pause(None)
            if self.way in self.weather.holes:
                await self.swallow(data)
                return
            await loop.sock_sendall(self.sink, part)
            self.forwarded += len(part)
            self.tail = (self.tail + part)[-TAIL_BYTES:]
            self.link.journal.count(f"forwarded {self.way}", len(part))
            data = data[len(part) :]

    # --- cuts

    def first_trap(self, data: bytes) -> tuple[Trap | None, int]:
        """Return the trap that this chunk triggers first, and how much of the chunk may
        pass.
        """
        found: list[tuple[int, Trap]] = []
        for trap in self.weather.traps:
            if trap.way is self.way:
                where = self.place_of(trap, data)
                if where is not None:
                    found.append((where, trap))
        for where, trap in sorted(found, key=lambda each: each[0]):
            self.link.spring(trap)
            if trap.cut is not Cut.REPLY:
                return trap, where
            self.link.reply_is_lost = True  # the request goes through, whole
        return None, len(data)

    def place_of(self, trap: Trap, data: bytes) -> int | None:
        """Return where in this chunk to cut; None if it does not."""
        if trap.cut is Cut.BYTES:
            if trap not in self.drawn:
                self.drawn[trap] = self.luck.randint(*trap.bytes_range)
            left = self.drawn[trap] - self.forwarded
            return max(0, left) if left <= len(data) else None
        window, known = self.tail + data, len(self.tail)
        begin = window.find(trap.pattern, max(0, known - len(trap.pattern) + 1))
        while begin >= 0 and trap.skip:
            trap.skip -= 1
            begin = window.find(trap.pattern, begin + len(trap.pattern))
        if begin < 0:
            return None
        # Of a pattern that began in an earlier chunk a part has passed, never the whole.
        end = begin if trap.cut is Cut.BEFORE else begin + len(trap.pattern)
        return max(0, end - known)


class Link:
    """A client's connection and its connection to the server."""

    def __init__(
        self,
        number: int,
        client: socket.socket,
        weather: Weather,
        journal: Journal,
        seed: int,
    ) -> None:
        self.number, self.client, self.weather = number, client, weather
        self.journal, self.seed = journal, seed
        self.server = socket.socket()
        self.server.setblocking(False)
        self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_damaged = False  # bytes are missing: it must never continue
        self.must_reset = False
        self.reply_is_lost = False

    async def run(self, target: tuple[str, int]) -> None:
        """Forward until both ways have ended, or the connection is cut."""
        try:
            if await self._connect(target):
                sink = await self._pump()
                if sink is not None:
                    self._reset(spare=sink)
                    await self._let_arrive(sink)
        finally:
            self.close()

    def close(self) -> None:
        if self.must_reset:
            self._reset()
        self.client.close()
        self.server.close()

    async def _connect(self, target: tuple[str, int]) -> bool:
        if self.weather.holes:  # no handshake gets through
            await self.weather.pause(None)
            self.must_reset = True
            return False
        if self.weather.frozen:
            await self.weather.pause(None)
        try:
            await asyncio.get_running_loop().sock_connect(self.server, target)
        except OSError:
            self.journal.note("server unreachable", self.number)
            self.must_reset = True
        return not self.must_reset

    async def _pump(self) -> socket.socket | None:
        """Forward both ways; return the end that may still read what was forwarded."""
        up = Stream(self, Way.UP, self.client, self.server)
        down = Stream(self, Way.DOWN, self.server, self.client)
        sink: socket.socket | None = None
        readers = [asyncio.create_task(each.read()) for each in (up, down)]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(up.write())
                group.create_task(down.write())
        except* Ended as ended:
            last = ended.exceptions[0]
            sink = last.sink if isinstance(last, Ended) else None
            self.must_reset = sink is None
        except* OSError:  # one end accepts no more data; the other sees it
            self.must_reset = True
        finally:
            for reader in readers:  # before their sockets are closed
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        return sink

    async def _let_arrive(self, sink: socket.socket) -> None:
        """End the stream properly: a reset could discard what was forwarded."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(sink, CHUNK_BYTES):
                pass

    def spring(self, trap: Trap) -> None:
        if trap.times is not None:
            trap.times -= 1
            if trap.times <= 0:
                self.weather.traps.remove(trap)

    def _reset(self, spare: socket.socket | None = None) -> None:
        """Send an RST to each end, except one that may still read."""
        for end in (self.client, self.server):
            if end is not spare and end.fileno() >= 0:
                linger = struct.pack("ii", 1, 0)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                end.close()
