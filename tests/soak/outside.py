"""The store seen from outside, by the bare driver: where jobs stand, and whether it is whole."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from durio.model.ids import id_bytes, id_text
from durio.model.job import STATE_BY_CODE

FINAL = {"done", "dead", "cancelled"}
STATES: list[str] = [str(state) for state in STATE_BY_CODE]


class Outside:
    def __init__(self, path: Path) -> None:
        self._path = path

    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """Where these jobs stand; those that are gone are not named."""
        if not jobs:
            return {}
        marks = ",".join("?" * len(jobs))
        sql = f"select id, state from job where id in ({marks})"  # noqa: S608 - marks
        rows = self._select(sql, [id_bytes(job) for job in jobs])
        return {id_text(row[0]): STATES[row[1]] for row in rows}

    def unfinished(self) -> int:
        rows = self._select("select state, count(*) from job group by 1")
        return sum(row[1] for row in rows if STATES[row[0]] not in FINAL)

    def quick_check(self) -> str:
        return "; ".join(row[0] for row in self._select("pragma quick_check"))

    def _select(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connected() as db:
            return db.execute(sql, values).fetchall()

    @contextmanager
    def _connected(self) -> Generator[Any]:
        db: Any = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(5000)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.execute("pragma query_only=1")
        try:
            yield db
        finally:
            db.close()
