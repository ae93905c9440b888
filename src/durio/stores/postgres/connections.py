"""Connections to the server: one per event loop of this process, with a lock.

A connection is opened at its first use, and opened again when it is lost. A call that was
cancelled or timed out discards the connection, because its answer may still arrive. A
process that serves one worker has two connections, whatever its concurrency: one for its
own loop, one for the heartbeat's.

Methods of LoopConnection are called with its lock held, except those that start and end it.

While an enqueue waits for a key that an open transaction has locked, its event loop has a
spare connection. It is opened for the first such enqueue and closed 5 s after the last.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

from durio.model.errors import StoreError
from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.postgres.driver import (
    BEGIN_WRITE,
    BRIEF_WAIT,
    DEADLOCK,
    FAILED_TRANSACTION,
    KEY_WAIT,
    LOCKED,
    NOT_SERIALIZABLE,
    READ_ONLY,
    Connection,
    Connector,
    DriverError,
    NotificationCallback,
    Row,
)
from durio.stores.postgres.statements import SchemaStatements, statement
from durio.stores.postgres.transaction import (
    PostgresTransaction,
    ReadTransaction,
    StatementHook,
)
from durio.stores.postgres.translate import translated

T = TypeVar("T")

RECONNECT_PAUSE_SECONDS_MIN = 0.05
RECONNECT_PAUSE_SECONDS_MAX = 5.0
CLOSE_LOCK_SECONDS = 1.0
TERMINATE_LOST = statement("terminate_lost_connections")
# Server sessions belong to the login role, even if another role is set.
BEGIN_AS_LOGIN_ROLE = "begin; set local role none"
TERMINATE_SECONDS = 3.0  # longest wait for it, once
SPARE_IDLE_SECONDS = 5.0
# A forked child must never touch connections of its parent, not even by garbage collection:
# closing one would write to the parent's socket.
_inherited: "list[LoopConnection]" = []


class ChannelCallbacks(NamedTuple):
    callback: NotificationCallback
    on_gap: Callable[[], None]


class LoopConnection:
    """A connection that is opened when needed, and opened again when lost."""

    def __init__(self, connector: Connector, clock: Clock) -> None:
        self.loop = asyncio.get_running_loop()
        self.lock = asyncio.Lock()
        self.is_unknown = False  # the last failed call may have been executed
        self.lock_timeout: str | None = None  # for the current call; None: LOCK_WAIT
        self._connector = connector
        self._clock = clock
        self._connection: Connection | None = None
        self._channels: dict[str, ChannelCallbacks] = {}
        self._pause_seconds = 0.0  # before the next try to connect
        self._not_before = 0.0
        # Pids of server processes that may still execute our statements.
        self._lost: list[int] = []
        self._loop_guard: AsyncGenerator[None, None] | None = None
        self._has_ended = False

    # --- statements

    async def fetch(self, text: str, args: Sequence[Any]) -> Sequence[Row]:
        """Run one statement as its own transaction."""
        self.is_unknown = False
        connection = await self.ready()
        if self._connector.is_pooled or self.lock_timeout is not None:
            # Settings for one call are made at the beginning of a transaction.
            return await self.transaction(
                BEGIN_WRITE, lambda it: it.rows(text, args), None
            )
        try:
            async with self._limited():
                return await connection.rows(text, args)
        except DriverError as error:
            self._handle_error(error, sent=True)
            raise

    async def transaction(
        self,
        begin: str,
        work: Callable[[Connection], Awaitable[T]],
        on_statement: StatementHook | None,
    ) -> T:
        """Begin, run the work, commit; on failure roll back or cut the connection."""
        self.is_unknown = False
        is_sent = False
        connection = await self._begin(begin)
        try:
            async with self._limited():
                answer = await work(connection)
                if on_statement is not None:
                    on_statement("commit")
                is_sent = True
                check_commit(await connection.run("commit"))
                return answer
        except Exception as error:
            if isinstance(error, DriverError):
                self._handle_error(error, sent=is_sent)
            await self._roll_back()
            raise

    async def _begin(self, begin: str) -> Connection:
        """Return a connection with an open transaction; if lost here, nothing is written."""
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
                await connection.run(self._connector.begin(begin, self.lock_timeout))
        except DriverError as error:
            self._handle_error(error, sent=False)
            raise
        return connection

    @asynccontextmanager
    async def _limited(self) -> AsyncGenerator[None, None]:
        """Apply the time limit of one call; cut the connection if the call is cancelled."""
        seconds = self._connector.location.call_seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise DriverError(f"no answer within {seconds:g} s", lost=True) from error
        except Exception:
            raise
        except BaseException:
            self.terminate()  # else the next caller would get this answer
            raise

    def _handle_error(self, error: DriverError, *, sent: bool) -> None:
        """Learn from the error about the server; cut a connection that is unusable."""
        self._connector.learn(error)
        # Read-only: the server became a replica, or a default changed that a new connection
        # may not have.
        is_of_use = not self._connector.is_stale(error) and error.state != READ_ONLY
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
        """Whether there is a connection that is not known to be closed."""
        return self._connection is not None and not self._connection.is_closed

    async def ready(self) -> Connection:
        """Return the open connection; open one if needed, after a pause if that failed."""
        if self._connection is not None and self.is_open:
            return self._connection
        if self._has_ended:  # a new connection would never be closed
            raise DriverError("this event loop has ended", state="08003")
        self.terminate()
        left = self._not_before - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)
        try:
            connection = self._connection = await self._connector.connect()
            await self._terminate_lost(connection)
            async with self._limited():
                for channel, callbacks in self._channels.items():
                    await connection.listen(channel, callbacks.callback)
        except DriverError:
            self.terminate()
            self._wait_longer()
            raise
        except BaseException:
            self.terminate()
            raise
        self._pause_seconds = 0.0
        for callbacks in self._channels.values():
            callbacks.on_gap()
        return connection

    async def _terminate_lost(self, connection: Connection) -> None:
        """Terminate the server processes of lost connections.

        A statement that they have begun may wait for a lock or for the disk, and would be
        executed after the caller has checked the state. Processes behind a pooler are not
        terminated, because they may serve other clients.
        """
        if not self._lost or self._connector.is_pooled:
            return
        patience = min(TERMINATE_SECONDS, self._connector.location.call_seconds / 2)
        try:
            async with self._limited():
                await connection.run(BEGIN_AS_LOGIN_ROLE)
                await connection.rows(
                    TERMINATE_LOST, (self._lost, int(patience * 1000))
                )
        except DriverError as error:
            if error.lost:
                raise  # otherwise we lack the right; the process ends by itself
        async with self._limited():
            await connection.run("rollback")
        self._lost.clear()

    def _wait_longer(self) -> None:
        """Double the pause before the next try to connect, with jitter."""
        longer = max(RECONNECT_PAUSE_SECONDS_MIN, self._pause_seconds * 2)
        self._pause_seconds = min(longer, RECONNECT_PAUSE_SECONDS_MAX)
        pause = self._pause_seconds * (0.5 + self._clock.random() / 2)
        self._not_before = self._clock.monotonic() + pause

    def terminate(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._lost.append(connection.pid)
            connection.terminate()

    def abandon(self, *, inherited: bool) -> None:
        """Never use the connection again: it is another process's, or its loop is closed."""
        if self._connection is not None:
            self._connection.abandon(inherited=inherited)
        if inherited:
            _inherited.append(self)

    # --- notifications

    async def listen(
        self, channel: str, callback: NotificationCallback, on_gap: Callable[[], None]
    ) -> None:
        """Listen on this channel, also on connections that replace this one."""
        connection = await self.ready()
        try:
            async with self._limited():
                await connection.listen(channel, callback)
        except DriverError as error:
            self._handle_error(error, sent=False)
            raise
        self._channels[channel] = ChannelCallbacks(callback, on_gap)

    async def unlisten(self, channel: str) -> None:
        """Stop listening; cut the connection if that fails."""
        self._channels.pop(channel, None)
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        try:
            async with self._limited():
                await connection.unlisten(channel)
        except DriverError:
            self.terminate()

    # --- the end of the loop

    async def start(self) -> None:
        """Register for the end of the loop, when the loop closes its async generators."""
        self._loop_guard = self._close_at_loop_end()
        await anext(self._loop_guard)

    async def _close_at_loop_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            # A wakeup may be in progress although all tasks were cancelled. If it were
            # interrupted now, it would wait forever, because the loop does not run again.
            is_ours = False
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LOCK_SECONDS):
                    is_ours = await self.lock.acquire()
            self._has_ended = True
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(DriverError):
                    await connection.close()
            if is_ours:
                self.lock.release()

    async def close(self) -> None:
        """Wait for the call in progress, then close the connection."""
        if self._loop_guard is not None:
            await self._loop_guard.aclose()


