"""Run statements on a caller's own connection.

The caller may have changed how the connection encodes types. Our own psycopg cursors do not
use these settings. asyncpg has no such cursors: there, ids are sent as text and come back
in the type that the caller has chosen; caller_checks.py checks every other type. Nothing is
committed here, and no setting outlives the transaction.

For sessions and connections of SQLAlchemy, the store uses the driver's connection inside
them. This module does not import SQLAlchemy: a caller that passes one of its objects has
imported it.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from durio.model.errors import UsageError, WrongTransaction
from durio.model.tx import TxKind, tx_kind
from durio.stores.caller_rules import (
    begin_in_sqlalchemy,
    connection_closed_error,
    not_in_transaction,
    session_of,
)
from durio.stores.postgres.driver import ID_CAST, DriverError, Row, id_parameters

ID = "id"  # the name of every id column, and of no other column
IDLE, FAILED = 0, 3  # transaction states of libpq, as psycopg returns them
QUERY_CANCELED = "57014"
BUSY = ("another operation is in progress", "another command is already in progress")

ASYNCPG = "durio.stores.postgres.asyncpg_driver"
PSYCOPG = "durio.stores.postgres.psycopg_driver"


class PostgresCallerConnection(Protocol):
    """A connection in a transaction that only the caller ends."""

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]: ...

    async def run(self, sql: str) -> str:
        """Run statements without parameters or rows.

        Return the status of a single statement.
        """
        ...


class AsyncpgCallerConnection:
    """Statements on a connection of asyncpg, or on one from its pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._driver: Any = import_module(ASYNCPG)
        try:
            if connection.is_closed():
                raise connection_closed_error()
            is_begun = connection.is_in_transaction()
        except self._driver.FAILURES:  # the connection was returned to its pool
            raise connection_closed_error() from None
        # On another loop the call would never return, and leave the connection unusable.
        loop = getattr(connection, "_loop", None)
        if loop not in (None, asyncio.get_running_loop()):
            raise other_loop_error()
        if not is_begun:
            raise not_in_transaction("async with connection.transaction(): ...")

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        try:
            rows = await self._connection.fetch(
                with_text_ids(sql),
                *ids_as_text(sql, args),
                record_class=self._driver.asyncpg.Record,  # not the caller's
            )
        except self._driver.FAILURES as error:
            raise self._driver_error(error) from error
        return [row_with_id_bytes(row) for row in rows]

    async def run(self, sql: str) -> str:
        try:
            return await self._connection.execute(sql)
        except self._driver.FAILURES as error:
            raise self._driver_error(error) from error

    def _driver_error(self, error: BaseException) -> Exception:
        if isinstance(error, TimeoutError):
            return DriverError(
                "the command_timeout of tx has passed", state=QUERY_CANCELED
            )
        return usage_error(
            self._driver.driver_error(error, lost=self._connection.is_closed())
        )


class PsycopgCallerConnection:
    """Statements on a psycopg connection; on a synchronous one no method ever suspends.

    `is_locked`: the caller of `rows` and `run` holds the connection's lock.
    """

    def __init__(
        self, connection: Any, *, is_async: bool, is_locked: bool = False
    ) -> None:
        self._connection = connection
        self._is_async = is_async
        self._is_locked = is_locked
        self._driver: Any = import_module(PSYCOPG)
        if connection.closed:
            raise connection_closed_error()
        if connection.pgconn.pipeline_status:
            raise pipeline_error()
        if connection.lock.locked():  # a COPY holds the lock: we would wait forever
            raise in_use_error()
        status = connection.info.transaction_status
        if status == FAILED:
            raise failed_transaction_error()
        if status == IDLE and connection.autocommit:
            raise not_in_transaction(
                "with connection.transaction(): ..., or autocommit=False"
            )

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        rows, _ = await self._ask(sql, self._driver.with_typed_parameters(sql, args))
        return rows

    async def run(self, sql: str) -> str:
        _, done = await self._ask(sql, None)
        return done

    async def _ask(
        self, sql: str, args: Sequence[Any] | None
    ) -> tuple[Sequence[Row], str]:
        driver = self._driver
        # Several statements in one text cannot return binary rows, and return none here.
        binary = args is not None
        try:
            if self._is_async:
                kind = (
                    driver.OurHeldCursor if self._is_locked else driver.OurAsyncCursor
                )
                async with kind(self._connection) as cursor:
                    await cursor.execute(sql, args, binary=binary)
                    rows = await cursor.fetchall() if cursor.description else ()
                    return rows, cursor.statusmessage or ""
            with driver.OurCursor(self._connection) as cursor:
                cursor.execute(sql, args, binary=binary)
                rows = cursor.fetchall() if cursor.description else ()
                return rows, cursor.statusmessage or ""
        except (driver.psycopg.Error, OSError) as error:
            raise usage_error(
                driver.driver_error(error, lost=self._connection.closed)
            ) from error


def usage_error(error: DriverError) -> Exception:
    """Return `in_use_error` if the connection was busy, else the error itself."""
    is_busy = not error.state and any(word in error.text for word in BUSY)
    return in_use_error() if is_busy else error


# --- ids


@lru_cache(maxsize=1000)
def with_text_ids(sql: str) -> str:
    """Cast id parameters from text, so that no codec of the caller is used for them."""
    return ID_CAST.sub(lambda m: f"${m[1]}::text{m[2] or ''}::uuid{m[2] or ''}", sql)


