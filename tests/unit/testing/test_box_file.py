"""A box on a file: transactions work, and the App's own file is never touched."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from durio import App, Context
from durio.errors import UsageError
from durio.model.job import StoredJob
from durio.ports.browse import Query
from durio.ports.store import Store
from durio.testing import testing

DRIVER = "?driver=stdlib"  # sqlite3 may have the file open too


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shop() -> tuple[App, Any]:
    app = App("sqlite:///own.db", name="shop")

    @app.task(name="pay", retry=0)
    async def pay(ctx: Context, cents: int) -> int:
        async with ctx.transaction() as tx:
            tx.execute("insert into payment values (?)", (cents,))
            return ctx.result(cents)

    return app, pay


def test_both_kinds_of_transaction_work_on_a_file(folder: Path) -> None:
    app, pay = shop()
    with testing(app, url=f"sqlite:///test.db{DRIVER}") as box:
        tx = sqlite3.connect(folder / "test.db")
        tx.execute("create table payment (cents)")
        pay.options(tx=tx).enqueue_sync(5)
        assert box.jobs() == []
        tx.commit()
        assert [job.arguments for job in box.jobs()] == [{"cents": 5}]
        box.drain_sync()
        assert box.jobs()[0].state == "done"
        assert tx.execute("select cents from payment").fetchall() == [(5,)]
        tx.close()
    assert not (folder / "own.db").exists()


def test_a_file_keeps_its_jobs_for_the_next_box(folder: Path) -> None:
    app, pay = shop()
    with testing(app, url="sqlite:///test.db"):
        pay.enqueue_sync(5)
    with testing(app, url=f"sqlite:///{folder / 'test.db'}") as box:
        assert len(box.jobs()) == 1


@pytest.mark.parametrize(
    "url", ["sqlite:///own.db", "sqlite:///./x/../own.db?life=off"]
)
def test_the_own_file_is_refused(folder: Path, url: str) -> None:
    app, _ = shop()
    with (
        testing(app),
        pytest.raises(UsageError, match=r"own\.db.* is the real store of App 'shop'"),
    ):
        testing(app, url=url).__enter__()
    assert not (folder / "own.db").exists()


def test_sync_calls_and_workers_stay_in_the_box(folder: Path) -> None:
    app, _ = shop()

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    async def worked() -> int:
        async with app.worker():
            return await (await add.enqueue(1, 2)).result(timeout=30)

    with testing(app) as box:
        app.run_sync(app.store())
        add.enqueue_sync(1, 2)
        assert asyncio.run(worked()) == 3
        assert len(box.jobs(add)) == 2
    assert list(folder.iterdir()) == []


def test_an_open_store_of_the_app_is_left_alone(folder: Path) -> None:
    app, pay = shop()

    async def story() -> None:
        async with app:
            own = await app.store()
            await pay.enqueue(1)
            with testing(app) as box:
                await pay.enqueue(2)
                assert [job.arguments["cents"] for job in box.jobs()] == [2]
            assert await app.store() is own
            await pay.enqueue(3)
            assert len(await all_jobs(own)) == 2

    asyncio.run(story())
    assert (folder / "own.db").exists()


async def all_jobs(store: Store) -> list[StoredJob]:
    return (await store.find(Query(), limit=10, cursor=None)).jobs


def test_another_app_of_that_name_is_refused(folder: Path) -> None:
    app, _ = shop()
    other, pay = shop()
    scratch = App("sqlite:///:memory:", name="shop")
    with testing(app):
        with pytest.raises(UsageError, match="is another App of that name"):
            pay.enqueue_sync(5)
        scratch.enqueue_sync("shop.pay", 5)  # in memory: no store of a program
    with testing(app, other) as box:
        pay.enqueue_sync(5)
        assert len(box.jobs()) == 1
    assert list(folder.iterdir()) == []
