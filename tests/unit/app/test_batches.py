"""Batch tasks on a real store: one call, many jobs, and each of them ends as its own."""

import asyncio
from typing import Any

import pytest

from durio import (
    App,
    Context,
    Job,
    JobDead,
    Permanent,
    Retry,
    Snooze,
    State,
    chord,
)
from durio.errors import UsageError
from durio.limits import Batch, Breaker, Budget, Err, Ok
from durio.model.job import NewJob
from durio.worker.middleware import HookEvent
from tests.unit.app.app_harness import (
    drained,
    finished,
    in_state,
    reached,
    real,
    record_of,
    virtual,
    working,
)
from tests.unit.worker.test_alone import lose

pytestmark = pytest.mark.slow  # real processes, servers or seconds

ONE_SLOT = {"worker": {"concurrency": 1}}
# Payloads that do not fit `(item: int)`: another type, none, two, damaged, several calls.
WRONG = [
    b'[[],{"item":"a"}]',
    b"[[],{}]",
    b"[[1,2],{}]",
    b"[1",
    b'[[[],{"item":1}],[[],{"item":2}]]',
]


def counting(app: App, batch: Batch, **options: Any) -> tuple[Any, list[list[int]]]:
    """Return a task that doubles its items, and the items of its calls."""
    calls: list[list[int]] = []

    @app.task(name="double", batch=batch, **options)
    async def double(items: list[int]) -> list[int]:
        calls.append(list(items))
        return [2 * item for item in items]

    return double, calls


async def enqueued(task: Any, items: Any) -> list[Job[Any]]:
    return await task.enqueue_many([(item,) for item in items])


# --- gathering


@virtual(settings=ONE_SLOT)
async def test_one_slot_fills_whole_batches(app: App):
    double, calls = counting(app, Batch(8, "50ms"))
    jobs = await enqueued(double, range(20))
    async with working(app):
        for number, job in enumerate(jobs):
            assert await job.result() == 2 * number
    assert calls == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


@virtual
async def test_a_batch_waits_no_longer_than_it_may(app: App):
    double, calls = counting(app, Batch(8, "2s"))
    async with working(app):
        await app.clock.sleep(1)
        began = app.clock.now()
        first = await double.enqueue(1)
        await app.clock.sleep(1.5)
        assert (await first.status()).state is State.RUNNING
        second = await double.enqueue(2)
        assert [await first.result(), await second.result()] == [2, 4]
        ended = (await first.status()).finished_at
    assert calls == [[1, 2]]
    assert ended is not None
    assert 2 <= ended.timestamp() - began < 2.1


@virtual(settings=ONE_SLOT)
async def test_a_batch_takes_no_other_jobs_beyond_its_slot(app: App):
    double, calls = counting(app, Batch(4, "60s"))
    runs: list[int] = []

    @app.task(name="other")
    async def other(number: int) -> None:
        runs.append(number)

    await double.enqueue(1)
    for number in range(50):
        await other.enqueue(number)
    last = [await double.enqueue(number) for number in (2, 3)]
    async with working(app) as worker:
        await in_state(last[1], State.RUNNING)
        assert [len(worker.slots.running), len(worker.slots.buffer)] == [3, 0]
        assert [await job.result() for job in last] == [4, 6]
    assert calls == [[1, 2, 3]]


@virtual
async def test_every_queue_and_task_has_its_own_calls(app: App):
    double, calls = counting(app, Batch(8, "50ms"))
    names: list[tuple[str, list[int]]] = []

    @app.task(name="many:*", batch=Batch(8, "50ms"))
    async def many(ctx: Context, items: list[int]) -> list[None]:
        names.append((ctx.task, list(items)))
        return [None] * len(items)

    await double.enqueue(1)
    await double.options(queue="high").enqueue(2)
    for number in (1, 2):
        await app.enqueue("many:a", number)
        await app.enqueue("many:b", number)
    await drained(app)
    assert sorted(calls) == [[1], [2]]
    assert sorted(names) == [("app.many:a", [1, 2]), ("app.many:b", [1, 2])]


