"""One event loop's connection to the server, and the lock that callers wait for.

Everything here is called with the lock held, but for `enter` and the ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from durio.ports.clock import Clock
from durio.stores.postgres.driver import Connection, DriverError, Hear, Row
from durio.stores.postgres.opening import WRITE, Opening
from durio.stores.postgres.sqlstate import FAILED_TRANSACTION, READ_ONLY
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Look

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
LAST_CALL_SECONDS = 1.0
END_LOST = statement("line_end_lost")
# Sessions are of whoever has logged in, whatever role is acted as.
AS_LOGGED_IN = "begin; set local role none"
GONE_SECONDS = 3.0  # that it is waited for, once
# Lines of the parent must never be touched in a forked child, not even by the collector:
# closing one would write to a socket that is not ours.
_inherited: "list[Line]" = []


class Heard(NamedTuple):
    """Who hears a channel."""

    hear: Hear
    missed: Callable[[], None]


class Line:
    """A connection that is opened when it is needed, and opened again when it is lost."""

    def __init__(self, opening: Opening, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        self.lock = asyncio.Lock()
        self.is_unknown = False  # whether the call that failed last may have happened
        self.is_brief = False  # whether the call at hand hardly waits for locks
        self._opening = opening
        self._clock = clock
        self._connection: Connection | None = None
        self._heard: dict[str, Heard] = {}
        self._pause_seconds = 0.0  # before the next try to connect
        self._not_before = 0.0
        self._lost: list[int] = []  # server processes that may be at work for us still
        self._keeper: AsyncGenerator[None, None] | None = None
        self._has_ended = False

    # --- asking

    async def one(self, text: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement, its own transaction."""
        self.is_unknown = False
        connection = await self.ready()
        if self._opening.is_pooled or self.is_brief:
            # Settings that are not the connection's ride at the head of a transaction.
            return await self.transaction(WRITE, lambda it: it.rows(text, args), None)
        try:
            async with self._limited():
                return await connection.rows(text, args)
        except DriverError as error:
            self._note(error, sent=True)
            raise

    async def transaction(
        self, begin: str, work: Callable[[Connection], Awaitable[T]], look: Look | None
    ) -> T:
        """Begin, work, commit; a failure of any kind rolls back or cuts the line."""
        self.is_unknown = False
        is_sent = False
        connection = await self._begun(begin)
        try:
            async with self._limited():
                answer = await work(connection)
                if look is not None:
                    look("commit")
                is_sent = True
                check_commit(await connection.run("commit"))
                return answer
        except Exception as error:
            if isinstance(error, DriverError):
                self._note(error, sent=is_sent)
            await self._roll_back()
            raise

    async def _begun(self, begin: str) -> Connection:
        """A connection with a transaction; nothing has happened if it was lost before."""
        try:
            return await self._try_to_begin(begin)
        except DriverError as error:
            if not error.lost or not error.was_open:
                raise
        return await self._try_to_begin(begin)

    async def _try_to_begin(self, begin: str) -> Connection:
        connection = await self.ready()
        try:
            async with self._limited():
                await connection.run(self._opening.begin(begin, brief=self.is_brief))
        except DriverError as error:
            self._note(error, sent=False)
            raise
        return connection

    @asynccontextmanager
    async def _limited(self) -> AsyncGenerator[None, None]:
        """One call: it has its time, and cuts the line where it is cancelled."""
        seconds = self._opening.place.call_seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise DriverError(f"no answer within {seconds:g} s", lost=True) from error
        except Exception:
            raise
        except BaseException:
            self.terminate()  # its answer would come to the next asker
            raise

    def _note(self, error: DriverError, *, sent: bool) -> None:
        """Learn from it; a connection that is of no more use is cut."""
        self._opening.learn(error)
        # Read-only: a replica by now, or a default that a new one need not have.
        is_of_use = not self._opening.is_stale(error) and error.state != READ_ONLY
        if error.lost or not is_of_use:
            self.is_unknown = sent and error.lost and not error.unsent
            self.terminate()

    async def _roll_back(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            async with self._limited():
                await connection.run("rollback")
        except DriverError:
            self.terminate()

    # --- the connection

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as anybody knows."""
        return self._connection is not None and not self._connection.is_closed

    async def ready(self) -> Connection:
        """The connection; a new one where there is none, after a pause if that failed."""
        if self._connection is not None and self.is_open:
            return self._connection
        if self._has_ended:  # nobody would close what is opened now
            raise DriverError("this event loop has ended", state="08003")
        self.terminate()
        left = self._not_before - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)
        try:
            connection = self._connection = await self._opening.connect()
            await self._end_lost(connection)
            async with self._limited():
                for channel, heard in self._heard.items():
                    await connection.listen(channel, heard.hear)
        except DriverError:
            self.terminate()
            self._wait_longer()
            raise
        except BaseException:
            self.terminate()
            raise
        self._pause_seconds = 0.0
        for heard in self._heard.values():
            heard.missed()
        return connection

    async def _end_lost(self, connection: Connection) -> None:
        """See to it that nothing is done any more that was asked on a lost connection.

        What it had begun may be waiting for a lock or for the disk, and would be done
        after we have asked how things stand. A pooler's processes are not ours to end.
        """
        if not self._lost or self._opening.is_pooled:
            return
        patience = min(GONE_SECONDS, self._opening.place.call_seconds / 2)
        try:
            async with self._limited():
                await connection.run(AS_LOGGED_IN)
                await connection.rows(END_LOST, (self._lost, int(patience * 1000)))
        except DriverError as error:
            if error.lost:
                raise  # else we may not: then it ends when it ends
        async with self._limited():
            await connection.run("rollback")
        self._lost.clear()

    def _wait_longer(self) -> None:
        """The next try to connect has to wait; each for twice as long, and jittered."""
        longer = max(FIRST_PAUSE_SECONDS, self._pause_seconds * 2)
        self._pause_seconds = min(longer, LONGEST_PAUSE_SECONDS)
        pause = self._pause_seconds * (0.5 + self._clock.random() / 2)
        self._not_before = self._clock.monotonic() + pause

    def terminate(self) -> None:
        """Cut the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._lost.append(connection.pid)
            connection.terminate()

    def abandon(self, *, inherited: bool) -> None:
        """Never touch it again: it belongs to another process, or its loop is gone."""
        if self._connection is not None:
            self._connection.abandon(inherited=inherited)
        if inherited:
            _inherited.append(self)

    # --- hearing

    async def listen(
        self, channel: str, hear: Hear, missed: Callable[[], None]
    ) -> None:
        """Hear this channel, on this connection and those that come after it."""
        connection = await self.ready()
        try:
            async with self._limited():
                await connection.listen(channel, hear)
        except DriverError as error:
            self._note(error, sent=False)
            raise
        self._heard[channel] = Heard(hear, missed)

    async def unlisten(self, channel: str) -> None:
        """No more; a connection that cannot even do that is cut."""
        self._heard.pop(channel, None)
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        try:
            async with self._limited():
                await connection.unlisten(channel)
        except DriverError:
            self.terminate()

    # --- the loop

    async def enter(self) -> None:
        """Be told when the loop ends: it closes the generators that it has begun."""
        self._keeper = self._keep()
        await anext(self._keeper)

    async def _keep(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            # A hint may be on its way though all tasks were cancelled: one that is cut
            # off now would never hear of it, for the loop does not turn again.
            is_ours = False
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_CALL_SECONDS):
                    is_ours = await self.lock.acquire()
            self._has_ended = True
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(DriverError):
                    await connection.close()
            if is_ours:
                self.lock.release()

    async def close(self) -> None:
        """Wait for the call at hand, then say goodbye."""
        if self._keeper is not None:
            await self._keeper.aclose()


def check_commit(done: str) -> None:
    """Of a transaction that has failed already a commit makes a rollback."""
    if done != "COMMIT":
        raise DriverError(f"the commit became a {done}", state=FAILED_TRANSACTION)
