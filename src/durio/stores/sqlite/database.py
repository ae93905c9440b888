"""A connection with four short, typed ways to run a statement."""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]
Values = Sequence[Any]


class Database(apsw.Connection):
    """The driver's connection; whatever it raises is translated at the door."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
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
