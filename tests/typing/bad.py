"""Mistakes that a type checker must find before the program runs.

Lines that must be refused carry `# E` and what is wrong; no other line may be.
"""

from good import Deps, app, bill, forget, half, length, render, send

from durio import App, Context, Job, Retry, State


async def bad_calls(ctx: Context[Deps]) -> None:
    await send.enqueue("1", to="x")  # E wrong type
    await send.enqueue(1)  # E keyword missing
    await send.enqueue(1, "x")  # E keyword given by position
    await send.enqueue(1, to="x", cc="y")  # E no such argument
    await send.enqueue(1, to="x", priority=9)  # E options go into options()
    await render.enqueue("x")  # E wrong type behind the context
    await render.enqueue(ctx, 7)  # E the context is never an argument of a job
    await render.enqueue()  # E argument missing
    await forget.enqueue([1], label="x")  # E wrong type of a free keyword
    await half.enqueue("x")  # E wrong type of a sync task
    half.enqueue_sync("x")  # E wrong type
    bill.enqueue_sync(1, paid_at="today")  # E a datetime


async def bad_rows() -> None:
    await length.enqueue_many("abc")  # E rows are tuples
    await length.enqueue_many([1, 2])  # E rows are tuples


async def bad_options() -> None:
    await send.options(dely=1).enqueue(1, to="x")  # E no such option
    send.options(1)  # E options are named
    send.options(retry="3")  # E a Retry or a number
    send.options(timeout=(1, 2, 3))  # E soft and hard, no more
    send.options(at="tomorrow")  # E a datetime
    send.options(delay=b"5m")  # E a duration
    send.options(priority="high")  # E a number from 0 to 9
    send.options(meta=["a"])  # E a mapping
    send.options(key=42)  # E a text
    send.options(tx=42)  # E a connection or a session
    await send.options(delay=1).enqueue("1", to="x")  # E wrong type behind options
    Retry(5, 30)  # E the rest of a Retry is named
    Retry(on=(3,))  # E exception classes
    App(url=3)  # E a text
    App("sqlite:///:memory:", "shop")  # E the name is named


async def bad_results(job: Job[str]) -> None:
    length_in_bytes: int = await job.result()  # E a text, not a number
    wrong: Job[int] = await send.enqueue(1, to="x")  # E a handle of another result
    state: str = await job.retry()  # E gives nothing
    job.status().state  # E forgotten await
    job.result().upper()  # E forgotten await
    State.PENDING  # E no such state
    (await job.status()).state = State.DONE  # E a status is frozen
    awaited: int = await job  # E the result of another type
    (await job.status()).args  # E arguments are in the details
    app.jobs(stat="dead")  # E a filter that does not exist
    app.jobs(older=[1])  # E an age that is none
    app.jobs().everything()  # E an action that does not exist
    send.job("0198").id  # E a look-up without await
    await app.queue("mail").pause(5)  # E a reason that is no text


async def bad_plain_calls(ctx: Context[Deps]) -> None:
    render(7) + b""  # E forgotten await
    await half(1.0)  # E a sync task is called plainly
    await send("1", to="x")  # E wrong type
    await render(ctx, "x")  # E wrong type behind the context
    ctx.deps.smpt  # E no such dependency


@app.task(prioritty=3)  # E no such option of a task
async def misspelt(order_id: int) -> None: ...


@app.task(process="yes")  # E True or False
async def elsewhere() -> None: ...


@app.task(retry="often")  # E a Retry or a number
async def stubborn(order_id: int) -> None: ...
