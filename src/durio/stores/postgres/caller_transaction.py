"""Enqueue in a transaction that a caller has open.

Jobs are written with the same statements as in any enqueue, on the caller's connection. The
caller's commit sends a notification that wakes the workers.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from durio.model.errors import (
    StoreError,
    StoreUnavailable,
    WrongTransaction,
)
from durio.model.job import NewJob
from durio.model.tx import SQLALCHEMY, Joinable, tx_kind
from durio.stores.postgres.caller_checks import (
    FIXED_SNAPSHOT,
    SNAPSHOT,
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
    RETRY_STATES,
    LockWait,
)
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import (
    DEADLOCK,
    FAILED_TRANSACTION,
    NO_RIGHT,
    NOT_SERIALIZABLE,
    READ_ONLY,
    Connection,
    DriverError,
    Row,
)
from durio.stores.postgres.statements import SchemaStatements, statement
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.translate import translated

T = TypeVar("T")

MAKE_LANES = statement("insert_queue")
NOTIFY_IN_TRANSACTION = statement("notify_in_transaction")
CONSTRAINT_CLASS = "23"
CONFLICT_STATES = frozenset({NOT_SERIALIZABLE, DEADLOCK})


async def write_joined(
    context: PostgresContext,
    tx: Joinable,
    jobs: Sequence[NewJob],
    work: Callable[[PostgresContext], Awaitable[T]],
) -> T:
    """Run work that enqueues these jobs in the transaction of `tx`."""
    kind = tx_kind(tx)
    try:
        if kind in SQLALCHEMY:
            caller = await caller_connection_in_sqlalchemy(tx, kind)
        else:
            caller = caller_connection(tx, kind)
        connections = CallerConnectionAdapter(context, caller)
        theirs = await check_caller_connection(
            context, connections, may_wait=kind.is_async
        )
        is_frozen = theirs[SNAPSHOT] == FIXED_SNAPSHOT
        if kind.is_async:
            await make_lanes(context, jobs)
        joined = context_on(context, connections, has_fixed_snapshot=is_frozen)
        answer = await work(joined)
        payloads = context.wakeups.payloads_in_transaction(connections.woken_lanes)
        if payloads:
            await connections.rows(
                NOTIFY_IN_TRANSACTION, context.wakeups.channel, payloads
            )
    except DriverError as error:
        raise caller_error(error, context) from error
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, DriverError):
            raise caller_error(cause, context) from cause
        raise
    else:
        return answer


def context_on(
    context: PostgresContext,
    connections: "CallerConnectionAdapter",
    *,
    has_fixed_snapshot: bool,
) -> PostgresContext:
    return replace(
        context,
        connections=cast("Any", connections),
        wakeups=cast("Any", connections),
        in_caller_tx=True,
        has_fixed_snapshot=has_fixed_snapshot,
        # A copy: the caller may roll back new lanes.
        known_lanes=set(context.known_lanes),
        guarded_lanes=set(),
    )


async def make_lanes(context: PostgresContext, jobs: Sequence[NewJob]) -> None:
    """Create unknown queues in a transaction of our own.

    If the caller's transaction created them, every other enqueue into them would wait until
    it ends. That happens only if our own connection fails now.
    """
    new_lanes = sorted({job.lane for job in jobs} - context.known_lanes)
    if new_lanes:
        with suppress(StoreError):
            await context.connections.write_one(
                MAKE_LANES, new_lanes, lock_wait=LockWait.ONE_TURN
            )
            context.known_lanes.update(new_lanes)


class CallerConnectionAdapter:
    """Takes the place of the store's connections and wakeups, on one connection."""

    def __init__(
        self, context: PostgresContext, connection: PostgresCallerConnection
    ) -> None:
        self.now = context.connections.now
        self.woken_lanes: dict[str, int] = {}
        self._context = context
        self._connection = connection
        self._statements = SchemaStatements(context.location.schema)

    def wake(self, lanes: dict[str, int], _workers: object) -> None:
        """Collect lanes; the caller's commit wakes their workers."""
        self.woken_lanes |= lanes

    async def rows(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement; raises DriverError."""
        return await self._connection.rows(self._statements[sql], args)

    async def write_one(
        self,
        sql: str,
        *args: Any,
        lock_wait: LockWait = LockWait.LONG,  # noqa: ARG002 - the caller's own counts
    ) -> Sequence[Row]:
        """Run one statement; raises StoreError."""
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
        """Run several statements.

        An error undoes them, but nothing else in the transaction.
        """
        tx = transaction_on(self._context, self._connection)
        try:
            await self._connection.run("savepoint durio")
            try:
                answer = await work(tx)
                await tx.finish()
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
    """Return a transaction on a connection that does not belong to the store."""
    return PostgresTransaction(
        cast("Connection", connection),
        SchemaStatements(context.location.schema),
        context.connections.now,
        context.connections.on_statement,
        context.retention,
        may_be_long=True,
    )


def caller_error(error: DriverError, context: PostgresContext) -> Exception:
    """Return the error for a caller whose own transaction has failed."""
    if error.lost:
        return StoreUnavailable(
            f"{context.location.shown}: the connection of tx was lost, and its transaction with "
            f"it ({error.text})",
            cure="Repeat the whole transaction on another connection.",
            state=error.state,
        )
    if error.state in CONFLICT_STATES:
        return StoreUnavailable(
            f"{context.location.shown}: tx conflicts with another transaction "
            f"({error.text})",
            cure="Roll it back, and repeat the whole transaction.",
            state=error.state,
        )
    if error.state == NO_RIGHT:
        refused = translated(error, context.location)
        refused.cure = (
            "If the transaction has changed its role, run `reset role` before the "
            f"enqueue. {refused.cure}"
        )
        return refused
    return transaction_error(error, context)


def transaction_error(error: DriverError, context: PostgresContext) -> Exception:
    """Return the error for both a caller's and a task's transaction."""
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
