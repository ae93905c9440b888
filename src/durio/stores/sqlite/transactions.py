"""Jobs in callers' transactions, and transactions of their own for tasks.

A caller's connection is to the same file and of the same library, or it is refused. A
task's own transaction borrows the writer's turn: nobody else could write meanwhile.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import apsw

from durio.model.errors import LeaseLost, StoreError, StoreUnavailable, WrongTransaction
from durio.model.ids import id_text
from durio.model.job import READY, NewJob
from durio.model.outcome import Outcome, with_progress
from durio.model.tx import SQLALCHEMY, Joinable, tx_kind
from durio.ports.enqueue import Enqueued
from durio.ports.transactions import OwnTransaction
from durio.stores.sqlite.bounds import SqliteNoRoom, guard_of
from durio.stores.sqlite.caller_connection import (
    SqliteCallerConnection,
    SqliteCallerTransaction,
    UnsentWakeups,
    async_sqlalchemy_connection,
    caller_transaction,
    sqlalchemy_connection,
    sqlalchemy_transaction,
)
from durio.stores.sqlite.context import SqliteCapability, SqliteContext
from durio.stores.sqlite.database import Database, OwnDatabase, StdlibDatabase
from durio.stores.sqlite.enqueue import insert_all
from durio.stores.sqlite.finish import record_outcomes
from durio.stores.sqlite.schema import connect_writer
from durio.stores.sqlite.store_files import inode_of
from durio.stores.sqlite.translate import translated
from durio.stores.sqlite.write_session import SqliteTransaction
from durio.stores.sqlite.writer_handover import WriterHandover

# Nobody can write to the file while a task's transaction is open: it has so long.
OWN_SECONDS_MAX = 10.0
# For programs that write to the file without waiting in our line.
BUSY_SECONDS_MAX, BUSY_LOOK_SECONDS = 5.0, 0.02
STILL_IN_USE_SECONDS = 0.1

# What a driver raises when its connection cannot be used as it is.
UNUSABLE_ERRORS = (
    apsw.ConnectionClosedError,
    apsw.CursorClosedError,
    apsw.ThreadingViolationError,
    apsw.MisuseError,
)


class SqliteTransactions(SqliteCapability):
    """Writing in transactions of others."""

    async def enqueue_in(self, tx: Joinable, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs in a transaction that the caller has open."""
        desk, kind = self.context, tx_kind(tx)
        if desk.path is None:
            raise WrongTransaction(
                "a store in memory has a connection of its own, which nobody shares",
                cure="Use a file (sqlite:///jobs.db), or leave tx out.",
            )
        if kind in SQLALCHEMY and kind.is_async:
            connection = await async_sqlalchemy_connection(tx, kind)
            return await connection.run_sync(enqueue_in_sqlalchemy, desk, jobs)
        if kind in SQLALCHEMY:
            return enqueue_in_sqlalchemy(sqlalchemy_connection(tx, kind), desk, jobs)
        own = desk.task_wakeups.get(id(tx))
        return enqueue_on(desk, lambda: caller_transaction(tx, kind, own), jobs)

    async def begin(self, worker: int, *, is_sync: bool = False) -> OwnTransaction:
        """A transaction for a task, on a connection of its own; threads may use it."""
        del is_sync
        desk = self.context
        if desk.path is None:
            raise WrongTransaction(
                "a store in memory has one connection, and no transactions for tasks",
                cure="Use a file: sqlite:///jobs.db.",
            )
        loan = await desk.writer_handovers.acquire(desk.writer)
        own = SqliteOwnTransaction(desk, loan, worker)
        try:
            await own.begin()
        except BaseException:
            await own.roll_back()
            raise
        return own


# --- in a caller's transaction


