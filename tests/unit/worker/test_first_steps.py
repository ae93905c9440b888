"""Tasks run in place until they first wait; their code cannot see a difference."""

import asyncio
import logging  # noqa: TID251 - what tasks of users call
import weakref
from contextvars import ContextVar
from typing import Any

import structlog

from durio import App, Context, SoftTimeLimit, State
from tests.unit.app.app_harness import drained, finished, real, virtual, working

sleep = asyncio.sleep  # noqa: TID251 - what tasks of users call
JOBS = 60
trace: ContextVar[str | None] = ContextVar("trace", default=None)


async def run_all(app: App, task: Any, jobs: int = JOBS) -> list[Any]:
    """Run this many jobs with their numbers as arguments; return their results."""
    made = await task.enqueue_many([(number,) for number in range(jobs)])
    await drained(app)
    return [await job.result() for job in made]


@virtual
async def test_context_variables_do_not_reach_the_next_job(app: App) -> None:
    trace.set("of the worker")

    @app.task(name="mark")
    async def mark(number: int) -> str | None:
        before = trace.get()
        trace.set(f"job {number}")
        if number % 7 == 3:
            await sleep(0.01)
        return before if trace.get() == f"job {number}" else "lost"

    assert set(await run_all(app, mark)) == {"of the worker"}
    assert trace.get() == "of the worker"


@virtual
async def test_a_token_is_valid_before_and_after_a_wait(app: App) -> None:
    @app.task(name="reset")
    async def reset(number: int) -> str | None:
        token = trace.set(f"job {number}")
        await sleep(0.01 * (number % 2))
        trace.reset(token)
        return trace.get()

    assert set(await run_all(app, reset)) == {None}


@virtual
async def test_a_registry_by_current_task_has_one_entry_for_each_job(app: App) -> None:
    """SQLAlchemy's `async_scoped_session(scopefunc=current_task)` works like this."""
    strong: dict[Any, int] = {}
    weak: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @app.task(name="register")
    async def register(number: int) -> bool:
        key = asyncio.current_task()
        registry = strong if number % 2 else weak
        return registry.setdefault(key, number) == number

    assert all(await run_all(app, register))
    assert len(strong) == JOBS // 2


