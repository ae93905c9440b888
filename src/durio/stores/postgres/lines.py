"""One line to the server per event loop of this process: a connection and a lock.

A line is opened at its first use and opened again when its connection is lost; a call
that was cancelled or took too long discards the connection, for nobody knows what will
still come out of it. A process that serves one worker has two lines, whatever its
concurrency: that of its own loop, and that of the heartbeat's.
"""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from enum import Enum, auto
from typing import Any, TypeVar

from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.postgres.driver import Connection, DriverError, Hear, Row
from durio.stores.postgres.line import Line
from durio.stores.postgres.opening import WRITE, Opening
from durio.stores.postgres.sqlstate import DEADLOCK, LOCKED, NOT_SERIALIZABLE
from durio.stores.postgres.statements import Filled
from durio.stores.postgres.transaction import Look, Reading, Transaction
from durio.stores.postgres.translate import translated

T = TypeVar("T")
# After the commit: lanes with work -> whom not to tell, and workers that should renew.
Ring = Callable[[Mapping[str, int], Collection[int]], None]

# What is simply done again: a deadlock, a snapshot that was too old, a row on its way into
# the net of history when somebody made the day that it belongs to.
AGAIN = frozenset({DEADLOCK, NOT_SERIALIZABLE, "23514"})
TRIES = 5
PAUSE_SECONDS = 0.02  # before the second try; jittered, and longer each time
LONGEST_PAUSE_SECONDS = 1.0  # between two tries to have it
READ = "begin isolation level repeatable read read only"


class Patience(Enum):
    """How long a call may wait for locks that others hold."""

    LONG = auto()  # turn after turn, as long as a call may last
    ONE_TURN = auto()
    BRIEF = auto()  # a turn in which it hardly waits at all


def nobody(_lanes: Mapping[str, int], _workers: Collection[int]) -> None:
    """Before there is a bell."""


