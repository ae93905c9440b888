"""What surrounds an attempt: dependencies, middleware, hooks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from durio import App, Cancel, Context, DeadLetter, Permanent, Retry, State
from durio.app.worker_builder import make_worker
from durio.worker.middleware import DRAIN_SECONDS
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop
from tests.unit.app.app_harness import drained, finished, in_state, virtual, working
from tests.unit.app.test_ends import Listener

CallNext = Callable[[], Awaitable[Any]]


# --- dependencies


@dataclass
class Deps:
    name: str
    uses: int = 0


LIVES: list[str] = []


@asynccontextmanager
async def deps() -> AsyncIterator[Deps]:
    LIVES.append("entered")
    try:
        yield Deps("pool")
    finally:
        LIVES.append("left")


@virtual(deps=deps)
async def test_dependencies_live_as_long_as_their_worker(app: App):
    LIVES.clear()
    seen: list[Deps] = []

    @app.task(name="task")
    async def task(ctx: Context[Deps]) -> int:
        ctx.deps.uses += 1
        seen.append(ctx.deps)
        assert LIVES == ["entered"]
        return ctx.deps.uses

    async with working(app):
        jobs = [await task.enqueue() for _ in range(3)]
        assert sorted([await job.result() for job in jobs]) == [1, 2, 3]
    assert LIVES == ["entered", "left"]
    assert all(one is seen[0] for one in seen)


@virtual(deps=deps)
async def test_each_worker_has_dependencies_of_its_own(app: App):
    LIVES.clear()
    async with working(app), working(app):
        await app.clock.sleep(1)
        assert LIVES == ["entered", "entered"]
    assert Counter(LIVES) == {"entered": 2, "left": 2}


@asynccontextmanager
async def deps_that_fail_to_leave() -> AsyncIterator[str]:
    yield "pool"
    raise ConnectionError("the pool is gone")


@virtual(deps=deps_that_fail_to_leave)
async def test_dependencies_that_fail_to_leave_are_told(
    app: App, caplog: pytest.LogCaptureFixture
):
    """All jobs have their end by then: the worker ends in order, or it would restart."""

    @app.task(name="task")
    async def task() -> None:
        pass

    async with working(app):
        await (await task.enqueue()).result()
    (told,) = [r for r in caplog.records if r.message.startswith("deps.failed")]
    assert "ConnectionError: the pool is gone" in told.getMessage()


# --- middleware


def layer(name: str, calls: list[str]) -> Callable[..., Awaitable[Any]]:
    async def middleware(ctx: Context, call_next: CallNext) -> Any:
        calls.append(f"{name} before {ctx.task}")
        try:
            return await call_next()
        finally:
            calls.append(f"{name} after")

    return middleware


CALLS: list[str] = []


@pytest.mark.parametrize("kind", ["async", "sync"])
@virtual(middleware=[layer("outer", CALLS), layer("inner", CALLS)])
async def test_middleware_wraps_an_attempt_outermost_first(app: App, kind: str):
    CALLS.clear()

    @app.task(name="async")
    async def on_loop(value: int) -> int:
        CALLS.append("task")
        return value + 1

    @app.task(name="sync")
    def in_thread(value: int) -> int:
        CALLS.append("task")
        return value + 1

    task = {"async": on_loop, "sync": in_thread}[kind]
    job = await task.enqueue(4)
    with app.clock.held():
        await drained(app)
    assert await job.result() == 5
    assert [
        f"outer before app.{kind}",
        f"inner before app.{kind}",
        "task",
        "inner after",
        "outer after",
    ] == CALLS


async def answer_itself(ctx: Context, call_next: CallNext) -> Any:
    if ctx.meta.get("cached"):
        return "from the cache"
    return await call_next()


async def translate(ctx: Context, call_next: CallNext) -> Any:
    del ctx
    try:
        return await call_next()
    except KeyError as error:
        raise Permanent("not in the table") from error


@virtual(middleware=[answer_itself, translate])
async def test_middleware_may_answer_itself_or_change_an_error(app: App):
    ran: list[str] = []

    @app.task(name="task")
    async def task(name: str) -> str:
        ran.append(name)
        if name == "missing":
            raise KeyError(name)
        return "fresh"

    short = await task.options(meta={"cached": True}).enqueue("a")
    whole = await task.enqueue("b")
    missing = await task.enqueue("missing")
    await drained(app)
    assert await short.result() == "from the cache"
    assert await whole.result() == "fresh"
    status = await missing.status()
    assert (status.reason, status.attempt) == ("permanent", 1)
    assert ran == ["b", "missing"]


async def broken(ctx: Context, call_next: CallNext) -> Any:
    del ctx, call_next
    raise RuntimeError("broken middleware")


@virtual(middleware=[broken])
async def test_an_error_of_middleware_is_a_failure_of_the_attempt(app: App):
    @app.task(name="task", retry=0)
    async def task() -> None: ...

    job = await task.enqueue()
    await drained(app)
    status = await job.status()
    assert (status.state, status.last_error.message) == (
        State.DEAD,
        "broken middleware",
    )


# --- hooks


def listening(app: App) -> list[tuple[str, Any]]:
    """Every hook of the App, noted in the order in which they fire."""
    told: list[tuple[str, Any]] = []
    for kind in ("before", "after", "retry", "dead", "cancelled"):

        def hook(event: Any, kind: str = kind) -> None:
            told.append((kind, event))

        getattr(app.hooks, kind)(hook)
    return told


def kinds(told: list[tuple[str, Any]]) -> list[str]:
    return [kind for kind, _ in told]


@pytest.mark.proves("M186", "M87")
@virtual
async def test_each_hook_fires_once_and_dead_only_at_the_last_failure(app: App):
    told = listening(app)

    @app.task(name="task", queue="mail", retry=Retry(2, base=1))
    async def task(what: str) -> None:
        if what == "fails":
            raise ConnectionError("away")
        if what == "cancels":
            raise Cancel
        if what == "gives up":
            raise DeadLetter("why")

    async with working(app):
        for what, wanted in {
            "works": ["before", "after"],
            "fails": ["before", "retry", "before", "retry", "before", "dead"],
            "cancels": ["before", "cancelled"],
            "gives up": ["before", "dead"],
        }.items():
            told.clear()
            job = await task.options(meta={"tenant": 1}).enqueue(what)
            await finished(job)
            await app.clock.sleep(1)
            assert kinds(told) == wanted, what
            assert {event.job_id for _, event in told} == {job.id}
            assert {event.queue for _, event in told} == {"mail"}
            if what == "fails":
                assert [event.attempt for _, event in told] == [1, 1, 2, 2, 3, 3]
                last = told[-1][1]
                assert (last.error_type, last.error) == ("ConnectionError", "away")
                assert (last.reason, last.meta) == ("exhausted", {"tenant": 1})


@pytest.mark.proves("M186")
@virtual
async def test_a_hook_may_be_a_coroutine_and_sees_what_the_store_accepted(app: App):
    seen: list[State] = []

    @app.hooks.after
    async def after(event: Any) -> None:
        job = await app.job(event.job_id)
        seen.append((await job.status()).state)

    @app.task(name="task")
    async def task() -> None: ...

    async with working(app):
        await finished(await task.enqueue())
    assert seen == [State.DONE]


@pytest.mark.proves("M186")
@virtual
async def test_a_failing_hook_fails_no_job_and_no_other_hook(app: App):
    listener, told = Listener(app), []

    @app.hooks.after
    def first(event: Any) -> None:
        raise ValueError(f"no {event.task}")

    @app.hooks.after
    def second(event: Any) -> None:
        told.append(event.job_id)

    @app.task(name="task")
    async def task() -> int:
        return 1

    async with working(app):
        job = await task.enqueue()
        assert await job.result() == 1
    assert told == [job.id]
    failed = [fields for name, fields in listener.heard if name == "hook.failed"]
    assert len(failed) == 1
    assert failed[0]["error"] == "ValueError: no app.task"
    assert failed[0]["job_id"] == job.id


@pytest.mark.proves("M186")
@virtual
async def test_a_hook_that_hangs_is_let_go(app: App):
    listener, told = Listener(app), []

    @app.hooks.after
    async def hangs(event: Any) -> None:
        if event.attempt == 1:
            await app.clock.sleep(100_000)

    @app.hooks.after
    def second(event: Any) -> None:
        told.append(event.job_id)

    @app.task(name="task")
    async def task() -> int:
        return 1

    async with working(app):
        jobs = [await task.enqueue() for _ in range(2)]
        for job in jobs:
            assert await job.result() == 1
        await app.clock.sleep(120)
    assert sorted(told) == sorted(job.id for job in jobs)
    assert listener.names().count("hook.failed") == 2


@virtual
async def test_a_job_cancelled_while_it_runs_is_told_as_cancelled(app: App):
    told = listening(app)

    @app.task(name="task")
    async def task() -> None:
        await app.clock.sleep(1000)

    async with working(app):
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
        await job.cancel()
        await finished(job)
    assert kinds(told) == ["before", "cancelled"]


@virtual
async def test_a_hook_that_runs_at_the_stop_ends_first(app: App):
    told: list[str] = []

    @app.hooks.after
    async def slow(event: Any) -> None:
        await app.clock.sleep(1.0)
        told.append(event.job_id)

    @app.task(name="task")
    async def task() -> None: ...

    async with working(app):
        jobs = [await task.enqueue() for _ in range(2)]
        for job in jobs:
            await finished(job)
    assert told == [job.id for job in jobs]


@virtual
async def test_a_hook_that_outlasts_the_stop_is_reported(app: App):
    listener = Listener(app)

    @app.hooks.after
    async def hangs(_event: Any) -> None:
        await app.clock.sleep(1000)

    @app.task(name="task")
    async def task() -> None: ...

    async with working(app):
        for job in [await task.enqueue() for _ in range(3)]:
            await finished(job)
        began = app.clock.monotonic()
    # One time limit for all hooks, also for those that have not begun.
    assert app.clock.monotonic() - began < DRAIN_SECONDS + 1.0
    failed = [fields for name, fields in listener.heard if name == "hook.failed"]
    assert [fields["error"] for fields in failed] == [
        "a hook was still running at the end",
        "2 hooks did not run",
    ]


@virtual
async def test_hooks_of_a_worker_that_is_cancelled_still_run(app: App):
    told: list[str] = []  # a hook `before` would change when ends are reported
    app.hooks.after(lambda event: told.append(event.job_id))

    @app.task(name="task")
    async def task() -> None:
        with suppress(asyncio.CancelledError):
            await app.clock.sleep(1000)

    job = await task.enqueue()
    worker = await make_worker(app, side_loop=TaskSideLoop(), machine=FakeMachine())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        await in_state(job, State.RUNNING)
        running.cancel()
    assert (await job.status()).state is State.DONE
    assert told == [job.id]


@virtual(settings={"queue": {"embedded_max": 0}})
async def test_damaged_jobs_in_memory_do_not_keep_the_event_loop(app: App):
    """Such a store answers without a turn of the loop, and such jobs end without one."""
    exchanges, most = 0, 0  # since the last turn

    @app.task(name="task")
    async def task(number: int) -> None: ...

    await task.enqueue_many([(number,) for number in range(3000)])
    store: Any = await app.store()
    await store.context.writer.write(
        lambda tx: tx.db.rows("update job set opts = x'c1'")
    )
    exchange = store.exchange

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal exchanges, most
        exchanges += 1
        most = max(most, exchanges)
        return await exchange(*args, **options)

    async def turn() -> None:
        nonlocal exchanges
        while True:
            await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop
            exchanges = 0

    store.exchange = counted
    async with asyncio.TaskGroup() as group:
        turning = group.create_task(turn())
        await drained(app, concurrency=300)
        turning.cancel()
    assert 1 <= most <= 2