@virtual
async def test_a_call_takes_one_slot_of_its_queue(app: App):
    calls: list[int] = []
    at_once: list[int] = []

    @app.task(batch=Batch(4, "50ms"), name="work")
    async def work(items: list[int]) -> list[int]:
        calls.append(len(items))
        at_once.append(1)
        await app.clock.sleep(1)
        assert len(at_once) <= 2
        at_once.pop()
        return items

    app.queue("default", slots=2)
    jobs = await enqueued(work, range(24))
    async with working(app) as worker:
        assert [await job.result() for job in jobs] == [*range(24)]
        assert worker.slots.capacity == worker.slots.concurrency
    assert calls == [4] * 6


@virtual
async def test_a_call_takes_one_slot(app: App):
    """Ten calls of three jobs run at once in ten slots, and not one more."""
    gate = asyncio.Event()
    running: list[int] = []

    @app.task(batch=Batch(3, "50ms"), name="hold")
    async def hold(items: list[int]) -> list[None]:
        running.append(len(items))
        await gate.wait()
        return [None] * len(items)

    jobs = await enqueued(hold, range(45))
    async with working(app) as worker:
        await app.clock.sleep(2)
        assert running == [3] * worker.slots.concurrency
        assert len(worker.slots.running) == 3 * worker.slots.concurrency
        gate.set()
        for job in jobs:
            await job.result()
        assert worker.slots.capacity == worker.slots.concurrency


# --- outcomes


@virtual
async def test_each_item_has_its_own_outcome(app: App):
    attempts: list[tuple[str, int]] = []

    @app.task(
        batch=Batch(8, "50ms"), name="work", retry=Retry(3, base=10, jitter=False)
    )
    async def work(ctx: Context, items: list[str]) -> list[Ok[str] | Err | Retry | str]:
        ends: dict[str, Any] = {
            "plain": "plain",
            "ok": Ok("ok"),
            "error": Err(ValueError("not this one")),
            "dead": Err(Permanent("never")),
            "again": Retry(1, base=5, jitter=False),
            "later": Retry.after("7s"),
            "snooze": Err(Snooze("20s")),
        }
        attempts.extend(
            (i, job.attempt) for i, job in zip(items, ctx.jobs, strict=True)
        )
        first = [
            ends[i] if job.attempt == 1 else i
            for i, job in zip(items, ctx.jobs, strict=True)
        ]
        return [
            "snoozed" if i in snoozed else end
            for i, end in zip(items, first, strict=True)
        ]

    snoozed: set[str] = set()
    names = ["plain", "ok", "error", "dead", "again", "later", "snooze"]
    jobs = dict(zip(names, await enqueued(work, names), strict=True))
    async with working(app):
        await finished(jobs["plain"])
        began = app.clock.now()
        snoozed.add("snooze")
        assert await jobs["ok"].result() == "ok"
        with pytest.raises(JobDead, match="never"):
            await jobs["dead"].result()
        due = {}
        for name in ("error", "again", "later", "snooze"):
            record = await record_of(app, jobs[name])
            due[name] = round(record.run_at - began)
            assert await jobs[name].result() in (name, "snoozed")
    assert due == {"error": 10, "again": 5, "later": 7, "snooze": 20}
    assert {name: (await job.status()).attempt for name, job in jobs.items()} == {
        "plain": 1,
        "ok": 1,
        "error": 2,
        "dead": 1,
        "again": 2,
        "later": 2,
        "snooze": 1,
    }
    assert attempts.count(("plain", 1)) == 1


@virtual
async def test_an_exception_is_the_outcome_of_all(app: App):
    @app.task(batch=Batch(8, "50ms"), name="fail", retry=0)
    async def fail(items: list[int]) -> list[int]:
        raise ConnectionError(f"no route for {len(items)}")

    jobs = await enqueued(fail, range(3))
    await drained(app)
    for job in jobs:
        with pytest.raises(JobDead, match="no route") as caught:
            await job.result()
        assert caught.value.reason == "exhausted"
        details = await job.details()
        assert "raise ConnectionError" in details.errors[-1].traceback


