"""One SQLite library per file and process: the mix is refused, and which one is told."""

import asyncio
import os
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from durio import App
from durio.errors import InvalidURL, StoreUnavailable, UsageError, WrongTransaction
from durio.host.executors import ThreadExecutor
from durio.stores.sqlite import database
from durio.stores.sqlite.checks import checks
from durio.stores.sqlite.database import StdlibDatabase, as_apsw_error, statements_of
from tests.unit.stores.sqlite_harness import CLOCK, new_job, run_on_store


def run(coro: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coro)


def app_at(path: Path, driver: str = "apsw") -> tuple[App, Any]:
    app = App(f"sqlite:///{path}?driver={driver}")

    @app.task(name="add")
    async def add(n: int) -> int:
        return n

    return app, add


async def made(path: Path, driver: str = "apsw") -> None:
    app, _ = app_at(path, driver)
    async with app:
        pass


# --- at the opening


def test_a_file_that_sqlite3_has_open_needs_its_driver(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run(made(path))
    stranger = sqlite3.connect(path)
    stranger.execute("select count(*) from job").fetchall()
    with pytest.raises(StoreUnavailable) as told:
        run(made(path))
    assert "through another library" in told.value.what
    assert "?driver=stdlib" in told.value.cure
    run(made(path, "stdlib"))
    stranger.close()
    run(made(path))


def test_a_file_that_apsw_has_open_needs_its_driver(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run(made(path))
    mine = apsw.Connection(str(path))
    mine.execute("select count(*) from job").fetchall()
    with pytest.raises(StoreUnavailable) as told:
        run(made(path, "stdlib"))
    assert "through apsw" in told.value.what
    run(made(path))  # it is the same library
    mine.close()
    run(made(path, "stdlib"))


def test_two_stores_of_one_file_agree(tmp_path: Path) -> None:
    async def whole(first: str, second: str) -> None:
        app, _ = app_at(tmp_path / "a.db", first)
        async with app:
            await made(tmp_path / "a.db", first)
            with pytest.raises(StoreUnavailable, match="open in this process already"):
                await made(tmp_path / "a.db", second)

    run(whole("apsw", "stdlib"))
    run(whole("stdlib", "apsw"))


def test_an_old_library_is_only_warned_of_where_it_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LIBRARY_MIN", (99, 0, 0))
    said: list[str] = []

    async def opened(driver: str) -> None:
        app, _ = app_at(tmp_path / "a.db", driver)
        app.emit.subscribers.clear()
        app.emit.subscribers.append(RecordedEvents(said))
        async with app:
            pass

    run(opened("stdlib"))
    assert said == ["store.warned"]
    with pytest.raises(StoreUnavailable, match="can lose data"):
        run(opened("apsw"))


class RecordedEvents:
    def __init__(self, said: list[str]) -> None:
        self.said = said

    def on_event(self, name: str, *_: object) -> None:
        self.said.append(name)

    def on_jobs(self, _events: object) -> None: ...

    def wants(self, _meaning: object) -> bool:
        return True


def test_doctor_names_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LIBRARY_MIN", (99, 0, 0))
    for driver, level in (("apsw", "error"), ("stdlib", "warning")):
        url = f"sqlite:///{tmp_path}/a.db?driver={driver}"
        [finding] = checks(url, CLOCK)["store.library"]()
        assert finding.severity == level
        assert database.version_of(driver) in finding.evidence  # type: ignore[arg-type]


def test_another_driver_is_refused() -> None:
    with pytest.raises(InvalidURL, match="driver cannot be 'turso'"):
        run(App("sqlite:///a.db?driver=turso").store())


# --- by the type of the transaction


def test_a_transaction_of_the_other_library_is_refused(tmp_path: Path) -> None:
    async def refused(store: str, tx: Any) -> WrongTransaction:
        app, add = app_at(tmp_path / "a.db", store)
        async with app:
            with pytest.raises(WrongTransaction) as told:
                await add.options(tx=tx).enqueue(1)
        return told.value

    stdlib = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://")
    with apsw.Connection(":memory:") as mine, Session(engine) as session:
        for store, tx, other in (
            ("apsw", stdlib, "stdlib"),
            ("apsw", session, "stdlib"),
            ("stdlib", mine, "apsw"),
        ):
            error = run(refused(store, tx))
            assert "another SQLite library" in error.what
            assert f"?driver={other}" in error.cure
    stdlib.close()
    engine.dispose()


@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_another_file_is_refused(tmp_path: Path, driver: str) -> None:
    async def whole() -> None:
        app, add = app_at(tmp_path / "a.db", driver)
        async with app:
            for where in (tmp_path / "b.db", ":memory:"):
                with (
                    closing(begun(where, driver)) as tx,
                    pytest.raises(WrongTransaction, match="but jobs are in"),
                ):
                    await add.options(tx=tx).enqueue(1)

    run(whole())


def begun(where: object, driver: str) -> Any:
    connect = apsw.Connection if driver == "apsw" else sqlite3.connect
    connection = connect(str(where))
    connection.execute("begin")
    return connection


def test_a_connection_that_is_over_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def whole(driver: str, closed: Any, auto: Any) -> None:
        app, add = app_at(path, driver)
        async with app:
            with pytest.raises(WrongTransaction, match="cannot be used here"):
                await add.options(tx=closed).enqueue(1)
            with pytest.raises(WrongTransaction, match="no open transaction"):
                await add.options(tx=auto).enqueue(1)

    run(made(path))
    closed: Any = apsw.Connection(str(path))
    closed.close()
    auto: Any = apsw.Connection(str(path))
    run(whole("apsw", closed, auto))
    auto.close()
    closed = sqlite3.connect(path)
    closed.close()
    auto = sqlite3.connect(path, isolation_level=None)
    run(whole("stdlib", closed, auto))
    auto.close()


def test_one_of_another_thread_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    connection = sqlite3.connect(path)

    async def whole() -> None:
        app, add = app_at(path, "stdlib")
        executor = ThreadExecutor(1)
        async with app:
            call = add.options(tx=connection).enqueue_sync
            ended = await executor.start(lambda: call(1)).future
        executor.close()
        assert isinstance(ended.error, WrongTransaction)
        assert "thread" in ended.error.what

    run(whole())
    connection.close()


def test_one_of_a_loop_is_refused_for_sync_callers(tmp_path: Path) -> None:
    class AsyncConnection:
        def execute(self) -> None: ...

    AsyncConnection.__module__ = "psycopg"
    AsyncConnection.__qualname__ = "AsyncConnection"
    _, add = app_at(tmp_path / "a.db")
    with pytest.raises(UsageError, match="belongs to an event loop"):
        add.options(tx=AsyncConnection()).enqueue_sync(1)


def test_a_store_in_memory_is_nobody_elses(tmp_path: Path) -> None:
    app = App("sqlite:///:memory:")

    @app.task(name="add")
    async def add() -> None: ...

    async def whole() -> None:
        async with app:
            with pytest.raises(WrongTransaction, match="in memory"):
                await add.options(tx=begun(tmp_path / "a.db", "apsw")).enqueue()

    run(whole())


# --- what the caller keeps


@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_what_the_caller_has_set_is_gone_around(tmp_path: Path, driver: str) -> None:
    path = tmp_path / "a.db"

    async def whole() -> None:
        app, add = app_at(path, driver)
        async with app:
            connection: Any
            if driver == "apsw":
                connection = apsw.Connection(str(path))
                connection.row_trace = lambda _cursor, _row: None
                connection.execute("begin immediate")
            else:
                connection = sqlite3.connect(path)
                connection.row_factory = sqlite3.Row
                connection.text_factory = bytes
            first = await add.options(tx=connection, key="k").enqueue(1)
            again = await add.options(tx=connection, key="k").enqueue(1)
            assert (again.id, again.created) == (first.id, False)
            connection.execute("commit")
            if driver == "stdlib":
                assert connection.text_factory is bytes
                assert connection.row_factory is sqlite3.Row
            connection.close()
            assert (await app.job(first.id)).id == first.id

    run(whole())


def test_a_failed_enqueue_leaves_the_callers_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def whole() -> None:
        app, add = app_at(path)
        async with app:
            connection = apsw.Connection(str(path))
            connection.execute("create table mine (n)")
            with connection:
                connection.execute("insert into mine values (1)")
                connection.exec_trace = failing_at("savepoint inserting")
                with pytest.raises(StoreUnavailable):
                    await add.options(tx=connection).enqueue(1)
                connection.exec_trace = None
            rows = connection.execute("select count(*) from mine, job").fetchall()
            assert rows == [(0,)]
            assert connection.execute("select n from mine").fetchall() == [(1,)]
            connection.close()

    run(whole())


def failing_at(sql: str) -> Any:
    def look(_cursor: object, statement: str, _values: object) -> bool:
        if statement.strip().startswith(sql):
            raise apsw.IOError("planted")
        return True

    return look


# --- the second driver


def test_errors_keep_their_names() -> None:
    db = StdlibDatabase(":memory:", make=True)
    with pytest.raises(apsw.SQLError, match="no such table"):
        db.rows("select * from nowhere")
    with pytest.raises(apsw.CantOpenError):
        StdlibDatabase("/nowhere/at/all.db")
    db.close()
    with pytest.raises(apsw.MisuseError, match="closed"):
        db.rows("select 1")
    assert isinstance(as_apsw_error(sqlite3.Error("?")), apsw.MisuseError)


def test_scripts_are_told_apart_by_their_statements() -> None:
    text = "create table a (b text default ';');\n-- why;\ncreate index c on a (b);\n"
    assert len(statements_of(text)) == 2
    assert statements_of("select 1") == ["select 1"]


def test_the_log_is_shortened_without_a_hook(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def story(store: Any) -> None:
        for _ in range(200):
            await store.enqueue([new_job(payload=b"[[],{}]" + b" " * 4000)])
        sizes.append(os.stat(f"{path}-wal").st_size)  # noqa: PTH116

    sizes: list[int] = []
    run_on_store(path, story, driver="stdlib")
    assert sizes[0] < 200 * 3 * 4096, f"{sizes[0]} bytes of log"