class SpareConnection(LoopConnection):
    """A second connection of an event loop, open while enqueues wait for keys.

    It is opened in the background, because the server may refuse it or a pooler may delay
    it.
    """

    def __init__(self, connector: Connector, clock: Clock) -> None:
        super().__init__(connector, clock)
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    def is_ready(self) -> bool:
        """Whether the connection is open; if not, start to open it."""
        self._restart_timer()
        if self.is_open:
            return True
        if self._opening is None:
            self._opening = self.loop.create_task(self._open())
            self._opening.add_done_callback(self._end_opening)
        return False

    async def _open(self) -> None:
        with suppress(DriverError, StoreError):
            async with self.lock:
                await self.ready()

    def _end_opening(self, _task: "asyncio.Task[None]") -> None:
        self._opening = None

    def _restart_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(SPARE_IDLE_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.lock.locked():
            self._restart_timer()
        else:
            self._closing = self.loop.create_task(self._close_connection())

    async def _close_connection(self) -> None:
        async with self.lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(DriverError):
                    await connection.close()

    async def close(self) -> None:
        """Stop opening the connection, and close it for good."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
        await super().close()


def check_commit(done: str) -> None:
    """Raise if the server answered a commit with a rollback: a statement had failed."""
    if done != "COMMIT":
        raise DriverError(f"the commit became a {done}", state=FAILED_TRANSACTION)


# Called after the commit with the lanes that have work (and the worker not to wake in
# each), and the workers that must renew.
WakeCallback = Callable[[Mapping[str, int], Collection[int]], None]

# Errors after which the same work may succeed: a deadlock, a snapshot that was too old, or
# a row written to the default partition while the partition of its day was created.
RETRY_STATES = frozenset({DEADLOCK, NOT_SERIALIZABLE, "23514"})
TRIES = 5
PAUSE_SECONDS = 0.02  # before the second try; jittered, and longer each time
LOCK_PAUSE_SECONDS_MAX = 1.0  # between two tries to get the lock
BEGIN_READ = "begin isolation level repeatable read read only"


class LockWait(Enum):
    """How long a call may wait for locks of other transactions."""

    LONG = auto()  # repeated tries until the time limit of a call
    ONE_TURN = auto()
    KEY = auto()  # one try of KEY_WAIT
    # One try of KEY_WAIT on the spare connection. While that is not open, one try
    # of BRIEF_WAIT on the loop's connection, which all other calls need.
    SPARE = auto()


def no_wakeups(_lanes: Mapping[str, int], _workers: Collection[int]) -> None:
    """Placeholder until the store has its wakeups."""


class Connections:
    """The connections of one open store; every method may be awaited on any loop."""

    def __init__(
        self,
        connector: Connector,
        clock: Clock,
        injected: Clock | None,
        retention: RetentionSettings,
    ) -> None:
        # Set by tests; called for every statement of a write.
        self.on_statement: StatementHook | None = None
        self.wake: WakeCallback = no_wakeups
        self._connector = connector
        self._location = connector.location
        self._clock = clock
        self._injected = injected
        self._retention = retention
        self._statements = SchemaStatements(connector.location.schema)
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopConnection] = {}
        self._spare_by_loop: dict[asyncio.AbstractEventLoop, SpareConnection] = {}

    @property
    def now(self) -> float | None:
        """The time argument of statements: a test's time, or None for the server's."""
        return None if self._injected is None else self._injected.now()

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler is between this process and the server."""
        return self._connector.is_pooled

    # --- one statement

    async def read(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement; repeat it once on a new connection if the connection is lost."""
        text = self._statements[sql]
        return await self._read(lambda it: it.fetch(text, args))

    async def _read(self, ask: Callable[[LoopConnection], Awaitable[T]]) -> T:
        """Run a read; repeat it once if the connection is lost, which is safe for reads."""
        connection = await self.connection()

        async def attempt() -> T:
            try:
                return await ask(connection)
            except DriverError as error:
                if not (error.lost or self._is_harmless(error)):
                    raise
            return await ask(connection)

        return await self._in_turns(connection, attempt, writes=False)

    async def write_one(
        self, sql: str, *args: Any, lock_wait: LockWait = LockWait.LONG
    ) -> Sequence[Row]:
        """Run one statement that is its own transaction: one round trip.

        The caller wakes workers itself. If the outcome is not known, the error is
        `unknown`.
        """
        text = self._statements[sql]
        connection, lock_timeout = await self._connection_for(lock_wait)
        return await self._in_turns(
            connection,
            lambda: self._fetch(connection, text, args),
            lock_wait,
            lock_timeout,
        )

    async def _fetch(
        self, loop_connection: LoopConnection, text: str, args: Sequence[Any]
    ) -> Sequence[Row]:
        if self.on_statement is not None:
            self.on_statement(text)
            self.on_statement("commit")  # the statement commits itself
        return await loop_connection.fetch(text, args)

    # --- several statements

    async def write(
        self,
        work: Callable[[PostgresTransaction], Awaitable[T]],
        *,
        lock_wait: LockWait = LockWait.LONG,
    ) -> T:
        """Begin, run the work, commit; then wake the workers that the work has named.

        After a deadlock or a serialization failure the work is repeated from its beginning,
        a few times. While a lock is not free, the work is repeated until the time limit of
        a call, if `lock_wait` allows that. Any exception of the work rolls everything back.
        """
        connection, lock_timeout = await self._connection_for(lock_wait)
        tx, answer = await self._in_turns(
            connection, lambda: self._commit(connection, work), lock_wait, lock_timeout
        )
        for call in tx.after_commit:
            call()
        if tx.woken_lanes or tx.woken_workers:
            self.wake(tx.woken_lanes, tx.woken_workers)
        return answer

    async def _commit(
        self,
        loop_connection: LoopConnection,
        work: Callable[[PostgresTransaction], Awaitable[T]],
    ) -> tuple[PostgresTransaction, T]:
        async def within(connection: Connection) -> tuple[PostgresTransaction, T]:
            tx = PostgresTransaction(
                connection,
                self._statements,
                self.now,
                self.on_statement,
                self._retention,
            )
            answer = await work(tx)
            await tx.finish()
            return tx, answer

        if self.on_statement is not None:
            self.on_statement("begin")
        return await loop_connection.transaction(BEGIN_WRITE, within, self.on_statement)

    async def read_many(self, work: Callable[[ReadTransaction], Awaitable[T]]) -> T:
        """Run several reads that see one state of the database."""

        async def within(connection: Connection) -> T:
            return await work(ReadTransaction(connection, self._statements, self.now))

        return await self._read(lambda it: it.transaction(BEGIN_READ, within, None))

    async def _in_turns(
        self,
        loop_connection: LoopConnection,
        attempt: Callable[[], Awaitable[T]],
        lock_wait: LockWait = LockWait.LONG,
        lock_timeout: str | None = None,
        *,
        writes: bool = True,
    ) -> T:
        """Use the connection, and let other callers use it while a lock is not free.

        A long transaction may hold that lock. One caller that needs it must not block all
        other callers of this process. Later tries are brief, because others need the
        connection and many callers may wait in the same way.
        """
        last = self._clock.monotonic() + self._location.call_seconds
        pause = PAUSE_SECONDS
        while True:
            async with loop_connection.lock:
                loop_connection.lock_timeout = lock_timeout
                try:
                    return await self._retry(loop_connection, attempt)
                except DriverError as error:
                    is_late = self._clock.monotonic() >= last
                    is_last = is_late or lock_wait is not LockWait.LONG
                    if error.state != LOCKED or is_last:
                        unknown = writes and loop_connection.is_unknown
                        raise translated(
                            error, self._location, unknown=unknown
                        ) from error
            await self._clock.sleep(pause * (0.5 + self._clock.random()))
            pause = min(pause * 2, LOCK_PAUSE_SECONDS_MAX)
            lock_timeout = BRIEF_WAIT

    async def _retry(
        self, loop_connection: LoopConnection, attempt: Callable[[], Awaitable[T]]
    ) -> T:
        """Repeat the work a few times after errors that mean nothing was written."""
        for tried in range(1, TRIES + 1):
            loop_connection.is_unknown = False
            try:
                return await attempt()
            except DriverError as error:
                if tried == TRIES or not self._is_harmless(error):
                    raise
            jitter = 0.5 + self._clock.random()
            await self._clock.sleep(PAUSE_SECONDS * jitter * 2 ** (tried - 1))
        raise AssertionError

    def _is_harmless(self, error: DriverError) -> bool:
        """Whether nothing was written and the same work may succeed now."""
        was_gone = error.lost and error.unsent
        return (
            was_gone or error.state in RETRY_STATES or self._connector.is_stale(error)
        )

    # --- notifications

    async def listen(
        self, channel: str, callback: NotificationCallback, on_gap: Callable[[], None]
    ) -> None:
        """Listen on the connection of this loop, also after it is opened again.

        `on_gap` is called whenever notifications may be missing: the connection was lost,
        or is a new one.
        """
        connection = await self.connection()
        try:
            async with connection.lock:
                await connection.listen(channel, callback, on_gap)
        except DriverError as error:
            raise translated(error, self._location) from error

    async def unlisten(self, channel: str) -> None:
        """Stop listening, on this loop."""
        connection = self._by_loop.get(asyncio.get_running_loop())
        if connection is not None:
            async with connection.lock:
                await connection.unlisten(channel)

    # --- opening and closing

    async def connection(self) -> LoopConnection:
        """Return the connection of the running loop, created at the first call."""
        loop = asyncio.get_running_loop()
        connection = self._by_loop.get(loop)
        if connection is None:
            self._drop_closed_loops()
            connection = self._by_loop[loop] = LoopConnection(
                self._connector, self._clock
            )
            await connection.start()
        return connection

    async def _connection_for(
        self, lock_wait: LockWait
    ) -> tuple[LoopConnection, str | None]:
        """Return the connection to use, and the lock_timeout of the first try."""
        if lock_wait is LockWait.SPARE:
            loop = asyncio.get_running_loop()
            spare = self._spare_by_loop.get(loop)
            if spare is None:
                spare = SpareConnection(self._connector, self._clock)
                self._spare_by_loop[loop] = spare
                await spare.start()
            if spare.is_ready():
                return spare, KEY_WAIT
            return await self.connection(), BRIEF_WAIT
        lock_timeout = KEY_WAIT if lock_wait is LockWait.KEY else None
        return await self.connection(), lock_timeout

    def run_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the work on one of our running loops, if any, without waiting for it."""
        for loop in list(self._by_loop):
            if loop.is_running():
                asyncio.run_coroutine_threadsafe(work(), loop)
                return

    def _drop_closed_loops(self) -> None:
        """Drop the connections of closed loops, whether these were closed properly or not."""
        for connections in (self._by_loop, self._spare_by_loop):
            for loop, connection in list(connections.items()):
                if loop.is_closed():
                    connection.abandon(inherited=False)
                    connections.pop(loop, None)

    async def close(self) -> None:
        """Close the connection of this loop; cut the others, each on its own loop."""
        here = asyncio.get_running_loop()
        for connection in self._take_all():
            if connection.loop is here:
                await connection.close()
            elif connection.loop.is_closed():
                connection.abandon(inherited=False)
            else:
                connection.loop.call_soon_threadsafe(connection.terminate)

    def forget(self) -> None:
        """Drop all connections in a forked child: they belong to the parent."""
        for connection in self._take_all():
            connection.abandon(inherited=True)

    def _take_all(self) -> list[LoopConnection]:
        taken = [*self._by_loop.values(), *self._spare_by_loop.values()]
        self._by_loop, self._spare_by_loop = {}, {}
        return taken
