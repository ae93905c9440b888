"""A worker as a guest: on the caller's loop, within one block, never the end of its host."""

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from durio import App, State
from durio.app.embed import EmbeddedWorker
from durio.errors import (
    ChildFailed,
    InvalidOption,
    OperatingError,
    QueueFull,
    UsageError,
)
from durio.testing.clock import VirtualClock, run_virtual
from tests.faults.faulty_store import FaultyStore
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop
from tests.unit.app.app_harness import (
    MEMORY,
    in_state,
    reached,
    record_of,
    records,
    virtual,
)
from tests.unit.worker.test_child_attempt import FakeChildPool


def embedded(app: App, **options: Any) -> EmbeddedWorker:
    """`app.worker(...)` in virtual time."""
    return EmbeddedWorker(
        app, side_loop=TaskSideLoop(), machine=FakeMachine(), **options
    )


def add_sleep(app: App) -> Any:
    @app.task(name="sleep", retry=0)
    async def sleep(seconds: float) -> float:
        await app.clock.sleep(seconds)
        return seconds

    return sleep


def test_modules_of_imports_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "embed_app.py").write_text(
        "from durio import App\n"
        "app = App('sqlite:///:memory:', name='shop', imports=('embed_tasks',))\n"
    )
    (tmp_path / "embed_tasks.py").write_text(
        "from embed_app import app\n@app.task\nasync def double(n: int) -> int:\n"
        "    return 2 * n\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = importlib.import_module("embed_app").app

    async def main() -> int:
        async with app.worker():
            return await (await app.enqueue("double", 21)).result(timeout=20)

    try:
        assert asyncio.run(main()) == 42
    finally:
        for name in ("embed_app", "embed_tasks"):
            sys.modules.pop(name, None)


@pytest.mark.proves("M8", "M115")
@virtual
async def test_jobs_run_while_the_block_does(app: App):
    sleep = add_sleep(app)
    async with embedded(app):
        job = await sleep.enqueue(5)
        assert await job.result() == 5
    assert await (await app.store()).workers("app") == []  # it has left


@virtual
async def test_drained_waits_for_what_is_ready_and_running_but_not_for_later(app: App):
    sleep = add_sleep(app)
    jobs = [await sleep.enqueue(3) for _ in range(25)]
    later = await sleep.options(delay="1h").enqueue(1)
    async with embedded(app) as worker:
        await worker.drained()
        states = {(await job.status()).state for job in jobs}
        assert (await later.status()).state is State.SCHEDULED
    assert states == {State.DONE}


@virtual
async def test_drained_looks_at_its_own_queues_only(app: App):
    sleep = add_sleep(app)
    other = await sleep.options(queue="other").enqueue(1)
    job = await sleep.options(queue="mail").enqueue(1)
    async with embedded(app, queues=["mail"]) as worker:
        await worker.drained()
        assert (await job.status()).state is State.DONE
    assert (await other.status()).state is State.READY


@virtual
async def test_drained_has_a_bound_of_its_own(app: App):
    sleep = add_sleep(app)
    await sleep.enqueue(100)
    async with embedded(app) as worker:
        with pytest.raises(TimeoutError, match="after 10 s"):
            await worker.drained(timeout=10)


@virtual
async def test_concurrency_is_the_workers_alone(app: App):
    most: list[int] = []
    running: set[int] = set()

    @app.task(name="count")
    async def count(number: int) -> None:
        running.add(number)
        most.append(len(running))
        await app.clock.sleep(1)
        running.discard(number)

    await count.enqueue_many([(number,) for number in range(20)])
    async with embedded(app, concurrency=3) as worker:
        await worker.drained()
    assert max(most) == 3
    assert app.settings.worker.concurrency == 10


@pytest.mark.proves("M35")
def test_queues_are_bounded_beside_an_embedded_worker(tmp_path: Path) -> None:
    settings = {"queue": {"embedded_max": 5, "full_seconds": 0}}
    app = App(f"sqlite:///{tmp_path}/jobs.db", settings=settings)

    @app.task(name="wait", queue="slow")
    async def wait() -> None:
        await app.clock.sleep(60)

    async def main() -> None:
        async with app.worker(queues=["default"], grace=0):
            for _ in range(5):
                await wait.enqueue()
            with pytest.raises(QueueFull, match="5"):
                await wait.enqueue()
        assert app.default_maxsize is None

    asyncio.run(main())


# --- leaving


@virtual
async def test_leaving_lets_running_jobs_end_within_the_grace(app: App):
    sleep = add_sleep(app)
    async with embedded(app):
        job = await sleep.enqueue(20)
        await in_state(job, State.RUNNING)
    assert (await job.status()).state is State.DONE


@virtual
async def test_what_does_not_end_in_the_grace_is_given_back_uncharged(app: App):
    sleep = add_sleep(app)
    async with embedded(app, grace=5):
        job = await sleep.enqueue(1000)
        await in_state(job, State.RUNNING)
        began = app.clock.now()
    assert 5 <= app.clock.now() - began < 10
    record = await record_of(app, job)
    assert (record.state, record.retried, record.losses) == (2, 0, 0)


@virtual
async def test_an_error_of_the_block_drains_and_is_raised(app: App):
    sleep = add_sleep(app)
    jobs: list[Any] = []

    async def serve() -> None:
        async with embedded(app):
            jobs.append(await sleep.enqueue(20))
            await in_state(jobs[0], State.RUNNING)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await serve()
    assert (await jobs[0].status()).state is State.DONE


@virtual
async def test_a_cancelled_block_drains_too(app: App):
    sleep = add_sleep(app)
    jobs: list[Any] = []

    async def serve() -> None:
        async with embedded(app):
            jobs.append(await sleep.enqueue(20))
            await app.clock.sleep(1000)

    server = asyncio.get_running_loop().create_task(serve())
    await app.clock.sleep(2)
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server
    assert (await jobs[0].status()).state is State.DONE


@virtual
async def test_a_second_cancel_gives_back_at_once_and_still_leaves_well(app: App):
    sleep = add_sleep(app)
    jobs: list[Any] = []

    async def serve() -> None:
        async with embedded(app):
            jobs.append(await sleep.enqueue(1000))
            await app.clock.sleep(1000)

    server = asyncio.get_running_loop().create_task(serve())
    await app.clock.sleep(2)
    server.cancel()
    await app.clock.sleep(1)
    began = app.clock.now()
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server
    assert app.clock.now() - began < 3
    record = await record_of(app, jobs[0])
    assert (record.state, record.retried, record.losses) == (2, 0, 0)
    assert await (await app.store()).workers("app") == []


@virtual
async def test_a_loop_that_ends_around_it_costs_nobody_an_attempt(app: App):
    """As `asyncio.run` does after a second Ctrl-C: every task is cancelled at once."""
    sleep = add_sleep(app)

    async def serve() -> None:
        async with embedded(app):
            await sleep.enqueue_many([(1000,), (1000,), (1000,)])
            await app.clock.sleep(1000)

    server = asyncio.get_running_loop().create_task(serve())
    await app.clock.sleep(2)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert len(others) > 5
    for task in others:
        task.cancel()
    await asyncio.wait((server,))
    assert server.cancelled()
    left = [(r.state, r.retried, r.losses, r.worker) for r in await records(app)]
    assert left == [(2, 0, 0, None)] * 3
    assert await (await app.store()).workers("app") == []


# --- errors


@virtual
async def test_an_error_of_the_worker_is_told_at_once_and_raised_on_leaving(
    app: App, caplog: pytest.LogCaptureFixture
):
    async def break_down(*_: Any) -> None:
        raise RuntimeError("the wakeups are gone")

    store = await app.store()
    store.wait = break_down  # type: ignore[method-assign]

    async def serve() -> None:
        async with embedded(app) as worker:
            await app.clock.sleep(1)
            told = [getattr(r, "event", "") for r in caplog.records]
            assert "worker.failed" in told
            with pytest.raises(RuntimeError, match="the wakeups are gone"):
                await worker.drained()

    with pytest.raises(RuntimeError, match="the wakeups are gone"):
        await serve()


@virtual(settings={"worker": {"abandoned_max": 1, "grace_seconds": 1}})
async def test_a_worker_that_gave_up_says_so(
    app: App, caplog: pytest.LogCaptureFixture
):
    """Too much abandoned code: a worker's own process would end, a host goes on."""
    is_over = False

    @app.task(name="deaf", timeout=(1, 2), retry=0)
    async def deaf() -> None:
        while not is_over:
            with suppress(asyncio.CancelledError):
                await app.clock.sleep(5)

    async def serve() -> None:
        async with embedded(app):
            await deaf.enqueue()
            await app.clock.sleep(20)

    with pytest.raises(OperatingError, match="too many abandoned attempts"):
        await serve()
    is_over = True
    told = [getattr(r, "event", "") for r in caplog.records]
    assert "worker.failed" in told
    await app.clock.sleep(10)


@virtual
async def test_children_that_never_start_are_the_error_of_the_block(app: App):
    """Told as what it is, not as another way to end."""
    nursery = FakeChildPool()

    async def serve() -> None:
        async with embedded(app, child_pool=nursery) as worker:
            assert nursery.broken is not None
            nursery.broken(ChildFailed("no child starts", cure="Correct it."))
            await app.clock.sleep(5)
            with pytest.raises(ChildFailed, match="no child starts"):
                await worker.drained()

    with pytest.raises(ChildFailed, match="no child starts"):
        await serve()


def test_an_interrupt_that_meets_a_task_is_passed_on() -> None:
    """A second Ctrl-C is raised wherever Python is: also in the middle of a task."""
    app = App(MEMORY)
    runner = asyncio.Runner()

    @app.task(name="met", retry=0)
    async def met() -> None:
        runner._interrupt_count = 1  # type: ignore[attr-defined]
        runner._on_sigint(2, None, asyncio.current_task())  # type: ignore[attr-defined]

    async def main() -> None:
        async with app.worker():
            await met.enqueue()
            await app.clock.sleep(60)

    async def left() -> list[Any]:
        rows = [(r.state, r.retried, r.losses) for r in await records(app)]
        await app.close()
        return rows

    app.state.entered = 1  # the store in memory outlives the block
    with runner, pytest.raises(KeyboardInterrupt):
        runner.run(main())
    assert asyncio.run(left()) == [(2, 0, 0)]


@virtual
async def test_what_was_on_its_way_to_the_store_gets_there(app: App):
    """The loop ends around an exchange: its outcomes are sent once more."""
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    sleep = add_sleep(app)
    jobs: list[Any] = []

    async def serve() -> None:
        async with embedded(app):
            jobs.append(await sleep.enqueue(5))
            await in_state(jobs[0], State.RUNNING)
            faulty.slow("exchange", seconds=3, times=1)
            await app.clock.sleep(1000)

    server = asyncio.get_running_loop().create_task(serve())
    await app.clock.sleep(6)
    assert (await jobs[0].status()).state is State.RUNNING  # ended, and not told yet
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait((server,))
    assert (await jobs[0].status()).state is State.DONE


@virtual
async def test_the_error_of_the_block_comes_first(app: App):
    async def break_down(*_: Any) -> None:
        raise RuntimeError("the wakeups are gone")

    store = await app.store()
    store.wait = break_down  # type: ignore[method-assign]

    async def serve() -> None:
        async with embedded(app):
            await app.clock.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await serve()


def test_dependencies_that_fail_keep_the_program_from_beginning() -> None:
    @asynccontextmanager
    async def deps() -> AsyncGenerator[None, None]:
        raise ConnectionError("no database")
        yield

    async def main(clock: VirtualClock) -> None:
        app = App(MEMORY, clock=clock, deps=deps)
        with pytest.raises(ConnectionError, match="no database"):
            async with embedded(app):
                raise AssertionError("the block was entered")

    run_virtual(main)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"queues": "mail"}, InvalidOption),
        ({"queues": []}, InvalidOption),
        ({"concurrency": 0}, InvalidOption),
        ({"grace": "soon"}, InvalidOption),
        ({"grace": -1}, InvalidOption),
    ],
)
def test_bad_options_are_refused_before_anything_begins(
    options: dict[str, Any], error: type[Exception]
) -> None:
    app = App(MEMORY)
    with pytest.raises(error):
        app.worker(**options)
    with pytest.raises(error):
        app.lifespan(embed_worker=True, **options)


