"""Jobs in callers' transactions, and transactions of their own for tasks.

A caller's jobs are written by the statements of every enqueue, on the caller's connection;
workers hear of them by a notification that its commit sends. A task's own transaction has
a connection of its own, as plain as the driver makes it, for the task's rows; the end of
the job is the last thing that is written there.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from durio.model.errors import (
    LeaseLost,
    StoreError,
    StoreUnavailable,
    UsageError,
    WrongTransaction,
)
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.outcome import Outcome, with_progress
from durio.model.tx import SQLALCHEMY, Joinable, tx_kind
from durio.ports.enqueue import Enqueued
from durio.ports.transactions import OwnTransaction
from durio.stores.postgres.bounds import record_entered
from durio.stores.postgres.caller_checks import (
    FIXED_SNAPSHOT,
    SNAPSHOT,
    TASK_MARK,
    TASK_MARKED,
    check_caller_connection,
    read_only_error,
)
from durio.stores.postgres.caller_connection import (
    PostgresCallerConnection,
    caller_connection,
    caller_connection_in_sqlalchemy,
    failed_transaction_error,
)
from durio.stores.postgres.connections import (
    PAUSE_SECONDS,
    RETRY_STATES,
    TRIES,
    LockWait,
    check_commit,
)
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.driver import (
    DEADLOCK,
    FAILED_TRANSACTION,
    NO_RIGHT,
    NOT_SERIALIZABLE,
    READ_ONLY,
    SETTINGS_IN_TRANSACTION,
    Connection,
    DriverError,
    Row,
)
from durio.stores.postgres.enqueue import complete_answers, enqueue_locked
from durio.stores.postgres.enqueue_fast import enqueue_fast
from durio.stores.postgres.finish import record_outcomes
from durio.stores.postgres.statements import SchemaStatements, statement
from durio.stores.postgres.task_connection import (
    TASK_CONNECTIONS,
    TaskConnection,
    ended_by_task,
    mark_statement,
)
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.translate import translated

T = TypeVar("T")

MAKE_LANES = statement("insert_queue")
NOTIFY_IN_TRANSACTION = statement("notify_in_transaction")
CONSTRAINT_CLASS = "23"
CONFLICT_STATES = frozenset({NOT_SERIALIZABLE, DEADLOCK})


class PostgresTransactions(PostgresCapability):
    """Writing in transactions of others."""

    async def enqueue_in(self, tx: Joinable, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs in a transaction that the caller has open."""
        desk, kind = self.context, tx_kind(tx)
        try:
            if kind in SQLALCHEMY:
                caller = await caller_connection_in_sqlalchemy(tx, kind)
            else:
                caller = caller_connection(tx, kind)
            lines = CallerConnectionAdapter(desk, caller)
            theirs = await check_caller_connection(desk, lines, may_wait=kind.is_async)
            is_frozen = theirs[SNAPSHOT] == FIXED_SNAPSHOT
            if kind.is_async:
                await make_lanes(desk, jobs)
            return await enqueue_on(desk, lines, jobs, has_fixed_snapshot=is_frozen)
        except DriverError as error:
            raise caller_error(error, desk) from error
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, DriverError):
                raise caller_error(cause, desk) from cause
            raise

    async def begin(self, worker: int, *, is_sync: bool = False) -> OwnTransaction:
        """A transaction for a task of this worker, on a connection of its own."""
        if is_sync:
            raise UsageError(
                "a sync task has no transaction of its own on PostgreSQL: its connection "
                "would belong to the worker's event loop",
                cure="Make it `async def` and use `async with ctx.transaction()`.",
            )
        own = PostgresOwnTransaction(self.context, worker)
        try:
            await own.begin()
        except BaseException:
            await own.roll_back()
            raise
        return own


# --- in a caller's transaction


async def make_lanes(context: PostgresContext, jobs: Sequence[NewJob]) -> None:
    """Queues that nobody has used before, by a transaction of our own.

    In the caller's, everybody else with a job for them would wait until that is over; so it
    will be where our own line fails now.
    """
    news = sorted({job.lane for job in jobs} - context.known_lanes)
    if news:
        with suppress(StoreError):
            patience = LockWait.ONE_TURN
            await context.connections.write_one(MAKE_LANES, news, lock_wait=patience)
            context.known_lanes.update(news)


