"""What operations ask of a connection: four short, typed ways to run a statement.

Two libraries can stand behind it: apsw with a SQLite of its own (bundled.py), and the
standard library's (stdlib.py). Also a caller's connection can (foreign.py). Whichever it
is, it tells its troubles as apsw's errors, and those are translated at the door.

The library by default: apsw, with a SQLite of its own, new and everywhere the same.

The standard library's SQLite, for a file that it shares with the caller's connections.

Two copies of SQLite in one process break each other's locks, so whoever wants jobs in the
transactions of sqlite3 or SQLAlchemy has the store use the same copy:
`sqlite:///app.db?driver=stdlib`. It is slower than apsw and as old as the machine's.
Troubles are told as apsw's errors, whose names are SQLite's own.

Which copy of SQLite stands behind a store: one per file and process, and a sound one.

Two copies in one process break each other's locks on a file they share: closing a
descriptor in one drops the locks that the other believes to hold.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol
from urllib.parse import quote

import apsw

from durio.model.errors import StoreUnavailable
from durio.stores.sqlite.store_files import DESCRIPTORS, Inode, inode_of, opened_by

Row = tuple[Any, ...]
Values = Sequence[Any]
DriverName = Literal["apsw", "stdlib"]


class Database(Protocol):
    """Where an operation reads and writes."""

    @property
    def in_transaction(self) -> bool:
        """Whether one has been begun and not ended."""
        ...

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        ...

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Run one statement many times: the rows of all."""
        ...

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        ...

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        ...


class OwnDatabase(Database, Protocol):
    """A connection of the store's own, which it opens, tends and closes."""

    @property
    def filename(self) -> str:
        """The file, as SQLite names it."""
        ...

    def run_script(self, text: str) -> None:
        """Run several statements, in whatever transaction there is."""
        ...

    def wait_when_busy(self, milliseconds: int) -> None:
        """How long a statement waits for writers that do not take our lock."""
        ...

    def is_read_only(self) -> bool:
        """Whether the file could be opened for reading only."""
        ...

    def leave_log_at_close(self, leave: bool) -> None:  # noqa: FBT001
        """Whether the last to close leaves the log for whoever comes next."""
        ...

    def watch_log(self, report: Callable[[int], None]) -> None:
        """Tell after each commit how many pages the log has, or may have."""
        ...

    def checkpoint(self, *, cut: bool = False) -> None:
        """Move the log into the database; `cut` it too, or raise BusyError."""
        ...

    def stop_when(self, over: Callable[[], bool], steps: int) -> None:
        """Ask so often, and end a long statement with InterruptError when it is over."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


STATEMENTS_CACHED = 128
# WAL readers write to the shared memory.
EXISTING = apsw.SQLITE_OPEN_READWRITE
NEW = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class ApswDatabase(apsw.Connection):
    """The driver's connection, with our ways to run a statement."""

    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open the file at `path`; `make` it if it is not there."""
        flags = NEW if make else EXISTING
        super().__init__(path, flags=flags, statementcachesize=STATEMENTS_CACHED)
        # Checkpoints belong to whoever holds the writers' lock, not to commits.
        self.wal_autocheckpoint(0)
        untyped: Any = self
        # SQLite itself folds ASCII alone.
        untyped.create_scalar_function("folded", str.casefold, 1, deterministic=True)

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end: every row it gives."""
        untyped: Any = self
        return untyped.execute(sql, values).fetchall()

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Run one statement many times: the rows of all.

        The driver is lazy: rows that are not fetched are statements that are not run.
        """
        untyped: Any = self
        return untyped.executemany(sql, many).fetchall()

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement that gives no rows many times: how many rows it changed."""
        untyped: Any = self
        before = self.total_changes()
        untyped.executemany(sql, many)
        return self.total_changes() - before

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row; None without one."""
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None

    # --- tending

    def run_script(self, text: str) -> None:
        """Run several statements, in whatever transaction there is."""
        self.rows(text)

    def wait_when_busy(self, milliseconds: int) -> None:
        """How long a statement waits for writers that do not take our lock."""
        self.set_busy_timeout(milliseconds)

    def is_read_only(self) -> bool:
        """Whether the file could be opened for reading only."""
        return self.readonly("main")

    def leave_log_at_close(self, leave: bool) -> None:  # noqa: FBT001
        """Whether the last to close leaves the log for whoever comes next."""
        self.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(leave))

    def watch_log(self, report: Callable[[int], None]) -> None:
        """Tell after each commit how many pages the log has."""

        def hook(_db: apsw.Connection, _name: str, pages: int) -> int:
            report(pages)
            return apsw.SQLITE_OK

        self.set_wal_hook(hook)

    def checkpoint(self, *, cut: bool = False) -> None:
        """Move the log into the database; `cut` it too, or raise BusyError."""
        mode = (
            apsw.SQLITE_CHECKPOINT_TRUNCATE if cut else apsw.SQLITE_CHECKPOINT_PASSIVE
        )
        self.wal_checkpoint(mode=mode)

    def stop_when(self, over: Callable[[], bool], steps: int) -> None:
        """Ask so often, and end a long statement when it is over."""
        self.set_progress_handler(over, steps)


PRIMARY_CODE = 0xFF  # the rest of a code says more precisely what happened
# This library does not tell how long the log is: so much is thought of every commit.
PAGES_PER_COMMIT = 64
UNHEX_SINCE = (3, 41, 0)


class StdlibDatabase:
    """A connection of the standard library, with our ways to run a statement."""

    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open the file at `path`; `make` it if it is not there."""
        self._path = path
        self._report_log: Callable[[int], None] | None = None
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
            raise as_apsw_error(error) from None
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
            raise as_apsw_error(error) from None
        if sql == "commit":
            self._report_commit()
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
            raise as_apsw_error(error) from None
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

    def watch_log(self, report: Callable[[int], None]) -> None:
        """Tell after each commit how many pages the log may have."""
        self._report_log = report

    def _report_commit(self) -> None:
        self._commits += 1
        if self._report_log is not None:
            self._report_log(self._commits * PAGES_PER_COMMIT)

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
            raise as_apsw_error(error) from None


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