def enqueue_in_sqlalchemy(
    connection: Any, context: SqliteContext, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    """In a connection of SQLAlchemy, whichever driver it has."""
    return enqueue_on(context, lambda: sqlalchemy_transaction(connection), jobs)


def enqueue_on(
    context: SqliteContext, find_transaction: Any, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    """Write the jobs there, and see to it that somebody hears of them."""
    try:
        host: SqliteCallerTransaction = find_transaction()
        with host.connection.settings_restored():
            check_caller_connection(context, host.connection)
            tx, answers = enqueue_within(context, host.connection, jobs)
            if tx.woken_lanes:
                host.wake_after_commit(
                    lambda lanes: wake_lanes_soon(context, lanes), tx.woken_lanes
                )
            return answers
    except apsw.Error as error:
        raise caller_error(error, context) from None


def check_caller_connection(
    context: SqliteContext, connection: SqliteCallerConnection
) -> None:
    """The same library, for two would break each other's locks; and the same file."""
    if connection.driver != context.driver:
        raise WrongTransaction(
            f"tx is of another SQLite library than the store ({context.path}): two in one "
            "process break each other's locks",
            cure=f"Open the store with ?driver={connection.driver}, or leave tx out.",
        )
    files = {name: file for _, name, file in connection.rows("pragma database_list")}
    if not files["main"] or inode_of(files["main"]) != context.inode:
        raise WrongTransaction(
            f"tx is a connection to {files['main'] or 'memory'}, but jobs are in "
            f"{context.path}",
            cure="Give a connection to that file, or leave tx out.",
        )


def enqueue_within(
    context: SqliteContext, connection: SqliteCallerConnection, jobs: Sequence[NewJob]
) -> tuple[SqliteTransaction, list[Enqueued]]:
    """All of them or none; the caller's own rows stay as they are."""
    is_new = connection.begin()
    connection.rows("savepoint durio")
    tx = transaction_on(context, connection)
    tx.in_caller_tx = True
    try:
        answers = insert_into_full(tx, jobs)
    except SqliteNoRoom as no_room:
        roll_back_to_savepoint(connection)
        tx.woken_lanes.clear()
        answers = [Enqueued(job.id, False, READY, full=no_room.full) for job in jobs]
    except BaseException:
        with suppress(apsw.Error):  # it may have rolled back by itself
            connection.rows("rollback") if is_new else roll_back_to_savepoint(
                connection
            )
        raise
    else:
        connection.rows("release durio")
    return tx, answers


def roll_back_to_savepoint(connection: SqliteCallerConnection) -> None:
    """Leave nothing of ours in the caller's transaction."""
    connection.rows("rollback to durio")
    connection.rows("release durio")


def insert_into_full(tx: SqliteTransaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Into whatever queue; the answers say which of them are full."""
    lanes = {job.lane for job in jobs}
    for lane in lanes:
        guard_of(tx, lane)  # asked before: plain inserts look only when there are any
    answers = insert_all(tx, jobs, lanes)
    full = {each.lane: each for each in tx.full_queues}
    return [
        answer._replace(full=full.get(job.lane)) if answer.created else answer
        for job, answer in zip(jobs, answers, strict=True)
    ]


def transaction_on(context: SqliteContext, db: Database) -> SqliteTransaction:
    """What operations see of a connection that is not the writer's."""
    return SqliteTransaction(
        db=db,
        now=context.clock.now(),
        monotonic_seconds=context.clock.monotonic(),
        boot=context.clock.boot_id(),
        retention=context.retention,
        known_lanes=frozenset(),
        keyed=set(),
    )


def wake_lanes_soon(context: SqliteContext, lanes: set[str]) -> None:
    """The writer's next turn comes after the commit at hand: it rings."""

    def ring(tx: SqliteTransaction) -> None:
        for lane in lanes:
            tx.wake(lane)

    context.writer.post(ring)


def caller_error(error: apsw.Error, context: SqliteContext) -> Exception:
    """What a caller hears of a failure in its own transaction."""
    if isinstance(error, UNUSABLE_ERRORS):
        return WrongTransaction(
            f"tx cannot be used here: {error}",
            cure="Give a connection that is open, in the thread that uses it.",
        )
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"{context.path} is being written by somebody else ({error})",
            cure="Begin with `begin immediate`, give the connection a busy timeout, "
            "and try the whole transaction again.",
            path=context.path,
        )
    return translated(error, context.path, at_commit=False)


# --- a task's own


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
        """The driver's connection."""
        db = self._db
        return db.connection if isinstance(db, StdlibDatabase) else db

    async def begin(self) -> None:
        """Open and begin; the loop is not held up by those who write beside us."""
        desk = self._context
        synchronous = "normal" if desk.synchronous == "normal" else "full"
        end = desk.clock.monotonic() + BUSY_SECONDS_MAX
        try:
            db = self._db = connect_writer(desk.path, synchronous, desk.driver)
            desk.task_wakeups[id(self.connection)] = self._wakeups
            db.wait_when_busy(0)
            while True:
                try:
                    db.rows("begin immediate")
                    break
                except apsw.BusyError:
                    if desk.clock.monotonic() > end:
                        raise
                await desk.clock.sleep(BUSY_LOOK_SECONDS)
        except apsw.Error as error:
            raise translated(error, desk.path, at_commit=False) from None
        self._timer = self._loop.call_later(OWN_SECONDS_MAX, self._expire)

    async def commit(self, outcome: Outcome) -> None:
        """Record the outcome and commit, without ever giving up the loop."""
        at_commit = False
        try:
            db = self._checked()
            tx = transaction_on(self._context, db)
            if record_outcomes(tx, self._worker, with_progress(outcome)).rejected:
                raise LeaseLost(
                    f"job {id_text(outcome.id)} has another owner: its transaction is "
                    "rolled back",
                    cure="Nothing was written; whoever has the job now does its work.",
                )
            at_commit = True
            db.rows("commit")
        except apsw.Error as error:
            raise self._translated(error, at_commit=at_commit) from None
        finally:
            self._end()
        self._wakeups.add(tx.woken_lanes)
        self._wakeups.commit()

    async def roll_back(self) -> None:
        """Close the connection: what it has not committed is gone."""
        self._end()

    def _checked(self) -> OwnDatabase:
        if self._has_expired or self._db is None:
            raise StoreUnavailable(
                f"the transaction was open for more than {OWN_SECONDS_MAX:g} s and was "
                "rolled back: nobody else can write to the file meanwhile",
                cure="Do slow work before the block or after it. Inside it enqueue with "
                "options(tx=tx).",
                path=self._context.path,
            )
        if not self._db.in_transaction:
            raise WrongTransaction(
                "the transaction was ended by hand: the end of the job cannot be in it",
                cure="Leave commit and rollback to ctx.transaction(); raise to undo it.",
            )
        return self._db

    def _translated(self, error: apsw.Error, *, at_commit: bool) -> StoreError:
        return translated(error, self._context.path, at_commit=at_commit)

    def _expire(self) -> None:
        """Its time is over; a thread may be in the middle of a statement."""
        self._has_expired = True
        self._end()

    def _end(self) -> None:
        """Close, which rolls back what is open, and give the writer's turn back."""
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
                pass  # closed by hand
        self._db = None
        self._handover.end()
