"""SQLAlchemy's sessions and connections: down to the driver's connection.

Nothing of SQLAlchemy is imported: whoever hands one of its objects over has it.
"""

from typing import Any

from durio.model.errors import UsageError, WrongTransaction
from durio.model.tx import TxKind, tx_kind
from durio.stores.postgres.foreign import Guest, closed, failed, guest_of, not_begun


async def guest_in_sqlalchemy(tx: Any, kind: TxKind) -> Guest:
    """A guest in the driver's connection, with its transaction begun."""
    if not kind.is_async:
        connection = connection_in(tx, kind)
        begin(connection)
        check_begins(connection.connection.dbapi_connection)
        return guest_at(connection, connection.connection.driver_connection)
    connection = await async_connection_in(tx, kind)
    begin(connection.sync_connection)
    raw = await connection.get_raw_connection()
    check_begins(raw.dbapi_connection)
    driver = raw.driver_connection
    is_begun = getattr(driver, "is_in_transaction", None)
    if is_begun is not None and not is_begun():
        # SQLAlchemy begins with the first statement, and ours go past it.
        await connection.exec_driver_sql("select 1")
    return guest_at(connection, driver)


def check_begins(connection: Any) -> None:
    """Where SQLAlchemy has no transactions a commit of its session means nothing."""
    if getattr(connection, "autocommit", False):
        raise not_begun("without isolation_level='AUTOCOMMIT' on engine or connection")


def guest_at(connection: Any, driver: Any) -> Guest:
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
    return guest_of(driver, kind)


def connection_in(tx: Any, kind: TxKind) -> Any:
    """The connection of a session, or itself."""
    if kind is TxKind.CONNECTION:
        check_sync(tx)
        return tx
    session = tx() if type(tx).__name__ == "scoped_session" else tx
    if not session.is_active:
        raise failed()
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


async def async_connection_in(tx: Any, kind: TxKind) -> Any:
    """The same for those of an event loop."""
    if kind is TxKind.ASYNC_CONNECTION:
        return tx
    session = tx() if type(tx).__name__ == "async_scoped_session" else tx
    if not session.sync_session.is_active:
        raise failed()
    return await session.connection()


def begin(connection: Any) -> None:
    """As SQLAlchemy does before the first statement; one that is over is refused."""
    if connection is None or connection.closed or connection.invalidated:
        raise closed()
    transaction = connection.get_transaction()
    if transaction is None:
        connection.begin()
    elif not transaction.is_active:
        raise failed()
