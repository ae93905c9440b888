"""A caller's own connection as a place where operations write: its guests.

A guest changes nothing of its host but rows: what the caller set on the connection (row
factories, traces) is gone around or put back. Nothing is committed here.

SQLAlchemy's sessions and connections as hosts: down to the driver's connection.

Nothing of SQLAlchemy is imported before somebody hands one of its objects over.
"""

import importlib
import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import apsw

from durio.model.errors import UsageError, WrongTransaction
from durio.model.tx import TxKind, tx_kind
from durio.stores.sqlite.database import (
    Database,
    DriverName,
    Row,
    Values,
    as_apsw_error,
)

WakeLanes = Callable[[set[str]], None]
WakeAfterCommit = Callable[[WakeLanes, Iterable[str]], None]
HOOK = "durio"  # what our hooks are called among the caller's own


class SqliteCallerConnection(Database, Protocol):
    """A caller's connection, for the length of one call."""

    driver: DriverName

    def settings_restored(self) -> AbstractContextManager[object]:
        """Around everything: the caller finds its connection as it was."""
        ...

    def begin(self) -> bool:
        """See that a transaction is open; True: it was begun just now."""
        ...


class SqliteCallerTransaction(NamedTuple):
    """Where to write, and how to hear of the commit."""

    connection: SqliteCallerConnection
    wake_after_commit: WakeAfterCommit


class ApswCallerConnection:
    """In a connection of apsw."""

    driver: DriverName = "apsw"

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor: Any = apsw.Cursor(connection)
        self._cursor.row_trace = unchanged_row  # in place of the caller's

    def settings_restored(self) -> AbstractContextManager[object]:
        """There is nothing to put back."""
        return nullcontext()

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return self._connection.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        return self._cursor.execute(sql, values).fetchall()

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Run one statement many times: the rows of all."""
        return self._cursor.executemany(sql, many).fetchall()

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        before = self._connection.total_changes()
        self.rows_of_many(sql, many)
        return self._connection.total_changes() - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        return first_value(self.rows(sql, values))

    def begin(self) -> bool:
        """Without a transaction each statement would be its own."""
        if not self.in_transaction:
            raise not_in_transaction(
                "with connection: ..., or connection.execute('begin')"
            )
        return False


class StdlibCallerConnection:
    """In a connection of the standard library."""

    driver: DriverName = "stdlib"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        try:
            self._cursor = sqlite3.Cursor(connection)
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None
        self._cursor.row_factory = None

    @contextmanager
    def settings_restored(self) -> Generator[None, None, None]:
        """Text is text here, whatever the caller makes of it."""
        before = self._connection.text_factory
        self._connection.text_factory = str
        try:
            yield
        finally:
            self._connection.text_factory = before

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return self._connection.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        try:
            return self._cursor.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """One by one: the driver's executemany throws rows away."""
        return [row for values in many for row in self.rows(sql, values)]

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        before = self._connection.total_changes
        try:
            self._cursor.executemany(sql, many)
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None
        return self._connection.total_changes - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        return first_value(self.rows(sql, values))

    def begin(self) -> bool:
        """As the driver does before the first write, unless the caller forbade it."""
        if self.in_transaction:
            return False
        if self._connection.isolation_level is None:
            raise not_in_transaction(
                "connection.execute('begin'), or leave isolation_level out"
            )
        self.rows("begin immediate")
        return True


# --- being told of the commit


class UnsentWakeups:
    """The lanes of one connection with jobs that are not committed yet."""

    def __init__(self, wake_lanes: WakeLanes) -> None:
        self._wake_lanes = wake_lanes
        self._lanes: set[str] = set()

    def add(self, lanes: Iterable[str]) -> None:
        """Tell of these when they are committed."""
        self._lanes.update(lanes)

    def wake_after_commit(self, _wake_lanes: WakeLanes, lanes: Iterable[str]) -> None:
        """The same, where whoever owns the connection tells of its commit."""
        self.add(lanes)

    def commit(self, *_: object) -> bool:
        """It is being committed: whoever is told waits until it is. False: go on."""
        if self._lanes:
            lanes, self._lanes = self._lanes, set()
            self._wake_lanes(lanes)
        return False

    def forget(self, *_: object) -> None:
        """It was rolled back."""
        self._lanes = set()


_apsw_wakeups: "WeakKeyDictionary[apsw.Connection, UnsentWakeups]" = WeakKeyDictionary()


def wake_after_apsw_commit(
    connection: apsw.Connection, wake_lanes: WakeLanes, lanes: Iterable[str]
) -> None:
    """SQLite itself tells, just before the commit."""
    rings = _apsw_wakeups.get(connection)
    if rings is None:
        rings = _apsw_wakeups[connection] = UnsentWakeups(wake_lanes)
        connection.set_commit_hook(rings.commit, id=HOOK)
        connection.set_rollback_hook(rings.forget, id=HOOK)
    rings.add(lanes)


