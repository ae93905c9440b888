"""An App's life: what opens when, in which loop, with which settings, beside which others."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastapi
import pytest

from durio import App, Priority, Settings, State
from durio.app.connect import DEFAULT_URL
from durio.host.threads import LoopThread
from tests.unit.app.app_harness import MEMORY, drained, records, virtual, working


async def echo(value: int = 0) -> int:
    return value


def file_url(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


# --- opening and closing


def test_nothing_opens_at_construction(tmp_path: Path):
    app = App(file_url(tmp_path))
    app.task(echo)
    assert repr(app).startswith("App('sqlite:///")
    assert list(tmp_path.iterdir()) == []


def test_first_use_opens_and_closing_may_be_followed_by_use(tmp_path: Path):
    async def main() -> None:
        app = App(file_url(tmp_path))
        task = app.task(echo)
        await task.enqueue(1)
        await app.close()
        await app.close()
        await task.enqueue(2)
        async with app:
            assert len(await records(app)) == 2
        assert len(await records(app)) == 2
        await app.close()

    asyncio.run(main())


@pytest.mark.proves("M208")
def test_one_app_works_in_two_runs_of_asyncio(tmp_path: Path):
    app = App(file_url(tmp_path))
    task = app.task(echo)

    async def enqueue(value: int) -> str:
        return (await task.enqueue(value)).id

    async def look() -> int:
        await drained(app)
        found = [await (await app.job(id_)).result(10) for id_ in ids]
        await app.close()
        return sum(found)

    ids = [asyncio.run(enqueue(n)) for n in (1, 2, 3)]
    assert asyncio.run(look()) == 6


@pytest.mark.proves("M208")
def test_one_app_works_from_several_loops_and_without_one(tmp_path: Path):
    app = App(file_url(tmp_path))
    task = app.task(echo)
    other = LoopThread("another loop")

    async def main() -> None:
        here = await task.enqueue(1)
        there = other.submit(task.enqueue(2))
        await asyncio.wrap_future(there)
        assert here != there.result()

    asyncio.run(main())
    task.enqueue_sync(3)
    assert len(app.run_sync(records(app))) == 3
    other.stop()
    app.run_sync(app.close())


def test_an_app_works_after_a_fork(tmp_path: Path):
    app = App(file_url(tmp_path))
    task = app.task(echo)
    task.enqueue_sync(1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            task.enqueue_sync(2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    task.enqueue_sync(3)
    assert len(app.run_sync(records(app))) == 3
    app.run_sync(app.close())


# --- the sync twins


@pytest.mark.proves("M208")
def test_every_call_has_a_twin_for_code_without_a_loop():
    app = App(MEMORY, name="shop")
    task = app.task(echo)
    job = task.options(delay=60).enqueue_sync(1)
    assert job.status_sync().state is State.SCHEDULED
    assert job.cancel_sync() is State.CANCELLED
    job.retry_sync()
    jobs = [task.enqueue_sync(2), app.enqueue_sync("shop.echo", 3)]
    jobs += task.enqueue_many_sync([(4,), {"value": 5}])
    app.run_sync(drained(app))
    assert job.result_sync() == 1
    assert [job.result_sync(timeout=5) for job in jobs] == [2, 3, 4, 5]
    assert app.run_sync(app.job(job.id)) == job
    later = task.options(delay=60).enqueue_sync(1)
    with pytest.raises(TimeoutError):
        later.result_sync(timeout=0.001)
    app.run_sync(app.close())


# --- lifespan


@pytest.mark.proves("M208")
def test_a_web_app_opens_and_closes_its_app(tmp_path: Path):
    app = App(file_url(tmp_path))
    task = app.task(echo)
    lived: list[str] = []

    @asynccontextmanager
    async def inner(_: Any) -> AsyncIterator[dict[str, int]]:
        lived.append("in")
        yield {"answer": 42}
        lived.append("out")

    async def live(lifespan: Any) -> Any:
        api = fastapi.FastAPI(lifespan=lifespan)
        async with api.router.lifespan_context(api) as state:
            assert (tmp_path / "jobs.db").exists()
            await task.enqueue(1)
            return state

    assert not asyncio.run(live(app.lifespan))
    assert not app.state.stores
    assert asyncio.run(live(app.lifespan(inner=inner))) == {"answer": 42}
    assert lived == ["in", "out"]


# --- settings


@pytest.mark.proves("M15")
def test_the_url_comes_from_code_then_the_environment_then_the_default(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("DURIO_URL", raising=False)
    assert App().url == DEFAULT_URL == "sqlite:///durio.db"
    monkeypatch.setenv("DURIO_URL", "sqlite:///env.db")
    assert App().url == "sqlite:///env.db"
    assert App(MEMORY).url == MEMORY


@pytest.mark.proves("M15", "M16")
def test_settings_come_from_code_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURIO_WORKER__CONCURRENCY", "20")
    monkeypatch.setenv("DURIO_WORKER__GRACE_SECONDS", "3.5")
    monkeypatch.setenv("DURIO_LOG__FORMAT", "json")
    chosen = App(settings={"worker": {"concurrency": 7}}).settings
    assert (chosen.worker.concurrency, chosen.worker.grace_seconds) == (7, 3.5)
    assert chosen.log.format == "json"
    assert chosen.worker.prefetch == Settings().worker.prefetch


@pytest.mark.proves("M15")
def test_every_setting_has_a_variable(monkeypatch: pytest.MonkeyPatch):
    usual = Settings()
    for group in usual.__struct_fields__:
        fields = getattr(usual, group)
        for name in fields.__struct_fields__:
            variable = f"DURIO_{group}__{name}".upper()
            monkeypatch.setenv(variable, str(getattr(fields, name)))
    assert App(MEMORY).settings == usual


# --- namespaces


@pytest.mark.proves("M13")
def test_two_apps_share_a_store_without_collisions(tmp_path: Path):
    async def main() -> None:
        shop = App(file_url(tmp_path), name="shop")
        bank = App(file_url(tmp_path), name="bank")
        ran: list[str] = []

        @shop.task(name="pay")
        async def shop_pay(value: int) -> str:
            ran.append("shop")
            return f"shop {value}"

        @bank.task(name="pay")
        async def bank_pay(value: int) -> str:
            ran.append("bank")
            return f"bank {value}"

        async with shop, bank:
            one = await shop_pay.options(key="k").enqueue(1)
            two = await bank_pay.options(key="k").enqueue(2)
            assert two.created
            await drained(shop)
            assert ran == ["shop"]  # a worker serves its own namespace
            assert (await two.status()).state is State.READY
            await drained(bank)
            assert (await one.result(), await two.result()) == ("shop 1", "bank 2")
            # A handle reads any job of the store.
            assert await (await bank.job(one.id)).result() == "shop 1"

    asyncio.run(main())


@virtual
async def test_a_worker_serves_the_queues_it_was_told(app: App):
    task = app.task(echo)
    mail = await task.options(queue="mail").enqueue(1)
    rest = await task.enqueue(2)
    async with working(app, queues=["mail"]):
        assert await mail.result() == 1
        new = await task.options(queue="mail").enqueue(3)
        assert await new.result() == 3
    assert (await rest.status()).state is State.READY


@virtual
async def test_a_worker_of_all_queues_hears_of_new_ones(app: App):
    task = app.task(echo)
    async with working(app):
        await app.clock.sleep(1)
        job = await task.options(queue="brand-new").enqueue(3)
        assert await job.result() == 3


@pytest.mark.proves("L4")
def test_priorities_have_names():
    assert [p.value for p in Priority] == [0, 2, 5, 7, 9]
    assert Priority.CRITICAL == 9
