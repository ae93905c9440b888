"""A caller's own connection, as a Database that operations write to.

Operations change only rows on the caller's connection. Settings of the caller (row
factories, traces) are bypassed or restored. Nothing is committed here.

For SQLAlchemy's sessions and connections, the driver's connection inside them is used.
SQLAlchemy is not imported before a caller passes one of its objects.
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
from durio.stores.caller_rules import (
    begin_in_sqlalchemy,
    not_in_transaction,
    session_of,
)
from durio.stores.sqlite.database import (
    Database,
    DriverName,
    Row,
    Values,
    as_apsw_error,
    stdlib_values,
)

WakeLanes = Callable[[set[str]], None]
WakeAfterCommit = Callable[[WakeLanes, Iterable[str]], None]
HOOK = "durio"  # the id of our hooks; the caller may have others


class SqliteCallerConnection(Database, Protocol):
    """A caller's connection, for the length of one call."""

    driver: DriverName

    def settings_restored(self) -> AbstractContextManager[object]:
        """Return a context for each use; it restores the caller's settings at its end."""
        return nullcontext()

    def begin(self) -> bool:
        """Ensure that a transaction is open; return whether this call has begun it."""
        ...


class SqliteCallerTransaction(NamedTuple):
    """The connection to write to, and how to send wakeups after its commit."""

    connection: SqliteCallerConnection
    wake_after_commit: WakeAfterCommit


class ApswCallerConnection(SqliteCallerConnection):
    driver: DriverName = "apsw"

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor: Any = apsw.Cursor(connection)
        self._cursor.row_trace = unchanged_row  # in place of the caller's

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        return self._cursor.execute(sql, values).fetchall()

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        return self._cursor.executemany(sql, many).fetchall()

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        before = self._connection.total_changes()
        self.rows_of_many(sql, many)
        return self._connection.total_changes() - before

    def begin(self) -> bool:
        """Refuse a caller without a transaction, because apsw does not begin one by itself."""
        if not self.in_transaction:
            raise not_in_transaction(
                "with connection: ..., or connection.execute('begin')"
            )
        return False


class StdlibCallerConnection(SqliteCallerConnection):
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
        """Read text as `str`, whatever the caller's text factory is."""
        before = self._connection.text_factory
        self._connection.text_factory = str
        try:
            yield
        finally:
            self._connection.text_factory = before

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        try:
            return self._cursor.execute(sql, stdlib_values(sql, values)).fetchall()
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        before = self._connection.total_changes
        try:
            self._cursor.executemany(sql, (stdlib_values(sql, row) for row in many))
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None
        return self._connection.total_changes - before

    def begin(self) -> bool:
        """Begin as the driver does before the first write; refuse autocommit mode."""
        if self.in_transaction:
            return False
        if self._connection.isolation_level is None:
            raise not_in_transaction(
                "connection.execute('begin'), or leave isolation_level out"
            )
        self.rows("begin immediate")
        return True


# --- wakeups after the commit


class UnsentWakeups:
    """The lanes of one connection with jobs that are not committed yet."""

    def __init__(self, wake_lanes: WakeLanes) -> None:
        self._wake_lanes = wake_lanes
        self._lanes: set[str] = set()

    def add(self, lanes: Iterable[str]) -> None:
        """Wake these lanes when the transaction is committed."""
        self._lanes.update(lanes)

    def wake_after_commit(self, _wake_lanes: WakeLanes, lanes: Iterable[str]) -> None:
        """Add lanes, for a connection whose owner calls `commit` itself."""
        self.add(lanes)

    def commit(self, *_: object) -> bool:
        """Post the wakeups; SQLite calls this as a commit hook, and False lets it commit.

        The wakeups wait for the writer's next turn, which comes after this commit.
        """
        if self._lanes:
            lanes, self._lanes = self._lanes, set()
            self._wake_lanes(lanes)
        return False

    def forget(self, *_: object) -> None:
        """Drop the wakeups after a rollback."""
        self._lanes = set()


_apsw_wakeups: "WeakKeyDictionary[apsw.Connection, UnsentWakeups]" = WeakKeyDictionary()


def wake_after_apsw_commit(
    connection: apsw.Connection, wake_lanes: WakeLanes, lanes: Iterable[str]
) -> None:
    """Add lanes whose workers are woken by a hook that SQLite calls just before the commit."""
    wakeups = _apsw_wakeups.get(connection)
    if wakeups is None:
        wakeups = _apsw_wakeups[connection] = UnsentWakeups(wake_lanes)
        connection.set_commit_hook(wakeups.commit, id=HOOK)
        connection.set_rollback_hook(wakeups.forget, id=HOOK)
    wakeups.add(lanes)


def wake_never(wake_lanes: WakeLanes, lanes: Iterable[str]) -> None:
    """Send nothing: sqlite3 has no commit hook.

    Workers poll about once a second and find the jobs.
    """


def unchanged_row(_cursor: object, row: Row) -> Row:
    return row


def caller_transaction(
    connection: Any, kind: TxKind, task_wakeups: UnsentWakeups | None = None
) -> SqliteCallerTransaction:
    """Wrap a connection of apsw or sqlite3.

    `task_wakeups` is given for a task's own transaction, whose commit we see.
    """
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
    """Wrap the driver's connection inside a SQLAlchemy connection; begin its transaction."""
    begin_in_sqlalchemy(connection, transaction_over)
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


def transaction_over() -> WrongTransaction:
    return WrongTransaction(
        "the transaction of tx is over", cure="Begin another: connection.begin()."
    )


def sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
    """Return the connection of a session, or the connection that was given."""
    if kind is TxKind.CONNECTION:
        return tx
    session = session_of(tx)
    check_session(session)
    return session.connection()


async def async_sqlalchemy_connection(tx: Any, kind: TxKind) -> Any:
    if kind is TxKind.ASYNC_CONNECTION:
        return tx
    session = session_of(tx)
    check_session(session.sync_session)
    return await session.connection()


def check_session(session: Any) -> None:
    """Refuse a session whose transaction has failed, because it can only be rolled back."""
    if not session.is_active:
        raise WrongTransaction(
            "the session's transaction has failed already",
            cure="Roll it back first: session.rollback().",
        )


def wake_after_sqlalchemy_commit(
    connection: Any, wake_lanes: WakeLanes, lanes: Iterable[str]
) -> None:
    """Add lanes whose workers are woken by a SQLAlchemy event just before the commit."""
    wakeups = _sqlalchemy_wakeups.get(connection)
    if wakeups is None:
        wakeups = _sqlalchemy_wakeups[connection] = UnsentWakeups(wake_lanes)
        event = importlib.import_module("sqlalchemy").event
        event.listen(connection, "commit", wakeups.commit)
        event.listen(connection, "rollback", wakeups.forget)
    wakeups.add(lanes)


class SqlalchemyCallerConnection(SqliteCallerConnection):
    """A connection of aiosqlite, which only SQLAlchemy can use synchronously."""

    driver: DriverName = "stdlib"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.connection.driver_connection.in_transaction)

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        return self._run(sql, tuple(values))

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        rows = [tuple(values) for values in many]
        if not rows:  # SQLAlchemy would run the statement once, without values
            return 0
        before = self.value("select total_changes()")
        self._run(sql, rows)
        return self.value("select total_changes()") - before

    def begin(self) -> bool:
        """Begin as the driver does before the first write; refuse autocommit mode."""
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
