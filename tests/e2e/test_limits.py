"""Limits on PostgreSQL, with a worker in this process."""

import asyncio
from collections import Counter

import pytest

from durio import App, Concurrency, Context, Rate
from durio.client.limit_store import find_limit, reset_limit, set_limit
from durio.limits import Budget
from durio.model.gate_rule import GateChoice
from durio.ports.control import AuditNote
from durio.testing import testing
from tests.servers.postgres import PostgresServer

app = App("postgresql://never-opened.invalid/shop", name="shop")
now: Counter[str] = Counter()
most: Counter[str] = Counter()


@app.task(
    limits=[Concurrency(2, key="tenant"), Rate("1000/s", key="tenant", burst=100)]
)
async def send(tenant: str) -> None:
    now[tenant] += 1
    most[tenant] = max(most[tenant], now[tenant])
    await app.clock.sleep(0.001)
    now[tenant] -= 1


@app.task(limits=[Budget("tokens", 1_000, per="100d", estimate=100)], fair_by="tenant")
async def ask(ctx: Context, tenant: str, spent: float) -> None:
    ctx.spend(spent)
    if spent > 50:
        raise ValueError(tenant)


@pytest.mark.proves("M102", "M121")
def test_no_more_jobs_of_a_key_run_at_once(postgres: PostgresServer) -> None:
    async def story() -> None:
        now.clear()
        most.clear()
        rows = [(f"t{n % 3}",) for n in range(60)]
        jobs = await send.enqueue_many(rows)
        jobs.append(await app.enqueue("send", "t0"))
        plan = await (send.si("t1") | send.si("t1")).enqueue()
        async with app.worker():
            for job in jobs:
                await job.result(timeout=60)
            await plan.result(timeout=60)
        assert {*most} == {"t0", "t1", "t2"}
        assert max(most.values()) <= 2
        store = await app.store()
        while any(row.used or row.waiting for row in await store.gates("", limit=100)):
            await store.settle(100)
            await app.clock.sleep(0.01)
        assert len(await store.gates("", limit=100)) == 6

    with testing(app, url=postgres.url()):
        asyncio.run(story())


def test_budgets_are_settled_and_limits_change(postgres: PostgresServer) -> None:
    note = AuditNote("shop", "ann", "set limit", "x")

    async def tokens() -> float:
        (row,) = await (await app.store()).gates("5r:shop/tokens/", limit=1)
        return row.tokens

    async def caps() -> set[int | None]:
        rows = await (await app.store()).gates("1k:shop/send/", limit=100)
        return {row.cap for row in rows}

    async def story() -> None:
        done = await ask.enqueue("a", 10)
        failed = await ask.options(retry=0).enqueue("a", 60)
        await send.enqueue_many([(f"t{n}",) for n in range(5)])
        store = await app.store()
        async with app.worker():
            await done.result(timeout=60)
            while not (await failed.status()).state.is_final:
                await app.clock.sleep(0.01)
            while (
                not 925 < await tokens() < 935
            ):  # settled after the store took the end
                await app.clock.sleep(0.01)
            limit = await find_limit(store, app.name, "send")
            await set_limit(store, app.name, limit, GateChoice(7), note)
            assert await caps() == {7}
            assert await reset_limit(store, app.name, limit, note) == GateChoice(2)
            assert await caps() == {2}

    with testing(app, url=postgres.url()):
        asyncio.run(story())