async def enqueue_on(
    context: PostgresContext,
    connections: "CallerConnectionAdapter",
    jobs: Sequence[NewJob],
    *,
    has_fixed_snapshot: bool,
) -> list[Enqueued]:
    """By the statements of every enqueue, but on this connection."""
    theirs = replace(
        context,
        connections=cast("Any", connections),
        wakeups=cast("Any", connections),
        in_caller_tx=True,
        has_fixed_snapshot=has_fixed_snapshot,
        known_lanes=set(context.known_lanes),  # what is new there may be rolled back
        guarded_lanes=set(),
    )
    calls = (len(jobs),)
    answers = await enqueue_fast(theirs, jobs, calls)
    if answers is None:
        stored = await enqueue_locked(theirs, jobs, calls, again=False)
    else:
        if has_fixed_snapshot:
            told = zip(jobs, answers, strict=True)
            new = Counter(job.lane for job, is_in in told if is_in and is_in.created)
            await record_entered(connections, new)
        stored = await complete_answers(theirs, jobs, answers)
    payloads = context.wakeups.payloads_in_transaction(connections.woken_lanes)
    if payloads:
        await connections.rows(NOTIFY_IN_TRANSACTION, context.wakeups.channel, payloads)
    return stored


class CallerConnectionAdapter:
    """What an enqueue asks of the store's lines and of its bell, on one connection."""

    def __init__(
        self, context: PostgresContext, connection: PostgresCallerConnection
    ) -> None:
        self.now = context.connections.now
        self.woken_lanes: dict[str, int] = {}
        self._context = context
        self._connection = connection
        self._statements = SchemaStatements(context.location.schema)

    def wake(self, lanes: dict[str, int], _workers: object) -> None:
        """Later, and by the commit of the caller."""
        self.woken_lanes |= lanes

    async def rows(self, sql: str, *args: Any) -> Sequence[Row]:
        """One statement, with its errors as the driver has them."""
        return await self._connection.rows(self._statements[sql], args)

    async def write_one(
        self,
        sql: str,
        *args: Any,
        lock_wait: LockWait = LockWait.LONG,  # noqa: ARG002 - that of their connection
    ) -> Sequence[Row]:
        """One statement."""
        try:
            return await self.rows(sql, *args)
        except DriverError as error:
            raise translated(error, self._context.location) from error

    async def write(
        self,
        work: Callable[[PostgresTransaction], Awaitable[T]],
        *,
        lock_wait: LockWait = LockWait.LONG,  # noqa: ARG002
    ) -> T:
        """Several; whatever raises undoes them, and nothing else of the caller's."""
        tx = transaction_on(self._context, self._connection)
        try:
            await self._connection.run("savepoint durio")
            try:
                answer = await work(tx)
                for call in tx.before_commit:
                    await call()
            except BaseException:
                with suppress(DriverError):
                    await self._connection.run("rollback to savepoint durio")
                raise
            await self._connection.run("release savepoint durio")
        except DriverError as error:
            raise translated(error, self._context.location) from error
        self.woken_lanes |= tx.woken_lanes
        return answer


def transaction_on(
    context: PostgresContext, connection: PostgresCallerConnection
) -> PostgresTransaction:
    """What operations see of a connection that is not the store's."""
    return PostgresTransaction(
        cast("Connection", connection),
        SchemaStatements(context.location.schema),
        context.connections.now,
        context.connections.on_statement,
        context.retention,
    )


def caller_error(error: DriverError, context: PostgresContext) -> Exception:
    """What a caller hears of a failure in its own transaction."""
    if error.lost:
        return StoreUnavailable(
            f"{context.location.shown}: the connection of tx was lost, and its transaction with "
            f"it ({error.text})",
            cure="Do the whole transaction again, on another connection.",
            state=error.state,
        )
    if error.state in CONFLICT_STATES:
        return StoreUnavailable(
            f"{context.location.shown}: another transaction was in the way of tx ({error.text})",
            cure="Roll it back, and do the whole transaction again.",
            state=error.state,
        )
    if error.state == NO_RIGHT:
        refused = translated(error, context.location)
        refused.cure = (
            "Say `reset role` before the enqueue, where the transaction has another role "
            f"than its connection. {refused.cure}"
        )
        return refused
    return transaction_error(error, context)


