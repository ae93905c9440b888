"""The interface of a connection that operations use: four typed ways to run a statement.

Two libraries implement it. The default is apsw, which includes a new SQLite of its own, the
same on every machine. The other is the standard library's, for a file that the caller's
sqlite3 or SQLAlchemy connections have open too: `sqlite:///app.db?driver=stdlib`. It is
slower than apsw, and its SQLite is as old as the machine's. A caller's connection also
implements it (caller_connection.py).

All of them raise apsw's errors, whose names are SQLite's own; translate.py turns them into
errors for callers.

One process must use one copy of SQLite per file. Two copies break each other's locks on the
file they share: closing a descriptor in one drops the locks that the other believes it
holds.
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
    @property
    def in_transaction(self) -> bool: ...

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        """Run a statement to its end and return all rows."""
        ...

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Run one statement once for each element; return the rows of all.

        Elements run one by one, unless a driver can do better: sqlite3's executemany
        discards rows.
        """
        return [row for values in many for row in self.rows(sql, values)]

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        """Run one statement once for each element; return the number of changed rows.

        The statement must not return rows.
        """
        ...

    def value(self, sql: str, values: Values = ()) -> Any:
        """Return the first column of the first row; None if there are no rows."""
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None


class OwnDatabase(Database, Protocol):
    """A connection that the store itself opens, configures and closes."""

    @property
    def filename(self) -> str: ...

    def run_script(self, text: str) -> None:
        """Run several statements in the current transaction, if there is one."""
        ...

    def wait_when_busy(self, milliseconds: int) -> None:
        """Set how long a statement waits for writers that do not take our writers' lock."""
        ...

    def is_read_only(self) -> bool: ...

    def leave_log_at_close(self, leave: bool) -> None:  # noqa: FBT001
        """Set whether the last connection to close leaves the log for the next opener."""
        ...

    def watch_log(self, report: Callable[[int], None]) -> None:
        """Report after each commit the number of pages of the log, or an estimate."""
        ...

    def checkpoint(self, *, cut: bool = False) -> None:
        """Copy the log into the database; with `cut`, truncate it too, or raise BusyError."""
        ...

    def stop_when(self, over: Callable[[], bool], steps: int) -> None:
        """Call `over` every `steps` virtual machine steps of a statement.

        When it returns True, the statement ends with InterruptError.
        """
        ...

    def close(self) -> None: ...


