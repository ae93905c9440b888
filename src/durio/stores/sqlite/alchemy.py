"""SQLAlchemy's sessions and connections as hosts: down to the driver's connection.

Nothing of SQLAlchemy is imported before somebody hands one of its objects over.
"""

import importlib
import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from durio.model.errors import UsageError, WrongTransaction
from durio.model.tx import TxKind, tx_kind
from durio.stores.sqlite.database import DriverName, Row, Values
from durio.stores.sqlite.foreign import Host, Ring, Rings, first, host_of, not_begun
from durio.stores.sqlite.stdlib import as_apsw

_rings: "WeakKeyDictionary[Any, Rings]" = WeakKeyDictionary()


def host_in_sqlalchemy(connection: Any) -> Host:
    """The host below a SQLAlchemy connection, with its transaction begun."""
    begin(connection)
    driver = connection.connection.driver_connection
    watch = partial(watch_sqlalchemy, connection)
    if type(driver).__module__.startswith("aiosqlite."):
        return Host(AlchemyGuest(connection), watch)
    try:
        kind = tx_kind(driver)
    except UsageError:
        raise WrongTransaction(
            f"tx is on a database of {connection.dialect.name!r} by way of "
            f"{connection.dialect.driver!r}, but the store is SQLite",
            cure="Give a session on the store's own file, or leave tx out.",
        ) from None
    return Host(host_of(driver, kind).guest, watch)


def connection_in(tx: Any, kind: TxKind) -> Any:
    """The connection of a session, or itself."""
    if kind is TxKind.CONNECTION:
        return tx
    session = tx() if type(tx).__name__ == "scoped_session" else tx
    check_session(session)
    return session.connection()


async def async_connection_in(tx: Any, kind: TxKind) -> Any:
    """The same for those of an event loop."""
    if kind is TxKind.ASYNC_CONNECTION:
        return tx
    session = tx() if type(tx).__name__ == "async_scoped_session" else tx
    check_session(session.sync_session)
    return await session.connection()


def check_session(session: Any) -> None:
    """One that has failed can only be rolled back."""
    if not session.is_active:
        raise WrongTransaction(
            "the session's transaction has failed already",
            cure="Roll it back first: session.rollback().",
        )


def begin(connection: Any) -> None:
    """As SQLAlchemy does before the first statement; one that is over is refused."""
    if connection.closed or connection.invalidated:
        raise WrongTransaction(
            "tx is a connection that is closed", cure="Give one that is open."
        )
    transaction = connection.get_transaction()
    if transaction is None:
        connection.begin()
    elif not transaction.is_active:
        raise WrongTransaction(
            "the transaction of tx is over", cure="Begin another: connection.begin()."
        )


def watch_sqlalchemy(connection: Any, ring: Ring, lanes: Iterable[str]) -> None:
    """SQLAlchemy tells, just before the commit."""
    rings = _rings.get(connection)
    if rings is None:
        rings = _rings[connection] = Rings(ring)
        event = importlib.import_module("sqlalchemy").event
        event.listen(connection, "commit", rings.commit)
        event.listen(connection, "rollback", rings.forget)
    rings.note(lanes)


class AlchemyGuest:
    """In a connection that only SQLAlchemy can speak to at once: aiosqlite's."""

    driver: DriverName = "stdlib"

    def __init__(self, connection: Any) -> None:
        self._host = connection

    def joined(self) -> AbstractContextManager[object]:
        """There is nothing to put back."""
        return nullcontext()

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return bool(self._host.connection.driver_connection.in_transaction)

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        return self._run(sql, tuple(values))

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """One by one: drivers throw rows of many away."""
        return [row for values in many for row in self.rows(sql, values)]

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        before = self.value("select total_changes()")
        self._run(sql, [tuple(values) for values in many])
        return self.value("select total_changes()") - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        return first(self.rows(sql, values))

    def begin(self) -> bool:
        """As the driver does before the first write, unless the caller forbade it."""
        if self.in_transaction:
            return False
        if self._host.connection.dbapi_connection.isolation_level is None:
            raise not_begun("leave isolation_level='AUTOCOMMIT' out")
        self.rows("begin immediate")
        return True

    def _run(self, sql: str, values: Any) -> list[Row]:
        try:
            result = self._host.exec_driver_sql(sql, values)
            return [tuple(row) for row in result] if result.returns_rows else []
        except Exception as error:
            cause = getattr(error, "orig", None)
            if isinstance(cause, sqlite3.Error):
                raise as_apsw(cause) from None
            raise
