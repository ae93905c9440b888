"""A full queue: callers wait in line for room, and are told when there is none."""

import asyncio
import os
from typing import Any

import pytest

from durio import App, Job, QueueFull, Retry
from durio.client.backpressure import DrainRate
from durio.errors import DurioError, InvalidOption, QueueClosed, StoreUnavailable
from durio.keys import replace, while_active
from durio.ports.control import AuditNote, CancelJobs, QueueChange
from durio.ports.enqueue import Full
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import drained, finished, records, virtual, working

pytestmark = pytest.mark.slow  # real processes, servers or seconds

LANE = "app:mail"


async def echo(value: int = 0) -> int:
    return value


def mail(app: App, maxsize: int | None = 3, **options: Any) -> Any:
    """A task in a bounded queue."""
    app.queue("mail", maxsize=maxsize, **options)
    return app.task(queue="mail")(echo)


def faulty(app: App) -> FaultyStore:
    """The App's own store, and what a test adds to it."""
    store = FaultyStore(app.state.stores[os.getpid()], app.clock)
    app.state.stores[os.getpid()] = store
    return store


async def take(app: App, jobs: int) -> None:
    """Let so many of the queue's jobs go."""
    ids = [r.id for r in await records(app) if r.lane == LANE and r.state == 2]
    await (await app.store()).act(ids[-jobs:], CancelJobs())  # the oldest first


async def waiting(app: App) -> list[int]:
    """The arguments of the jobs that wait, in their order."""
    jobs = [r for r in reversed(await records(app)) if r.state == 2]
    return [int(r.payload.decode().partition(":")[2].rstrip("}]") or 0) for r in jobs]


def begin(group: asyncio.TaskGroup, *calls: Any) -> list["asyncio.Task[Any]"]:
    return [group.create_task(call) for call in calls]


async def enqueued_late(app: App, task: Any) -> None:
    """One more for a queue that is full: it waits, and has the room that comes."""
    async with asyncio.TaskGroup() as group:
        (late,) = begin(group, task.enqueue(9))
        await app.clock.sleep(2.0)
        assert not late.done()
        await take(app, 1)
    assert late.result().created


# --- waiting