STATEMENTS_CACHED = 128
# Read and write, because WAL readers write to the shared memory.
EXISTING = apsw.SQLITE_OPEN_READWRITE
NEW = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class ApswDatabase(apsw.Connection):
    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open the file at `path`; with `make`, create it if it is missing."""
        flags = NEW if make else EXISTING
        super().__init__(path, flags=flags, statementcachesize=STATEMENTS_CACHED)
        # The holder of the writers' lock runs checkpoints, not each commit.
        self.wal_autocheckpoint(0)
        untyped: Any = self
        # SQLite itself folds only ASCII.
        untyped.create_scalar_function("folded", str.casefold, 1, deterministic=True)

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        untyped: Any = self
        return untyped.execute(sql, values).fetchall()

    def rows_of_many(self, sql: str, many: Iterable[Values]) -> list[Row]:
        """Fetch all rows, because apsw runs a statement only when its rows are fetched."""
        untyped: Any = self
        return untyped.executemany(sql, many).fetchall()

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        untyped: Any = self
        before = self.total_changes()
        untyped.executemany(sql, many)
        return self.total_changes() - before

    def value(self, sql: str, values: Values = ()) -> Any:
        rows = self.rows(sql, values)
        return rows[0][0] if rows else None

    # --- configuration and upkeep

    def run_script(self, text: str) -> None:
        self.rows(text)

    def wait_when_busy(self, milliseconds: int) -> None:
        self.set_busy_timeout(milliseconds)

    def is_read_only(self) -> bool:
        return self.readonly("main")

    def leave_log_at_close(self, leave: bool) -> None:  # noqa: FBT001
        self.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(leave))

    def watch_log(self, report: Callable[[int], None]) -> None:
        def hook(_db: apsw.Connection, _name: str, pages: int) -> int:
            report(pages)
            return apsw.SQLITE_OK

        self.set_wal_hook(hook)

    def checkpoint(self, *, cut: bool = False) -> None:
        mode = (
            apsw.SQLITE_CHECKPOINT_TRUNCATE if cut else apsw.SQLITE_CHECKPOINT_PASSIVE
        )
        self.wal_checkpoint(mode=mode)

    def stop_when(self, over: Callable[[], bool], steps: int) -> None:
        self.set_progress_handler(over, steps)


PRIMARY_CODE = 0xFF  # the higher bits of an extended code are details
# Estimate, because sqlite3 does not report the length of the log.
PAGES_PER_COMMIT = 64
UNHEX_SINCE = (3, 41, 0)


class StdlibDatabase(OwnDatabase):
    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open the file at `path`; with `make`, create it if it is missing."""
        self._path = path
        self._report_log: Callable[[int], None] | None = None
        self._commits = 0  # number of commits since the last checkpoint
        try:
            self._db = sqlite3.connect(
                address_of(path, make=make),
                uri=True,
                isolation_level=None,  # we begin and end transactions ourselves
                check_same_thread=False,  # one thread at a time, not always the same
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
        """The driver's connection, which a task gets as its own transaction."""
        return self._db

    @property
    def filename(self) -> str:
        return self._path

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def rows(self, sql: str, values: Values = ()) -> list[Row]:
        try:
            rows = self._db.execute(sql, stdlib_values(sql, values)).fetchall()
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None
        if sql == "commit":
            self._report_commit()
        return rows

    def changed_by_many(self, sql: str, many: Iterable[Values]) -> int:
        before = self._db.total_changes
        try:
            self._db.executemany(sql, (stdlib_values(sql, row) for row in many))
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None
        return self._db.total_changes - before

    # --- configuration and upkeep

    def run_script(self, text: str) -> None:
        """Run the statements one by one: the driver's executescript would commit first."""
        for sql in statements_of(text):
            self.rows(sql)

    def wait_when_busy(self, milliseconds: int) -> None:
        self.rows(f"pragma busy_timeout={milliseconds}")

    def is_read_only(self) -> bool:
        return not os.access(self._path, os.W_OK)  # sqlite3 does not report it

    def leave_log_at_close(self, leave: bool) -> None:  # noqa: FBT001
        """Set it from Python 3.12 on; before, the last connection removes the log."""
        configure: Any = getattr(self._db, "setconfig", None)
        if configure is not None:
            configure(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave)

    def watch_log(self, report: Callable[[int], None]) -> None:
        self._report_log = report

    def _report_commit(self) -> None:
        self._commits += 1
        if self._report_log is not None:
            self._report_log(self._commits * PAGES_PER_COMMIT)

    def checkpoint(self, *, cut: bool = False) -> None:
        mode = "truncate" if cut else "passive"
        is_busy = self.rows(f"pragma wal_checkpoint({mode})")[0][0]
        self._commits = 0
        if cut and is_busy:
            raise apsw.BusyError("a reader blocks it")

    def stop_when(self, over: Callable[[], bool], steps: int) -> None:
        self._db.set_progress_handler(over, steps)

    def close(self) -> None:
        try:
            self._db.close()
        except sqlite3.Error as error:
            raise as_apsw_error(error) from None


def stdlib_values(sql: str, values: Values) -> Values | dict[str, Any]:
    """Return the values in the form that sqlite3 takes them for this statement.

    sqlite3 counts numbered parameters such as ?2 as named ones. From Python 3.12 it warns
    about a sequence for them, and Python 3.14 refuses it.
    """
    if "?1" not in sql:
        return values
    return {str(number): value for number, value in enumerate(values, 1)}


def address_of(path: str, *, make: bool) -> str:
    """Return the path as a URI, because only a URI can say that the file must exist."""
    if path == ":memory:":
        return path
    return f"file:{quote(path)}?mode={'rwc' if make else 'rw'}"


def statements_of(text: str) -> list[str]:
    found: list[str] = []
    begun = ""
    for line in text.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            found.append(begun)
            begun = ""
    return [*found, begun] if begun.strip() else found


def as_apsw_error(error: sqlite3.Error) -> apsw.Error:
    """Return the apsw error of the same SQLite result code."""
    code = getattr(error, "sqlite_errorcode", None)
    # The driver's own error: a closed connection, or a value of a wrong type.
    if code is None:
        return apsw.MisuseError(str(error))
    kind = type(apsw.exception_for(code & PRIMARY_CODE))
    translated = kind(str(error))
    if not isinstance(translated, apsw.Error):
        return apsw.Error(str(error))
    return translated


# Before this version, a write during another process's checkpoint could lose pages.
LIBRARY_MIN = (3, 51, 3)
LIBRARY_MIN_TEXT = ".".join(str(part) for part in LIBRARY_MIN)


def connect(path: str, driver: DriverName, *, make: bool = False) -> OwnDatabase:
    """Open a connection for the store; with `make`, create the file if it is missing."""
    kind = ApswDatabase if driver == "apsw" else StdlibDatabase
    return kind(path, make=make)


def version_of(driver: DriverName) -> str:
    return apsw.sqlite_lib_version() if driver == "apsw" else sqlite3.sqlite_version


def is_safe(driver: DriverName) -> bool:
    """Whether this SQLite is safe when several processes write."""
    parts = version_of(driver).split(".")
    return tuple(int(part) for part in parts) >= LIBRARY_MIN


def check_library(driver: DriverName) -> str | None:
    """Refuse an apsw that can lose pages; for the standard library's SQLite only warn.

    A user of `driver=stdlib` shares the file with sqlite3 and has no other SQLite. Returns
    the warning.
    """
    if is_safe(driver):
        return None
    risk = f"SQLite {version_of(driver)} can lose data under several processes"
    if driver == "apsw":
        cure = f"Install apsw {LIBRARY_MIN_TEXT} or later: it brings its own SQLite."
        raise StoreUnavailable(risk, cure=cure)
    return (
        f"{risk}, and driver=stdlib uses it: run Python with SQLite {LIBRARY_MIN_TEXT} or later, "
        "or keep jobs in a file of their own without driver=stdlib"
    )


def check_other_libraries(path: str, driver: DriverName) -> None:
    """Refuse a file that another library of this process has open, as far as is known.

    A descriptor does not show which library opened it, but apsw lists its own connections.
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
    return StoreUnavailable(
        f"{path} is open in this process already, through {library}",
        cure=cure,
        path=path,
    )


def is_open(inode: Inode) -> bool:
    """Whether this process has a descriptor of that file; False if /proc is missing."""
    if not DESCRIPTORS.is_dir():
        return False
    for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - iterdir would stat each twice
        with suppress(OSError):
            found = os.stat(f"{DESCRIPTORS}/{name}")  # noqa: PTH116
            if (found.st_dev, found.st_ino) == inode:
                return True
    return False


def is_open_by_apsw(inode: Inode) -> bool:
    for connection in apsw.connections():
        with suppress(apsw.Error):  # closed meanwhile, in another thread
            if connection.filename and inode_of(connection.filename) == inode:
                return True
    return False