@virtual
async def test_changes_of_the_current_task_do_not_reach_the_next_job(app: App) -> None:
    @app.task(name="rename")
    async def rename(number: int) -> str:
        task = asyncio.current_task()
        assert task is not None
        before = task.get_name()
        task.set_name(f"job {number}")
        return before

    @app.task(name="cancel_itself")
    async def cancel_itself(_: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        task.cancel()
        return before

    @app.task(name="note_on_task")
    async def note_on_task(number: int) -> int:
        task: Any = asyncio.current_task()
        before = getattr(task, "session", number)
        task.session = -1
        return before

    assert not any(name.startswith("job") for name in await run_all(app, rename))
    assert set(await run_all(app, cancel_itself)) == {0}
    assert await run_all(app, note_on_task) == list(range(JOBS))


@virtual
async def test_a_cancel_that_is_taken_back_reaches_no_other_job(app: App) -> None:
    """`uncancel` leaves a mark on the asyncio task until its next wait."""

    @app.task(name="take_back")
    async def take_back(_: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()

    @app.task(name="wait_a_little")
    async def wait_a_little(_: int) -> str:
        await sleep(0.01)
        return "not cancelled"

    for number in range(JOBS):
        await take_back.enqueue(number)
        job = await wait_a_little.enqueue(number)
    await drained(app)
    assert await job.result() == "not cancelled"
    assert {each.attempt async for each in app.jobs()} == {1}


@virtual
async def test_a_callback_of_the_current_task_runs_after_its_job(app: App) -> None:
    ended: list[int] = []
    seen: list[int] = []

    @app.task(name="call_back")
    async def call_back(number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append(len(ended))
        task.add_done_callback(lambda _: ended.append(number))

    @app.task(name="long")
    async def long() -> list[int]:
        await sleep(1)
        return list(ended)

    await call_back.enqueue(7)
    job = await long.enqueue()
    await drained(app)
    assert await job.result() == [7]


@virtual
async def test_the_time_of_a_job_begins_with_its_first_step(app: App) -> None:
    """Other jobs may compute before it, in the same turn of the loop."""
    loop: Any = asyncio.get_running_loop()

    @app.task(name="compute", timeout=(0.4, 0.5), retry=0)
    async def compute(_: int) -> str:
        loop.jumping.seconds += 0.3  # as a long computation
        return "done"

    @app.task(name="compute_and_wait", timeout=(0.4, 6.0), retry=0)
    async def compute_and_wait(_: int) -> str:
        loop.jumping.seconds += 0.3
        try:
            await sleep(3)
        except SoftTimeLimit:
            return "warned"
        return "not warned"

    assert set(await run_all(app, compute, 20)) == {"done"}
    for _ in range(2):  # the second time it is known that it waits
        assert set(await run_all(app, compute_and_wait, 20)) == {"warned"}


@virtual
async def test_a_job_may_cancel_itself_and_notice_it_at_its_first_wait(
    app: App,
) -> None:
    @app.task(name="cancel_and_wait")
    async def cancel_and_wait(_: int) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await sleep(60)
        except asyncio.CancelledError:
            task.uncancel()
            return "cancelled"
        return "not cancelled"

    assert set(await run_all(app, cancel_and_wait, 3)) == {"cancelled"}


@virtual
async def test_timeouts_and_groups_work_in_the_first_step(app: App) -> None:
    @app.task(name="bounded")
    async def bounded(number: int) -> str:
        try:
            async with asyncio.timeout(1):
                if number % 2:
                    await sleep(60)
        except TimeoutError:
            return "too late"
        async with asyncio.TaskGroup() as group:
            part = group.create_task(sleep(0.01, "part"))
        return part.result()

    assert await run_all(app, bounded, 6) == ["part", "too late"] * 3


@virtual
async def test_a_timeout_that_is_over_cancels_no_later_job(app: App) -> None:
    @app.task(name="expired")
    async def expired(_: int) -> str:
        try:
            async with asyncio.timeout(-1):  # noqa: ASYNC100 - what is tested
                pass
        except TimeoutError:
            return "too late"
        await sleep(0)
        return "in time"

    # There is no wait inside, so nothing is cancelled.
    assert set(await run_all(app, expired)) == {"in time"}


@virtual(name="app")
async def test_jobs_start_in_the_order_of_their_claims(app: App) -> None:
    """Also when some of them wait and others do not."""
    started: list[int] = []

    @app.task(name="quick")
    async def quick(number: int) -> None:
        started.append(number)

    @app.task(name="slow")
    async def slow(number: int) -> None:
        started.append(number)
        await sleep(1)

    for _ in range(2):  # the second time it is known which of them waits
        started.clear()
        for number in range(JOBS):
            await (slow if number % 3 == 1 else quick).enqueue(number)
        await drained(app)
        assert started == list(range(JOBS))


@real
async def test_the_loop_has_turns_while_jobs_that_never_wait_run(app: App) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await sleep(0)

    @app.task(name="nothing")
    async def nothing(number: int) -> int:
        return number

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_turns())
        assert await run_all(app, nothing, 500) == list(range(500))
        counting.cancel()
    assert turns > 5


@virtual
async def test_records_and_context_belong_to_the_job(app: App, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    fields: list[dict[str, Any]] = []

    @app.task(name="note")
    async def note(ctx: Context, number: int) -> bool:
        for _ in range(2):
            fields.append(structlog.contextvars.get_contextvars())
            logging.getLogger("shop").info("%s", number)
            assert Context.current() is ctx
            await sleep(0.01 * (number % 2))
        return True

    jobs = await note.enqueue_many([(number,) for number in range(6)])
    await drained(app)
    by_number = {str(number): job.id for number, job in enumerate(jobs)}
    records = [record for record in caplog.records if record.name == "shop"]
    assert len(records) == 12
    for record in records:
        assert record.job_id == by_number[record.getMessage()]  # type: ignore[attr-defined]
    assert {one["job_id"] for one in fields} == set(by_number.values())


@virtual
async def test_errors_before_the_first_wait_end_the_attempt_alone(app: App) -> None:
    @app.task(name="fail", retry=0)
    async def fail(number: int) -> None:
        if number % 3 == 0:
            raise ValueError("no")
        if number % 3 == 1:
            raise SystemExit(3)
        raise StopIteration

    jobs = await fail.enqueue_many([(number,) for number in range(9)])
    await drained(app)
    ends = [await job.details() for job in jobs]
    assert {end.state for end in ends} == {State.DEAD}
    assert [end.errors[-1].type for end in ends[:3]] == [
        "ValueError",
        "SystemExit",
        "RuntimeError",  # what Python makes of StopIteration in a coroutine
    ]
    assert "worker/first_steps.py" not in ends[0].errors[-1].traceback


@virtual(settings={"worker": {"concurrency": 1}})
async def test_a_job_that_is_cancelled_before_its_first_step_never_starts(
    app: App,
) -> None:
    ran: list[int] = []

    @app.task(name="run")
    async def run(number: int) -> None:
        ran.append(number)

    async with working(app) as worker:
        await worker.started.wait()
        job = await run.enqueue(1)
        while not worker.slots.running:
            await sleep(0)
        (attempt,) = worker.slots.running.values()
        worker.slots.cancel(attempt.claim.id, attempt.claim.claim_no)
        status = await finished(job)
    assert (status.state, ran) == (State.CANCELLED, [])


@virtual
async def test_a_task_that_stops_waiting_runs_in_place_again(app: App) -> None:
    @app.task(name="visit")
    async def visit(number: int) -> int:
        if number == 0:
            await sleep(1)
        return id(asyncio.current_task())

    async with working(app) as worker:
        await worker.started.wait()
        suspending = worker.slots._first_steps._suspending
        await finished(await visit.enqueue(0))
        assert len(suspending) == 1
        await finished(await visit.enqueue(1))
        assert not suspending
