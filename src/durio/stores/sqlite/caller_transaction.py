"""Enqueue in a transaction that a caller has open.

The caller's connection must be to the same file and of the same library, or it is refused.
"""

from contextlib import suppress
from typing import Any

import apsw

from durio.model.errors import StoreUnavailable, WrongTransaction
from durio.model.tx import SQLALCHEMY, Joinable, tx_kind
from durio.ports.conflicts import EffectsRefused
from durio.stores.sqlite.bounds import SqliteNoRoom
from durio.stores.sqlite.caller_connection import (
    SqliteCallerConnection,
    SqliteCallerTransaction,
    async_sqlalchemy_connection,
    caller_transaction,
    sqlalchemy_connection,
    sqlalchemy_transaction,
)
from durio.stores.sqlite.context import SqliteContext
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.store_files import inode_of
from durio.stores.sqlite.translate import translated
from durio.stores.sqlite.write_session import Answer, SqliteTransaction, WriteFunction

# Errors of a driver whose connection cannot be used in its current state.
UNUSABLE_ERRORS = (
    apsw.ConnectionClosedError,
    apsw.CursorClosedError,
    apsw.ThreadingViolationError,
    apsw.MisuseError,
)


async def write_joined(
    context: SqliteContext, tx: Joinable, work: WriteFunction[Answer]
) -> Answer:
    """Run an operation in the transaction of `tx`."""
    kind = tx_kind(tx)
    if context.path is None:
        raise WrongTransaction(
            "a store in memory cannot join a transaction: it has one connection",
            cure="Leave tx out, or use a file (sqlite:///jobs.db); in a test: "
            "testing(app, url='sqlite:///test.db').",
        )

    def on_sqlalchemy(connection: Any) -> Answer:
        return write_on(context, lambda: sqlalchemy_transaction(connection), work)

    if kind in SQLALCHEMY and kind.is_async:
        connection = await async_sqlalchemy_connection(tx, kind)
        return await connection.run_sync(on_sqlalchemy)
    if kind in SQLALCHEMY:
        return on_sqlalchemy(sqlalchemy_connection(tx, kind))
    own = context.task_wakeups.get(id(tx))
    return write_on(context, lambda: caller_transaction(tx, kind, own), work)


def write_on(
    context: SqliteContext, find_transaction: Any, work: WriteFunction[Answer]
) -> Answer:
    """Run the operation there, and wake the workers of its lanes after the commit."""
    try:
        host: SqliteCallerTransaction = find_transaction()
        with host.connection.settings_restored():
            check_caller_connection(context, host.connection)
            tx, answer = write_within(context, host.connection, work)
            if tx.woken_lanes:
                host.wake_after_commit(
                    lambda lanes: wake_lanes_soon(context, lanes), tx.woken_lanes
                )
            return answer
    except apsw.Error as error:
        raise caller_error(error, context) from None


def check_caller_connection(
    context: SqliteContext, connection: SqliteCallerConnection
) -> None:
    """Require the same library, because two break each other's locks, and the same file."""
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


def write_within(
    context: SqliteContext,
    connection: SqliteCallerConnection,
    work: WriteFunction[Answer],
) -> tuple[SqliteTransaction, Answer]:
    """Write all or nothing; the caller's own rows are not affected."""
    is_new = connection.begin()
    connection.rows("savepoint durio")
    tx = transaction_on(context, connection)
    tx.in_caller_tx = True
    try:
        answer = work(tx)
    except (SqliteNoRoom, EffectsRefused):
        roll_back_to_savepoint(connection)
        raise
    except BaseException:
        with suppress(apsw.Error):  # SQLite may have rolled back by itself
            connection.rows("rollback") if is_new else roll_back_to_savepoint(
                connection
            )
        raise
    connection.rows("release durio")
    return tx, answer


def roll_back_to_savepoint(connection: SqliteCallerConnection) -> None:
    connection.rows("rollback to durio")
    connection.rows("release durio")


def transaction_on(context: SqliteContext, db: Database) -> SqliteTransaction:
    """Return a transaction on a connection that does not belong to the writer."""
    return SqliteTransaction(
        db=db,
        now=context.clock.now(),
        monotonic_seconds=context.clock.monotonic(),
        boot=context.clock.boot_id(),
        retention=context.retention,
        known_lanes=frozenset(),
        special=set(),
    )


def wake_lanes_soon(context: SqliteContext, lanes: set[str]) -> None:
    """Wake workers in the writer's next transaction, which comes after this commit."""

    def wake(tx: SqliteTransaction) -> None:
        for lane in lanes:
            tx.wake(lane)

    context.writer.post(wake)


def caller_error(error: apsw.Error, context: SqliteContext) -> Exception:
    """Return the error for a caller whose own transaction has failed."""
    if isinstance(error, UNUSABLE_ERRORS):
        return WrongTransaction(
            f"tx cannot be used here: {error}",
            cure="Give a connection that is open, in the thread that uses it.",
        )
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"{context.path} is being written by another process ({error})",
            cure="Begin with `begin immediate`, give the connection a busy timeout, "
            "and try the whole transaction again.",
            path=context.path,
        )
    return translated(error, context.path, at_commit=False)
