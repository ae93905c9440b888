"""Declaring tasks, calling them here, and what their jobs inherit from whom."""

from datetime import timedelta

import pytest

from durio import App, Context, Priority, Retry, State
from durio.errors import DuplicateTask, InvariantBroken
from durio.model.timeout import TimeLimits
from tests.unit.app.app_harness import (
    MEMORY,
    finished,
    record_of,
    records,
    virtual,
    working,
)


async def double(number: int) -> int:
    return number * 2


def triple(number: int) -> int:
    return number * 3


def facts(ctx: Context) -> dict[str, object]:
    return {
        "job_id": ctx.job_id,
        "attempt": ctx.attempt,
        "max_attempts": ctx.max_attempts,
        "queue": ctx.queue,
        "deadline": ctx.deadline and ctx.deadline.timestamp(),
        "meta": dict(ctx.meta),
    }


@pytest.mark.proves("M17")
def test_a_task_is_named_by_its_app_and_function():
    app = App(MEMORY, name="shop")
    assert app.task(double).name == "shop.double"
    assert app.task(name="explicit")(triple).name == "shop.explicit"
    assert app.task(name="shop.whole")(triple).name == "shop.whole"


@pytest.mark.proves("M17")
def test_two_functions_of_one_name_are_refused_with_both_places():
    app = App(MEMORY)
    app.task(double)
    with pytest.raises(DuplicateTask) as caught:
        app.task(name="double")(triple)
    told = str(caught.value)
    assert told.count("test_tasks.py:") == 2
    assert "name='...'" in told


@pytest.mark.proves("M5")
@virtual
async def test_a_plain_call_runs_here_without_a_store(app: App):
    assert await app.task(double)(21) == 42
    assert app.task(triple)(14) == 42
    here = app.task(facts)()
    assert (here["attempt"], here["max_attempts"], here["queue"]) == (1, 1, "")
    assert await records(app) == []


@virtual
async def test_a_plain_call_takes_a_context_that_is_given_first(app: App):
    seen: list[Context] = []

    @app.task(name="outer")
    async def outer(ctx: Context) -> int:
        seen.append(ctx)
        inner(ctx)
        return await plain(ctx, 4)

    @app.task(name="inner")
    def inner(ctx: Context) -> None:
        seen.append(ctx)

    plain = app.task(double)  # takes none: it is left out
    async with working(app):
        assert await (await outer.enqueue()).result() == 8
    assert seen[0] is seen[1]


@pytest.mark.proves("M18", "M106")
@virtual(name="shop")
async def test_a_task_sees_its_own_request(app: App):
    task = app.task(queue="mail", retry=2)(facts)
    async with working(app):
        job = await task.options(meta={"order": 7}).enqueue()
        told = await job.result()
        status = await job.status()
    assert told == {
        "job_id": job.id,
        "attempt": 1,
        "max_attempts": 3,
        "queue": "mail",
        "deadline": status.started_at.timestamp() + 300,
        "meta": {"order": 7},
    }


@pytest.mark.proves("M18")
@pytest.mark.parametrize("kind", ["async", "sync"])
@virtual
async def test_code_without_ctx_finds_the_context(app: App, kind: str):
    def deep() -> str:
        return Context.current().job_id

    @app.task(name="sync")
    def in_thread() -> str:
        return deep()

    @app.task(name="async")
    async def on_loop() -> str:
        return deep()

    task = {"sync": in_thread, "async": on_loop}[kind]
    async with working(app):
        job = await task.enqueue()
        with app.clock.held():  # a thread has a part in it
            assert await job.result() == job.id


@pytest.mark.proves("M26", "M2")
@virtual
async def test_enqueue_returns_after_the_write_and_before_the_run(app: App):
    task = app.task(double)
    jobs = [await task.enqueue(n) for n in (1, 2, 3)]
    rows = await records(app)
    assert {(await job.status()).state for job in jobs} == {State.READY}
    assert len({row.id for row in rows}) == 3
    assert [row.payload for row in rows] == [
        b'[[],{"number":%d}]' % n for n in (3, 2, 1)
    ]


@pytest.mark.proves("M32")
@virtual
async def test_the_parameters_of_a_task_never_collide_with_ours(app: App):
    @app.task(name="greedy")
    async def greedy(  # noqa: PLR0913, PLR0917 - every name that an option or a method has
        self: int,
        queue: int,
        key: int,
        delay: int,
        name: int,
        args: int,
        kwargs: int,
        options: int,
        ctx: int,
    ) -> int:
        return self + queue + key + delay + name + args + kwargs + options + ctx

    named = dict.fromkeys(
        ("self", "queue", "key", "delay", "name", "args", "kwargs", "options", "ctx"), 1
    )
    async with working(app):
        job = await greedy.enqueue(**named)
        assert await job.result() == 9
        assert await (await app.enqueue("greedy", **named)).result() == 9
        assert await greedy(**named) == 9


# --- options: app < task < each options()


