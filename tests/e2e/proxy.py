"""A TCP proxy that breaks connections on request: the network between us and a store.

    with FaultProxy(("127.0.0.1", 5432), seed=7) as proxy:
        connect(proxy.address)
        proxy.cut_before(b"COMMIT")      # the next one never reaches the server
        proxy.lose_reply(b"COMMIT")      # the next one is executed; nobody is told
        proxy.black_hole(Way.UP)         # half open: bytes vanish, the connection stays
        proxy.heal()

It runs on a loop of its own in a thread, so that a test may block. Every call returns when
its fault is in force. `journal` says what was done: `events` in order, `counts`, and
`wait_for` instead of sleeping. Chance (jitter, ranges of bytes) comes from the seed, the
number of the connection and the way: the same draws in every run.

  delay        every byte is late by so much; jitter is added to it, order is kept
  throttle     all connections share a line of so many bytes a second, each way
  black_hole   bytes and ends vanish while the connection stays; healing resets those that
               lost something, and no connection made meanwhile ever reaches the server
  freeze       nothing moves, nothing is lost: all of it arrives after healing
  reset        an RST to both ends of every connection, now
  cut_after    so many bytes of a connection are forwarded, then it is cut
  cut_before   the pattern never arrives whole; it may lie across any border of chunks
  cut_behind   the pattern arrives, and nothing behind it
  lose_reply   the pattern arrives and the server answers: the answer is thrown away. It
               takes the first bytes after the pattern for the answer; where requests are
               sent ahead, name the answer: cut_before(b"...", way=Way.DOWN)
  refuse       no new connections (ECONNREFUSED); those that stand go on
  heal         all of it is over; the port stays the same
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Self, TypedDict, TypeVar, Unpack

from tests.e2e.proxy_link import (
    TAIL_BYTES,
    Cut,
    Journal,
    Link,
    Trap,
    Way,
    Weather,
)

HOST = "127.0.0.1"
BACKLOG = 512
ANSWER_SECONDS = 30.0
T = TypeVar("T")
BOTH = (Way.UP, Way.DOWN)


class Which(TypedDict, total=False):
    """Which occurrences of a pattern to cut; by default the next one of a client."""

    way: Way
    skip: int
    times: int | None


class FaultProxy:
    """A proxy between clients and one server."""

    def __init__(self, target: tuple[str, int], *, seed: int = 0) -> None:
        self.target, self.seed = target, seed
        self.journal = Journal()
        # Never listens: it reserves the port while new connections are refused.
        self._holder = _bound(HOST, 0)
        self.address: tuple[str, int] = self._holder.getsockname()
        self._weather = Weather()
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._made = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._holder.close()

    # --- faults

    def delay(
        self, seconds: float, *, jitter: float = 0.0, way: Way | None = None
    ) -> None:
        """Delay every byte by this much, and up to `jitter` seconds more."""

        def change() -> None:
            for each in _ways(way):
                self._weather.delay[each] = (seconds, jitter)

        self._fault("delay", change, way)

    def throttle(self, bytes_per_second: float, *, way: Way | None = None) -> None:
        def change() -> None:
            for each in _ways(way):
                self._weather.rate[each] = bytes_per_second

        self._fault("throttle", change, way)

    def black_hole(self, way: Way | None = None) -> None:
        self._fault("black hole", lambda: self._weather.holes.update(_ways(way)), way)

    def freeze(self, way: Way | None = None) -> None:
        self._fault("freeze", lambda: self._weather.frozen.update(_ways(way)), way)

    def reset(self) -> None:
        self._fault("reset", lambda: self._break(self._links))

    def refuse(self) -> None:
        self._fault("refuse", self._stop_listening)

    def cut_after(
        self,
        size: int | tuple[int, int],
        *,
        way: Way = Way.UP,
        times: int | None = 1,
    ) -> None:
        """Cut a connection after this many bytes; with a range, each draws its own number."""
        low, high = (size, size) if isinstance(size, int) else size
        self._arm(Trap(Cut.BYTES, bytes_range=(low, high), way=way, times=times))

    def cut_before(self, pattern: bytes, **which: Unpack[Which]) -> None:
        self._arm(Trap(Cut.BEFORE, pattern, **which))

    def cut_behind(self, pattern: bytes, **which: Unpack[Which]) -> None:
        self._arm(Trap(Cut.AFTER, pattern, **which))

    def lose_reply(
        self, pattern: bytes, *, skip: int = 0, times: int | None = 1
    ) -> None:
        self._arm(Trap(Cut.REPLY, pattern, skip=skip, times=times))

    def heal(self) -> None:
        self._fault("heal", self._heal)

    # --- state

    def links(self) -> int:
        """Return the number of open connections."""
        return self._do(self._count())

    # --- on the proxy's loop

    def _fault(
        self, what: str, change: Callable[[], object], way: Way | None = None
    ) -> None:
        async def apply() -> None:
            answer = change()
            if isinstance(answer, Awaitable):
                await answer
            self.journal.note(what, way=way)

        self._do(apply())

    def _arm(self, trap: Trap) -> None:
        if trap.cut is not Cut.BYTES and not 0 < len(trap.pattern) <= TAIL_BYTES:
            raise ValueError(f"a pattern has 1 to {TAIL_BYTES} bytes: {trap.pattern!r}")
        self._fault(f"arm: cut {trap.cut}", lambda: self._weather.traps.append(trap))

    def _do(self, asked: Coroutine[Any, Any, T]) -> T:
        """Run a function on the proxy's loop; return its result once it is done."""
        future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        return future.result(ANSWER_SECONDS)

    async def _count(self) -> int:
        return len(self._links)

    async def _listen(self) -> None:
        listener = _bound(*self.address)
        listener.listen(BACKLOG)
        self._accepting = self._loop.create_task(self._accept(listener))

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                client, _ = await self._loop.sock_accept(listener)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._made += 1
                link = Link(self._made, client, self._weather, self.journal, self.seed)
                self.journal.note("connection", link.number)
                task = self._loop.create_task(link.run(self.target))
                self._links[link] = task
                task.add_done_callback(lambda _, link=link: self._forget(link))

    def _forget(self, link: Link) -> None:
        link.close()  # a task that is cancelled before it starts closes nothing
        del self._links[link]
        self.journal.note("connection over", link.number)

    async def _stop_listening(self) -> None:
        if self._accepting is not None:
            await _cancelled([self._accepting])
            self._accepting = None

    async def _break(self, links: Iterable[Link]) -> None:
        broken = list(links)
        for link in broken:
            link.must_reset = True
        await _cancelled([self._links[link] for link in broken])

    async def _heal(self) -> None:
        weather = self._weather
        weather.delay.clear()
        weather.rate.clear()
        weather.holes.clear()
        weather.frozen.clear()
        weather.traps.clear()
        for link in self._links:
            link.reply_is_lost = False
        weather.healed.set()
        weather.healed = asyncio.Event()
        await self._break([link for link in self._links if link.is_damaged])
        if self._accepting is None:
            await self._listen()

    async def _end(self) -> None:
        await self._stop_listening()
        await _cancelled([*self._links.values()])


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ways(way: Way | None) -> tuple[Way, ...]:
    return BOTH if way is None else (way,)


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket with this port, which the proxy may bind more than once."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((host, port))
    made.setblocking(False)
    return made