def ids_as_text(sql: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return the parameters for a statement of `with_text_ids`."""
    given = list(args)
    for place, is_list in id_parameters(sql):
        value = given[place]
        if value is not None:
            given[place] = list(map(id_text, value)) if is_list else id_text(value)
    return given


def id_text(value: bytes | None) -> str | None:
    return None if value is None else str(UUID(bytes=value))


def row_with_id_bytes(row: Any) -> Row:
    """Return ids as 16 bytes, in whatever form the caller's codec gives them."""
    named = zip(row.keys(), row.values(), strict=True)
    return tuple(id_bytes(value) if name == ID else value for name, value in named)


def id_bytes(value: Any) -> Any:
    """Convert an id from a UUID, its text or its bytes; return anything else unchanged."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.bytes if isinstance(value, UUID) else UUID(str(value)).bytes
    except ValueError:
        return value


# --- connections of the two drivers


def caller_connection(connection: Any, kind: TxKind) -> PostgresCallerConnection:
    """Wrap a connection of asyncpg or psycopg; refuse every other one."""
    if kind is TxKind.ASYNCPG:
        return AsyncpgCallerConnection(connection)
    if kind in (TxKind.PSYCOPG, TxKind.PSYCOPG_ASYNC):
        return PsycopgCallerConnection(connection, is_async=kind.is_async)
    raise WrongTransaction(
        f"tx is a {kind.value}, but the store is PostgreSQL",
        cure="Give a connection to the store's own database, or leave tx out.",
    )


def failed_transaction_error() -> WrongTransaction:
    return WrongTransaction(
        "the transaction of tx has failed already", cure="Roll it back first."
    )


def pipeline_error() -> WrongTransaction:
    """Return the error for pipeline mode: the store cannot wait for the caller to read."""
    return WrongTransaction(
        "tx is in pipeline mode, where results come later",
        cure="Enqueue before `with connection.pipeline()`, or after it.",
    )


def in_use_error() -> WrongTransaction:
    return WrongTransaction(
        "tx is in use by another task, or in the middle of a COPY or of a stream",
        cure="Use it for one call at a time, without gather() and create_task().",
    )


def other_loop_error() -> WrongTransaction:
    return WrongTransaction(
        "tx belongs to another event loop than the one that enqueues",
        cure="Enqueue where the connection was opened, or give one without a loop.",
    )


async def caller_connection_in_sqlalchemy(
    tx: Any, kind: TxKind
) -> PostgresCallerConnection:
    """Begin SQLAlchemy's transaction and wrap the driver's connection in it."""
    if not kind.is_async:
        connection = sqlalchemy_connection(tx, kind)
        begin_in_sqlalchemy(connection, failed_transaction_error)
        check_not_autocommit(connection.connection.dbapi_connection)
        return known_driver_connection(
            connection, connection.connection.driver_connection
        )
    connection = await async_sqlalchemy_connection(tx, kind)
    begin_in_sqlalchemy(connection.sync_connection, failed_transaction_error)
    raw = await connection.get_raw_connection()
    check_not_autocommit(raw.dbapi_connection)
    driver = raw.driver_connection
    is_begun = getattr(driver, "is_in_transaction", None)
    if is_begun is not None and not is_begun():
        # SQLAlchemy begins a transaction with its own first statement, which ours bypass.
        await connection.exec_driver_sql("select 1")
    return known_driver_connection(connection, driver)


def check_not_autocommit(connection: Any) -> None:
    """Refuse AUTOCOMMIT: the session's commit would have no effect there."""
    if getattr(connection, "autocommit", False):
        raise not_in_transaction(
            "without isolation_level='AUTOCOMMIT' on engine or connection"
        )


def known_driver_connection(connection: Any, driver: Any) -> PostgresCallerConnection:
    """Wrap a driver's connection; refuse drivers that the store does not know."""
    try:
        kind = tx_kind(driver)
    except UsageError:
        dialect = connection.dialect
        raise WrongTransaction(
            f"tx is on a database of {dialect.name!r} by way of {dialect.driver!r}, but "
            "the store is PostgreSQL",
            cure="Use postgresql+asyncpg:// or postgresql+psycopg://, or leave tx out.",
        ) from None
    return caller_connection(driver, kind)


def sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
    """Return the connection of a session, or the one that was given."""
    if kind is TxKind.CONNECTION:
        check_sync(tx)
        return tx
    session = session_of(tx)
    if not session.is_active:
        raise failed_transaction_error()
    try:
        check_sync(session.get_bind())
    except Exception as error:
        if type(error).__name__ != "UnboundExecutionError":
            raise
        raise WrongTransaction(
            "tx is a session that is not bound to one database",
            cure="Give its connection there: session.connection(bind_arguments={...}).",
        ) from error
    return session.connection()


def check_sync(bind: Any) -> None:
    """Refuse the inner sync object of an async one: it cannot run statements by itself."""
    if bind.dialect.is_async:
        raise WrongTransaction(
            f"tx is the inner side of an async session or connection "
            f"(by way of {bind.dialect.driver!r})",
            cure="Give the AsyncSession or the AsyncConnection itself.",
        )


async def async_sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
    """Return the connection of an AsyncSession, or the AsyncConnection that was given."""
    if kind is TxKind.ASYNC_CONNECTION:
        return tx
    session = session_of(tx)
    if not session.sync_session.is_active:
        raise failed_transaction_error()
    return await session.connection()
