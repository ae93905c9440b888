# pyright: strict
"""A user's program that every type checker must accept, in its strict mode.

It is only read, never run. `assert_type` holds what the checker must know by itself.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from sqlite3 import connect
from typing import Any, assert_type

from apsw import Connection
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from durio import App, Context, Job, JobDetails, JobError, JobStatus, Retry, State


@dataclass
class Deps:
    smtp: str


@dataclass
class Receipt:
    order_id: int
    paid_at: datetime


@asynccontextmanager
async def open_deps() -> AsyncGenerator[Deps, None]:
    yield Deps(smtp="localhost")


app = App("sqlite:///jobs.db", name="shop", deps=open_deps)


@app.task
async def send(order_id: int, *, to: str) -> str:
    return f"{order_id} to {to}"


@app.task(
    queue="high",
    priority=9,
    retry=Retry(5, base="30s", on=(ConnectionError,), never=(ValueError,)),
    timeout=(270, 300),
)
async def render(ctx: Context[Deps], page: int) -> bytes:
    assert_type(ctx.deps.smtp, str)
    assert_type(ctx.job_id, str)
    assert_type(ctx.attempt, int)
    return b""


@app.task(process=True)
def half(x: float) -> float:
    return x / 2


@app.task(retry=3, timeout="2m", name="text_length")
async def length(text: str) -> int:
    return len(text)


@app.task(queue="bills", timeout=None)
def bill(ctx: Context[Deps], order_id: int, paid_at: datetime | None = None) -> Receipt:
    return Receipt(order_id, paid_at or datetime.now(UTC))


@app.task
async def forget(ids: list[int], *extra: str, **labels: int) -> None: ...


async def call_plainly(ctx: Context[Deps]) -> None:
    assert_type(await send(1, to="a@b.c"), str)
    assert_type(await render(7), bytes)
    assert_type(await render(ctx, 7), bytes)
    assert_type(half(1.0), float)
    assert_type(bill(ctx, 1), Receipt)
    assert_type(bill(1, paid_at=datetime.now(UTC)), Receipt)


async def enqueue() -> None:
    assert_type(await send.enqueue(1, to="a@b.c"), Job[str])
    assert_type(await render.enqueue(7), Job[bytes])
    assert_type(await render.enqueue(page=7), Job[bytes])
    assert_type(await half.enqueue(1.0), Job[float])
    assert_type(await bill.enqueue(1), Job[Receipt])
    assert_type(await forget.enqueue([1, 2], "x", label=3), Job[None])
    rows = [(1, {"to": "a"}), (2, {"to": "b"})]
    assert_type(await send.enqueue_many(rows), list[Job[str]])
    assert_type(await length.enqueue_many([("a",), ("b",)]), list[Job[int]])


def enqueue_sync() -> None:
    assert_type(send.enqueue_sync(1, to="a@b.c"), Job[str])
    assert_type(half.enqueue_sync(1.0), Job[float])
    assert_type(half.options(delay=5).enqueue_sync(1.0), Job[float])


async def transactions(session: Session, loop_session: AsyncSession) -> None:
    with Connection("shop.db") as db:
        assert_type(await send.options(tx=db).enqueue(1, to="x"), Job[str])
    assert_type(half.options(tx=connect("shop.db")).enqueue_sync(1.0), Job[float])
    assert_type(half.options(tx=session).enqueue_sync(1.0), Job[float])
    assert_type(await half.options(tx=loop_session).enqueue(1.0), Job[float])
    assert_type(await half.options(tx=None).enqueue(1.0), Job[float])


async def effects(ctx: Context[None]) -> None:
    async with ctx.transaction() as tx:
        tx.execute("select 1")
        assert_type(ctx.result(5), int)
    with ctx.transaction() as tx:
        tx.execute("select 1")


async def options() -> None:
    assert_type(await render.options(delay="5m", key="k").enqueue(7), Job[bytes])
    assert_type(await render.options(delay=timedelta(1)).enqueue(7), Job[bytes])
    later = send.options(at=datetime.now(UTC), retry=3, timeout=None)
    assert_type(await later.enqueue(1, to="x"), Job[str])
    strict = send.options(retry=Retry(3), timeout=("4m", 300), priority=9)
    assert_type(await strict.enqueue(1, to="x"), Job[str])
    assert_type(await strict.enqueue_many([(1, {"to": "a"})]), list[Job[str]])
    labelled = send.options(queue="high", meta={"tenant": "acme", "tries": 2})
    assert_type(await labelled.enqueue(1, to="x"), Job[str])
    both = send.options(delay=1).options(key="k")
    assert_type(await both.enqueue(1, to="x"), Job[str])


async def handle() -> None:
    job = await send.enqueue(1, to="a@b.c")
    assert_type(job.id, str)
    assert_type(job.created, bool)
    assert_type(await job.result(timeout=30), str)
    assert_type(await job.result(), str)
    assert_type(await job.status(), JobStatus)
    status = await job.status()
    assert_type(status.state, State)
    assert_type(status.attempt, int)
    assert_type(status.finished_at, datetime | None)
    assert_type(await job.cancel(), State)
    await job.retry()
    assert_type(job.result_sync(30), str)
    assert_type(job.status_sync(), JobStatus)
    assert_type(await job, str)
    assert_type(await asyncio.gather(job, job), tuple[str, str])
    assert_type(await job.details(), JobDetails)
    assert_type((await job.details()).errors, tuple[JobError, ...])
    assert_type(status.max_attempts, int | None)
    assert_type(status.to_dict(), dict[str, Any])
    await job.run_now()
    await show(job)


async def many() -> None:
    jobs = app.jobs(
        state=("dead", State.CANCELLED), task=send, older="1h", ids=["0198"]
    )
    async for each in jobs.limit(5):
        assert_type(each, JobDetails)
    assert_type(await jobs.count(), int)
    assert_type((await jobs.retry()).changed, int)
    assert_type([job.id for job in app.jobs()], list[str])
    mail = app.queue("mail", maxsize=5)
    await mail.pause("why")
    assert_type(await mail.depth(), int)
    assert_type((await mail.status()).paused, bool)


async def show(anything: Job[object]) -> None:
    """A handle may be seen as one of something wider."""
    assert_type(await anything.result(), object)


async def by_name() -> None:
    assert_type((await app.enqueue("shop.send", 42, to="a@b.c")).id, str)
    assert_type((await app.job("0198")).id, str)
    assert_type(await (await send.job("0198")).result(), str)
    assert_type(send.job_sync("0198"), Job[str])
    assert_type(await (await send.job("0198")), str)
    async with app as opened:
        assert_type(opened, App)
