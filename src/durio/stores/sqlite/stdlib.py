"""The standard library's SQLite, for a file that it shares with the caller's connections.

Two copies of SQLite in one process break each other's locks, so whoever wants jobs in the
transactions of sqlite3 or SQLAlchemy has the store use the same copy:
`sqlite:///app.db?driver=stdlib`. It is slower than apsw and as old as the machine's.
Troubles are told as apsw's errors, whose names are SQLite's own.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import apsw

from durio.stores.sqlite.bundled import STATEMENTS_CACHED
from durio.stores.sqlite.database import Row, Values

PRIMARY_CODE = 0xFF  # the rest of a code says more precisely what happened
# This library does not tell how long the log is: so much is thought of every commit.
PAGES_PER_COMMIT = 64
UNHEX_SINCE = (3, 41, 0)


class StdlibDatabase:
    """A connection of the standard library, with our ways to run a statement."""

    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open the file at `path`; `make` it if it is not there."""
        self._path = path
        self._note: Callable[[int], None] | None = None
        self._commits = 0  # since the last checkpoint
        try:
            self._db = sqlite3.connect(
                address_of(path, make=make),
                uri=True,
                isolation_level=None,  # transactions are begun and ended by hand
                check_same_thread=False,  # one thread at a time, but not always the same
                cached_statements=STATEMENTS_CACHED,
            )
        except sqlite3.Error as error:
            raise as_apsw(error) from None
        self.rows("pragma wal_autocheckpoint=0")
        self._db.create_function("folded", 1, str.casefold, deterministic=True)
        if sqlite3.sqlite_version_info < UNHEX_SINCE:
            self._db.create_function("unhex", 1, bytes.fromhex, deterministic=True)

    @property
    def connection(self) -> sqlite3.Connection:
        """What a task is given whose transaction this is."""
        return self._db

    @property
    def filename(self) -> str:
        """The file, as it was named."""
        return self._path

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        return self._db.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        try:
            rows = self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise as_apsw(error) from None
        if sql == "commit":
            self._note_commit()
        return rows

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Run one statement many times: the rows of all.

        One by one: the driver's executemany throws rows away.
        """
        return [row for values in many for row in self.rows(sql, values)]

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        before = self._db.total_changes
        try:
            self._db.executemany(sql, many)
        except sqlite3.Error as error:
            raise as_apsw(error) from None
        return self._db.total_changes - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None

    # --- tending

    def run_script(self, text: str) -> None:
        """Run several statements: the driver's own way to do so would commit first."""
        for sql in statements_of(text):
            self.rows(sql)

    def wait_when_busy(self, milliseconds: int) -> None:
        """How long a statement waits for writers that do not take our lock."""
        self.rows(f"pragma busy_timeout={milliseconds}")

    def is_read_only(self) -> bool:
        """Whether the file could be opened for reading only."""
        return not os.access(self._path, os.W_OK)  # it has no better way to ask

    def leave_log_at_close(self, leave: bool) -> None:  # noqa: FBT001
        """Whether the last to close leaves the log; before Python 3.12 it never does."""
        configure: Any = getattr(self._db, "setconfig", None)
        if configure is not None:
            configure(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave)

    def watch_log(self, note: Callable[[int], None]) -> None:
        """Tell after each commit how many pages the log may have."""
        self._note = note

    def _note_commit(self) -> None:
        self._commits += 1
        if self._note is not None:
            self._note(self._commits * PAGES_PER_COMMIT)

    def checkpoint(self, *, cut: bool = False) -> None:
        """Move the log into the database; `cut` it too, or raise BusyError."""
        mode = "truncate" if cut else "passive"
        is_busy = self.rows(f"pragma wal_checkpoint({mode})")[0][0]
        self._commits = 0
        if cut and is_busy:
            raise apsw.BusyError("a reader is in the way")

    def stop_when(self, over: Callable[[], bool], steps: int) -> None:
        """Ask so often, and end a long statement when it is over."""
        self._db.set_progress_handler(over, steps)

    def close(self) -> None:
        """Let go of the file."""
        try:
            self._db.close()
        except sqlite3.Error as error:
            raise as_apsw(error) from None


def address_of(path: str, *, make: bool) -> str:
    """A path as a URI, which alone can say that the file must be there already."""
    if path == ":memory:":
        return path
    return f"file:{quote(path)}?mode={'rwc' if make else 'rw'}"


def statements_of(text: str) -> list[str]:
    """The statements of a script, one by one."""
    found: list[str] = []
    begun = ""
    for line in text.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            found.append(begun)
            begun = ""
    return [*found, begun] if begun.strip() else found


def as_apsw(error: sqlite3.Error) -> apsw.Error:
    """The same trouble in the words of apsw, which are those of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the driver's own: a closed connection, a value of a wrong type
        return apsw.MisuseError(str(error))
    kind = type(apsw.exception_for(code & PRIMARY_CODE))
    told = kind(str(error))
    if not isinstance(told, apsw.Error):
        return apsw.Error(str(error))
    return told
