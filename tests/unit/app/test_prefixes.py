"""Tasks for many names: `@app.task(name="email:*")`."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from durio import App, Context, State, chain, group
from durio.errors import DuplicateTask, InvalidArguments, InvalidName, InvalidOption
from durio.model.names import queue_of
from durio.testing import testing
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import (
    MEMORY,
    drained,
    finished,
    record_of,
    records,
    virtual,
    working,
)


@dataclass
class Receipt:
    task: str
    number: int


def declare(app: App, name: str = "email:*", **options: Any) -> Any:
    """Return a task whose result says which declaration ran, and for which job."""

    @app.task(name=name, **options)
    async def run(ctx: Context, number: int) -> Receipt:
        return Receipt(f"{name} {ctx.task}", number)

    return run


def beside(app: App, name: str = "web") -> App:
    program = App(MEMORY, name=name, clock=app.clock)
    program.state = app.state
    return program


@pytest.mark.proves("M21")
@virtual(name="shop")
async def test_the_exact_name_comes_first_then_the_longest_prefix(app: App) -> None:
    for name in ("*", "email:new:*", "email:*", "email:hello"):
        declare(app, name)
    names = ("email:hello", "email:new:1", "email:new", "sms", "email:hello2")
    jobs = [await app.enqueue(name, 1) for name in names]
    await drained(app)
    assert [(await job.result()).task for job in jobs] == [
        "email:hello shop.email:hello",
        "email:new:* shop.email:new:1",
        "email:* shop.email:new",
        "* shop.sms",
        "email:* shop.email:hello2",
    ]
    assert (await record_of(app, jobs[1])).task == "shop.email:new:1"


@pytest.mark.parametrize("is_here", [True, False])
@virtual(name="shop")
async def test_an_enqueue_by_name_has_queue_options_and_checks(
    app: App, *, is_here: bool
) -> None:
    """From the code, or from what workers have published."""
    declare(app, queue="mail", priority=8)
    await drained(app)
    producer = app if is_here else beside(app)
    job = await producer.enqueue("shop.email:welcome", 7)
    status = await job.status()
    assert (status.task, status.queue, status.priority) == (
        "shop.email:welcome",
        "mail",
        8,
    )
    rows = producer.named("shop.email:welcome").options(priority=2)
    many = await rows.enqueue_many([(1,), {"number": 2}])
    assert {(await each.status()).priority for each in many} == {2}
    with declined(InvalidArguments, "number"):
        await producer.enqueue("shop.email:welcome", "seven")
    with declined(InvalidArguments):
        await producer.enqueue("shop.email:welcome", 7, to="ann")
    await drained(app)
    result = await (await app.job(job.id)).result()
    assert result == Receipt("email:* shop.email:welcome", 7)


@virtual(name="shop")
async def test_plans_and_schedules_may_name_such_jobs(app: App) -> None:
    seen: list[str] = []

    @app.task(name="email:*")
    async def run(ctx: Context, number: int = 0) -> int:
        seen.append(ctx.task.partition(":")[2])
        return number + 1

    first = [app.si("email:a", 1), app.si("shop.email:b", 2)]
    plan = await chain(group(first), app.si("email:c"), app.s("email:d")).enqueue()
    await app.schedules.create("daily", "email:tick", every="1h")
    async with working(app):
        assert await plan.result() == 2
        await app.clock.sleep(3700)
    assert sorted(seen) == ["a", "b", "c", "d", "tick"]


@virtual(name="shop")
async def test_the_task_itself_cannot_be_enqueued(app: App) -> None:
    run = declare(app)
    calls = [
        lambda: run.s(1),
        lambda: run.si(1),
        lambda: run.map([1]),
        lambda: run.chunks([(1,)], 1),
        lambda: run.options(delay=1),
        lambda: app.every("5s", name="often")(run),
    ]
    for call in calls:
        with declined(InvalidName, "shop.email:*", 'app.enqueue("shop.email:example"'):
            call()
    with declined(InvalidName, "shop.email:*"):
        await run.enqueue(1)
    with declined(InvalidName, "shop.email:*"):
        await run.enqueue_many([(1,)])
    assert await run(3) == Receipt("email:* shop.email:*", 3)
    assert await records(app) == []


@virtual(name="shop")
async def test_a_handle_of_such_a_task_is_typed(app: App) -> None:
    run = declare(app)
    job = await app.enqueue("email:a", 1)
    await drained(app)
    again = await run.job(job.id)
    assert await again.result() == Receipt("email:* shop.email:a", 1)


@virtual(name="shop")
async def test_after_an_unknown_task_a_worker_still_claims_its_prefixes(
    app: App,
) -> None:
    """It then claims known tasks only, for a minute."""
    declare(app)
    other = beside(app, "shop")
    strange = await declare(other, "strange").enqueue(1)
    async with working(app) as worker:
        await app.clock.sleep(1)
        assert worker.slots.skips_unknown
        job = await app.enqueue("email:a", 1)
        assert (await finished(job)).state is State.DONE
        assert worker.slots.skips_unknown
        assert (await strange.status()).state is State.SCHEDULED


@pytest.mark.parametrize(
    ("old", "new"), [("email:*", "email:a"), ("email:a", "email:*")]
)
@virtual(name="shop")
async def test_arguments_of_another_release_are_parked(
    app: App, old: str, new: str
) -> None:
    """Whether that release has the name itself, a prefix of it, or another one of both."""
    declare(app, old)
    await drained(app)  # publishes its parameters
    newer = beside(app, "shop")

    @newer.task(name=new)
    async def run(ctx: Context, number: int, to: str = "") -> str:
        return ctx.task + to * number

    await drained(newer)
    job = await newer.enqueue("email:a", 1, to="ann")
    async with working(app):
        await app.clock.sleep(1)
        assert (await job.status()).state is State.SCHEDULED
    async with working(newer):
        assert await job.result() == "shop.email:aann"


@virtual(name="shop")
async def test_arguments_that_no_release_takes_are_dead_at_once(app: App) -> None:
    declare(app)
    declare(app, "sms:*")
    await drained(app)
    unchecked = beside(app, "shop")

    @unchecked.task(name="email:a")
    async def run(number: str) -> None: ...

    job = await run.enqueue("seven")
    async with working(app):
        await app.clock.sleep(1)
        assert (await job.status()).reason == "bad_payload"


@virtual(name="shop")
async def test_filters_and_details_know_such_jobs(app: App) -> None:
    declare(app, queue="mail", retry=3)
    await drained(app)
    job = await app.enqueue("email:a", 1)
    assert await app.jobs(task="email:a").count() == 1
    assert [each async for each in app.jobs(task="email:none")] == []
    (found,) = [each async for each in app.jobs(task="shop.email:a")]
    assert (found.id, found.max_attempts) == (job.id, 4)
    (record,) = await records(app)
    assert queue_of(record.lane) == "mail"


def test_the_testing_box_knows_such_jobs() -> None:
    app = App(name="shop")
    run = declare(app)
    with testing(app) as box:
        app.enqueue_sync("email:a", 7)
        (job,) = box.jobs("email:a")
        assert job.arguments == {"number": 7}
        with declined(InvalidName, "shop.email:*"):
            box.jobs(run)
        box.drain_sync()
        assert box.jobs("email:a")[0].state is State.DONE


def test_two_tasks_with_one_prefix() -> None:
    app = App(MEMORY, name="shop")
    declare(app)
    with declined(DuplicateTask, "shop.email:*", "test_prefixes.py:", " and "):
        declare(app, "shop.email:*")
    declare(app, "email:a*")


@pytest.mark.parametrize("name", ["*:email", "em*ail:", "email:**", "email.*"])
def test_a_wildcard_that_is_not_at_the_end(name: str) -> None:
    app = App(MEMORY, name="shop")
    with declined(InvalidName, name):
        declare(app, name)
    assert not app.registry.handlers


def test_a_prefix_has_no_aliases() -> None:
    app = App(MEMORY, name="shop")
    with declined(InvalidOption, "aliases"):
        declare(app, aliases=("mail",))
    with declined(InvalidName, "mail:*"):
        declare(app, "send", aliases=("mail:*",))
    assert not app.registry.handlers


def test_a_job_cannot_have_the_name_of_a_prefix() -> None:
    app = App(MEMORY, name="shop")
    declare(app)
    with declined(InvalidName, "email:*"):
        app.enqueue_sync("email:*", 1)


def test_descriptions_name_the_prefix() -> None:
    app = App(MEMORY, name="shop")
    declare(app, queue="mail")
    (name,) = app.registry.published()
    assert name == "shop.email:*"
    assert msgspec.json.encode(app.registry.published()[name])


@virtual(name="shop")
async def test_why_knows_which_workers_have_such_jobs(app: App) -> None:
    """Neither a live worker nor the code here misses a task that a prefix has."""
    declare(app, queue="mail")
    async with working(app, queues=["default", "mail"]):
        job = await app.named("email:a").options(delay="1h").enqueue(1)
        waiting = await job.explain()
    assert [reason.code for reason in waiting.reasons] == ["scheduled"]
    other = await app.named("email:a").enqueue(1)
    without_worker = await other.explain()
    assert not any("task" in reason.code for reason in without_worker.reasons)
