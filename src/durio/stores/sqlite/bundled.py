"""The library by default: apsw, with a SQLite of its own, new and everywhere the same."""

from collections.abc import Callable, Iterable
from typing import Any

import apsw

from durio.stores.sqlite.database import Row, Values

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

    def watch_log(self, note: Callable[[int], None]) -> None:
        """Tell after each commit how many pages the log has."""

        def hook(_db: apsw.Connection, _name: str, pages: int) -> int:
            note(pages)
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
