"""Runs statements on a caller's own connection.

The caller may have changed how the connection encodes types. Our own psycopg cursors do not
use these settings. asyncpg has no such cursors: there, ids are sent as text and come back
in the type that the caller has chosen; caller_checks.py checks every other type. Nothing is
committed here, and nothing is set for longer than a transaction.

SQLAlchemy's sessions and connections: down to the driver's connection.

Nothing of SQLAlchemy is imported: whoever hands one of its objects over has it.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from durio.model.errors import UsageError, WrongTransaction
from durio.model.tx import TxKind, tx_kind
from durio.stores.postgres.driver import ID_CAST, DriverError, Row, id_parameters

ID = "id"  # columns of this name are ids, and no others
IDLE, FAILED = 0, 3  # of libpq, which psycopg hands on
QUERY_CANCELED = "57014"
BUSY = ("another operation is in progress", "another command is already in progress")

ASYNCPG = "durio.stores.postgres.asyncpg_driver"
PSYCOPG = "durio.stores.postgres.psycopg_driver"


class PostgresCallerConnection(Protocol):
    """A connection in a transaction that is not ours to end."""

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        ...

    async def run(self, sql: str) -> str:
        """Statements without parameters and without answers; what one alone did."""
        ...


class AsyncpgCallerConnection:
    """In a connection of asyncpg, or of its pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._driver: Any = import_module(ASYNCPG)
        try:
            if connection.is_closed():
                raise connection_closed_error()
            is_begun = connection.is_in_transaction()
        except self._driver.FAILURES:  # it went back to its pool
            raise connection_closed_error() from None
        # Nobody there would ever wake us, and its owner could not use it any more.
        loop = getattr(connection, "_loop", None)
        if loop not in (None, asyncio.get_running_loop()):
            raise other_loop_error()
        if not is_begun:
            raise not_in_transaction("async with connection.transaction(): ...")

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        try:
            rows = await self._connection.fetch(
                with_text_ids(sql),
                *ids_as_text(sql, args),
                record_class=self._driver.asyncpg.Record,  # it may have one of its own
            )
        except self._driver.FAILURES as error:
            raise self._driver_error(error) from error
        return [row_with_id_bytes(row) for row in rows]

    async def run(self, sql: str) -> str:
        """Statements without parameters and without answers."""
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
    """In a connection of psycopg; one without an event loop never waits for one.

    `is_held`: whoever asks takes the connection's lock before.
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
        if connection.lock.locked():  # a COPY keeps it: we would wait for ourselves
            raise in_use_error()
        status = connection.info.transaction_status
        if status == FAILED:
            raise failed_transaction_error()
        if status == IDLE and connection.autocommit:
            raise not_in_transaction(
                "with connection.transaction(): ..., or autocommit=False"
            )

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        rows, _ = await self._ask(sql, self._driver.with_typed_parameters(sql, args))
        return rows

    async def run(self, sql: str) -> str:
        """Statements without parameters and without answers."""
        _, done = await self._ask(sql, None)
        return done

    async def _ask(
        self, sql: str, args: Sequence[Any] | None
    ) -> tuple[Sequence[Row], str]:
        driver = self._driver
        # Several statements at once have no binary answers, nor any other here.
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
    """What the caller did wrong, where it is that."""
    is_busy = not error.state and any(word in error.text for word in BUSY)
    return in_use_error() if is_busy else error


# --- ids


@lru_cache(maxsize=1000)
def with_text_ids(sql: str) -> str:
    """The statement with ids as text."""
    return ID_CAST.sub(lambda m: f"${m[1]}::text{m[2] or ''}::uuid{m[2] or ''}", sql)


def ids_as_text(sql: str, args: Sequence[Any]) -> Sequence[Any]:
    """The parameters of such a statement."""
    given = list(args)
    for place, is_list in id_parameters(sql):
        value = given[place]
        if value is not None:
            given[place] = list(map(id_text, value)) if is_list else id_text(value)
    return given


def id_text(value: bytes | None) -> str | None:
    """One id as PostgreSQL writes it."""
    return None if value is None else str(UUID(bytes=value))


def row_with_id_bytes(row: Any) -> Row:
    """A row of asyncpg with ids as 16 bytes, whatever its owner makes of them."""
    named = zip(row.keys(), row.values(), strict=True)
    return tuple(id_bytes(value) if name == ID else value for name, value in named)


def id_bytes(value: Any) -> Any:
    """An id from a UUID, its text or its bytes; anything else is left as it is."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.bytes if isinstance(value, UUID) else UUID(str(value)).bytes
    except ValueError:
        return value


