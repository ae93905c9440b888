"""Schedulers that make ticks: each once, whoever else works on the same store."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from durio import App
from durio.errors import StoreUnavailable
from durio.model.effects import Effects, Put
from durio.model.ids import id_bytes, id_made_at
from durio.model.schedule import schedules_kind
from durio.plans import group
from durio.ports.control import AuditNote, QueueChange
from durio.ports.records import RECORD_BYTES_MAX
from durio.testing.clock import EPOCH, VirtualClock, run_virtual
from tests.faults.faulty_store import FaultyStore, ScriptedFault, reply_lost
from tests.schedules.schedule_harness import (
    MINUTE,
    Events,
    Runs,
    body_of,
    record_of,
    sleeping_task,
    tick_jobs,
    tick_times,
    ticker_of,
    turns,
    until,
)
from tests.unit.app.app_harness import MEMORY, records, virtual

LATE_SECONDS = 3.0


async def write(app: App, name: str, body: bytes, due_at: float) -> None:
    """Write a record behind the back of everybody."""
    put = Put(schedules_kind(app.name), name, body, due_at=due_at)
    await (await app.store()).commit(Effects(puts=[put]))


async def close(app: App, queue: str, *, closed: bool = True) -> None:
    """Let a queue take no more jobs, as `durio queues drain` does, or take them again."""
    lane, change = f"{app.name}:{queue}", QueueChange(closed=closed)
    await (await app.store()).set_queue(lane, change, AuditNote(who="ann"))


async def faulty(app: App) -> Any:
    return FaultyStore(await app.store(), app.clock)


# --- several schedulers


DELAYS = st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.5, 7.0]), max_size=60)


@pytest.mark.proves("M159")
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(DELAYS, DELAYS, st.sampled_from(["skip", "queue_all", "allow"]))
def test_two_schedulers_make_each_tick_once(
    first: list[float], second: list[float], overlap: Any
) -> None:
    """Their reads and writes come in any order, and some replies are lost."""

    async def scheduler(app: App, delays: list[float]) -> None:
        store, slow = await faulty(app), iter(delays)

        def fault(method: str, nth: int) -> ScriptedFault:
            error = reply_lost(method) if method == "commit" and nth % 5 == 0 else None
            return ScriptedFault(next(slow, 0.0), after=error)

        for method in ("due_records", "commit"):
            store.on(method, fault)
        ticker = await ticker_of(app, store)
        while app.clock.now() < EPOCH + 30:
            try:
                pause = await ticker.turn()
            except StoreUnavailable:
                pause = 0.1
            await app.clock.sleep(pause)

    async def main(clock: VirtualClock) -> None:
        async with App(MEMORY, clock=clock) as app:
            work = sleeping_task(app, Runs())
            choices: dict[str, Any] = {"catchup": "all", "overlap": overlap}
            for name in ("a", "b"):
                await app.schedules.create(name, work, every="2s", **choices)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scheduler(app, first))
                tasks.create_task(scheduler(app, second))
            await (await ticker_of(app)).turn()  # what is due now, and not handled
            for name in ("a", "b"):
                times, known = await tick_times(app, name), await body_of(app, name)
                assert len(times) == len(set(times)) == known.run_count
                handled = known.run_count + known.skipped_count + len(known.waiting)
                assert handled == (clock.now() - EPOCH) // 2
                if overlap == "allow":
                    assert times == [2.0 * n for n in range(1, len(times) + 1)]

    run_virtual(main)


@pytest.mark.parametrize("overlap", ["skip", "allow", "cancel_previous", "queue_one"])
@virtual
async def test_a_lost_reply_makes_no_second_job(app: App, overlap: Any) -> None:
    await app.schedules.create(
        "s", sleeping_task(app, Runs()), every="1m", overlap=overlap
    )
    store = await faulty(app)
    ticker = await ticker_of(app, store)
    await until(app, MINUTE)
    store.lose_reply("commit")
    with pytest.raises(StoreUnavailable):
        await ticker.turn()
    await turns(ticker, MINUTE / 2)
    assert await tick_times(app, "s") == [MINUTE]
    assert (await app.schedules.get("s")).run_count == 1


@virtual
async def test_a_commit_that_failed_is_repeated(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    store = await faulty(app)
    ticker = await ticker_of(app, store)
    await until(app, MINUTE)
    store.fail("commit")
    with pytest.raises(StoreUnavailable):
        await ticker.turn()
    await ticker.turn()
    assert await tick_times(app, "s") == [MINUTE]


async def made_again(app: App, work: Any) -> None:
    await app.schedules.delete("s")
    await app.schedules.create("s", work, args=(9,), every="1h")


async def deleted(app: App, work: Any) -> None:
    del work
    await app.schedules.delete("s")


async def edited(app: App, work: Any) -> None:
    await app.schedules.change("s", work, args=(9,), every="1h")


async def paused(app: App, work: Any) -> None:
    del work
    await app.schedules.pause("s")


@pytest.mark.parametrize("change", [made_again, deleted, edited, paused])
@virtual
async def test_a_late_scheduler_fires_nothing_by_the_old_rule(
    app: App, change: Any
) -> None:
    """It has read a tick that is due, and sleeps while people change the schedule."""
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="1m")
    slow = await faulty(app)
    slow.slow("commit", seconds=LATE_SECONDS, times=1)
    ticker = await ticker_of(app, slow)
    await until(app, MINUTE)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ticker.turn())
        await app.clock.sleep(LATE_SECONDS / 2)
        await change(app, work)
    await turns(ticker, 5 * MINUTE)
    assert await tick_jobs(app, "s") == []


@virtual
async def test_a_late_scheduler_cancels_nothing_by_the_old_rule(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="1m", overlap="cancel_previous")
    slow = await faulty(app)
    ticker = await ticker_of(app, slow)
    await turns(ticker, 1.5 * MINUTE)
    slow.slow("commit", seconds=LATE_SECONDS, times=1)
    await until(app, 2 * MINUTE)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ticker.turn())
        await app.clock.sleep(LATE_SECONDS / 2)
        await app.schedules.change("s", overlap="skip")
    await turns(ticker, MINUTE / 2)
    assert await app.jobs(state="cancelled").count() == 0
    assert (await app.schedules.get("s")).skipped_count == 1


@pytest.mark.proves("M157")
@virtual
async def test_a_change_is_seen_within_two_seconds(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, cron="0 0 * * *")
    ticker = await ticker_of(app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(turns(ticker, 10))
        await app.clock.sleep(5.5)
        await app.schedules.change("s", every="100ms", overlap="allow")
        await app.clock.sleep(2)
        assert (await app.schedules.get("s")).run_count > 5


# --- what cannot be made


@virtual
async def test_a_closed_queue_skips_the_tick(app: App) -> None:
    """Others go on, also those that are due at the same time."""
    events = Events(app)
    for name, queue in (("s", "closed"), ("other", "open")):
        work = sleeping_task(app, Runs(), name=name, queue=queue)
        await app.schedules.create(name, work, every="1m", overlap="allow")
    await close(app, "closed")
    await turns(await ticker_of(app), 2 * MINUTE)
    schedule = await app.schedules.get("s")
    assert (schedule.run_count, schedule.skipped_count) == (0, 2)
    assert (schedule.last_at, schedule.state) == (None, "active")
    assert [tick.skipped for tick in schedule.ticks] == ["queue_closed"] * 2
    assert events.skipped == {"queue_closed": 2}
    assert await tick_times(app, "other") == [MINUTE, 2 * MINUTE]
    await close(app, "closed", closed=False)
    await turns(await ticker_of(app), MINUTE)
    assert await tick_times(app, "s") == [3 * MINUTE]


@pytest.mark.parametrize(
    "choices",
    [{"fixed_delay": True}, {"max_runs": 1}, {"fixed_delay": True, "max_runs": 1}],
)
@virtual
async def test_a_closed_queue_does_not_end_a_schedule(
    app: App, choices: dict[str, Any]
) -> None:
    """Its next tick would follow from the end of a run, or it was the last one."""
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="1m", **choices)
    ticker = await ticker_of(app)
    await close(app, "default")
    await turns(ticker, 2.5 * MINUTE)
    assert (await app.schedules.get("s")).skipped_count == 2
    await close(app, "default", closed=False)
    await turns(ticker, MINUTE)
    assert await tick_times(app, "s") == [3 * MINUTE]


@virtual
async def test_a_full_queue_takes_the_jobs_of_ticks(app: App) -> None:
    app.queue("small", maxsize=1)
    work = sleeping_task(app, Runs(), queue="small")
    await app.declare_bounds()
    await work.enqueue()
    await app.schedules.create("s", work, every="1m", overlap="allow")
    await turns(await ticker_of(app), 2 * MINUTE)
    assert await tick_times(app, "s") == [MINUTE, 2 * MINUTE]


def with_other_code(app: App) -> App:
    """Return an App with other code on the same store."""
    other = App(MEMORY, name=app.name, settings=app.settings)
    other.state = app.state
    return other


@virtual
async def test_arguments_that_no_longer_fit(app: App) -> None:
    """The code has changed: the schedule fails, and others go on."""
    await app.schedules.create(
        "s", sleeping_task(app, Runs()), args=(1.0,), every="1m", fixed_delay=True
    )
    other = with_other_code(app)

    @other.task(name="work")
    async def work(*, minutes: int) -> None: ...

    fine = sleeping_task(other, Runs(), name="fine")
    await other.schedules.create("fine", fine, every="1m", overlap="allow")
    events = Events(other)
    await turns(await ticker_of(other), 2 * MINUTE)
    assert await tick_times(app, "fine") == [MINUTE, 2 * MINUTE]
    failed = events.named("schedule.failed")
    assert [one["schedule"] for one in failed] == ["s", "s"]
    assert "work()" in failed[0]["error"]
    assert events.skipped == {"invalid": 2}
    schedule = await app.schedules.get("s")
    assert (schedule.run_count, schedule.skipped_count) == (0, 2)
    assert schedule.state == "active", "it runs again when its arguments fit"


@virtual
async def test_a_type_that_raises_anything(app: App) -> None:
    """The validator of a user's type must not stop the schedules of others."""
    work, is_strict = sleeping_task(app, Runs()), False

    class Place(msgspec.Struct):
        x: int

        def __post_init__(self) -> None:
            if is_strict:
                raise KeyError(self.x)

    @app.task(name="go")
    async def go(place: Place) -> None: ...

    await app.schedules.create("odd", go, args=(Place(1),), every="1m")
    await app.schedules.create("fine", work, every="1m")
    is_strict = True
    events = Events(app)
    await turns(await ticker_of(app), MINUTE)
    assert await tick_times(app, "fine") == [MINUTE]
    (failed,) = events.named("schedule.failed")
    assert "KeyError" in failed["error"]
    assert events.skipped == {"invalid": 1}


