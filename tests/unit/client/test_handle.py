"""A handle: a plain value that finds its job from any process."""

import asyncio
import json
import pickle  # noqa: TID251 - what caches of web frameworks use
import sqlite3
from collections.abc import Awaitable
from dataclasses import FrozenInstanceError, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durio import (
    App,
    Context,
    Job,
    JobDead,
    JobDetails,
    JobNotFound,
    JobStatus,
    Progress,
    Retry,
    State,
)
from durio.client import handle as handle_module
from durio.client.result_waiters import IDS_MAX
from durio.errors import UsageError, WrongState
from durio.model.job import JobError, LastError
from tests.bad_input.refusals import declined
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
    assert await task.job(job.id.upper().replace("-", "")) == job
    assert job != job.id


@pytest.mark.proves("M166", "M19")
@virtual
async def test_a_result_has_the_type_of_its_task_where_that_is_known(app: App):
    task = app.task(issue)
    job = await task.enqueue(5)
    await drained(app)
    assert await job.result() == Receipt(5)
    assert await (await task.job(job.id)).result() == Receipt(5)
    assert await (await app.job(job.id)).result() == Receipt(5)
    stranger = App("sqlite:///:memory:", clock=app.clock)
    stranger.state.stores = app.state.stores
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
        assert status.attempt == 1
        assert (await job.details()).worker == str(worker.identity.id)
        assert status.started_at is not None
        status = await finished(job)
    assert (status.reason, status.last_error) == (None, None)


@virtual
async def test_none_is_a_result_and_not_an_expired_one(app: App):
    @app.task(name="task")
    async def task() -> None: ...

    job = await task.enqueue()
    await drained(app)
    assert await job.result() is None


# --- looking a job up


@virtual
async def test_a_handle_of_a_task_is_of_that_task(app: App):
    task, other = app.task(echo), app.task(issue)
    job = await task.enqueue(1)
    assert (await task.job(job.id)).id == job.id
    with declined(
        UsageError, job.id, "a job of app.echo, not of app.issue", "app.job("
    ):
        await other.job(job.id)


