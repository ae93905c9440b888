"""Transactions for tasks, each on a connection of its own.

Such a transaction has the turn of the writer: no other connection can write to the file
meanwhile.
"""

import asyncio
from functools import partial
from typing import Any

import apsw

from durio.model.errors import StoreError, StoreUnavailable, WrongTransaction
from durio.model.outcome import Outcome, with_progress
from durio.ports.transactions import OwnTransaction
from durio.stores.job_rules import raise_if_rejected
from durio.stores.sqlite.caller_connection import (
    UnsentWakeups,
)
from durio.stores.sqlite.caller_transaction import transaction_on, wake_lanes_soon
from durio.stores.sqlite.context import SqliteCapability, SqliteContext
from durio.stores.sqlite.database import OwnDatabase, StdlibDatabase
from durio.stores.sqlite.finish import record_outcomes
from durio.stores.sqlite.schema import connect_writer
from durio.stores.sqlite.translate import translated
from durio.stores.sqlite.writer_handover import WriterHandover

# A limit, because no other connection can write while a task's transaction is open.
OWN_SECONDS_MAX = 10.0
# Waits for programs that write to the file without the writers' lock.
BUSY_SECONDS_MAX, BUSY_LOOK_SECONDS = 5.0, 0.02
STILL_IN_USE_SECONDS = 0.1


class SqliteTransactions(SqliteCapability):
    async def transaction(
        self, worker: int, *, is_sync: bool = False
    ) -> OwnTransaction:
        """Return a transaction for a task, on a connection of its own; threads may use it."""
        del is_sync
        context = self.context
        if context.path is None:
            raise WrongTransaction(
                "a store in memory has one connection, and no transactions for tasks",
                cure="Use a file (sqlite:///jobs.db); in a test: "
                "testing(app, url='sqlite:///test.db').",
            )
        handover = await context.writer_handovers.acquire(context.writer)
        own = SqliteOwnTransaction(context, handover, worker)
        try:
            await own.begin()
        except BaseException:
            await own.roll_back()
            raise
        return own


class SqliteOwnTransaction:
    """One transaction on a connection that is closed with it."""

    def __init__(
        self, context: SqliteContext, handover: WriterHandover, worker: int
    ) -> None:
        self._context = context
        self._worker = worker
        self._handover = handover
        self._loop = asyncio.get_running_loop()
        self._db: OwnDatabase | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_expired = False
        self._wakeups = UnsentWakeups(partial(wake_lanes_soon, context))

    @property
    def connection(self) -> Any:
        db = self._db
        return db.connection if isinstance(db, StdlibDatabase) else db

    async def begin(self) -> None:
        """Open and begin; waiting for other writers does not block the loop."""
        context = self._context
        synchronous = "normal" if context.synchronous == "normal" else "full"
        end = context.clock.monotonic() + BUSY_SECONDS_MAX
        try:
            db = self._db = connect_writer(context.path, synchronous, context.driver)
            context.task_wakeups[id(self.connection)] = self._wakeups
            db.wait_when_busy(0)
            while True:
                try:
                    db.rows("begin immediate")
                    break
                except apsw.BusyError:
                    if context.clock.monotonic() > end:
                        raise
                await context.clock.sleep(BUSY_LOOK_SECONDS)
        except apsw.Error as error:
            raise translated(error, context.path, at_commit=False) from None
        self._timer = self._loop.call_later(OWN_SECONDS_MAX, self._expire)

    async def commit(self, outcome: Outcome) -> None:
        """Record the outcome and commit, without yielding to the loop in between."""
        at_commit = False
        try:
            db = self._checked()
            tx = transaction_on(self._context, db)
            recorded = record_outcomes(tx, self._worker, with_progress(outcome))
            raise_if_rejected(recorded.rejected)
            at_commit = True
            db.rows("commit")
        except apsw.Error as error:
            raise self._translated(error, at_commit=at_commit) from None
        finally:
            self._end()
        self._wakeups.add(tx.woken_lanes)
        self._wakeups.commit()

    async def roll_back(self) -> None:
        """Close the connection, which rolls back."""
        self._end()

    def _checked(self) -> OwnDatabase:
        if self._has_expired or self._db is None:
            raise StoreUnavailable(
                f"the transaction was open for more than {OWN_SECONDS_MAX:g} s and was "
                "rolled back: no other process can write to the file meanwhile",
                cure="Do slow work before the block or after it. Inside it enqueue with "
                "options(tx=tx).",
                path=self._context.path,
            )
        if not self._db.in_transaction:
            raise WrongTransaction(
                "the block committed or rolled back itself: the job's outcome cannot "
                "be stored in this transaction",
                cure="Leave commit and rollback to ctx.transaction(); raise to undo it.",
            )
        return self._db

    def _translated(self, error: apsw.Error, *, at_commit: bool) -> StoreError:
        return translated(error, self._context.path, at_commit=at_commit)

    def _expire(self) -> None:
        """End the transaction after OWN_SECONDS_MAX.

        A thread may be in the middle of a statement.
        """
        self._has_expired = True
        self._end()

    def _end(self) -> None:
        """Close the connection, which rolls back, and give the writer's turn back.

        While a thread still uses the connection, try again STILL_IN_USE_SECONDS later.
        """
        if self._timer is not None:
            self._timer.cancel()
        db = self._db
        self._context.task_wakeups.pop(id(self.connection), None)
        if db is not None:
            try:
                if db.in_transaction:
                    db.rows("rollback")
                db.close()
            except apsw.ThreadingViolationError:
                self._timer = self._loop.call_later(STILL_IN_USE_SECONDS, self._end)
                return
            except apsw.Error:
                pass  # the task has closed the connection
        self._db = None
        self._handover.end()
