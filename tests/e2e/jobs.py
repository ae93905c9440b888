"""The App of these tests; its tasks record each step in the ledger."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from durio import App, Concurrency, Context, Permanent, Retry
from tests.e2e.ledger import VARIABLE, note

CHILD_SECONDS_MAX = 100.0
LOOK_SECONDS = 0.02

TASKS: list[tuple[Callable[..., Any], dict[str, Any]]] = []


def task(**options: Any) -> Callable[[Any], Any]:
    """Register a task for every App that `make_app` creates."""

    def add(function: Any) -> Any:
        TASKS.append((function, options))
        return function

    return add


@task()
async def nap(ctx: Context, seconds: float) -> int:
    """Sleep, with progress; return which process it was."""
    note("start", ctx.job_id, ctx.attempt)
    await ctx.progress(0, 1, message=str(os.getpid()))
    await asyncio.sleep(seconds)
    await ctx.progress(1, 1, message=str(os.getpid()))
    note("effect", ctx.job_id, ctx.attempt)
    return os.getpid()


@task(limits=[Concurrency(2, key="tenant")])
async def limited(ctx: Context, tenant: int) -> int:
    """Run for a moment, beside at most one other job of the tenant."""
    note("start", ctx.job_id, ctx.attempt)
    await asyncio.sleep(LOOK_SECONDS)
    note("effect", ctx.job_id, ctx.attempt)
    return tenant


@task()
async def held(ctx: Context) -> int:
    """Run until the test opens the gate, then record the effect."""
    note("start", ctx.job_id, ctx.attempt)
    await ctx.progress(0, 1, message=str(os.getpid()))
    while not is_open():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(LOOK_SECONDS)
    await ctx.progress(1, 1, message=str(os.getpid()))
    note("effect", ctx.job_id, ctx.attempt)
    return os.getpid()


@task()
def held_in_a_thread(ctx: Context) -> int:
    """Do the same in a thread."""
    note("start", ctx.job_id, ctx.attempt)
    ctx.progress(0, 1, message=str(os.getpid()))
    while not is_open():
        time.sleep(LOOK_SECONDS)
    ctx.progress(1, 1, message=str(os.getpid()))
    note("effect", ctx.job_id, ctx.attempt)
    return os.getpid()


@task()
async def held_and_deaf(ctx: Context) -> int:
    """Do the same, and ignore a cancel."""
    note("start", ctx.job_id, ctx.attempt)
    while not is_open():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LOOK_SECONDS)
    note("effect", ctx.job_id, ctx.attempt)
    return os.getpid()


def is_open() -> bool:
    """Whether the test has opened the gate, for all or for this process."""
    folder = Path(os.environ[VARIABLE])
    return (folder / "gate").exists() or (folder / f"gate-{os.getpid()}").exists()


@task()
async def nothing(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    note("effect", ctx.job_id, ctx.attempt)


@task()
async def refused(ctx: Context) -> None:
    """Die at the first attempt."""
    note("start", ctx.job_id, ctx.attempt)
    raise Permanent("no such order")


@task()
async def refused_late(ctx: Context) -> None:
    """Die when the test opens the gate."""
    note("start", ctx.job_id, ctx.attempt)
    while not is_open():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(LOOK_SECONDS)
    raise Permanent("no such order")


@task()
async def poison(ctx: Context, seconds: float) -> None:
    """Kill the worker, every time."""
    note("start", ctx.job_id, ctx.attempt)
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


@task()
async def fork(ctx: Context) -> None:
    """Fork without exec at the first attempt; the child lives on."""
    note("start", ctx.job_id, ctx.attempt)
    if ctx.attempt == 1 and os.fork() == 0:
        note("child", ctx.job_id, ctx.attempt)
        live_on()
    while not is_open():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(LOOK_SECONDS)
    note("effect", ctx.job_id, ctx.attempt)


def live_on() -> None:
    """Outlive the parent until the test is over, and never return."""
    over = Path(os.environ[VARIABLE]) / "over"
    end = time.monotonic() + CHILD_SECONDS_MAX
    while not over.exists() and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
    os._exit(0)


@task(timeout=30)
async def block(ctx: Context, seconds: float) -> None:
    """Block the loop of the worker, within the hard limit."""
    note("start", ctx.job_id, ctx.attempt)
    time.sleep(seconds)  # noqa: ASYNC251 - the fault under test
    note("effect", ctx.job_id, ctx.attempt)


@task(timeout=1, retry=Retry(1, delays=(0.1,), jitter=False))
async def block_past_limit(ctx: Context) -> None:
    """Block the loop past the hard limit, at the first attempt."""
    note("start", ctx.job_id, ctx.attempt)
    if ctx.attempt == 1:
        time.sleep(60)  # noqa: ASYNC251 - the fault under test
    note("effect", ctx.job_id, ctx.attempt)


@task(timeout=1, retry=Retry(1, delays=(0.1,), jitter=False))
async def spin_past_limit(ctx: Context) -> None:
    """Keep the loop busy past the hard limit, at the first attempt."""
    note("start", ctx.job_id, ctx.attempt)
    while ctx.attempt == 1:
        pass
    note("effect", ctx.job_id, ctx.attempt)


@task(timeout=1, retry=Retry(1, delays=(0.1,), jitter=False))
async def block_in_a_part(ctx: Context) -> None:
    """Block the loop past the hard limit from a subtask, at the first attempt."""
    note("start", ctx.job_id, ctx.attempt)

    async def part() -> None:
        if ctx.attempt == 1:
            time.sleep(60)  # noqa: ASYNC251 - the fault under test

    async with asyncio.TaskGroup() as group:
        group.create_task(part())
    note("effect", ctx.job_id, ctx.attempt)


@task()
async def block_until_told(ctx: Context) -> None:
    """Block the loop for ten minutes, or not at all once the gate is open."""
    note("start", ctx.job_id, ctx.attempt)
    if not is_open():
        time.sleep(600)  # noqa: ASYNC251 - the fault under test
    note("effect", ctx.job_id, ctx.attempt)


@task(queue="blocking", timeout=1, retry=Retry(1, delays=(0.1,), jitter=False))
async def block_until_open(ctx: Context) -> None:
    """Block the loop past the hard limit, until the test opens the gate."""
    note("start", ctx.job_id, ctx.attempt)
    while not is_open():
        time.sleep(LOOK_SECONDS)  # noqa: ASYNC251 - the fault under test
    note("effect", ctx.job_id, ctx.attempt)


def make_app(url: str | None = None, settings: Mapping[str, Any] | None = None) -> App:
    app = App(url, name="e2e", settings=settings)
    for function, options in TASKS:
        app.task(**options)(function)
    app.hooks.after(lambda event: note("accepted", event.job_id, event.attempt))
    app.hooks.dead(lambda event: note("dead", event.job_id, event.attempt))
    return app


app = make_app()