def as_apsw_error(error: sqlite3.Error) -> apsw.Error:
    """The same trouble in the words of apsw, which are those of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the driver's own: a closed connection, a value of a wrong type
        return apsw.MisuseError(str(error))
    kind = type(apsw.exception_for(code & PRIMARY_CODE))
    told = kind(str(error))
    if not isinstance(told, apsw.Error):
        return apsw.Error(str(error))
    return told


# Before it, a write at one moment of another process's checkpoint could lose pages.
LIBRARY_MIN = (3, 51, 3)
LIBRARY_MIN_TEXT = ".".join(str(part) for part in LIBRARY_MIN)


def connect(path: str, driver: DriverName, *, make: bool = False) -> OwnDatabase:
    """A connection of the store's own, by this library; `make` the file if need be."""
    kind = ApswDatabase if driver == "apsw" else StdlibDatabase
    return kind(path, make=make)


def version_of(driver: DriverName) -> str:
    """The version of SQLite behind a driver."""
    return apsw.sqlite_lib_version() if driver == "apsw" else sqlite3.sqlite_version


def is_safe(driver: DriverName) -> bool:
    """Whether this SQLite keeps what several processes write."""
    parts = version_of(driver).split(".")
    return tuple(int(part) for part in parts) >= LIBRARY_MIN


def check_library(driver: DriverName) -> str | None:
    """Refuse an apsw that can lose pages; of the standard library's SQLite only warn.

    Whoever chose that one shares the file with it, and has no other.
    """
    if is_safe(driver):
        return None
    told = f"SQLite {version_of(driver)} can lose data under several processes"
    if driver == "apsw":
        cure = f"Install apsw {LIBRARY_MIN_TEXT} or later: it brings its own SQLite."
        raise StoreUnavailable(told, cure=cure)
    return (
        f"{told}, and driver=stdlib uses it: run Python with SQLite {LIBRARY_MIN_TEXT} or later, "
        "or keep jobs in a file of their own without driver=stdlib"
    )


def check_other_libraries(path: str, driver: DriverName) -> None:
    """Refuse a file that another library of this process has open: best effort.

    Descriptors do not tell whose they are, but apsw knows its own connections.
    """
    inode = inode_of(path)
    ours = set[str]() if inode is None else opened_by(inode)
    if inode is None or driver in ours:
        return
    if driver == "stdlib":
        if ours or is_open_by_apsw(inode):
            raise other_library_error(
                path, "apsw", "Leave driver=stdlib out, or open it by sqlite3."
            )
    elif ours or (is_open(inode) and not is_open_by_apsw(inode)):
        cure = "Close that connection, or keep jobs in a file of their own. "
        cure += "To share the file with sqlite3 or SQLAlchemy, add ?driver=stdlib."
        raise other_library_error(path, "another library", cure)


def other_library_error(path: str, library: str, cure: str) -> StoreUnavailable:
    """Two copies of SQLite would have one file open."""
    return StoreUnavailable(
        f"{path} is open in this process already, through {library}",
        cure=cure,
        path=path,
    )


def is_open(inode: Inode) -> bool:
    """Whether this process has a descriptor of that file, as far as it can see."""
    if not DESCRIPTORS.is_dir():
        return False
    for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - iterdir would stat each twice
        with suppress(OSError):
            found = os.stat(f"{DESCRIPTORS}/{name}")  # noqa: PTH116
            if (found.st_dev, found.st_ino) == inode:
                return True
    return False


def is_open_by_apsw(inode: Inode) -> bool:
    """Whether a connection of apsw has that file open."""
    for connection in apsw.connections():
        with suppress(apsw.Error):  # closed meanwhile, in another thread
            if connection.filename and inode_of(connection.filename) == inode:
                return True
    return False