def wake_never(wake_lanes: WakeLanes, lanes: Iterable[str]) -> None:
    """sqlite3 does not tell: workers look by themselves, every second or so."""


def unchanged_row(_cursor: object, row: Row) -> Row:
    """A row as SQLite gave it."""
    return row


def first_value(rows: list[Row]) -> Any:
    """The first column of the first row; None without one."""
    return rows[0][0] if rows else None


def not_in_transaction(how: str) -> WrongTransaction:
    """Outside of a transaction the job would be stored at once."""
    return WrongTransaction(
        "tx has no open transaction: the job would be stored at once",
        cure=f"Begin one: {how}. Or leave tx out.",
    )


def caller_transaction(
    connection: Any, kind: TxKind, task_wakeups: UnsentWakeups | None = None
) -> SqliteCallerTransaction:
    """A connection of one of the two libraries; `own`: a task's, whose end we see."""
    watch: WakeAfterCommit | None = None
    if task_wakeups is not None:
        watch = task_wakeups.wake_after_commit
    if kind is TxKind.APSW:
        watch = watch or partial(wake_after_apsw_commit, connection)
        return SqliteCallerTransaction(ApswCallerConnection(connection), watch)
    if kind is TxKind.SQLITE3:
        return SqliteCallerTransaction(
            StdlibCallerConnection(connection), watch or wake_never
        )
    raise WrongTransaction(
        f"tx is a {kind.value}, but the store is SQLite",
        cure="Give a connection to the store's own file, or leave tx out.",
    )


_sqlalchemy_wakeups: "WeakKeyDictionary[Any, UnsentWakeups]" = WeakKeyDictionary()


def sqlalchemy_transaction(connection: Any) -> SqliteCallerTransaction:
    """The host below a SQLAlchemy connection, with its transaction begun."""
    begin_in_sqlalchemy(connection)
    driver = connection.connection.driver_connection
    watch = partial(wake_after_sqlalchemy_commit, connection)
    if type(driver).__module__.startswith("aiosqlite."):
        return SqliteCallerTransaction(SqlalchemyCallerConnection(connection), watch)
    try:
        kind = tx_kind(driver)
    except UsageError:
        raise WrongTransaction(
            f"tx is on a database of {connection.dialect.name!r} by way of "
            f"{connection.dialect.driver!r}, but the store is SQLite",
            cure="Give a session on the store's own file, or leave tx out.",
        ) from None
    return SqliteCallerTransaction(caller_transaction(driver, kind).connection, watch)


def sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
    """The connection of a session, or itself."""
    if kind is TxKind.CONNECTION:
        return tx
    session = tx() if type(tx).__name__ == "scoped_session" else tx
    check_session(session)
    return session.connection()


async def async_sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
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


def begin_in_sqlalchemy(connection: Any) -> None:
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


def wake_after_sqlalchemy_commit(
    connection: Any, wake_lanes: WakeLanes, lanes: Iterable[str]
) -> None:
    """SQLAlchemy tells, just before the commit."""
    rings = _sqlalchemy_wakeups.get(connection)
    if rings is None:
        rings = _sqlalchemy_wakeups[connection] = UnsentWakeups(wake_lanes)
        event = importlib.import_module("sqlalchemy").event
        event.listen(connection, "commit", rings.commit)
        event.listen(connection, "rollback", rings.forget)
    rings.add(lanes)


class SqlalchemyCallerConnection:
    """In a connection that only SQLAlchemy can speak to at once: aiosqlite's."""

    driver: DriverName = "stdlib"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def settings_restored(self) -> AbstractContextManager[object]:
        """There is nothing to put back."""
        return nullcontext()

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return bool(self._connection.connection.driver_connection.in_transaction)

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
        return first_value(self.rows(sql, values))

    def begin(self) -> bool:
        """As the driver does before the first write, unless the caller forbade it."""
        if self.in_transaction:
            return False
        if self._connection.connection.dbapi_connection.isolation_level is None:
            raise not_in_transaction("leave isolation_level='AUTOCOMMIT' out")
        self.rows("begin immediate")
        return True

    def _run(self, sql: str, values: Any) -> list[Row]:
        try:
            result = self._connection.exec_driver_sql(sql, values)
            return [tuple(row) for row in result] if result.returns_rows else []
        except Exception as error:
            cause = getattr(error, "orig", None)
            if isinstance(cause, sqlite3.Error):
                raise as_apsw_error(cause) from None
            raise
