"""Asking for jobs that are not there, or for what their state does not allow."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from durio import App, Job, JobCancelled, JobDead, JobNotFound, KeyConflict, State
from durio.errors import InvalidOption, ResultExpired, WrongState
from tests.bad_input.refusals import declined, refused
from tests.unit.app.app_harness import MEMORY, drained, records, virtual, working

UNKNOWN = str(UUID(int=7))


async def echo(value: int = 0) -> int:
    return value


async def fail() -> None:
    raise ValueError("x")


@pytest.mark.proves("M170")
@virtual
async def test_an_unknown_id_is_an_error_and_never_a_state(app: App):
    with declined(JobNotFound, UNKNOWN, "retention"):
        await app.job(UNKNOWN)
    task = app.task(echo)
    with declined(JobNotFound, UNKNOWN, "transaction is not committed yet"):
        await task.job(UNKNOWN)
    handle: Job[int] = Job(app, UUID(UNKNOWN).bytes)
    calls = (handle.status, handle.details, handle.result, handle.cancel)
    calls = (*calls, handle.retry, handle.run_now)
    for call in calls:
        with declined(JobNotFound, UNKNOWN):
            await call()


@pytest.mark.proves("M170")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "pending",
        UNKNOWN[:-1],
        UNKNOWN + "0",
        "\0" * 36,
        "\ud800",
        5,
        None,
        b"x",
    ],
    ids=repr,
)
@virtual
async def test_a_text_that_is_no_id(app: App, text: Any):
    with declined(JobNotFound, "is not a job id", "Ids look like"):
        await app.job(text)
    with declined(JobNotFound, "is not a job id"):
        await app.task(echo).job(text)


@virtual
async def test_only_a_dead_or_cancelled_job_can_be_retried(app: App):
    task = app.task(echo)
    words = ("cannot be retried", "Only dead and cancelled")
    job = await task.enqueue(1)
    with declined(WrongState, job.id, "ready", *words):
        await job.retry()
    later = await task.options(delay=60).enqueue(1)
    with declined(WrongState, "scheduled", *words):
        await later.retry()
    await drained(app)
    with declined(WrongState, "done", *words):
        await job.retry()
    assert await job.result() == 1


@virtual
async def test_a_running_job_cannot_be_retried(app: App):
    started, go = asyncio.Event(), asyncio.Event()

    @app.task(name="waits")
    async def waits() -> None:
        started.set()
        await go.wait()

    async with working(app):
        job = await waits.enqueue()
        await started.wait()
        with declined(WrongState, "running"):
            await job.retry()
        go.set()
        await job.result()


@virtual
async def test_what_is_final_stays_so_when_it_is_cancelled(app: App):
    done = await app.task(echo).enqueue(5)
    dead = await app.task(retry=0)(fail).enqueue()
    await drained(app)
    assert await done.cancel() is State.DONE
    assert await dead.cancel() is State.DEAD
    assert await done.result() == 5
    with pytest.raises(JobDead):
        await dead.result()


@pytest.mark.proves("M165")
@virtual
async def test_a_result_that_has_expired(app: App):
    job = await app.task(result_ttl="10s")(echo).enqueue(5)
    await drained(app)
    assert await job.result() == 5
    await app.clock.sleep(11)
    with declined(ResultExpired, job.id, "result_ttl"):
        await job.result()
    assert (await job.status()).state is State.DONE


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan")], ids=repr)
@virtual
async def test_a_time_to_wait_that_is_none(app: App, timeout: Any):
    job = await app.task(echo).enqueue(1)
    with declined(InvalidOption, "timeout cannot be"):
        await job.result(timeout)


@pytest.mark.proves("M33")
@virtual
async def test_one_key_for_two_sets_of_arguments(app: App):
    calls = app.task(echo).options(key="k")
    first = await calls.enqueue(1)
    async with refused(
        app, KeyConflict, first.id, "with other arguments", "another key", stored=1
    ):
        await calls.enqueue(2)
    assert (await calls.enqueue(1)) == first


@virtual
async def test_a_cancelled_job_has_no_result(app: App):
    job = await app.task(echo).enqueue(1)
    await job.cancel()
    with pytest.raises(JobCancelled, match=job.id):
        await job.result()


def test_a_handle_of_a_store_that_is_gone():
    """Memory is forgotten with its App: the handle says so and does not wait."""

    async def main() -> None:
        app = App(MEMORY)
        async with app:
            job: Job[int] = await app.task(echo).enqueue(1)
            assert len(await records(app)) == 1
        with declined(JobNotFound, job.id):
            await job.result()
        await app.close()

    asyncio.run(main())


def test_a_plain_call_with_wrong_arguments_is_pythons_own_error():
    app = App(MEMORY)
    with pytest.raises(TypeError):
        asyncio.run(app.task(echo)(1, 2, 3))  # type: ignore[call-arg]