def test_handles_have_twins_for_callers_without_a_loop(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(echo)
    job = task.options(delay="1h").enqueue_sync(1)
    assert app.job_sync(job.id) == task.job_sync(job.id) == job
    assert job.details_sync().args == []
    job.run_now_sync()
    assert job.status_sync().state is State.READY
    with pytest.raises(JobNotFound):
        app.job_sync("0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55")
    app.run_sync(app.close())


def test_a_job_of_an_open_transaction_is_not_found_and_the_error_says_why(
    tmp_path: Path,
):
    async def main() -> None:
        async with App(f"sqlite:///{tmp_path}/jobs.db?driver=stdlib") as app:
            task = app.task(echo)
            connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
            connection.execute("begin immediate")
            job = task.options(tx=connection)
            made = await job.enqueue(1)
            with declined(JobNotFound, made.id, "or its transaction is not committed"):
                await made.status()
            connection.execute("commit")
            assert (await made.status()).state is State.READY
            connection.close()

    asyncio.run(main())


# --- awaiting


@virtual
async def test_a_job_can_be_awaited_and_gathered(app: App):
    task = app.task(echo)
    jobs = [await task.enqueue(n) for n in range(3)]
    assert isinstance(jobs[0], Awaitable)
    async with working(app):
        assert await jobs[2] == 2
        assert await asyncio.gather(*jobs) == [0, 1, 2]
        async with asyncio.timeout(5):
            assert await (await task.job(jobs[1].id)) == 1


@virtual
async def test_a_gathered_job_that_died_raises(app: App):
    @app.task(name="fails", retry=0)
    async def fails() -> None:
        raise ValueError("no")

    job = await fails.enqueue()
    await drained(app)
    (error,) = await asyncio.gather(job, return_exceptions=True)
    assert isinstance(error, JobDead)
    assert (error.job_id, error.error.type) == (job.id, "ValueError")
    assert f"durio jobs show {job.id}" in str(error)


def test_a_dead_job_names_commands_that_find_it(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", name="shop")
    app.origin = "shop.jobs:app"

    @app.task(name="fails", retry=0)
    async def fails() -> None:
        raise ValueError("no")

    async def run() -> JobDead:
        async with app, app.worker():
            job = await fails.enqueue()
            with pytest.raises(JobDead) as caught:
                await job.result(timeout="1m")
        return caught.value

    error = asyncio.run(run())
    assert f"`durio jobs show {error.job_id} --app shop.jobs:app`" in error.cure


# --- status and details

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
STATUS = (
    "id task queue priority state attempt max_attempts created_at run_at started_at "
    "finished_at progress last_error reason"
)
ADDED = "args kwargs meta key result_until worker plan options errors"


def test_the_fields_of_status_and_details():
    assert " ".join(field.name for field in fields(JobStatus)) == STATUS
    assert " ".join(field.name for field in fields(JobDetails)) == f"{STATUS} {ADDED}"
    assert (
        " ".join(f.name for f in fields(LastError))
        == "type message attempt at decision"
    )


@pytest.mark.parametrize(
    "value",
    [
        Progress(1),
        JobError("E", "m"),
        LastError("E", "m"),
        JobStatus("1", "t", "q", 5, State.DONE, 1, None, NOON),
        JobDetails("1", "t", "q", 5, State.DONE, 1, None, NOON),
    ],
    ids=lambda value: type(value).__name__,
)
def test_shown_values_are_frozen_and_slotted(value: object):
    assert not hasattr(value, "__dict__")
    name = fields(value)[0].name  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "other")


@virtual(name="shop")
async def test_status_and_details_as_plain_values(app: App):
    @app.task(name="work", retry=Retry(1, base=60))
    async def work(ctx: Context, order: int) -> None:
        await ctx.progress(1, 2, message="half")
        ctx.log.warning("now it breaks")
        raise ValueError(f"no order {order}")

    call = work.options(key="k", meta={"tenant": "a"}, priority=7)
    async with working(app):
        job = await call.enqueue(7)
        status = await in_state(job, State.SCHEDULED)
    details = await job.details()
    for shown in (status, details):
        plain = shown.to_dict()
        assert json.loads(json.dumps(plain)) == plain
        assert list(plain) == [field.name for field in fields(shown)]
        assert plain["state"] == "scheduled"
        assert plain["created_at"].endswith("Z")
        assert datetime.fromisoformat(plain["created_at"]) == shown.created_at
        assert plain["last_error"] == {
            "type": "ValueError",
            "message": "no order 7",
            "attempt": 1,
            "at": plain["last_error"]["at"],
            "decision": plain["last_error"]["decision"],
        }
        assert plain["last_error"]["decision"].startswith("retry 1 of 1 in ")
        assert plain["last_error"]["at"].endswith("Z")
        assert pickle.loads(pickle.dumps(shown)) == shown  # noqa: S301
    assert "traceback" not in json.dumps(status.to_dict())
    assert (details.args, details.kwargs) == ([], {"order": 7})
    assert (details.key, details.meta) == ("k", {"tenant": "a"})
    assert (details.max_attempts, details.worker) == (2, None)
    (error,) = details.errors
    assert "in work" in error.traceback
    assert error.logs == ("WARNING now it breaks",)


@virtual
async def test_the_call_options_are_in_the_details(app: App):
    job = await app.task(echo).options(retry=2, timeout="5s", meta={"a": 1}).enqueue(1)
    details = await job.details()
    assert sorted(details.options) == ["retry", "timeout"]
    assert details.max_attempts == 3


@virtual(name="shop")
async def test_the_attempts_of_a_task_whose_code_is_elsewhere(app: App):
    """A worker publishes them; before that they are unknown."""
    task = app.task(retry=Retry(8))(echo)
    stranger = App("sqlite:///:memory:", name="other", clock=app.clock)
    stranger.state.stores = app.state.stores
    job = await task.enqueue(1)
    assert (await job.status()).max_attempts == 9
    seen = await stranger.job(job.id)
    assert (await seen.status()).max_attempts is None
    await drained(app)
    assert (await seen.status()).max_attempts == 9
    override = await task.options(retry=1).enqueue(1)
    assert (await (await stranger.job(override.id)).status()).max_attempts == 2


# --- a wait that is over


@virtual
async def test_a_timeout_says_the_state_and_that_no_worker_serves_the_queue(app: App):
    job = await app.task(queue="mail")(echo).enqueue(1)
    with pytest.raises(TimeoutError) as caught:
        await job.result(timeout=3)
    assert str(caught.value) == (
        f"job {job.id} is not finished after 3 s "
        '(state: ready; no worker serves queue "mail")'
    )


@virtual
async def test_a_timeout_counts_the_workers_that_serve_the_queue(app: App):
    job = await app.task(echo).options(delay="1h").enqueue(1)
    async with working(app):
        with pytest.raises(TimeoutError, match='scheduled; 1 worker serves queue "def'):
            await job.result(timeout="2s")
        async with working(app):
            with pytest.raises(TimeoutError, match="2 workers serve queue"):
                await job.result(timeout="2s")


@virtual
async def test_a_timeout_without_an_answer_of_the_store_says_less(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    async def never(*_: object) -> str:
        await app.clock.sleep(3600)
        return ""

    monkeypatch.setattr(handle_module, "describe_wait", never)
    job = await app.task(echo).enqueue(1)
    with pytest.raises(TimeoutError, match=r"is not finished after 2 s$"):
        await job.result(timeout=2)


# --- run now


@virtual
async def test_a_scheduled_job_is_run_now(app: App):
    job = await app.task(echo).options(delay="1h").enqueue(5)
    async with working(app):
        start = app.clock.now()
        await job.run_now()
        assert await job == 5
        assert app.clock.now() - start < 60


@virtual
async def test_a_job_that_waits_for_its_retry_is_run_now(app: App):
    @app.task(name="flaky", retry=Retry(1, base=3600))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    async with working(app):
        job = await flaky.enqueue()
        await in_state(job, State.SCHEDULED)
        await job.run_now()
        assert await job == 2


@pytest.mark.parametrize("state", ["ready", "done", "cancelled"])
@virtual
async def test_only_a_scheduled_job_is_run_now(app: App, state: str):
    job = await app.task(echo).enqueue(1)
    if state == "done":
        await drained(app)
    elif state == "cancelled":
        await job.cancel()
    with declined(WrongState, job.id, f"is {state}", "wait for a retry"):
        await job.run_now()
    assert (await job.status()).state == state