@pytest.mark.proves("M59", "M106", "M52")
@virtual
async def test_without_a_word_a_task_has_the_defaults_of_the_house(app: App):
    handler = app.task(double)._handler
    assert handler.retry == Retry(5)
    assert handler.limits == TimeLimits(270, 300)
    status = await (await app.task(triple).enqueue(1)).status()
    assert (status.queue, status.priority, status.max_attempts) == ("default", 5, 6)


@pytest.mark.proves("M16", "M59", "M60", "M61")
@virtual(retry=Retry(7, base=60), timeout=(540, 600))
async def test_the_app_is_overridden_by_the_task_and_the_task_by_the_call(app: App):
    by_app = app.task(double)
    by_task = app.task(retry=Retry(3, base=30), timeout=100)(triple)
    assert (by_app._handler.retry.retries, by_app._handler.retry.base) == (7, 60)
    assert by_app._handler.limits == TimeLimits(540, 600)
    assert (by_task._handler.retry.retries, by_task._handler.retry.base) == (3, 30)
    assert by_task._handler.limits == TimeLimits(90, 100)
    job = await by_task.options(retry=Retry(1)).enqueue(1)
    assert (await job.status()).max_attempts == 2


@pytest.mark.proves("M48", "M32", "M52", "L4")
@virtual
async def test_options_are_merged_field_by_field_and_the_later_one_wins(app: App):
    task = app.task(queue="mail", priority=7)(double)
    first = task.options(queue="high", delay="5m")
    second = first.options(priority=Priority.CRITICAL).options(delay=timedelta(hours=1))
    now = app.clock.now()

    async def seen(calls: object) -> tuple[str, int, float | None]:
        status = await (await calls.enqueue(1)).status()
        due = status.run_at and status.run_at.timestamp() - now
        return status.queue, status.priority, due

    assert await seen(task) == ("mail", 7, None)
    assert await seen(first) == ("high", 7, 300)
    assert await seen(second) == ("high", 9, 3600)
    # None of it changed what it was made from.
    assert await seen(first) == ("high", 7, 300)
    assert await seen(task) == ("mail", 7, None)


@pytest.mark.proves("M31")
@virtual
async def test_meta_is_merged_by_key_and_reaches_the_task(app: App):
    task = app.task(facts)
    base = task.options(meta={"tenant": "a", "trace": 1})
    async with working(app):
        both = await base.options(meta={"trace": 2, "user": 5}).enqueue()
        none = await base.options(meta=None).enqueue()
        assert (await both.result())["meta"] == {"tenant": "a", "trace": 2, "user": 5}
        assert (await none.result())["meta"] == {}


@virtual
async def test_none_is_a_value_no_time_limit_differs_from_no_word(app: App):
    task = app.task(timeout=100)(facts)
    async with working(app):
        assert (await (await task.enqueue()).result())["deadline"] is not None
        free = await task.options(timeout=None).enqueue()
        assert (await free.result())["deadline"] is None
        limited = await task.options(timeout=None).options(timeout=5).enqueue()
        assert (await limited.result())["deadline"] is not None


@virtual
async def test_an_option_of_none_takes_back_a_key(app: App):
    calls = app.task(double).options(key="k")
    first = await calls.enqueue(1)
    assert not (await calls.enqueue(1)).created
    assert (await calls.options(key=None).enqueue(1)).created
    assert first.created


@virtual
async def test_options_can_be_used_again_and_again(app: App):
    calls = app.task(double).options(priority=9, queue="high")
    jobs = [await calls.enqueue(n) for n in range(3)]
    jobs += await calls.enqueue_many([(n,) for n in range(3)])
    assert {(await job.status()).queue for job in jobs} == {"high"}
    assert len({job.id for job in jobs}) == 6


@pytest.mark.proves("M20", "M60")
@virtual
async def test_one_policy_serves_many_tasks_and_a_call_changes_single_fields(app: App):
    patient = Retry(4, base=10, jitter=False, never=(KeyError,))
    one = app.task(retry=patient)(double)
    two = app.task(retry=patient)(triple)
    assert one._handler.retry is two._handler.retry
    job = await one.options(retry=Retry(1, base=5, jitter=False)).enqueue(1)
    row = await record_of(app, job)
    assert b"never" not in row.opts  # classes stay with the code
    assert (await job.status()).max_attempts == 2


@pytest.mark.proves("M96")
@virtual
async def test_the_key_for_outside_services_is_the_same_over_all_attempts(app: App):
    seen: list[tuple[int, str]] = []

    @app.task(name="charge", retry=Retry(2, base=1))
    async def charge(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt < 3:
            raise ConnectionError

    async with working(app):
        job = await charge.enqueue()
        other = await charge.enqueue()
        await finished(job)
        await finished(other)
    assert {attempt for attempt, _ in seen} == {1, 2, 3}
    assert len({key for _, key in seen}) == 2


class ForgetfulApp(App):
    """Its store answers for no job."""

    async def send(self, *_: object) -> list[object]:
        return []


@virtual
async def test_a_store_that_does_not_answer_for_every_job_is_our_bug(app: App):
    del app
    task = ForgetfulApp(MEMORY).task(double)
    with pytest.raises(InvariantBroken, match="a store answers for every job"):
        await task.enqueue(1)