def test_options_of_a_worker_without_one_are_a_mistake() -> None:
    with pytest.raises(UsageError, match="queues is for an embedded worker"):
        App(MEMORY).lifespan(queues=["mail"])


# --- the lifespan


class Recorder:
    """An inner lifespan that notes its life."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @asynccontextmanager
    async def __call__(self, asgi_app: object) -> AsyncGenerator[dict[str, str], None]:
        self.seen.append(f"begins with {asgi_app}")
        yield {"pool": "open"}
        self.seen.append("ends")


def test_an_inner_lifespan_lives_around_the_worker() -> None:
    """A job may use what the inner lifespan made, to the end of its grace."""
    inner = Recorder()

    async def main() -> None:
        app = App(MEMORY)

        @app.task(name="note")
        async def note(word: str) -> None:
            await app.clock.sleep(0.05)
            inner.seen.append(word)

        lifespan = app.lifespan(inner=inner, embed_worker=True, concurrency=2)
        async with lifespan("api") as state:
            assert state == {"pool": "open"}
            job = await note.enqueue("job")
            await reached(job, lambda status: status.state is not State.READY)

    asyncio.run(main())
    assert inner.seen == ["begins with api", "job", "ends"]


def test_a_program_may_be_loaded_again_in_one_process() -> None:
    """Two lifespans one after the other, on two loops, with the same App."""
    app = App(MEMORY)
    sums: list[int] = []

    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    async def life(number: int) -> None:
        async with app.lifespan(embed_worker=True)(None):
            sums.append(await (await add.enqueue(number, 1)).result(timeout=30))

    asyncio.run(life(1))
    asyncio.run(life(2))
    assert sums == [2, 3]


def test_two_apps_may_be_guests_of_one_process() -> None:
    async def main() -> list[str]:
        apps = [App(MEMORY, name=name) for name in ("shop", "bank")]

        def declare(app: App) -> Any:
            @app.task(name="who")
            async def who() -> str:
                return app.name

            return who

        tasks = [declare(app) for app in apps]
        async with apps[0].worker(), apps[1].worker():
            jobs = [await task.enqueue() for task in tasks]
            return [await job.result(timeout=30) for job in jobs]

    assert asyncio.run(main()) == ["shop", "bank"]


def test_a_lifespan_takes_the_framework_and_keywords_in_one_call() -> None:
    """`lifespan=lambda api: app.lifespan(api, embed_worker=True)`."""

    async def main() -> int:
        app = App(MEMORY)

        @app.task(name="add")
        async def add(a: int, b: int) -> int:
            return a + b

        async with app.lifespan("api", embed_worker=True):
            return await (await add.enqueue(1, 2)).result(timeout=30)

    assert asyncio.run(main()) == 3
