"""An answer is lost while the queue is full: what was stored is never told to be not."""

import asyncio
import os
from typing import Any

import pytest

from durio import App, Context
from durio.errors import StoreUnavailable
from durio.model.job import READY
from durio.ports.control import AuditNote, QueueChange
from tests.conformance.postgres import ScratchSchema
from tests.e2e.proxy import FaultProxy
from tests.e2e.proxy_link import Cut
from tests.faults.faulty_store import FaultyStore
from tests.job_counts import count_jobs
from tests.servers.postgres import OWNER, PASSWORD, PostgresServer

LATE_SECONDS = 30.0
HELD_SECONDS = 2.0  # a repeat that comes earlier finds the same, in another place
NEEDLE = b"the needle"
RAN: list[str] = []


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    RAN.clear()
    url = postgres.url(user=OWNER, password=PASSWORD)
    ScratchSchema(url).clear()
    return url


async def noted(ctx: Context, word: str) -> None:
    del word
    RAN.append(ctx.job_id)


def shop(url: str, full_wait: float) -> tuple[App, Any]:
    app = App(url, name="shop", settings={"log": {"level": "error"}})
    app.queue("small", maxsize=2, full_wait=full_wait)
    return app, app.task(queue="small")(noted)


async def worked_off(url: str) -> None:
    """Run what waits, elsewhere."""
    app, _ = shop(url, 0.0)
    async with app, app.worker() as worker:
        await worker.drained(LATE_SECONDS)


@pytest.mark.parametrize(
    ("driver", "sent"), [("asyncpg", NEEDLE), ("psycopg", NEEDLE.hex().encode())]
)
def test_whoever_got_the_last_place_is_told_so(
    postgres: PostgresServer, url: str, driver: str, sent: bytes
) -> None:
    """Its repeat finds the queue full, and itself in it."""

    async def main(proxy: FaultProxy) -> None:
        away = url.replace(str(postgres.port), str(proxy.address[1]))
        app, task = shop(f"{away}?driver={driver}", 0.0)
        async with app:
            await task.enqueue("first")
            proxy.lose_reply(sent)
            job = await task.enqueue(NEEDLE.decode())
            assert proxy.journal.counts[Cut.REPLY] == 1
            assert job.created
            counts = await count_jobs(await app.store(), "shop")
            assert counts == {"shop:small": {READY: 2}}
        await worked_off(url)
        assert RAN.count(job.id) == 1

    with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
        asyncio.run(main(proxy))


def test_whoever_has_run_needs_no_room(url: str) -> None:
    """Its repeat finds the queue full of others, and itself in history."""

    async def main() -> None:
        app, task = shop(url, 0.0)
        async with app:
            real = await app.store()
            store = app.state.stores[os.getpid()] = FaultyStore(real, app.clock)
            store.lose_reply("enqueue")
            store.slow("enqueue", seconds=HELD_SECONDS)
            lost = asyncio.create_task(task.enqueue("anything"))
            while not await count_jobs(real, "shop"):
                await app.clock.sleep(0.01)
            await worked_off(url)
            near, there = shop(url, 0.0)
            async with near:
                await there.enqueue_many([("other",), ("another",)])
            job = await asyncio.wait_for(lost, LATE_SECONDS)
            assert job.created
            assert (await job.status()).state == "done"
            asked = [call for call in store.calls if call.method == "enqueue"]
            assert [call.options["again"] for call in asked] == [False, True]
        await worked_off(url)
        assert RAN.count(job.id) == 1

    asyncio.run(main())


@pytest.mark.parametrize("then", ["waits", "runs"])
def test_a_first_try_that_comes_late_runs_once(url: str, then: str) -> None:
    """As behind a pooler, where nobody can end the process that was asked first."""

    async def main() -> None:
        app, task = shop(url, LATE_SECONDS)
        async with app:
            real = await app.store()
            await task.enqueue_many([("one",), ("two",)])
            store = app.state.stores[os.getpid()] = FaultyStore(real, app.clock)
            lost = StoreUnavailable("lost", unknown=True)
            store.fail("enqueue", error=lost)
            waits = asyncio.create_task(task.enqueue("late"))
            while store.times("enqueue") < 3:
                await app.clock.sleep(0.01)
            await real.set_queue(
                "shop:small", QueueChange(maxsize=3), AuditNote(who="me")
            )
            # Its own statement, at last: the repeats go on, and one of them may be first.
            await real.enqueue(store.calls[-1].args[0])
            if then == "runs":
                await worked_off(url)
            job = await asyncio.wait_for(waits, LATE_SECONDS)
            assert job.created
        await worked_off(url)
        assert RAN.count(job.id) == 1
        assert len(RAN) == 3

    asyncio.run(main())