def task_error(error: DriverError, context: PostgresContext) -> Exception:
    """What a task hears of a failure at the end of its own."""
    if error.state in CONFLICT_STATES and not error.lost:
        return StoreUnavailable(
            f"{context.location.shown}: another transaction was in the way of ctx.transaction(); "
            f"nothing was written ({error.text})",
            cure="Nothing to do while it has retries left: the next attempt does it all "
            "again. Short blocks meet others less often, and those at READ COMMITTED "
            "only in deadlocks.",
            state=error.state,
        )
    if error.state == NO_RIGHT:
        return WrongTransaction(
            "the role that the block has now may not write the end of the job: "
            f"{error.text}",
            cure="Say `reset role`, or `reset session authorization`, before the block's "
            "end: that is written by the role of the store's URL.",
        )
    return transaction_error(error, context)


def transaction_error(error: DriverError, context: PostgresContext) -> Exception:
    """What both hear."""
    if error.state == FAILED_TRANSACTION:
        return failed_transaction_error()
    if error.state == READ_ONLY:
        return read_only_error()
    if error.state.startswith(CONSTRAINT_CLASS) and error.state not in RETRY_STATES:
        return WrongTransaction(
            f"the transaction breaks a rule of your tables: {error.text}",
            cure="It was rolled back: see the constraint, and whether it is deferred.",
        )
    return translated(error, context.location)


# --- a task's own


class PostgresOwnTransaction:
    """One transaction on a connection that is closed with it."""

    def __init__(self, context: PostgresContext, worker: int) -> None:
        self._context = context
        self._worker = worker
        self._task_connection: TaskConnection = TASK_CONNECTIONS[
            context.location.driver
        ]()
        self._is_over = False

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        return self._task_connection.connection

    async def begin(self) -> None:
        """Connect and begin."""
        desk = self._context
        try:
            mark = mark_statement(desk.location.schema, self._worker)
            prepared = not desk.connections.is_pooled
            await self._task_connection.begin(desk.location, mark, prepared=prepared)
        except DriverError as error:
            error.was_open = False
            raise translated(error, desk.location) from error

    async def commit(self, outcome: Outcome) -> None:
        """Record the outcome, then commit."""
        desk, is_sent = self._context, False
        try:
            async with asyncio.timeout(desk.location.call_seconds):
                async with self._task_connection.exclusive() as caller:
                    theirs = await check_caller_connection(
                        desk, CallerConnectionAdapter(desk, caller)
                    )
                    if theirs[TASK_MARK] != TASK_MARKED:
                        raise ended_by_task()
                    again = RETRY_STATES
                    if (
                        theirs[SNAPSHOT] == FIXED_SNAPSHOT
                    ):  # it sees no later state: nor would it
                        again -= {NOT_SERIALIZABLE}
                    await self._record(caller, outcome, again)
                    is_sent = True
                    check_commit(await caller.run("commit"))
        except DriverError as error:
            if is_sent and error.lost and not error.unsent:
                raise translated(error, desk.location, unknown=True) from error
            raise task_error(error, desk) from error
        except TimeoutError:
            raise StoreUnavailable(
                f"{desk.location.shown}: no answer within {desk.location.call_seconds:g} s",
                cure="See what the server does.",
                unknown=is_sent,
            ) from None
        finally:
            await self._end()

    async def _record(
        self,
        connection: PostgresCallerConnection,
        outcome: Outcome,
        again: Collection[str],
    ) -> None:
        """Write the end; from its own beginning where others made that necessary."""
        await connection.run(f"{SETTINGS_IN_TRANSACTION.lstrip('; ')}; savepoint durio")
        clock = self._context.clock
        for tried in range(1, TRIES + 1):
            tx = transaction_on(self._context, connection)
            try:
                recorded = await record_outcomes(
                    tx, self._worker, with_progress(outcome)
                )
                if recorded.rejected:
                    raise LeaseLost(
                        f"job {id_text(outcome.id)} has another owner: its transaction "
                        "is rolled back",
                        cure="Nothing was written; whoever has the job now does its work.",
                    )
                for call in tx.before_commit:
                    await call()
            except DriverError as error:
                if error.lost or error.state not in again or tried == TRIES:
                    raise
                await connection.run("rollback to savepoint durio")
            else:
                return
            jitter = 0.5 + clock.random()
            await clock.sleep(PAUSE_SECONDS * jitter * 2 ** (tried - 1))

    async def roll_back(self) -> None:
        """Close the connection: what it has not committed is gone."""
        await self._end()

    async def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            await self._task_connection.end()
