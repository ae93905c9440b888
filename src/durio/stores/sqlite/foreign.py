"""A caller's own connection as a place where operations write: its guests.

A guest changes nothing of its host but rows: what the caller set on the connection (row
factories, traces) is gone around or put back. Nothing is committed here.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import apsw

from durio.model.errors import WrongTransaction
from durio.model.tx import TxKind
from durio.stores.sqlite.database import Database, DriverName, Row, Values
from durio.stores.sqlite.stdlib import as_apsw

Ring = Callable[[set[str]], None]
Watch = Callable[[Ring, Iterable[str]], None]
HOOK = "durio"  # what our hooks are called among the caller's own


class Guest(Database, Protocol):
    """A caller's connection, for the length of one call."""

    driver: DriverName

    def joined(self) -> AbstractContextManager[object]:
        """Around everything: the caller finds its connection as it was."""
        ...

    def begin(self) -> bool:
        """See that a transaction is open; True: it was begun just now."""
        ...


class Host(NamedTuple):
    """Where to write, and how to hear of the commit."""

    guest: Guest
    watch: Watch


class ApswGuest:
    """In a connection of apsw."""

    driver: DriverName = "apsw"

    def __init__(self, connection: apsw.Connection) -> None:
        self._host = connection
        self._cursor: Any = apsw.Cursor(connection)
        self._cursor.row_trace = untouched  # in place of the caller's

    def joined(self) -> AbstractContextManager[object]:
        """There is nothing to put back."""
        return nullcontext()

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return self._host.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        return self._cursor.execute(sql, values).fetchall()

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Run one statement many times: the rows of all."""
        return self._cursor.executemany(sql, many).fetchall()

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        before = self._host.total_changes()
        self.rows_of_many(sql, many)
        return self._host.total_changes() - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        return first(self.rows(sql, values))

    def begin(self) -> bool:
        """Without a transaction each statement would be its own."""
        if not self.in_transaction:
            raise not_begun("with connection: ..., or connection.execute('begin')")
        return False


class StdlibGuest:
    """In a connection of the standard library."""

    driver: DriverName = "stdlib"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._host = connection
        try:
            self._cursor = sqlite3.Cursor(connection)
        except sqlite3.Error as error:
            raise as_apsw(error) from None
        self._cursor.row_factory = None

    @contextmanager
    def joined(self) -> Generator[None, None, None]:
        """Text is text here, whatever the caller makes of it."""
        before = self._host.text_factory
        self._host.text_factory = str
        try:
            yield
        finally:
            self._host.text_factory = before

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return self._host.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        try:
            return self._cursor.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise as_apsw(error) from None

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """One by one: the driver's executemany throws rows away."""
        return [row for values in many for row in self.rows(sql, values)]

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        before = self._host.total_changes
        try:
            self._cursor.executemany(sql, many)
        except sqlite3.Error as error:
            raise as_apsw(error) from None
        return self._host.total_changes - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        return first(self.rows(sql, values))

    def begin(self) -> bool:
        """As the driver does before the first write, unless the caller forbade it."""
        if self.in_transaction:
            return False
        if self._host.isolation_level is None:
            raise not_begun("connection.execute('begin'), or leave isolation_level out")
        self.rows("begin immediate")
        return True


# --- being told of the commit


class Rings:
    """The lanes of one connection with jobs that are not committed yet."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._lanes: set[str] = set()

    def note(self, lanes: Iterable[str]) -> None:
        """Tell of these when they are committed."""
        self._lanes.update(lanes)

    def watch(self, _ring: Ring, lanes: Iterable[str]) -> None:
        """The same, where whoever owns the connection tells of its commit."""
        self.note(lanes)

    def commit(self, *_: object) -> bool:
        """It is being committed: whoever is told waits until it is. False: go on."""
        if self._lanes:
            lanes, self._lanes = self._lanes, set()
            self._ring(lanes)
        return False

    def forget(self, *_: object) -> None:
        """It was rolled back."""
        self._lanes = set()


_rings: "WeakKeyDictionary[apsw.Connection, Rings]" = WeakKeyDictionary()


def watch_apsw(connection: apsw.Connection, ring: Ring, lanes: Iterable[str]) -> None:
    """SQLite itself tells, just before the commit."""
    rings = _rings.get(connection)
    if rings is None:
        rings = _rings[connection] = Rings(ring)
        connection.set_commit_hook(rings.commit, id=HOOK)
        connection.set_rollback_hook(rings.forget, id=HOOK)
    rings.note(lanes)


def watch_nothing(ring: Ring, lanes: Iterable[str]) -> None:
    """sqlite3 does not tell: workers look by themselves, every second or so."""


def untouched(_cursor: object, row: Row) -> Row:
    """A row as SQLite gave it."""
    return row


def first(rows: list[Row]) -> Any:
    """The first column of the first row; None without one."""
    return rows[0][0] if rows else None


def not_begun(how: str) -> WrongTransaction:
    """Outside of a transaction the job would be stored at once."""
    return WrongTransaction(
        "tx has no open transaction: the job would be stored at once",
        cure=f"Begin one: {how}. Or leave tx out.",
    )


def host_of(connection: Any, kind: TxKind, own: Rings | None = None) -> Host:
    """A connection of one of the two libraries; `own`: a task's, whose end we see."""
    watch: Watch | None = None
    if own is not None:
        watch = own.watch
    if kind is TxKind.APSW:
        watch = watch or partial(watch_apsw, connection)
        return Host(ApswGuest(connection), watch)
    if kind is TxKind.SQLITE3:
        return Host(StdlibGuest(connection), watch or watch_nothing)
    raise WrongTransaction(
        f"tx is a {kind.value}, but the store is SQLite",
        cure="Give a connection to the store's own file, or leave tx out.",
    )