# --- hosts


def caller_connection(connection: Any, kind: TxKind) -> PostgresCallerConnection:
    """A guest in a connection of one of the two drivers."""
    if kind is TxKind.ASYNCPG:
        return AsyncpgCallerConnection(connection)
    if kind in (TxKind.PSYCOPG, TxKind.PSYCOPG_ASYNC):
        return PsycopgCallerConnection(connection, is_async=kind.is_async)
    raise WrongTransaction(
        f"tx is a {kind.value}, but the store is PostgreSQL",
        cure="Give a connection to the store's own database, or leave tx out.",
    )


def connection_closed_error() -> WrongTransaction:
    """Nothing can be written there."""
    return WrongTransaction(
        "tx is a connection that is closed", cure="Give one that is open."
    )


def not_in_transaction(how: str) -> WrongTransaction:
    """Outside of a transaction the job would be stored at once."""
    return WrongTransaction(
        "tx has no open transaction: the job would be stored at once",
        cure=f"Begin one: {how}. Or leave tx out.",
    )


def failed_transaction_error() -> WrongTransaction:
    """PostgreSQL takes nothing more in it."""
    return WrongTransaction(
        "the transaction of tx has failed already", cure="Roll it back first."
    )


def pipeline_error() -> WrongTransaction:
    """Its answers come when the caller asks for them, and we need ours."""
    return WrongTransaction(
        "tx is in pipeline mode, where nothing is answered at once",
        cure="Enqueue before `with connection.pipeline()`, or after it.",
    )


def in_use_error() -> WrongTransaction:
    """A connection does one thing at a time."""
    return WrongTransaction(
        "tx is in use by another task, or in the middle of a COPY or of a stream",
        cure="Do one thing after the other on it, without gather() and create_task().",
    )


def other_loop_error() -> WrongTransaction:
    """A connection with an event loop is of no use on another."""
    return WrongTransaction(
        "tx belongs to another event loop than the one that enqueues",
        cure="Enqueue where the connection was opened, or give one without a loop.",
    )


async def caller_connection_in_sqlalchemy(
    tx: Any, kind: TxKind
) -> PostgresCallerConnection:
    """A guest in the driver's connection, with its transaction begun."""
    if not kind.is_async:
        connection = sqlalchemy_connection(tx, kind)
        begin_in_sqlalchemy(connection)
        check_not_autocommit(connection.connection.dbapi_connection)
        return known_driver_connection(
            connection, connection.connection.driver_connection
        )
    connection = await async_sqlalchemy_connection(tx, kind)
    begin_in_sqlalchemy(connection.sync_connection)
    raw = await connection.get_raw_connection()
    check_not_autocommit(raw.dbapi_connection)
    driver = raw.driver_connection
    is_begun = getattr(driver, "is_in_transaction", None)
    if is_begun is not None and not is_begun():
        # SQLAlchemy begins with the first statement, and ours go past it.
        await connection.exec_driver_sql("select 1")
    return known_driver_connection(connection, driver)


def check_not_autocommit(connection: Any) -> None:
    """Where SQLAlchemy has no transactions a commit of its session means nothing."""
    if getattr(connection, "autocommit", False):
        raise not_in_transaction(
            "without isolation_level='AUTOCOMMIT' on engine or connection"
        )


def known_driver_connection(connection: Any, driver: Any) -> PostgresCallerConnection:
    """A guest in a driver's connection, if it is one of those that we know."""
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
    """The connection of a session, or itself."""
    if kind is TxKind.CONNECTION:
        check_sync(tx)
        return tx
    session = tx() if type(tx).__name__ == "scoped_session" else tx
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
    """The inner side of an async one can do nothing by itself."""
    if bind.dialect.is_async:
        raise WrongTransaction(
            f"tx is the inner side of an async session or connection "
            f"(by way of {bind.dialect.driver!r})",
            cure="Give the AsyncSession or the AsyncConnection itself.",
        )


async def async_sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
    """The same for those of an event loop."""
    if kind is TxKind.ASYNC_CONNECTION:
        return tx
    session = tx() if type(tx).__name__ == "async_scoped_session" else tx
    if not session.sync_session.is_active:
        raise failed_transaction_error()
    return await session.connection()


def begin_in_sqlalchemy(connection: Any) -> None:
    """As SQLAlchemy does before the first statement; one that is over is refused."""
    if connection is None or connection.closed or connection.invalidated:
        raise connection_closed_error()
    transaction = connection.get_transaction()
    if transaction is None:
        connection.begin()
    elif not transaction.is_active:
        raise failed_transaction_error()