@virtual
async def test_a_retry_that_was_raised_keeps_its_cause_for_every_job(app: App):
    policy = Retry(0)

    @app.task(batch=Batch(8, "50ms"), name="fail")
    async def fail(items: list[int]) -> list[int]:
        raise policy from OSError(f"the disk, {len(items)}")

    jobs = await enqueued(fail, range(3))
    await drained(app)
    for job in jobs:
        error = (await job.status()).last_error
        assert error is not None
        assert (error.type, error.message) == ("OSError", "the disk, 3")
    assert policy.__traceback__ is None


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2], "returned 2 results for 3 items"),
        ([1, 2, 3, 4], "returned 4 results for 3 items"),
        (None, "returned None, and not a list with the results of its 3 items"),
        ("abc", "returned 'abc', and not a list"),
    ],
)
def test_a_wrong_result_is_the_outcome_of_all(returned: Any, message: str):
    @virtual
    async def test(app: App):
        @app.task(batch=Batch(8, "50ms"), name="wrong")
        async def wrong(items: list[int]) -> list[int]:
            assert len(items) == 3
            return returned

        jobs = await enqueued(wrong, range(3))
        await drained(app)
        for job in jobs:
            with pytest.raises(JobDead, match=message) as caught:
                await job.result()
            assert caught.value.reason == "bad_result"

    test()


@virtual
async def test_a_result_that_does_not_fit_ends_its_item_alone(app: App):
    @app.task(batch=Batch(8, "50ms"), name="wrong")
    async def wrong(items: list[int]) -> list[int]:
        return [item or "none" for item in items]  # type: ignore[misc]

    jobs = await enqueued(wrong, range(3))
    await drained(app)
    assert [(await job.status()).state for job in jobs] == ["dead", "done", "done"]
    assert (await jobs[0].status()).reason == "bad_result"


@virtual
async def test_bad_arguments_end_their_item_alone(app: App):
    double, calls = counting(app, Batch(8, "50ms"), retry=0)
    await double.enqueue(1)
    store = await app.store()
    rows = [
        NewJob(app.clock.new_id(), "app:default", 4, "app.double", payload)
        for payload in WRONG
    ]
    await store.enqueue(rows)
    await double.enqueue(2)
    await drained(app)
    assert calls == [[1, 2]]
    for row in rows:
        status = await Job[Any](app, row.id).status()
        assert (status.state, status.reason) == (State.DEAD, "bad_payload")


# --- what a batch task may do


@virtual
async def test_the_context_of_a_call_and_of_its_jobs(app: App):
    seen: dict[str, Any] = {}

    @app.task(batch=Batch(8, "50ms"), name="look", timeout=(50, 60))
    async def look(ctx: Context, items: list[int]) -> list[int]:
        seen["jobs"] = [job.job_id for job in ctx.jobs]
        seen["first"] = ctx.job_id
        seen["keys"] = {job.idempotency_key for job in ctx.jobs}
        seen["meta"] = [job.meta for job in ctx.jobs]
        seen["current"] = Context.current() is ctx
        assert ctx.deadline is not None
        seen["limit"] = round(ctx.deadline.timestamp() - app.clock.now())
        for call in (
            lambda: ctx.idempotency_key,
            lambda: ctx.replace(look.si(1)),
            lambda: ctx.add(look.s(1)),
            lambda: ctx.result(1),
            lambda: ctx.jobs[0].replace(look.si(1)),
            lambda: ctx.jobs[0].result(1),
        ):
            with pytest.raises(UsageError):
                call()
        with pytest.raises(UsageError, match="a batch task has no "):
            async with ctx.transaction():
                pass
        await ctx.progress(1, 2)
        await ctx.jobs[1].progress(5, 6)
        await app.clock.sleep(1)
        return items

    jobs = [
        await look.options(meta={"n": n}, timeout=20 + n).enqueue(n) for n in range(3)
    ]
    await drained(app)
    assert [await job.result() for job in jobs] == [0, 1, 2]
    assert seen["jobs"] == [job.id for job in jobs]
    assert seen["first"] == jobs[0].id
    assert len(seen["keys"]) == 3
    assert seen["meta"] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert seen["current"]
    assert seen["limit"] == 20
    progress = [(await job.status()).progress for job in jobs]
    assert [p and p.done for p in progress] == [1, 5, 1]


@virtual
async def test_hooks_are_called_for_each_job(app: App):
    hooks: list[tuple[str, str]] = []

    @app.hooks.before
    def before(event: HookEvent) -> None:
        hooks.append(("before", event.job_id))

    @app.hooks.after
    def after(event: HookEvent) -> None:
        hooks.append(("after", event.job_id))

    double, _ = counting(app, Batch(8, "50ms"))
    jobs = await enqueued(double, range(3))
    await drained(app)
    assert sorted(hooks) == sorted(
        (kind, job.id) for kind in ("before", "after") for job in jobs
    )


