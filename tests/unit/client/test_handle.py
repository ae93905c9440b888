"""A handle: a plain value that finds its job from any process."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durio import App, Job, JobStatus, State
from durio.client.result_waiters import IDS_MAX
from tests.unit.app.app_harness import drained, finished, in_state, virtual, working


@dataclass
class Receipt:
    number: int


async def echo(value: int) -> int:
    return value


async def issue(number: int) -> Receipt:
    return Receipt(number)


@pytest.mark.proves("M29", "M171")
@virtual(name="shop")
async def test_a_handle_tells_all_about_its_job(app: App):
    start = datetime.fromtimestamp(app.clock.now(), UTC)
    job = await app.task(queue="mail", priority=7)(echo).enqueue(1)
    assert (job.created, job.same_args, job.replaced) == (True, True, False)
    assert repr(job) == f"Job({job.id!r})"
    assert await job.status() == JobStatus(
        id=job.id,
        task="shop.echo",
        queue="mail",
        priority=7,
        state=State.READY,
        attempt=1,
        max_attempts=6,
        created_at=start,
    )
    await app.clock.sleep(5)
    await drained(app)
    status = await job.status()
    assert status.state is State.DONE
    assert status.state == "done"
    assert (status.started_at - start).total_seconds() == 5
    assert status.finished_at >= status.started_at
    with pytest.raises(AttributeError):
        status.state = State.READY


@pytest.mark.proves("M170")
@virtual
async def test_a_handle_is_a_value(app: App):
    task = app.task(echo)
    job, other = await task.enqueue(1), await task.enqueue(1)
    again = await app.job(job.id)
    assert again == job != other
    assert {again, job} == {job}
    assert task.job(job.id.upper().replace("-", "")) == job
    assert job != job.id


@pytest.mark.proves("M166", "M19")
@virtual
async def test_a_result_has_the_type_of_its_task_where_that_is_known(app: App):
    task = app.task(issue)
    job = await task.enqueue(5)
    await drained(app)
    assert await job.result() == Receipt(5)
    assert await task.job(job.id).result() == Receipt(5)
    assert await (await app.job(job.id)).result() == Receipt(5)
    stranger = App("sqlite:///:memory:", clock=app.clock)
    stranger._stores = app._stores
    assert await (await stranger.job(job.id)).result() == {"number": 5}


@pytest.mark.proves("M170")
def test_a_handle_works_in_another_process(tmp_path: Path):
    """Another App on the same file, as another process would have."""
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def main() -> None:
        async with App(url) as here, App(url) as there:
            job = await here.task(echo).enqueue(5)
            assert (await (await there.job(job.id)).status()).state is State.READY
            await drained(here)
            assert await (await there.job(job.id)).result(5) == 5

    asyncio.run(main())


@pytest.mark.proves("M171")
@virtual(settings={"queue": {"embedded_max": 0}})
async def test_many_waiters_share_one_poller(app: App):
    task = app.task(echo)
    jobs = await task.enqueue_many([(n,) for n in range(IDS_MAX * 2 + 7)])

    async def wait(job: Job[int]) -> int:
        return await job.result(timeout=3600)

    async with working(app), asyncio.TaskGroup() as group:
        waits = [group.create_task(wait(job)) for job in jobs]
        twice = [group.create_task(wait(jobs[0])) for _ in range(3)]
        await app.clock.sleep(0)
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
        assert names.count("Waiters._poll") == 1
    assert [wait.result() for wait in waits] == list(range(len(jobs)))
    assert [wait.result() for wait in twice] == [0, 0, 0]


@virtual
async def test_a_waiter_that_gives_up_leaves_nothing_behind(app: App):
    job = await app.task(echo).options(delay=60).enqueue(5)
    with pytest.raises(TimeoutError):
        await job.result(timeout=1)
    waiters = await app.waiters()
    assert not waiters._futures
    async with working(app):
        assert await job.result() == 5


@virtual
async def test_a_zero_timeout_only_looks(app: App):
    job = await app.task(echo).enqueue(5)
    with pytest.raises(TimeoutError):
        await job.result(timeout=0)


@pytest.mark.proves("M171")
@virtual
async def test_the_attempt_of_a_running_job_is_shown(app: App):
    @app.task(name="task")
    async def task() -> None:
        await app.clock.sleep(10)

    async with working(app) as worker:
        job = await task.enqueue()
        status = await in_state(job, State.RUNNING)
        assert (status.attempt, status.worker) == (1, str(worker.identity.id))
        assert status.started_at is not None
        status = await finished(job)
    assert (status.worker, status.reason, status.error) == (None, None, None)


@virtual
async def test_none_is_a_result_and_not_an_expired_one(app: App):
    @app.task(name="task")
    async def task() -> None: ...

    job = await task.enqueue()
    await drained(app)
    assert await job.result() is None