class Lines:
    """The lines of one open store; every method may be awaited on any loop."""

    def __init__(
        self,
        opening: Opening,
        clock: Clock,
        injected: Clock | None,
        retention: RetentionSettings,
    ) -> None:
        self.look: Look | None = None  # told of every statement of a write, in tests
        self.ring: Ring = nobody
        self._opening = opening
        self._place = opening.place
        self._clock = clock
        self._injected = injected
        self._retention = retention
        self._filled = Filled(opening.place.schema)
        self._lines: dict[asyncio.AbstractEventLoop, Line] = {}

    @property
    def now(self) -> float | None:
        """What statements get as their time: a test's, or None for the server's."""
        return None if self._injected is None else self._injected.now()

    @property
    def is_pooled(self) -> bool:
        """Whether something between us and the server shares its connections."""
        return self._opening.is_pooled

    # --- one statement

    async def read(self, sql: str, *args: Any) -> Sequence[Row]:
        """One statement; a lost connection is replaced and it is asked once more."""
        text = self._filled[sql]
        return await self._read(lambda line: line.one(text, args))

    async def _read(self, ask: Callable[[Line], Awaitable[T]]) -> T:
        """Ask, and once more where the connection was lost: nothing is done twice."""
        line = await self.line()

        async def attempt() -> T:
            try:
                return await ask(line)
            except DriverError as error:
                if not (error.lost or self._is_harmless(error)):
                    raise
            return await ask(line)

        return await self._in_turns(line, attempt, writes=False)

    async def write_one(
        self, sql: str, *args: Any, patience: Patience = Patience.LONG
    ) -> Sequence[Row]:
        """One statement that is its own transaction: one round trip.

        The caller rings by itself. An outcome that nobody knows is told as `unknown`.
        """
        text = self._filled[sql]
        line = await self.line()
        return await self._in_turns(line, lambda: self._one(line, text, args), patience)

    async def _one(self, line: Line, text: str, args: Sequence[Any]) -> Sequence[Row]:
        if self.look is not None:
            self.look(text)
            self.look("commit")  # of its own
        return await line.one(text, args)

    # --- several statements

    async def write(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        *,
        patience: Patience = Patience.LONG,
    ) -> T:
        """Begin, work, commit; then ring whom the work says.

        After a deadlock or a serialization failure the work is done again, from its
        beginning, a few times; so it is for as long as a call may last where a lock is not
        free, if there is the patience. Whatever it raises rolls everything back.
        """
        line = await self.line()
        tx, answer = await self._in_turns(
            line, lambda: self._commit(line, work), patience
        )
        for call in tx.after_commit:
            call()
        if tx.rung_lanes or tx.rung_workers:
            self.ring(tx.rung_lanes, tx.rung_workers)
        return answer

    async def _commit(
        self, line: Line, work: Callable[[Transaction], Awaitable[T]]
    ) -> tuple[Transaction, T]:
        async def within(connection: Connection) -> tuple[Transaction, T]:
            tx = Transaction(
                connection, self._filled, self.now, self.look, self._retention
            )
            answer = await work(tx)
            for call in tx.before_commit:
                await call()
            return tx, answer

        if self.look is not None:
            self.look("begin")
        return await line.transaction(WRITE, within, self.look)

    async def read_many(self, work: Callable[[Reading], Awaitable[T]]) -> T:
        """Several reads that see one and the same state of the database."""

        async def within(connection: Connection) -> T:
            return await work(Reading(connection, self._filled, self.now, None))

        return await self._read(lambda line: line.transaction(READ, within, None))

    async def _in_turns(
        self,
        line: Line,
        attempt: Callable[[], Awaitable[T]],
        patience: Patience = Patience.LONG,
        *,
        writes: bool = True,
    ) -> T:
        """Have the line, and let others have it while a lock is not free.

        Whoever holds that lock may be a transaction that lasts: one caller of ours who
        needs it must not keep all of them from the server. Later turns are brief: others
        want the line, and many may be waiting like this one.
        """
        last = self._clock.monotonic() + self._place.call_seconds
        pause, is_brief = PAUSE_SECONDS, patience is Patience.BRIEF
        while True:
            async with line.lock:
                line.is_brief = is_brief
                try:
                    return await self._again(line, attempt)
                except DriverError as error:
                    is_late = self._clock.monotonic() >= last
                    is_last = is_late or patience is not Patience.LONG
                    if error.state != LOCKED or is_last:
                        unknown = writes and line.is_unknown
                        raise translated(error, self._place, unknown=unknown) from error
            await self._clock.sleep(pause * (0.5 + self._clock.random()))
            pause, is_brief = min(pause * 2, LONGEST_PAUSE_SECONDS), True

    async def _again(self, line: Line, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try, and try again where the server asks for it and nothing was written."""
        for tried in range(1, TRIES + 1):
            line.is_unknown = False
            try:
                return await attempt()
            except DriverError as error:
                if tried == TRIES or not self._is_harmless(error):
                    raise
            jitter = 0.5 + self._clock.random()
            await self._clock.sleep(PAUSE_SECONDS * jitter * 2 ** (tried - 1))
        raise AssertionError

    def _is_harmless(self, error: DriverError) -> bool:
        """Whether nothing was done, and the same may well work now."""
        was_gone = error.lost and error.unsent
        return was_gone or error.state in AGAIN or self._opening.is_stale(error)

    # --- hearing

    async def listen(
        self, channel: str, hear: Hear, missed: Callable[[], None]
    ) -> None:
        """Hear a channel on the line of this loop, also after it was opened again.

        `missed` is called whenever something may have been said that nobody heard: the
        connection was lost, or is a new one.
        """
        line = await self.line()
        try:
            async with line.lock:
                await line.listen(channel, hear, missed)
        except DriverError as error:
            raise translated(error, self._place) from error

    async def unlisten(self, channel: str) -> None:
        """No more, on this loop."""
        line = self._lines.get(asyncio.get_running_loop())
        if line is not None:
            async with line.lock:
                await line.unlisten(channel)

    # --- opening and closing

    async def line(self) -> Line:
        """The line of the loop that asks; made at its first call."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            self._sweep()
            line = self._lines[loop] = Line(self._opening, self._clock)
            await line.enter()
        return line

    def soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this on a loop of ours that runs, if one does; nobody waits for it."""
        for loop in list(self._lines):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(work(), loop)
                return

    def _sweep(self) -> None:
        """Lines of loops that have ended, with a word or without."""
        for loop, line in list(self._lines.items()):
            if loop.is_closed():
                line.abandon(inherited=False)
                self._lines.pop(loop, None)

    async def close(self) -> None:
        """Close the line of this loop; those of others are cut, each on its loop."""
        here = asyncio.get_running_loop()
        lines, self._lines = self._lines, {}
        for loop, line in lines.items():
            if loop is here:
                await line.close()
            elif loop.is_closed():
                line.abandon(inherited=False)
            else:
                loop.call_soon_threadsafe(line.terminate)

    def forget(self) -> None:
        """After a fork, in the child: these connections are the parent's."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.abandon(inherited=True)