@virtual
async def test_a_task_that_no_code_has(app: App) -> None:
    """The tick makes its job, which waits for a worker that has the task."""
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    other = with_other_code(app)
    sleeping_task(other, Runs(), name="another")
    await turns(await ticker_of(other), MINUTE)
    (job,) = await tick_jobs(app, "s")
    assert job.job.task == "app.work"


def damaged(body: bytes, what: str) -> bytes:
    return {
        "no JSON": b"\xff{",
        "another shape": b'{"definition": 1}',
        "no rule": body.replace(b'"every":60.0', b'"tz":"UTC"'),
        "two rules": body.replace(b'"every":60.0', b'"every":60.0,"at":5.0'),
        "an interval of 0": body.replace(b'"every":60.0', b'"every":0'),
        "cron of another version": body.replace(b'"every":60.0', b'"cron":"0 0 ? * *"'),
        "a zone that is not here": body.replace(
            b'"every":60.0', b'"every":60.0,"tz":"Mars/Olympus"'
        ),
    }[what]


@pytest.mark.parametrize(
    "what",
    [
        "no JSON",
        "another shape",
        "no rule",
        "two rules",
        "an interval of 0",
        "cron of another version",
        "a zone that is not here",
    ],
)
@virtual
async def test_a_damaged_record(app: App, what: str) -> None:
    """It is reported once a minute, and others go on."""
    work, events = sleeping_task(app, Runs()), Events(app)
    for name in ("s", "fine"):
        await app.schedules.create(name, work, every="1m", overlap="allow")
    sound = await record_of(app, "s")
    body = damaged(sound.body, what)
    assert body != sound.body
    await write(app, "s", body, sound.due_at or 0.0)
    ticker = await ticker_of(app)
    await turns(ticker, 2 * MINUTE)
    assert await tick_times(app, "fine") == [MINUTE, 2 * MINUTE]
    failed = events.named("schedule.failed")
    assert [one["schedule"] for one in failed] == ["s"] * 2
    assert "the record of the schedule 's' is damaged" in failed[0]["error"]
    assert (await record_of(app, "s")).body == body
    # A scheduler that understands the record goes on with it.
    await write(app, "s", sound.body, app.clock.now())
    await ticker.turn()
    assert len(await tick_jobs(app, "s")) == 1


