"""A bounded queue, its tasks, and a process that enqueues into it as fast as it may.

python -m tests.e2e.bounded plain 250 10     # 250 jobs by 10 callers
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator

from durio import App, Context, Job, Retry
from durio.keys import replace, while_active
from tests.e2e.ledger import note

MAXSIZE = 1000
MAIL = "bounded:mail"

app = App(name="bounded")
app.queue("mail", maxsize=MAXSIZE)


@app.task(queue="mail")
async def drip(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    await asyncio.sleep(0.005)
    note("effect", ctx.job_id, ctx.attempt)


@app.task(queue="mail", retry=Retry(3, delays=(0.05,), jitter=False))
async def flaky(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    if ctx.attempt == 1:
        raise ConnectionError("away, the first time")
    note("effect", ctx.job_id, ctx.attempt)


async def main(how: str, jobs: int, callers: int) -> None:
    ask = {"plain": plain, "mixed": mixed}[how]
    numbers = iter(range(jobs))
    async with app, asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(ask_on(ask, numbers))


async def ask_on(
    ask: Callable[[int], Awaitable[list[Job[None]]]], numbers: Iterator[int]
) -> None:
    for number in numbers:
        for job in await ask(number):
            note("enq.ok", job.id)


async def plain(_number: int) -> list[Job[None]]:
    return [await drip.enqueue()]


async def mixed(number: int) -> list[Job[None]]:
    """Enqueue with keys, delays, rows, retries and cancels, in turn."""
    key = f"k{number % 40}"
    turn = number % 6
    if turn == 0:
        return [await flaky.enqueue()]
    if turn == 1:
        return [await drip.options(key=key, unique=while_active).enqueue()]
    if turn == 2:
        return [await drip.options(key=key, unique=replace, delay=0.2).enqueue()]
    if turn == 3:
        return await drip.enqueue_many([()] * 5)
    if turn == 4:
        job = await drip.options(delay=0.1).enqueue()
        await job.cancel()
        return [job]
    job = await flaky.enqueue()
    await job.cancel()
    return [job]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
