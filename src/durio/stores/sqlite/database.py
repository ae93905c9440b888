"""What operations ask of a connection: four short, typed ways to run a statement.

Two libraries can stand behind it: apsw with a SQLite of its own (bundled.py), and the
standard library's (stdlib.py). Also a caller's connection can (foreign.py). Whichever it
is, it tells its troubles as apsw's errors, and those are translated at the door.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

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

    def watch_log(self, note: Callable[[int], None]) -> None:
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