@virtual
async def test_a_record_that_becomes_too_large(app: App) -> None:
    """It is reported, and others go on, also those of the same commit."""
    work, events = sleeping_task(app, Runs()), Events(app)
    for name in ("a", "large", "z"):
        await app.schedules.create(name, work, every="1m")
    known = await body_of(app, "large")

    def of_size(spare: int) -> bytes:
        code = replace(known.definition, link={"task": "x" * spare})
        return msgspec.json.encode(replace(known, code=code))

    largest = of_size(RECORD_BYTES_MAX - len(of_size(0)))
    await write(app, "large", largest, known.next_at or 0.0)
    await turns(await ticker_of(app), MINUTE)
    assert await tick_times(app, "a") == await tick_times(app, "z") == [MINUTE]
    assert await tick_times(app, "large") == []
    (failed,) = events.named("schedule.failed")
    assert failed["schedule"] == "large"


@virtual
async def test_a_store_that_fails_while_a_job_is_made_skips_no_tick(app: App) -> None:
    """The scheduler asks it for the task, which its own code does not have."""
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    other, store = with_other_code(app), await faulty(app)
    ticker = await ticker_of(other)
    (pid,) = other.state.stores
    other.state.stores[pid] = store
    await until(app, MINUTE)
    store.fail("list_records")
    with pytest.raises(StoreUnavailable):
        await ticker.turn()
    await ticker.turn()
    assert await tick_times(app, "s") == [MINUTE]
    assert (await app.schedules.get("s")).skipped_count == 0