def test_middleware_wraps_the_call():
    wraps: list[int] = []

    async def around(ctx: Context, call_next: Any) -> Any:
        wraps.append(len(ctx.jobs))
        return await call_next()

    @virtual(middleware=[around])
    async def test(app: App):
        double, _ = counting(app, Batch(8, "50ms"))
        await enqueued(double, range(3))
        await drained(app)

    test()
    assert wraps == [3]


# --- stopping


@virtual
async def test_a_cancelled_item_ignores_its_result(app: App):
    gate = asyncio.Event()
    flags: list[list[bool]] = []

    @app.task(batch=Batch(8, "50ms"), name="hold")
    async def hold(ctx: Context, items: list[int]) -> list[int]:
        contexts = ctx.jobs
        await gate.wait()
        flags.append([job.cancelled for job in contexts] + [ctx.cancelled])
        return items

    jobs = await enqueued(hold, range(3))
    async with working(app) as worker:
        await reached(jobs[0], lambda status: status.state is State.RUNNING)
        await app.clock.sleep(1)
        await jobs[1].cancel()
        await app.clock.sleep(120)
        assert (await jobs[1].status()).state is State.RUNNING
        gate.set()
        assert [await jobs[0].result(), await jobs[2].result()] == [0, 2]
        assert (await finished(jobs[1])).state is State.CANCELLED
        assert worker.slots.capacity == worker.slots.concurrency
    assert flags == [[False, True, False, False]]


