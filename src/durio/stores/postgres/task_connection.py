"""Connections for tasks' own transactions, which other processes find by name.

A connection has the driver's defaults, without our settings. We begin the transaction.

A worker that is stopped, or whose machine is cut off, leaves its transaction open, and with
it locks on the user's rows. The next attempt would wait for these locks in vain. So the
process that takes a worker's jobs back also terminates its transactions. Their commits
would be refused anyway.

The name is set for the transaction only, because a pooler gives the connection to others
afterwards.
"""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import Any, Protocol

from durio.model.errors import WrongTransaction
from durio.stores.postgres.caller_checks import SET_TASK_MARK
from durio.stores.postgres.caller_connection import (
    ASYNCPG,
    PSYCOPG,
    AsyncpgCallerConnection,
    PostgresCallerConnection,
    PsycopgCallerConnection,
    in_use_error,
)
from durio.stores.postgres.driver import (
    NO_RIGHT,
    DriverError,
    PostgresLocation,
    time_limit,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

CLOSE_SECONDS = 2.0
ACTIVE = 1  # libpq's PQTRANS_ACTIVE


class TaskConnection(Protocol):
    """A task's connection, and the transaction on it."""

    connection: Any

    async def begin(
        self, location: PostgresLocation, mark: str, *, prepared: bool
    ) -> None:
        """Connect and begin; the mark is set in the transaction."""
        ...

    def exclusive(self) -> AbstractAsyncContextManager[PostgresCallerConnection]:
        """Return a context of exclusive use, to write the end of the job and commit.

        A task may have left code running that still writes or rolls back.
        """
        ...

    async def end(self) -> None:
        """Close the connection within a limited time, which rolls back."""
        ...


class AsyncpgTaskConnection:
    """A connection of asyncpg; blocks of `tx.transaction()` are savepoints."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._driver: Any = import_module(ASYNCPG)

    async def begin(
        self, location: PostgresLocation, mark: str, *, prepared: bool
    ) -> None:
        options: dict[str, Any] = {} if prepared else {"statement_cache_size": 0}
        try:
            async with time_limit(location.connect_seconds):
                self.connection = await self._driver.asyncpg.connect(
                    location.dsn,
                    timeout=location.connect_seconds,
                    server_settings=dict(location.settings),
                    **options,
                )
            async with time_limit(location.call_seconds):
                await self.connection.transaction().start()
                await self.connection.execute(mark)
        except (*self._driver.FAILURES, ValueError) as error:
            raise self._driver.driver_error(error, lost=True) from error

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[PostgresCallerConnection, None]:
        """Use the connection.

        Of two concurrent calls, the task's and ours, asyncpg refuses the second.
        """
        if self.connection.is_closed():
            raise connection_lost()
        if not self.connection.is_in_transaction():
            raise ended_by_task()
        yield AsyncpgCallerConnection(self.connection)

    async def end(self) -> None:
        """Close the connection; asyncpg asks the server to cancel a running statement."""
        if self.connection is not None:
            with suppress(*self._driver.FAILURES):
                await self.connection.close(timeout=CLOSE_SECONDS)


class PsycopgTaskConnection:
    """A connection of psycopg; blocks of `tx.transaction()` are savepoints."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._driver: Any = import_module(PSYCOPG)

    async def begin(
        self, location: PostgresLocation, mark: str, *, prepared: bool
    ) -> None:
        """Connect; the mark is the first statement, and begins the transaction.

        It takes no snapshot, so the task may still choose an isolation level.
        """
        psycopg = self._driver.psycopg
        name = location.settings.get("application_name", "durio")
        try:
            async with time_limit(location.connect_seconds):
                self.connection = await psycopg.AsyncConnection.connect(
                    location.dsn,
                    application_name=name,
                    client_encoding="utf8",  # also if the database has no encoding
                )
            if not prepared:
                self.connection.prepare_threshold = None
            async with time_limit(location.call_seconds):
                await self.connection.execute(mark)
        except (psycopg.Error, OSError) as error:
            raise self._driver.driver_error(error, lost=True) from error

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[PostgresCallerConnection, None]:
        """Use the connection; other calls wait for its lock, and then find it closed."""
        connection = self.connection
        if connection.broken:
            raise connection_lost()
        if connection.closed or not connection.info.transaction_status:
            raise ended_by_task()
        if connection._num_transactions:  # noqa: SLF001 - there is no public way
            raise in_use_error()  # a block of `tx.transaction()` is still open
        caller = PsycopgCallerConnection(connection, is_async=True, is_locked=True)
        async with connection.lock:
            try:
                yield caller
            finally:
                connection.pgconn.finish()

    async def end(self) -> None:
        """Ask the server to cancel a running statement, then close the connection.

        Without that the server would finish the statement and keep its locks: libpq only
        sends Terminate.
        """
        connection = self.connection
        if connection is None or connection.closed:
            return
        try:
            if connection.info.transaction_status == ACTIVE:
                with suppress(self._driver.psycopg.Error, OSError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await connection.cancel_safe(timeout=CLOSE_SECONDS)
        finally:
            await self._finish(connection)

    async def _finish(self, connection: Any) -> None:
        """Close the connection.

        If a call still uses libpq's memory, only shut down the socket.
        """
        try:
            async with asyncio.timeout(CLOSE_SECONDS), connection.lock:
                connection.pgconn.finish()
        except TimeoutError:
            # Either end of the connection may be closed by now.
            with (
                suppress(self._driver.psycopg.Error, OSError),
                socket.socket(fileno=os.dup(connection.fileno())) as duplicate,
            ):
                duplicate.shutdown(socket.SHUT_RDWR)


TASK_CONNECTIONS: dict[
    str, type[AsyncpgTaskConnection] | type[PsycopgTaskConnection]
] = {
    "asyncpg": AsyncpgTaskConnection,
    "psycopg": PsycopgTaskConnection,
}


def connection_lost() -> DriverError:
    """Return an error with `unsent`, which says that nothing was committed."""
    text = "it was closed, by the server or by hand, inside ctx.transaction()"
    return DriverError(text, lost=True, unsent=True)


def ended_by_task() -> WrongTransaction:
    """Return the error for a task that ended the transaction before its job was recorded."""
    return WrongTransaction(
        "the block committed or rolled back itself, or ran `reset all`: the job's "
        "outcome cannot be stored in this transaction",
        cure="Leave commit and rollback to ctx.transaction(), raise to undo it, and reset "
        "settings by their names.",
    )


END_TASK_TRANSACTIONS = statement("end_task_transactions")
USE_LOGIN_ROLE = "savepoint durio_end; set local role none"
RESTORE_ROLE = "rollback to savepoint durio_end"


def task_connection_name(schema: str, worker: int) -> str:
    """Return the name in pg_stat_activity.

    It has a hash, because a long schema would be cut.
    """
    return f"durio tx {worker} {schema_tag(schema)}"


def schema_tag(schema: str) -> str:
    """Return the part of the name that all connections of a schema share."""
    return hashlib.blake2b(schema.encode(), digest_size=8).hexdigest()


def mark_statement(schema: str, worker: int) -> str:
    """Return the statement that begins a task's transaction."""
    return SET_TASK_MARK.format(name=task_connection_name(schema, worker))


async def end_task_transactions(
    tx: PostgresTransaction, schema: str, workers: Sequence[int]
) -> None:
    """Terminate the transactions that tasks of these workers have open, if permitted.

    Sessions belong to the login role, and the current role may be another (`set role`). So
    this uses the login role.
    """
    await tx.run(USE_LOGIN_ROLE)
    try:
        await tx.rows(
            END_TASK_TRANSACTIONS,
            [task_connection_name(schema, worker) for worker in workers],
        )
    except DriverError as error:
        if error.lost or error.state != NO_RIGHT:
            # No right, as for a superuser's session: the jobs are still taken back.
            raise
    await tx.run(RESTORE_ROLE)
