"""Reads the store from outside, by the bare driver: states of jobs, and integrity."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from durio.model.ids import id_bytes, id_text
from durio.model.job import STATE_BY_CODE
from tests.e2e.workers import reading

FINAL = {"done", "dead", "cancelled"}
STATES: list[str] = [str(state) for state in STATE_BY_CODE]


class Outside:
    def __init__(self, path: Path) -> None:
        self._path = path

    def states(self, jobs: Sequence[str]) -> dict[str, str]:
        """States of these jobs; deleted ones are missing."""
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
        with reading(self._path) as db:
            return db.execute(sql, values).fetchall()
