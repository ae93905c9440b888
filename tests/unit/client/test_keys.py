"""Idempotency keys as callers see them: which job answers, and what it says of itself."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from durio import App, Context, Job, JobDead, KeyConflict, Retry, State
from durio.keys import debounce, replace, while_active, while_waiting, window
from durio.model.codec import canonical
from durio.model.options import NO_OPTIONS
from tests.unit.app.app_harness import (
    drained,
    finished,
    in_state,
    record_of,
    records,
    virtual,
    working,
)

HOUR = 3600


class Counter:
    """A task that counts its runs."""

    def __init__(self, app: App) -> None:
        self.runs: list[int] = []
        self.go = asyncio.Event()
        self.go.set()

        @app.task(name="count", retry=Retry(0), result_ttl="48h")
        async def count(value: int) -> int:
            self.runs.append(value)
            await self.go.wait()
            if value < 0:
                raise ValueError
            return value * 10

        self.task = count

    async def submit(self, value: int = 1, **options: Any) -> Job[int]:
        return await self.task.options(**{"key": "k", **options}).enqueue(value)


@pytest.mark.proves("M33")
@virtual
async def test_the_second_submission_gets_the_first_jobs_handle(app: App):
    count = Counter(app)
    first, second = await count.submit(), await count.submit()
    assert (first.created, second.created) == (True, False)
    assert first == second
    assert second.same_args
    assert len(await records(app)) == 1


@pytest.mark.proves("M33", "M93")
@virtual
async def test_a_key_belongs_to_one_task(app: App):
    @app.task(name="other")
    async def other(value: int) -> None: ...

    assert (await Counter(app).submit()).created
    assert (await other.options(key="k").enqueue(1)).created


@pytest.mark.proves("M34", "M166")
@virtual
async def test_a_done_job_answers_with_its_result_and_does_not_run_again(app: App):
    count = Counter(app)
    first = await count.submit()
    await drained(app)
    again = await count.submit()
    assert (again, again.created) == (first, False)
    assert await again.result(timeout=1) == 10
    assert count.runs == [1]


@pytest.mark.proves("M93")
@pytest.mark.parametrize(("ttl", "hours"), [(None, 24), ("2h", 2)])
@virtual
async def test_a_window_ends(app: App, ttl: str | None, hours: int):
    count = Counter(app)
    unique = {} if ttl is None else {"unique": window(ttl)}
    first = await count.submit(**unique)
    await drained(app)
    await app.clock.sleep((hours - 0.1) * HOUR)
    assert await count.submit(**unique) == first
    await app.clock.sleep(0.2 * HOUR)
    fresh = await count.submit(**unique)
    assert (fresh.created, fresh != first) == (True, True)


@pytest.mark.proves("M33")
@virtual
async def test_a_window_lasts_until_its_job_is_final(app: App):
    count = Counter(app)
    first = await count.submit(delay="5h", unique=window("1h"))
    await app.clock.sleep(2 * HOUR)
    assert await count.submit(unique=window("1h")) == first


@pytest.mark.proves("M33")
@virtual
async def test_a_window_answers_for_a_dead_job_and_not_for_a_cancelled_one(app: App):
    count = Counter(app)
    dead = await count.submit(-1)
    await drained(app)
    again = await count.submit(-1)
    assert again == dead
    with pytest.raises(JobDead):
        await again.result()
    cancelled = await count.submit(1, key="other")
    await cancelled.cancel()
    assert (await count.submit(1, key="other")).created


@pytest.mark.proves("M33")
@virtual
async def test_other_arguments_under_a_window_are_a_conflict(app: App):
    count = Counter(app)
    first = await count.submit(1)
    with pytest.raises(KeyConflict) as caught:
        await count.submit(2)
    assert caught.value.values["id"] == first.id
    await drained(app)
    with pytest.raises(KeyConflict):
        await count.submit(2)
    assert count.runs == [1]


@virtual
async def test_one_conflict_is_one_callers_own(app: App):
    count = Counter(app)
    await count.submit(1)
    answers = await asyncio.gather(
        count.submit(1),
        count.submit(2),
        count.submit(3, key="l"),
        return_exceptions=True,
    )
    assert isinstance(answers[1], KeyConflict)
    assert [answers[0].created, answers[2].created] == [False, True]


@pytest.mark.parametrize("policy", [while_waiting, while_active], ids=lambda p: p.name)
@virtual
async def test_a_waiting_job_answers_and_says_when_arguments_differ(
    app: App, policy: Any
):
    count = Counter(app)
    first = await count.submit(1, unique=policy)
    other = await count.submit(2, unique=policy)
    assert (other, other.created, other.same_args) == (first, False, False)
    same = await count.submit(1, unique=policy)
    assert (same.created, same.same_args) == (False, True)
    await drained(app)
    assert count.runs == [1]
    assert (await count.submit(1, unique=policy)).created


@virtual
async def test_while_waiting_lets_go_at_the_start_while_active_at_the_end(app: App):
    count = Counter(app)
    count.go.clear()
    async with working(app):
        waiting = await count.submit(1, key="w", unique=while_waiting)
        active = await count.submit(2, key="a", unique=while_active)
        await in_state(waiting, State.RUNNING)
        await in_state(active, State.RUNNING)
        successor = await count.submit(1, key="w", unique=while_waiting)
        assert successor.created
        assert await count.submit(2, key="a", unique=while_active) == active
        count.go.set()
        for job in (waiting, active, successor):
            await finished(job)
        assert (await count.submit(2, key="a", unique=while_active)).created


@virtual
async def test_replace_gives_a_waiting_job_new_arguments_and_a_new_time(app: App):
    count = Counter(app)
    first = await count.submit(1, unique=replace, delay=60)
    second = await count.submit(2, unique=replace, delay=10, priority=9)
    assert (second, second.created, second.replaced) == (first, False, True)
    status = await second.status()
    assert status.priority == 9
    assert status.run_at.timestamp() == app.clock.now() + 10
    row = await record_of(app, first)
    assert msgspec.json.decode(row.payload) == [[], {"value": 2}]
    async with working(app):
        assert await first.result() == 20
    assert count.runs == [2]


@virtual
async def test_replace_makes_a_successor_of_a_running_job(app: App):
    count = Counter(app)
    count.go.clear()
    async with working(app):
        first = await count.submit(1, unique=replace)
        await in_state(first, State.RUNNING)
        second = await count.submit(2, unique=replace)
        assert second.created
        count.go.set()
        assert [await first.result(), await second.result()] == [10, 20]


@virtual
async def test_debounce_runs_once_after_the_last_submission(app: App):
    count, start = Counter(app), app.clock.now()
    ran_at: list[float] = []
    async with working(app):
        for value in range(5):
            job = await count.submit(value, unique=debounce(30))
            await app.clock.sleep(20)
        status = await finished(job)
        ran_at.append(status.started_at.timestamp() - start)
    assert count.runs == [4]
    assert ran_at == pytest.approx([80 + 30])


@virtual
async def test_debounce_waits_no_longer_than_its_bound(app: App):
    count, start = Counter(app), app.clock.now()
    job = await count.submit(0, unique=debounce(30, max_wait=50))
    async with working(app):
        for value in range(1, 4):
            await app.clock.sleep(15)
            assert await count.submit(value, unique=debounce(30, max_wait=50)) == job
        status = await finished(job)
    assert status.started_at.timestamp() - start == pytest.approx(50)
    assert count.runs == [3]


@pytest.mark.proves("M33")
@virtual
async def test_a_hundred_submissions_at_once_are_one_job(app: App):
    count = Counter(app)
    jobs = await asyncio.gather(*(count.submit() for _ in range(100)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1


@pytest.mark.proves("M33")
@virtual
async def test_the_key_is_kept_for_people(app: App):
    count = Counter(app)
    row = await record_of(app, await count.submit(key="order:42"))
    assert msgspec.json.decode(row.opts)["key"] == "order:42"
    assert row.key != b"order:42"  # what is compared is a hash


@dataclass
class Search:
    words: set[str]
    limits: dict[str, int]


@pytest.mark.proves("M33")
@virtual
async def test_equal_arguments_are_the_same_whatever_order_they_have(app: App):
    """The order of a set of text differs from process to process."""

    @app.task(name="find")
    async def find(search: Search, more: Any = None) -> None: ...

    def order(*words: str) -> dict[str, int]:
        return dict.fromkeys(words, 1)

    calls = find.options(key="k")
    first = await calls.enqueue(Search({"a", "b", "c"}, order("x", "y")))
    again = await calls.enqueue(Search({"c", "b", "a"}, order("y", "x")))
    named = await app.enqueue_named(
        "find",
        ({"limits": order("y", "x"), "words": ["a", "b", "c"]},),
        {},
        NO_OPTIONS.with_changes({"key": "k"}),
    )
    assert again == named == first
    assert canonical({"b", "a"}, b"") == canonical(frozenset({"a", "b"}), b"")
    with pytest.raises(KeyConflict):
        await calls.enqueue(Search({"a"}, {}))


@virtual
async def test_a_job_that_retries_keeps_its_window(app: App):
    @app.task(name="flaky", retry=Retry(1, base=60))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError
        return ctx.attempt

    calls = flaky.options(key="k")
    async with working(app):
        job = await calls.enqueue()
        await in_state(job, State.SCHEDULED)
        assert await calls.enqueue() == job
        await finished(job)
        assert await (await calls.enqueue()).result() == 2
