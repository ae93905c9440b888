"""Transactions for tasks, each on a connection of its own.

The connection has the driver's defaults, for the task's rows. The end of the job is the
last statement before the commit.
"""

import asyncio
from collections.abc import Collection
from typing import Any, TypeVar

from durio.model.errors import (
    StoreUnavailable,
    UsageError,
    WrongTransaction,
)
from durio.model.outcome import Outcome, with_progress
from durio.ports.transactions import OwnTransaction
from durio.stores.job_rules import raise_if_rejected
from durio.stores.postgres.admission import StaleRead
from durio.stores.postgres.caller_checks import (
    FIXED_SNAPSHOT,
    SNAPSHOT,
    TASK_MARK,
    TASK_MARKED,
    check_caller_connection,
)
from durio.stores.postgres.caller_connection import (
    PostgresCallerConnection,
)
from durio.stores.postgres.caller_transaction import (
    CONFLICT_STATES,
    CallerConnectionAdapter,
    context_on,
    transaction_error,
    transaction_on,
)
from durio.stores.postgres.connections import (
    PAUSE_SECONDS,
    RETRY_STATES,
    TRIES,
    check_commit,
)
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.driver import (
    NO_RIGHT,
    NOT_SERIALIZABLE,
    SETTINGS_IN_TRANSACTION,
    DriverError,
)
from durio.stores.postgres.enqueue_locked import ChangedConcurrently
from durio.stores.postgres.finish import record_outcomes
from durio.stores.postgres.logs import write_entries
from durio.stores.postgres.task_connection import (
    TASK_CONNECTIONS,
    TaskConnection,
    ended_by_task,
    mark_statement,
)
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.translate import translated

T = TypeVar("T")


class PostgresTransactions(PostgresCapability):
    async def transaction(
        self, worker: int, *, is_sync: bool = False
    ) -> OwnTransaction:
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
        return self._task_connection.connection

    async def begin(self) -> None:
        context = self._context
        try:
            mark = mark_statement(context.location.schema, self._worker)
            prepared = not context.connections.is_pooled
            await self._task_connection.begin(context.location, mark, prepared=prepared)
        except DriverError as error:
            error.was_open = False
            raise translated(error, context.location) from error

    async def commit(self, outcome: Outcome) -> None:
        context, is_sent = self._context, False
        try:
            async with asyncio.timeout(context.location.call_seconds):
                async with self._task_connection.exclusive() as caller:
                    adapter = CallerConnectionAdapter(context, caller)
                    theirs = await check_caller_connection(context, adapter)
                    if theirs[TASK_MARK] != TASK_MARKED:
                        raise ended_by_task()
                    is_fixed = theirs[SNAPSHOT] == FIXED_SNAPSHOT
                    again = RETRY_STATES
                    if is_fixed:  # a retry would fail again with the same snapshot
                        again -= {NOT_SERIALIZABLE}
                    joined = context_on(context, adapter, has_fixed_snapshot=is_fixed)
                    tx = await self._record(joined, caller, outcome, again)
                    is_sent = True
                    check_commit(await caller.run("commit"))
                    if tx.woken_lanes:  # jobs of its effects
                        context.wakeups.wake(tx.woken_lanes, ())
        except DriverError as error:
            if is_sent and error.lost and not error.unsent:
                raise translated(error, context.location, unknown=True) from error
            raise task_error(error, context) from error
        except TimeoutError:
            raise StoreUnavailable(
                f"{context.location.shown}: no answer within {context.location.call_seconds:g} s",
                cure="Check what the server is doing.",
                unknown=is_sent,
            ) from None
        finally:
            await self._end()

    async def _record(
        self,
        joined: PostgresContext,
        connection: PostgresCallerConnection,
        outcome: Outcome,
        again: Collection[str],
    ) -> PostgresTransaction:
        """Write the outcome; retry it alone after an error whose state is in `again`."""
        await connection.run(f"{SETTINGS_IN_TRANSACTION.lstrip('; ')}; savepoint durio")
        clock = self._context.clock
        for tried in range(1, TRIES + 1):
            tx = transaction_on(self._context, connection)
            try:
                recorded = await record_outcomes(
                    tx, joined, self._worker, with_progress(outcome)
                )
                raise_if_rejected(recorded.rejected)
                await write_entries(tx, joined)
                await tx.finish()
            except DriverError as error:
                if error.lost or error.state not in again or tried == TRIES:
                    raise
            except StaleRead:
                if tried == TRIES:
                    raise ChangedConcurrently(
                        "other transactions changed the same jobs or keys each time",
                        cure="Try again.",
                    ) from None
            else:
                return tx
            await connection.run("rollback to savepoint durio")
            jitter = 0.5 + clock.random()
            await clock.sleep(PAUSE_SECONDS * jitter * 2 ** (tried - 1))
        raise AssertionError

    async def roll_back(self) -> None:
        """Close the connection, which rolls back."""
        await self._end()

    async def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            await self._task_connection.end()


def task_error(error: DriverError, context: PostgresContext) -> Exception:
    """Return the error for a task whose transaction has failed at its end."""
    if error.state in CONFLICT_STATES and not error.lost:
        return StoreUnavailable(
            f"{context.location.shown}: ctx.transaction() conflicts with another "
            f"transaction; nothing was written ({error.text})",
            cure="Nothing to do while the job has retries left: the next attempt "
            "repeats it. Short blocks conflict less often; at READ COMMITTED only "
            "deadlocks conflict.",
            state=error.state,
        )
    if error.state == NO_RIGHT:
        return WrongTransaction(
            "the current role of the block may not write the job's outcome: "
            f"{error.text}",
            cure="Run `reset role` or `reset session authorization` at the end of "
            "the block: the outcome is written with the role of the store's URL.",
        )
    return transaction_error(error, context)