@virtual
async def test_a_call_whose_jobs_are_all_cancelled_is_cancelled(app: App):
    ended: list[str] = []

    @app.task(batch=Batch(8, "50ms"), name="hold")
    async def hold(items: list[int]) -> list[int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return items

    jobs = await enqueued(hold, range(2))
    async with working(app):
        await app.clock.sleep(1)
        for job in jobs:
            await job.cancel()
        for job in jobs:
            assert (await finished(job)).state is State.CANCELLED
    assert ended == ["cancelled"]


@virtual
async def test_a_cancelled_job_leaves_a_batch_that_is_gathered(app: App):
    double, calls = counting(app, Batch(8, "50s"))
    jobs = await enqueued(double, range(3))
    async with working(app) as worker:
        await in_state(jobs[0], State.RUNNING)
        await jobs[1].cancel()
        worker.slots.cancel(*claim_of(worker, jobs[1]))
        assert (await finished(jobs[1])).state is State.CANCELLED
        assert [await jobs[0].result(), await jobs[2].result()] == [0, 4]
        assert worker.slots.capacity == worker.slots.concurrency
    assert calls == [[0, 2]]


def claim_of(worker: Any, job: Job[Any]) -> tuple[bytes, int]:
    (attempt,) = [
        a for a in worker.slots.running.values() if Job(None, a.job_id) == job
    ]  # type: ignore[arg-type]
    return attempt.claim.id, attempt.claim.claim_no


@virtual
async def test_the_time_limit_of_a_call_ends_all_of_its_jobs(app: App):
    late: list[str] = []

    @app.task(batch=Batch(8, "50ms"), name="slow", timeout=(10, 12), retry=0)
    async def slow(items: list[int]) -> list[int]:
        try:
            await app.clock.sleep(100)
        except asyncio.CancelledError as error:
            late.append(type(error).__name__)
            await app.clock.sleep(100)
        return items

    jobs = [await slow.enqueue(1), await slow.options(timeout=(4, 5)).enqueue(2)]
    async with working(app) as worker:
        began = app.clock.now()
        for job in jobs:
            with pytest.raises(JobDead, match="ran past its hard time limit"):
                await job.result()
        ended = (await jobs[0].status()).finished_at
        assert ended is not None
        assert 5 <= ended.timestamp() - began < 6
        assert worker.slots.capacity == worker.slots.concurrency
    assert late == ["SoftTimeLimit"]


@virtual
async def test_a_stopping_worker_gives_gathered_jobs_back(app: App):
    double, calls = counting(app, Batch(8, "60s"))
    jobs = await enqueued(double, range(3))
    async with working(app):
        await in_state(jobs[0], State.RUNNING)
    for job in jobs:
        status = await job.status()
        assert status.state is State.READY
    assert calls == []
    await drained(app)
    assert calls == [[0, 1, 2]]
    assert {(await job.status()).attempt for job in jobs} == {1}


@virtual
async def test_a_paused_queue_gives_gathered_jobs_back(app: App):
    double, calls = counting(app, Batch(8, "60s"))
    jobs = await enqueued(double, range(3))
    async with working(app) as worker:
        await in_state(jobs[0], State.RUNNING)
        worker.slots.release_lanes({"app:default"})
        await app.queue("default").pause("stop")
        await in_state(jobs[0], State.READY)
        assert worker.slots.capacity == worker.slots.concurrency
        assert not worker.slots.running
    assert calls == []


@real
async def test_a_sync_function_runs_in_a_thread(app: App):
    @app.task(batch=Batch(4, "20ms"), name="add")
    def add(items: list[int]) -> list[int]:
        return [item + 1 for item in items]

    jobs = await enqueued(add, range(6))
    await drained(app)
    assert [await job.result() for job in jobs] == [1, 2, 3, 4, 5, 6]


@virtual
async def test_a_plain_call_runs_here(app: App):
    double, calls = counting(app, Batch(8, "50ms"))
    assert await double([1, 2]) == [2, 4]
    assert calls == [[1, 2]]


@virtual
async def test_a_node_of_a_plan_is_one_item(app: App):
    double, calls = counting(app, Batch(8, "50ms"))

    @app.task(name="total")
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    plan = await chord([double.s(n) for n in range(5)], total.s()).enqueue()
    async with working(app):
        assert await plan.result() == 20
        assert calls == [[0, 1, 2, 3, 4]]
        assert await (await (double.s(5) | double.s()).enqueue()).result() == 20
        assert await (await double.map([6, 7]).enqueue()).result() == [12, 14]


@virtual
async def test_a_schedule_makes_jobs_of_one_item(app: App):
    double, calls = counting(app, Batch(8, "50ms"))
    app.every("1m", args=(7,))(double)
    async with working(app):
        await app.clock.sleep(150)
    assert calls == [[7], [7]]


@virtual
async def test_a_job_that_lost_two_workers_has_a_call_of_its_own(app: App):
    double, calls = counting(app, Batch(8, "5s"))
    suspect = await double.enqueue(100)
    await lose(app, suspect.id, times=2)
    async with working(app) as worker:
        await app.clock.sleep(1)
        jobs = await enqueued(double, range(10))
        assert await suspect.result() == 200
        assert [await job.result() for job in jobs] == [2 * n for n in range(10)]
        assert worker.slots.capacity == worker.slots.concurrency
    assert [100] in calls
    assert (await suspect.status()).attempt == 3


# --- with breakers and budgets


@virtual(breakers=[Breaker("smtp", failures=1, open_for="20s")])
async def test_a_call_behind_a_breaker_counts_once_for_its_jobs(app: App):
    calls: list[list[int]] = []

    @app.task(name="send", batch=Batch(4, "1s"), breaker="smtp", retry=Retry(5, base=1))
    async def send(items: list[int]) -> list[int]:
        calls.append(list(items))
        if len(calls) == 1:
            raise ConnectionRefusedError
        return items

    async with working(app):
        jobs = await enqueued(send, range(4))
        ends = [await finished(job) for job in jobs]
    assert [end.state for end in ends] == [State.DONE] * 4
    assert [end.attempt for end in ends] == [2] * 4  # held back without an attempt
    assert calls[0] == [0, 1, 2, 3]
    assert len(calls[1]) <= 2, "probes"


@virtual
async def test_each_job_of_a_batch_spends_for_itself(app: App):
    refused: list[UsageError] = []
    budget = Budget("tokens", 100, per="1d", estimate=10)

    @app.task(name="embed", batch=Batch(2, "1s"), limits=[budget])
    async def embed(ctx: Context, items: list[int]) -> list[int]:
        for job, item in zip(ctx.jobs, items, strict=True):
            job.spend(item)
        with pytest.raises(UsageError, match=r"ctx.jobs\[0\].spend") as error:
            ctx.spend(3)
        refused.append(error.value)
        return items

    async with working(app):
        jobs = await enqueued(embed, (4, 12))
        for job in jobs:
            assert (await finished(job)).state is State.DONE
    (row,) = await (await app.store()).gates("", limit=10)
    assert row.tokens == pytest.approx(100 - 16, abs=0.1)
    assert len(refused) == 1
