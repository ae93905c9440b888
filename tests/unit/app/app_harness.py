"""A whole App in one test: its store in memory, its worker a task, its time virtual.

`@virtual` makes a test of a coroutine function whose first parameter is such an App;
`@real` does the same with the machine's own clock, for what happens in threads.
"""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from durio import App, Job, JobStatus, State
from durio.app.worker_builder import make_worker
from durio.model.job import StoredJob
from durio.model.settings import merged
from durio.ports.browse import Query
from durio.testing.clock import VirtualClock, run_virtual
from durio.worker.worker import Worker
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop

MEMORY = "sqlite:///:memory:"
TRIES_MAX = 1_000
# Hours of virtual time are quick when nobody looks around every second of them; what is
# due is done by its own timer.
CALM = {
    "poll_seconds": 60,
    "block_seconds": 3600,
    "life_seconds": 60,
    "rescue_seconds": 60,
    "lease_seconds": 600,
    "heartbeat_seconds": 60,
}

Test = Callable[..., Awaitable[None]]


def virtual(
    test: Test | None = None,
    *,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Run an async test in virtual time, with an App of these options."""
    options["settings"] = merged({"worker": CALM}, settings or {})

    def decorate(body: Test) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            async def main(clock: VirtualClock) -> None:
                async with App(MEMORY, clock=clock, **options) as app:
                    await body(app, **fixtures)

            run_virtual(main, seed=seed)

        return _as_test(body, run)

    return decorate if test is None else decorate(test)


def real(test: Test | None = None, **options: Any) -> Any:
    """Run an async test by the machine's clock, with an App of these options."""

    def decorate(body: Test) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            async def main() -> None:
                async with App(MEMORY, **options) as app:
                    await body(app, **fixtures)

            asyncio.run(main())

        return _as_test(body, run)

    return decorate if test is None else decorate(test)


def _as_test(body: Test, run: Callable[..., None]) -> Callable[..., None]:
    """What pytest collects: the same name and marks, without the App's parameter."""
    made = functools.wraps(body)(run)
    signature = inspect.signature(body)
    fixtures = list(signature.parameters.values())[1:]
    made.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    return made


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """A worker at work for the length of a block; it drains at the end."""
    worker = await make_worker(
        app, side_loop=TaskSideLoop(), machine=FakeMachine(), **options
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()


async def drained(app: App, **options: Any) -> None:
    """Let a worker do all there is to do now."""
    worker = await make_worker(
        app, is_burst=True, side_loop=TaskSideLoop(), machine=FakeMachine(), **options
    )
    await worker.run()


async def finished(job: Job[Any]) -> JobStatus:
    """The job's status once it is final."""
    return await reached(job, lambda status: status.state.is_final, pause_max=60.0)


async def reached(
    job: Job[Any], holds: Callable[[JobStatus], object], *, pause_max: float = 1.0
) -> JobStatus:
    """The job's status once something holds of it."""
    pause_seconds = 0.01
    for _ in range(TRIES_MAX):
        status = await job.status()
        if holds(status):
            return status
        await job._client.clock.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.2, pause_max)
    raise AssertionError(f"never: {status}")


async def in_state(job: Job[Any], state: State) -> JobStatus:
    """The job's status once it is in that state."""
    return await reached(job, lambda status: status.state is state)


async def records(app: App) -> list[StoredJob]:
    """Every stored job, newest first."""
    store = await app.store()
    return (await store.find(Query(), limit=200, cursor=None)).jobs


async def record_of(app: App, job: Job[Any]) -> StoredJob:
    """One stored job, whole."""
    return next(r for r in await records(app) if Job(app, r.id) == job)
