"""Tasks that change their plan, on both stores: async, in threads, children, transactions."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from durio import App, Context, Retry, group
from durio.errors import JobDead, UsageError
from durio.keys import while_active
from durio.testing import testing
from tests.servers.postgres import PostgresServer

app = App("sqlite:///never-opened.db", name="changes")
too_late: list[int] = []


@app.task
async def double(x: int) -> int:
    return 2 * x


@app.task
async def total(values: list[int]) -> int:
    return sum(values)


@app.task
def in_thread(ctx: Context, n: int) -> int:
    return ctx.replace(group(double.s(i) for i in range(n)) | total.s())


@app.task(process=True)
def in_child(ctx: Context, n: int) -> int:
    if n < 3:
        ctx.add(in_child.s(n + 1))
    return ctx.replace(double.s(n) | double.s())


@app.task
async def in_block(ctx: Context, n: int) -> int:
    async with ctx.transaction():
        if n < 3:
            ctx.add(in_block.s(n + 1))
        return ctx.replace(group(double.s(i) for i in range(n)) | total.s())


@app.task(retry=0)
async def rolled_back(ctx: Context, n: int) -> int:
    ctx.add(double.s(1))
    with suppress(ValueError):
        async with ctx.transaction():
            ctx.add(double.s(10))
            ctx.replace(double.s(n))
            raise ValueError("no")
    return n


@app.task(retry=0)
async def committed(ctx: Context, n: int) -> int:
    async with ctx.transaction():
        ctx.result(n)
    with pytest.raises(UsageError, match="this job is done"):
        ctx.add(double.s(10))
    too_late.append(n)
    return n


@app.task(retry=0)
async def too_large(ctx: Context) -> list[int]:
    async with ctx.transaction():
        return ctx.replace(group(double.s(n) for n in range(1200)))


@app.task(retry=Retry(20, base=0.1, factor=1))
async def keyed(ctx: Context) -> list[int]:
    async with ctx.transaction():
        node = double.options(key="one", unique=while_active)
        return ctx.replace(group(node.s(1), double.s(2)))


@app.task
async def crawl(ctx: Context, page: int) -> int:
    if page < 64:
        ctx.add(crawl.s(2 * page), crawl.s(2 * page + 1))
    return page


PLANS: list[tuple[Any, Any]] = [
    (in_thread.s(1500) | double.s(), 4 * sum(range(1500))),
    (group(in_child.s(1)) | total.s(), 4 + 8 + 12),
    (group(in_block.s(1)), [0, 2, 6]),
    (group(rolled_back.s(5)), [5, 2]),
    (group(committed.s(7)), [7]),
    (group(crawl.s(1)) | total.s(), sum(range(1, 128))),
]


async def story() -> None:
    too_late.clear()
    async with app.worker(concurrency=20):
        handles = [await plan.enqueue() for plan, _ in PLANS]
        found = [await handle.result(timeout=60) for handle in handles]
        assert found == [value for _, value in PLANS]
        assert too_late == [7]
        job = await too_large.enqueue()
        with pytest.raises(JobDead, match="a plan of 1201 jobs cannot"):
            await job.result(timeout=60)
        # A key that another job has may be free at the next attempt.
        one = double.options(key="one", unique=while_active, delay="1h")
        holder = await one.enqueue(1)
        job = await keyed.enqueue()
        while not (errors := (await job.details()).errors):  # noqa: ASYNC110 - a store
            await asyncio.sleep(0.05)
        assert errors[0].type == "KeyConflict"
        await holder.cancel()
        assert await job.result(timeout=60) == [2, 4]


def test_on_sqlite(tmp_path: Path) -> None:
    with testing(app, url=f"sqlite:///{tmp_path}/jobs.db"):
        asyncio.run(story())


def test_on_postgres(postgres: PostgresServer) -> None:
    with testing(app, url=postgres.url()):
        asyncio.run(story())
