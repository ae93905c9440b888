"""One file, many ways to reach it: threads, folders, links, and a file that goes away."""

import asyncio
import os
import threading
from pathlib import Path

import apsw
import pytest

from durio import App, JobDead, Retry, State
from durio.app.worker_builder import make_worker
from durio.errors import StoreReplaced, StoreUnavailable
from durio.model.job import NewJob
from tests.job_counts import count_jobs


def shop(url: str, name: str = "shop") -> App:
    app = App(url, name=name)

    @app.task(name="echo")
    async def echo(n: int) -> int:
        return n

    return app


async def count(app: App) -> int:
    counts = await count_jobs(await app.store(), "shop")
    return sum(sum(states.values()) for states in counts.values())


def test_many_first_calls_at_once_open_one_store(tmp_path: Path) -> None:
    app, before = shop(f"sqlite:///{tmp_path}/a.db"), set(threading.enumerate())

    async def main() -> int:
        await asyncio.gather(*(app.enqueue("echo", n) for n in range(20)))
        return await count(app)

    assert asyncio.run(main()) == 20
    names = [each.name for each in set(threading.enumerate()) - before]
    assert sorted(names) == ["durio-reader", "durio-writer"]
    asyncio.run(app.close())


@pytest.mark.parametrize("where", ["file", "memory"])
def test_many_first_threads_at_once_open_one_store(tmp_path: Path, where: str) -> None:
    url = "sqlite:///:memory:" if where == "memory" else f"sqlite:///{tmp_path}/a.db"
    app, errors = shop(url), []

    def enqueue() -> None:
        try:
            asyncio.run(app.enqueue("echo", 1))
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=enqueue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert asyncio.run(count(app)) == 8
    asyncio.run(app.close())


def test_a_relative_path_stays_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    app = shop("sqlite:///jobs.db")
    app.enqueue_sync("echo", 1)
    monkeypatch.chdir(tmp_path / "second")
    app.enqueue_sync("echo", 2)
    app.run_sync(app.close())
    app.enqueue_sync("echo", 3)
    assert app.run_sync(count(app)) == 3
    assert not list((tmp_path / "second").iterdir())
    app.run_sync(app.close())


def test_a_symlink_leads_to_the_same_locks(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    one = shop(f"sqlite:///{tmp_path}/real/jobs.db")
    one.enqueue_sync("echo", 1)
    (tmp_path / "link.db").symlink_to(tmp_path / "real/jobs.db")
    two = shop(f"sqlite:///{tmp_path}/link.db")
    two.enqueue_sync("echo", 2)
    assert one.run_sync(count(one)) == 2
    assert not (tmp_path / "link.db-durio").exists()
    for app in (one, two):
        app.run_sync(app.close())


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    one = shop(f"sqlite:///{tmp_path}/a.db")
    one.enqueue_sync("echo", 1)
    one.run_sync(one.close())
    os.link(tmp_path / "a.db", tmp_path / "b.db")
    with pytest.raises(StoreUnavailable, match="hard-linked"):
        shop(f"sqlite:///{tmp_path}/b.db").enqueue_sync("echo", 2)


def test_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/a.db")
    app.enqueue_sync("echo", 1)
    for name in ("a.db", "a.db-wal", "a.db-shm"):
        (tmp_path / name).unlink()

    async def until_refused() -> None:
        # It looks once a second: what is acknowledged within that second is lost with
        # the file, as the docs say.
        async with asyncio.timeout(30):
            while True:
                await app.enqueue("echo", 2)
                await app.clock.sleep(0.05)

    with pytest.raises(StoreReplaced, match="deleted or replaced"):
        app.run_sync(until_refused())


def test_one_damaged_row_costs_one_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    app = App(url, name="shop")

    @app.task(name="fail", retry=Retry(1, base=0))
    async def fail() -> None:
        raise ValueError

    @app.task(name="echo")
    async def echo(n: int) -> int:
        return n

    async def main() -> None:
        bad = await fail.enqueue()
        good = [await echo.enqueue(n) for n in range(5)]
        await app.close()
        db = apsw.Connection(str(tmp_path / "a.db"))
        db.execute("update job set errors = '{broken', progress = x'ff' where seq = 1")
        db.close()
        worker = await make_worker(app, is_burst=True)
        await worker.run()
        assert [await job.result(30) for job in good] == list(range(5))
        with pytest.raises(JobDead, match="exhausted"):
            await bad.result(30)
        assert (await bad.status()).state is State.DEAD
        await app.close()

    asyncio.run(main())


def test_five_thousand_old_queues_cost_an_idle_worker_nothing(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/a.db")

    async def main() -> None:
        store = await app.store()
        await app.enqueue("echo", 1)
        for start in range(0, 5000, 1000):
            await store.enqueue(
                [
                    job._replace(id=app.clock.new_id(), lane=f"shop:q{start + n}")
                    for n, job in enumerate([new_job(app)] * 1000)
                ]
            )
        worker = await make_worker(app, is_burst=True)
        await worker.run()
        assert len(await store.queues("shop")) == 5001
        assert await store.queues("shop", busy=True) == []
        assert await count(app) == 0
        await app.close()

    asyncio.run(main())


def new_job(app: App) -> NewJob:
    return NewJob(app.clock.new_id(), "shop:q", 4, "shop.echo", b'[[],{"n":1}]')
