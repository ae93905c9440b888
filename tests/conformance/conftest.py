"""SQLite as a subject of the conformance suite: in a file, with either library, in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.stores.sqlite.database import DriverName
from durio.stores.sqlite.store import SqliteStore
from tests.conformance import Subject


@dataclass
class ApswFault:
    """Fails the nth statement of the writer's connection."""

    connection: apsw.Connection
    left: int = 0
    met: bool = False

    def arm(self, nth: int) -> None:
        self.left, self.met = nth, False
        self.connection.exec_trace = self.look

    def disarm(self) -> bool:
        self.connection.exec_trace = None
        return self.met

    def look(self, _cursor: object, statement: str, _bindings: object) -> bool:
        # Statements that clean up after the fault succeed.
        if not self.met:
            self.left -= 1
            if self.left == 0:
                self.met = True
                raise apsw.FullError(f"planted at: {statement[:60]}")
        return True


class StdlibFault(ApswFault):
    """Fails the nth statement of a driver that cannot trace statements."""

    def arm(self, nth: int) -> None:
        self.left, self.met = nth, False
        for name in ("rows", "changed_by_many"):
            setattr(self.connection, name, self.looking(name))

    def disarm(self) -> bool:
        for name in ("rows", "changed_by_many"):
            vars(self.connection).pop(name, None)
        return self.met

    def looking(self, name: str) -> Callable[..., object]:
        ask = getattr(self.connection, name)

        def looked_at(sql: str, *args: object) -> object:
            self.look(None, sql, None)
            return ask(sql, *args)

        return looked_at


def fault(store: Store) -> ApswFault:
    assert isinstance(store, SqliteStore)
    connection = store.context.writer._session.connection()
    kind = StdlibFault if store.context.driver == "stdlib" else ApswFault
    return kind(connection)


async def forget_worker(store: Store, worker: int) -> None:
    assert isinstance(store, SqliteStore)
    statement = "delete from worker where id = ?"
    await store.context.writer.write(lambda tx: tx.db.rows(statement, (worker,)))


PLACES = """
select spec.value ->> '$[0]', count(*)
from gated cross join job using (seq) join json_each(job.ties, '$[3]') as spec
where gated.held & (1 << spec.key)
group by 1
"""


async def count_places(store: Store) -> dict[str, int]:
    assert isinstance(store, SqliteStore)
    return dict(await store.context.reader.read(lambda db: db.rows(PLACES)))


def opener(path: Path | None, driver: DriverName) -> Callable[[Clock], object]:
    """Return a function that opens one more store on the same file, or in memory."""

    @asynccontextmanager
    async def open_store(clock: Clock) -> AsyncIterator[Store]:
        where = None if path is None else str(path)
        store = SqliteStore(where, clock, driver=driver)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return open_store


def subject_at(path: Path | None, driver: DriverName = "apsw") -> Subject:
    """Return SQLite in that file, or in memory, as a subject."""
    open_store = opener(path, driver)
    return Subject(
        open_store=open_store,
        open_second=None if path is None else open_store,
        fault=fault,
        forget_worker=forget_worker,
        count_places=count_places,
        sees_deaths_here=path is not None,
        leases_end_with_boot=True,
        has_transactions=path is not None,
    )


# By name, to see what each supports; a test gets its own, in a folder of its own.
SUBJECTS = {
    "file": subject_at(Path("jobs.db")),
    "memory": subject_at(None),
    "stdlib": subject_at(Path("jobs.db"), "stdlib"),
}


@pytest.fixture(params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    driver = "stdlib" if request.param == "stdlib" else "apsw"
    path = None if request.param == "memory" else tmp_path / "jobs.db"
    return subject_at(path, driver)