# --- many rows


@virtual
async def test_a_hundred_late_ticks_of_a_plan_with_300_jobs(app: App) -> None:
    """A commit has room for three of them: the others follow, each once."""

    @app.task(name="leaf")
    async def leaf(n: int) -> None: ...

    await app.schedules.create(
        "s",
        group(leaf.s(n) for n in range(300)),
        every="1m",
        catchup="all",
        overlap="allow",
    )
    store = await faulty(app)
    ticker = await ticker_of(app, store)
    await until(app, 100 * MINUTE)
    for turn in range(1, 34):
        assert await ticker.turn() == 0.0, "the others follow at once"
        assert (await app.schedules.get("s")).waiting == 100 - 3 * turn
    await ticker.turn()
    known = await body_of(app, "s")
    assert (known.run_count, known.skipped_count, known.waiting) == (100, 0, ())
    commits = [call for call in store.calls if call.method == "commit"]
    assert max(len(call.args[0].jobs) for call in commits) == 903


@virtual
async def test_large_plans_of_several_schedules(app: App) -> None:
    """Those that are due together are written in as many commits as they need."""

    @app.task(name="leaf")
    async def leaf(n: int) -> None: ...

    names = ["a", "b", "c", "d"]
    for name in names:
        plan = group(leaf.s(n) for n in range(300))
        await app.schedules.create(name, plan, every="1m")
    store = await faulty(app)
    await until(app, MINUTE)
    await (await ticker_of(app, store)).turn()
    assert [(await app.schedules.get(name)).run_count for name in names] == [1] * 4
    commits = [call for call in store.calls if call.method == "commit"]
    assert [len(call.args[0].jobs) for call in commits] == [903, 301]


@virtual
async def test_more_schedules_than_one_commit_or_turn_takes(app: App) -> None:
    work = sleeping_task(app, Runs())
    names = [f"s{n:03}" for n in range(450)]
    for name in names:
        await app.schedules.create(name, work, every="1h")
    ticker = await ticker_of(app)
    await until(app, 60 * MINUTE)
    pauses = [await ticker.turn() for _ in range(3)]
    assert pauses[:2] == [0.0, 0.0]
    assert pauses[2] > 0
    assert await app.jobs(task="work").count() == 450


# --- job ids


@virtual
async def test_job_ids_have_the_present_as_their_time(app: App) -> None:
    """Late ticks do not overtake jobs that wait."""
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="1m", catchup="all", overlap="allow")
    await until(app, 10 * MINUTE)
    waiting = await work.enqueue()
    await (await ticker_of(app)).turn()
    made = await tick_jobs(app, "s")
    ids = [job.id for job in made]
    assert ids == sorted(ids), "in the order of their ticks"
    assert waiting.id < ids[0]
    for number, text in enumerate(ids):
        assert id_made_at(id_bytes(text)) == app.clock.now() + number / 1000


@virtual
async def test_job_ids_differ_by_schedule_and_due_time(app: App) -> None:
    work = sleeping_task(app, Runs())
    for name in ("a", "b"):
        await app.schedules.create(name, work, every="1m", overlap="allow")
    await turns(await ticker_of(app), 5 * MINUTE)
    ids = {job.id for name in ("a", "b") for job in await tick_jobs(app, name)}
    assert len(ids) == 10
    tails = {text[14:] for text in ids}
    assert len(tails) == 10, "not only by their time"


@virtual
async def test_a_scheduler_without_schedules_waits(app: App) -> None:
    ticker = await ticker_of(app)
    assert await ticker.turn() == 1.0
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    assert await ticker.turn() == 1.0
    await until(app, MINUTE - 0.25)
    assert await ticker.turn() == 0.25
    assert await records(app) == []