@pytest.mark.proves("M35", "M37")
@virtual
async def test_an_enqueue_waits_five_seconds_for_room(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    start = app.clock.monotonic()
    with pytest.raises(QueueFull) as caught:
        await task.enqueue(9)
    assert app.clock.monotonic() - start == pytest.approx(5.0, abs=1e-6)
    error = caught.value
    assert (error.queue, error.depth, error.limit, error.stored) == ("mail", 3, 3, 0)
    assert error.code == "queue_full"
    assert error.what == (
        "queue 'mail' is full: 3 waiting jobs, its bound is 3, set by app.queue('mail', "
        "maxsize=3) in this code; there was no room for 5 s"
    )
    assert 1.0 <= error.retry_after <= 60.0
    assert len(await records(app)) == 3


@pytest.mark.proves("M37")
@virtual
async def test_room_is_taken_as_soon_as_it_is_there(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    start = app.clock.monotonic()
    await enqueued_late(app, task)
    assert 2.0 <= app.clock.monotonic() - start < 2.4
    assert await waiting(app) == [1, 2, 9]


@pytest.mark.proves("M37")
@virtual(settings={"queue": {"full_seconds": 1.5}})
async def test_the_wait_is_a_setting_and_each_queue_may_have_its_own(app: App):
    usual = mail(app, 1)
    app.queue("sms", maxsize=1, full_wait="7s")
    app.queue("fax", maxsize=1, full_wait=0)
    waited: dict[str, float] = {}
    for queue in ("mail", "sms", "fax"):
        calls = usual.options(queue=queue)
        await calls.enqueue(1)
        start = app.clock.monotonic()
        with pytest.raises(QueueFull, match="is full: 1 waiting job, its bound is 1"):
            await calls.enqueue(2)
        waited[queue] = round(app.clock.monotonic() - start, 6)
    assert waited == {"mail": 1.5, "sms": 7.0, "fax": 0.0}


@pytest.mark.proves("M37")
@virtual
async def test_callers_of_other_queues_are_not_held_up(app: App):
    task = mail(app)
    other = task.options(queue="other")
    await task.enqueue_many([(n,) for n in range(3)])
    async with asyncio.TaskGroup() as group:
        stuck = begin(group, *(task.enqueue(n) for n in range(5)))
        await app.clock.sleep(0.5)
        start = app.clock.monotonic()
        jobs = await asyncio.gather(*(other.enqueue(n) for n in range(20)))
        assert app.clock.monotonic() == start
        assert all(job.created for job in jobs)
        await take(app, 3)
        await app.clock.sleep(0.5)
        await take(app, 2)
    assert all(call.result().created for call in stuck)


@pytest.mark.proves("M37")
@virtual(settings={"queue": {"full_seconds": 60}})
async def test_first_come_first_served(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    calls: list[asyncio.Task[Any]] = []
    async with asyncio.TaskGroup() as group:
        for n in range(3, 153):  # more than are tried at once
            calls += begin(group, task.enqueue(n))
            await app.clock.sleep(0.01)
        while not all(call.done() for call in calls):
            done = [call.done() for call in calls]
            assert done == sorted(done, reverse=True), "somebody was overtaken"
            await take(app, 2)
            await app.clock.sleep(0.3)
    assert all(call.result().created for call in calls)


@pytest.mark.proves("M37")
@virtual
async def test_whoever_comes_goes_to_the_end_of_the_line(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    async with asyncio.TaskGroup() as group:
        begin(group, task.enqueue(3))
        await app.clock.sleep(1.0)
        await take(app, 1)  # before anybody in line has looked again
        (late,) = begin(group, refused(task.enqueue(4)))
    assert late.result() is QueueFull
    assert await waiting(app) == [1, 2, 3]


@virtual
async def test_the_hint_grows_with_the_place_in_line(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])

    async def hint(value: int) -> float:
        try:
            await task.enqueue(value)
        except QueueFull as error:
            return error.retry_after
        return 0.0

    async with asyncio.TaskGroup() as group:
        calls = begin(group, *(hint(n) for n in range(3, 13)))
        for _ in range(4):
            await app.clock.sleep(1.0)
            await take(app, 1)
    # Four have left in five seconds: 1.25 s each.
    assert [call.result() for call in calls] == [0.0] * 4 + [
        1.2,
        2.5,
        3.8,
        5.0,
        6.2,
        7.5,
    ]


@pytest.mark.proves("M37")
@virtual
async def test_a_large_call_is_not_overtaken_by_small_ones(app: App):
    task = mail(app, 4)
    await task.enqueue_many([(n,) for n in range(3)])
    async with asyncio.TaskGroup() as group:
        large, small = begin(group, task.enqueue_many([(10,), (11,)]), task.enqueue(12))
        await app.clock.sleep(1.0)
        assert not small.done()
        await take(app, 2)
        await app.clock.sleep(0.5)
        assert large.done()
        assert small.done()
    assert await waiting(app) == [2, 10, 11, 12]


@pytest.mark.proves("M37")
@virtual
async def test_a_caller_cancelled_in_line_leaves_no_job(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    async with asyncio.TaskGroup() as group:
        doomed, fine = begin(group, task.enqueue(8), task.enqueue(9))
        await app.clock.sleep(1.0)
        doomed.cancel()
        await take(app, 3)  # before anybody in line has looked again
    assert fine.result().created
    assert await waiting(app) == [9]


@virtual
async def test_a_line_ends_with_its_store(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    async with asyncio.TaskGroup() as group:
        (stuck,) = begin(group, refused(task.enqueue(9)))
        await app.clock.sleep(1.0)
        await (await app.store()).close()
    assert stuck.result() is StoreUnavailable


async def refused(call: Any) -> Any:
    try:
        return await call
    except DurioError as error:
        return type(error)


@pytest.mark.proves("M37")
@virtual
async def test_a_lost_reply_of_a_full_queue_is_asked_again(app: App):
    """The job got the last place; its repeat finds the queue full, and itself in it."""
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(2)])
    store = faulty(app)
    store.lose_reply("enqueue")
    start = app.clock.monotonic()
    job: Job[int] = await task.enqueue(2)
    assert job.created
    assert app.clock.monotonic() - start < 1.0
    assert await waiting(app) == [0, 1, 2]


def lose_first(store: FaultyStore) -> None:
    """The first try goes nowhere, for now, and nobody knows."""
    store.fail("enqueue", error=StoreUnavailable("lost", unknown=True))


def said_again(store: FaultyStore) -> list[bool]:
    return [call.options["again"] for call in store.calls if call.method == "enqueue"]


@virtual
async def test_whoever_waits_for_room_after_a_lost_reply_goes_on_saying_so(app: App):
    """The first try may come late, be stored, and have run when there is room."""
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    store = faulty(app)
    lose_first(store)
    await enqueued_late(app, task)
    first, *others = said_again(store)
    assert not first
    assert len(others) > 2
    assert all(others)
    await take(app, 1)
    await task.enqueue(10)
    assert not said_again(store)[-1], "what is settled is forgotten"


@pytest.mark.parametrize("refusal", [QueueFull, QueueClosed])
@virtual
async def test_no_room_is_no_proof_that_the_try_before_was_not_stored(
    app: App, refusal: type[DurioError]
):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    store = faulty(app)
    lose_first(store)
    if refusal is QueueClosed:
        await (await app.store()).set_queue(
            LANE, QueueChange(closed=True), AuditNote(who="me")
        )
    with pytest.raises(StoreUnavailable, match="may have stored it: queue") as caught:
        await task.enqueue(9)
    assert caught.value.unknown
    assert isinstance(caught.value.__cause__, refusal)
    with pytest.raises(refusal):
        await task.enqueue(10)  # nobody doubts this one


@pytest.mark.proves("M37")
@virtual
async def test_a_job_answered_by_its_key_does_not_wait(app: App):
    task = mail(app)
    keyed = task.options(key="k", unique=while_active)
    first = await keyed.enqueue(1)
    await task.enqueue_many([(n,) for n in range(2)])
    start = app.clock.monotonic()
    async with asyncio.TaskGroup() as group:
        (stuck,) = begin(group, refused(task.enqueue(9)))
        await app.clock.sleep(1.0)
        assert await keyed.enqueue(1) == first
        assert app.clock.monotonic() - start == pytest.approx(1.0)
    assert stuck.result() is QueueFull


# --- by every way in


@pytest.mark.proves("M37")
@virtual
async def test_by_name_it_is_the_same(app: App):
    mail(app, 1, full_wait=0)
    await app.enqueue("echo", 1)
    with pytest.raises(QueueFull):
        await app.enqueue("echo", 2)


@pytest.mark.proves("M37")
def test_sync_callers_are_told_too():
    app = App("sqlite:///:memory:")
    task = mail(app, 2, full_wait=0.05)
    for n in range(2):
        task.enqueue_sync(n)
    with pytest.raises(QueueFull) as caught:
        task.enqueue_sync(3)
    assert caught.value.depth == 2
    with pytest.raises(QueueFull):
        task.enqueue_many_sync([(4,)])
    app.run_sync(app.close())


# --- many rows


@pytest.mark.proves("M37")
@virtual
async def test_rows_that_fit_the_bound_enter_whole(app: App):
    task = mail(app, 10, full_wait=0)
    await task.enqueue_many([(n,) for n in range(5)])
    with pytest.raises(QueueFull) as caught:
        await task.enqueue_many([(n,) for n in range(10)])
    assert (caught.value.stored, caught.value.depth) == (0, 5)
    assert len(await records(app)) == 5


@pytest.mark.proves("M37")
@virtual
async def test_more_rows_than_the_bound_go_in_pieces_as_room_comes(app: App):
    task = mail(app, 8)
    async with asyncio.TaskGroup() as group:
        (call,) = begin(group, task.enqueue_many([(n,) for n in range(30)]))
        while not call.done():
            assert len(await waiting(app)) <= 8
            await app.clock.sleep(0.5)
            await take(app, 3)
    jobs = call.result()
    assert len({job.id for job in jobs}) == 30
    assert all(job.created for job in jobs)
    assert len(await records(app)) == 30


@pytest.mark.proves("M37")
@virtual
async def test_the_error_says_how_many_rows_were_stored(app: App):
    task = mail(app, 8)
    start = app.clock.monotonic()
    with pytest.raises(QueueFull) as caught:
        await task.enqueue_many([(n,) for n in range(30)])
    assert app.clock.monotonic() - start == pytest.approx(5.0)
    assert caught.value.stored == 8 == len(await records(app))
    assert "8 of 30 jobs stored before" in str(caught.value)
    assert await waiting(app) == list(range(8))


@pytest.mark.proves("M37")
@virtual
async def test_chunks_of_a_long_call_become_smaller_in_a_full_queue(app: App):
    task = mail(app, 1200, full_wait=0)
    with pytest.raises(QueueFull) as caught:
        await task.enqueue_many([(n,) for n in range(2500)])
    assert caught.value.stored == 1000  # 300 more at once do not fit
    assert caught.value.depth == 1000


# --- closed by hand


@virtual
async def test_a_closed_queue_refuses_at_once(app: App):
    task = mail(app)
    store = await app.store()
    await task.enqueue(1)
    await store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
    start = app.clock.monotonic()
    with pytest.raises(QueueClosed) as caught:
        await task.enqueue(2)
    assert caught.value.queue == "mail"
    assert app.clock.monotonic() == start


@virtual
async def test_callers_in_line_hear_of_a_closed_queue(app: App):
    task = mail(app)
    await task.enqueue_many([(n,) for n in range(3)])
    async with asyncio.TaskGroup() as group:
        (stuck,) = begin(group, refused(task.enqueue(9)))
        await app.clock.sleep(1.0)
        store = await app.store()
        await store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
        await app.clock.sleep(0.5)
        assert stuck.done()
    assert stuck.result() is QueueClosed


# --- with a worker


@pytest.mark.proves("M37")
@virtual
async def test_retries_enter_a_full_queue(app: App):
    app.queue("mail", maxsize=2, full_wait=0)
    tries: list[int] = []

    @app.task(name="flaky", queue="mail", retry=Retry(3, base=10, jitter=False))
    async def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("away")
        return len(tries)

    job = await flaky.enqueue()
    await drained(app)
    await flaky.enqueue()
    with pytest.raises(QueueFull):
        await flaky.enqueue()
    async with working(app):
        assert (await finished(job)).state == "done"


@pytest.mark.proves("M37")
@virtual
async def test_producers_go_as_fast_as_the_workers(app: App):
    app.queue("mail", maxsize=5)
    depths: list[int] = []

    @app.task(name="slow", queue="mail")
    async def slow() -> None:
        await app.clock.sleep(1.0)

    async with working(app), asyncio.TaskGroup() as group:
        # Ten slots and five places: the last enters after 4 s, well within its wait of 5.
        calls = begin(group, *(slow.enqueue() for _ in range(50)))
        while not all(call.done() for call in calls):
            depths.append(len(await waiting(app)))
            await app.clock.sleep(0.1)
    jobs = [call.result() for call in calls]
    assert max(depths) == 5
    await drained(app)
    for job in jobs:
        assert (await finished(job)).state == "done"


@pytest.mark.proves("M35")
@virtual(settings={"queue": {"soft_max": 5, "embedded_max": 0, "full_seconds": 2}})
async def test_the_soft_bound_is_judged_about_once_a_second(app: App):
    task = mail(app, None)
    async with working(app, queues=["default"]):
        await task.enqueue_many([(n,) for n in range(8)])  # free within a second
        await app.clock.sleep(2.5)
        start = app.clock.monotonic()
        with pytest.raises(QueueFull) as caught:
            await task.enqueue(9)
        assert app.clock.monotonic() - start == pytest.approx(2.0)
        assert (caught.value.limit, caught.value.stored) == (5, 0)
        assert "set by the setting queue.soft_max;" in str(caught.value)
        await take(app, 4)
        assert (await task.enqueue(9)).created  # after the next look


# --- what is declared


def declared(store: FaultyStore) -> list[Any]:
    return [call.args[0] for call in store.calls if call.method == "declare"]


@pytest.mark.proves("M35")
@virtual
async def test_in_memory_a_queue_holds_a_thousand(app: App):
    task = app.task(echo)
    store = faulty(app)
    await task.enqueue_many([(n,) for n in range(1000)])
    with pytest.raises(QueueFull) as caught:
        await task.enqueue(0)
    assert (caught.value.depth, caught.value.limit) == (1000, 1000)
    await task.options(queue="other").enqueue()
    assert declared(store) == [{"app:default": 1000}, {"app:other": 1000}]


@pytest.mark.proves("M35")
@virtual(settings={"queue": {"embedded_max": 2, "full_seconds": 0}})
async def test_a_declared_queue_has_no_default(app: App):
    free, small = mail(app, None), app.task(name="small")(echo)
    await free.enqueue_many([(n,) for n in range(10)])
    await small.enqueue_many([(n,) for n in range(2)])
    with pytest.raises(QueueFull):
        await small.enqueue()
    app.queue("default", maxsize=3)  # said later: it counts from now on
    await small.enqueue()
    with pytest.raises(QueueFull):
        await small.enqueue()


@pytest.mark.proves("M35")
@virtual(settings={"queue": {"embedded_max": 0}})
async def test_bounds_are_declared_once_and_nobody_else_pays(app: App):
    plain, store = app.task(echo), faulty(app)
    await plain.enqueue()
    assert declared(store) == []
    task = app.task(name="other", queue="mail")(echo)
    app.queue("mail", maxsize=5)
    for n in range(3):
        await task.enqueue(n)
    assert declared(store) == [{LANE: 5}]
    async with working(app):
        pass
    assert {LANE: 5} in declared(store)[1:]


@pytest.mark.proves("M35")
@virtual(settings={"queue": {"embedded_max": 0, "full_seconds": 0}})
async def test_another_number_after_a_redeploy(app: App):
    task = mail(app, 2)
    await task.enqueue_many([(n,) for n in range(2)])
    other = App("sqlite:///:memory:", clock=app.clock, settings=app.settings)
    other.state.stores = app.state.stores
    again = mail(other, 3)
    assert (await again.enqueue()).created
    with pytest.raises(QueueFull) as caught:
        await task.enqueue()
    assert caught.value.limit == 3


@pytest.mark.proves("M35")
@virtual(settings={"queue": {"embedded_max": 0, "full_seconds": 0}})
async def test_the_default_beside_an_embedded_worker_ends_with_a_worker_of_its_own(
    app: App,
):
    task = app.task(queue="mail")(echo)
    app.default_maxsize = 2
    await task.enqueue_many([(n,) for n in range(2)])
    with pytest.raises(QueueFull):
        await task.enqueue()
    app.default_maxsize = None
    async with working(app, queues=["default"]):
        pass
    assert (await task.enqueue()).created


@pytest.mark.parametrize("maxsize", [0, -1, 10**9 + 1, True, 1.5, "10"])
def test_a_bound_is_a_whole_number(maxsize: Any):
    with pytest.raises(InvalidOption, match="maxsize"):
        App("sqlite:///:memory:").queue("mail", maxsize=maxsize)


@pytest.mark.parametrize("wait", [-1, "soon", True, float("nan"), None])
def test_a_wait_is_a_duration(wait: Any):
    with pytest.raises(InvalidOption, match="full_wait"):
        App("sqlite:///:memory:").queue("mail", maxsize=5, full_wait=wait)


# --- the hint


def drain(*looks: tuple[float, int], entered: int = 0) -> DrainRate:
    made = DrainRate()
    for now, depth in looks:
        made.observe(now, depth)
    made.entered += entered
    return made


@pytest.mark.parametrize(
    ("seen", "jobs", "hint"),
    [
        (drain((100.0, 50)), 1, 5.0),  # nothing is known
        (drain((100.0, 50), (105.0, 50)), 1, 60.0),  # nothing moved
        (drain((100.0, 50), (105.0, 60)), 1, 60.0),  # it grew
        (drain((100.0, 50), (105.0, 48)), 8, 20.0),  # 2 left in 5 s
        (drain((100.0, 50), (105.0, 50), entered=2), 8, 20.0),  # ... and 2 of ours came
        (drain((100.0, 50), (105.0, 0)), 1, 1.0),
        (drain((100.0, 50), (105.0, 49)), 1000, 60.0),
        (drain((0.0, 50), (100.0, 10)), 1, 5.0),  # too long ago to mean anything
    ],
)
def test_the_hint_follows_how_the_queue_moved(seen: DrainRate, jobs: int, hint: float):
    assert seen.hint(jobs) == hint


def test_a_full_answer_is_a_value():
    assert Full("a:b", 3, 3) == ("a:b", 3, 3, False, False)


@virtual
async def test_calls_with_one_key_get_in_by_their_order(app: App):
    """The newest arguments stay, however the room came."""
    task = mail(app, 1, full_wait=60.0)
    await task.enqueue(0)
    async with asyncio.TaskGroup() as group:
        keyed = task.options(key="k", unique=replace)
        calls: list[asyncio.Task[Any]] = []
        for n in range(1, 5):
            calls += begin(group, keyed.enqueue(n))
            await app.clock.sleep(0.1)
        assert not any(call.done() for call in calls)
        await take(app, 1)
    assert len({call.result().id for call in calls}) == 1
    assert await waiting(app) == [4]


@virtual
@pytest.mark.parametrize("turns", range(4))
async def test_a_line_goes_on_when_all_tasks_were_cancelled(app: App, turns: int):
    """Also where the one that serves it had not begun."""
    task = mail(app, 1, full_wait=5.0)
    await task.enqueue(0)
    gone = asyncio.get_running_loop().create_task(task.enqueue(1))
    while not (await app._loop_state()).enqueuer._waiters:
        await app.clock.sleep(0)
    for _ in range(turns):
        await app.clock.sleep(0)
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        each.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await take(app, 1)
    async with asyncio.timeout(10):
        assert (await task.enqueue(2)).created
