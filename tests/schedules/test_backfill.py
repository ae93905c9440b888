"""Backfills: ticks of a time in the past, made again, a few at a time."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from durio import App, Context
from durio.client.tick_maker import ClientTickMaker
from durio.errors import InvalidSchedule, ScheduleNotFound, StoreUnavailable
from durio.maintenance.backfills import BackfillKeeper
from durio.model.backfill import backfills_kind
from durio.model.effects import Effects, Put
from durio.plans import group
from durio.ports.control import AuditNote, QueueChange
from tests.faults.faulty_store import FaultyStore
from tests.schedules.schedule_harness import (
    HOUR,
    MINUTE,
    Events,
    Runs,
    at,
    offset,
    sleeping_task,
    tick_jobs,
    tick_times,
    until,
)
from tests.unit.app.app_harness import MEMORY, records, virtual, working


async def keeper(app: App, store: Any = None) -> BackfillKeeper:
    used = store or await app.store()
    return BackfillKeeper(used, app.clock, app.emit, app.name, ClientTickMaker(app))


async def step(app: App, keeping: BackfillKeeper, seconds: float = 0.0) -> None:
    """Let the leader look, and wait until it looks again."""
    await app.clock.sleep(max(seconds, await keeping.turn()))


async def hourly(app: App, runs: Runs, **choices: Any) -> None:
    """A schedule at every full hour that has not run; it is 10 hours old."""
    work = sleeping_task(app, runs)
    rule: dict[str, Any] = {"cron": "0 * * * *", **choices}
    await app.schedules.create("s", work, **rule)
    await app.schedules.pause("s")
    await until(app, 10.5 * HOUR)


@virtual
async def test_each_due_time_makes_one_job(app: App) -> None:
    """From the first time to before the second one."""
    runs = Runs()
    await hourly(app, runs)
    backfill = await app.schedules.backfill("s", at(2 * HOUR), at(6 * HOUR))
    assert (backfill.total, backfill.made, backfill.is_over) == (4, 0, False)
    async with working(app):
        await app.clock.sleep(10)
        (after,) = await app.schedules.backfills()
    assert sorted(runs.dues) == [2 * HOUR, 3 * HOUR, 4 * HOUR, 5 * HOUR]
    assert (after.total, after.made, after.failed, after.is_over) == (4, 4, 0, True)
    assert (after.id, after.schedule) == (backfill.id, "s")


@virtual
async def test_jobs_know_their_backfill(app: App) -> None:
    seen = list[Any]()

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        seen.append(ctx.tick)

    await app.schedules.create("s", work, every="1h")
    await until(app, 3 * HOUR + 1)
    await app.schedules.pause("s")
    await app.schedules.backfill("s", at(0), at(2 * HOUR))
    async with working(app):
        await app.clock.sleep(5)
    assert [tick.is_backfill for tick in seen] == [True, True]
    assert [offset(tick.due_at) for tick in seen] == [0, HOUR]


@pytest.mark.parametrize("at_a_time", [1, 2, 5])
@virtual
async def test_at_most_so_many_at_a_time(app: App, at_a_time: int) -> None:
    runs = Runs()
    await hourly(app, runs)
    await app.schedules.change("s", "work", args=(3.0,))
    await app.schedules.backfill("s", at(HOUR), at(10 * HOUR), at_a_time=at_a_time)
    async with working(app):
        await app.clock.sleep(60)
    assert runs.peak == at_a_time
    assert sorted(runs.dues) == [n * HOUR for n in range(1, 10)]


@virtual
async def test_ticks_that_ran_are_repeated(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, every="10s", max_runs=2)
    async with working(app):
        await until(app, 30)
        await app.schedules.backfill("s", at(10), at(21))
        await app.clock.sleep(5)
        await app.schedules.backfill("s", at(10), at(21))
        await app.clock.sleep(5)
        schedule = await app.schedules.get("s")
    assert sorted(runs.dues) == [10] * 3 + [20] * 3
    assert schedule.run_count == 2, "a backfill is beside the schedule"
    ids = [job.id for job in await tick_jobs(app, "s")]
    assert len(set(ids)) == 6


@virtual
async def test_a_preview_makes_nothing(app: App) -> None:
    await hourly(app, Runs())
    preview = await app.schedules.backfill(
        "s", at(2 * HOUR), at(6 * HOUR), at_a_time=3, dry_run=True
    )
    assert (preview.id, preview.total, preview.at_a_time) == ("", 4, 3)
    assert (preview.first_at, preview.until) == (at(2 * HOUR), at(6 * HOUR))
    assert await app.schedules.backfills() == []
    assert preview.to_dict()["first_at"] == "2027-01-15T10:00:00Z"
    await (await keeper(app)).turn()
    assert await records(app) == []


@virtual
async def test_a_backfill_may_be_as_large_as_its_bound(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1s", start=at(1))
    await until(app, 20_000)
    whole = await app.schedules.backfill("s", at(1), at(10_001), dry_run=True)
    assert whole.total == 10_000
    with pytest.raises(InvalidSchedule, match="more than 10,000 ticks"):
        await app.schedules.backfill("s", at(1), at(10_002), dry_run=True)
    assert await app.schedules.backfills() == []


@virtual
async def test_a_cancelled_backfill_makes_no_more_jobs(app: App) -> None:
    """Its jobs go on."""
    runs = Runs()
    await hourly(app, runs)
    await app.schedules.change("s", "work", args=(10.0,))
    backfill = await app.schedules.backfill("s", at(HOUR), at(9 * HOUR), at_a_time=2)
    async with working(app):
        await app.clock.sleep(5)
        await app.schedules.cancel_backfill(backfill.id)
        await app.clock.sleep(30)
        assert await app.schedules.backfills() == []
        with pytest.raises(ScheduleNotFound, match=backfill.id):
            await app.schedules.cancel_backfill(backfill.id)
    assert sorted(runs.dues) == [HOUR, 2 * HOUR]  # both end at the same moment
    assert await app.jobs(state="done").count() == 2


@virtual
async def test_a_backfill_goes_on_without_its_schedule(app: App) -> None:
    """It keeps the rule and the arguments of its begin; people cancel it by its id."""
    runs = Runs()
    await hourly(app, runs)
    await app.schedules.change("s", "work", args=(1.0,))
    await app.schedules.backfill("s", at(HOUR), at(5 * HOUR), at_a_time=1)
    async with working(app):
        await app.clock.sleep(2)
        await app.schedules.delete("s")
        await app.clock.sleep(20)
        (backfill,) = await app.schedules.backfills()
    assert backfill.is_over
    assert runs.dues == [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]


@virtual
async def test_a_backfill_waits_for_a_closed_queue(app: App) -> None:
    """It is reported every ten seconds, and goes on when the queue takes jobs again."""
    events = Events(app)
    await hourly(app, Runs())
    store, lane = await app.store(), f"{app.name}:default"
    await store.set_queue(lane, QueueChange(closed=True), AuditNote(who="ann"))
    backfill = await app.schedules.backfill("s", at(HOUR), at(4 * HOUR))
    keeping, started = await keeper(app), app.clock.now()
    while app.clock.now() < started + 25:
        await step(app, keeping)
    failed = events.named("schedule.failed")
    assert len(failed) == 3
    assert failed[0]["schedule"] == "s"
    assert backfill.id in failed[0]["error"]
    assert "full app:default" in failed[0]["error"]
    assert await records(app) == []
    await store.set_queue(lane, QueueChange(closed=False), AuditNote(who="ann"))
    await app.clock.sleep(10)
    await keeping.turn()
    assert await tick_times(app, "s") == [HOUR, 2 * HOUR, 3 * HOUR]


@virtual
async def test_arguments_that_no_longer_fit(app: App) -> None:
    """Each tick is counted as failed, and the backfill comes to its end."""
    await hourly(app, Runs())
    other = App(MEMORY, name=app.name, settings=app.settings)
    other.state = app.state

    @other.task(name="work")
    async def work(minutes: int) -> None: ...

    events = Events(other)
    await app.schedules.backfill("s", at(HOUR), at(4 * HOUR))
    await (await keeper(other)).turn()
    (backfill,) = await app.schedules.backfills()
    assert (backfill.made, backfill.failed, backfill.is_over) == (0, 3, True)
    assert [one["schedule"] for one in events.named("schedule.failed")] == ["s"] * 3
    assert await records(app) == []


@virtual
async def test_two_leaders_make_each_due_time_once(app: App) -> None:
    """One is late, and has read what the other one has written meanwhile."""
    await hourly(app, Runs())
    await app.schedules.backfill("s", at(HOUR), at(9 * HOUR), at_a_time=2)
    slow: Any = FaultyStore(await app.store(), app.clock)
    slow.slow("commit", seconds=5.0, times=1)
    late, other = await keeper(app, slow), await keeper(app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(late.turn())
        await app.clock.sleep(1)
        await other.turn()
    assert await tick_times(app, "s") == [HOUR, 2 * HOUR]
    (backfill,) = await app.schedules.backfills()
    assert backfill.made == 2


@virtual
async def test_a_lost_reply_makes_no_second_job(app: App) -> None:
    await hourly(app, Runs())
    await app.schedules.backfill("s", at(HOUR), at(4 * HOUR))
    faulty: Any = FaultyStore(await app.store(), app.clock)
    keeping = await keeper(app, faulty)
    faulty.lose_reply("commit")
    with pytest.raises(StoreUnavailable):
        await keeping.turn()
    for _ in range(5):
        await step(app, keeping)
    assert await tick_times(app, "s") == [HOUR, 2 * HOUR, 3 * HOUR]


@virtual
async def test_a_store_that_fails_while_a_job_is_made(app: App) -> None:
    """Nothing is counted as failed: the next look makes the job."""
    await hourly(app, Runs())
    await app.schedules.backfill("s", at(HOUR), at(3 * HOUR))
    other = App(MEMORY, name=app.name, settings=app.settings)
    other.state = app.state
    store: Any = FaultyStore(await app.store(), app.clock)
    keeping = await keeper(other)
    (pid,) = other.state.stores
    other.state.stores[pid] = store
    store.fail("list_records")
    with pytest.raises(StoreUnavailable):
        await keeping.turn()
    await keeping.turn()
    (backfill,) = await app.schedules.backfills()
    assert (backfill.made, backfill.failed) == (2, 0)


@virtual
async def test_backfill_of_a_large_plan(app: App) -> None:
    """More rows than a commit takes: the rest follows."""

    @app.task(name="leaf")
    async def leaf(n: int) -> None: ...

    plan = group(leaf.s(n) for n in range(300))
    await app.schedules.create("s", plan, every="1h", start=at(HOUR))
    await until(app, 9 * HOUR)
    await app.schedules.pause("s")
    await app.schedules.backfill("s", at(HOUR), at(6 * HOUR))
    keeping = await keeper(app)
    await keeping.turn()
    (backfill,) = await app.schedules.backfills()
    assert (backfill.made, backfill.is_over) == (3, False)
    await app.clock.sleep(1)
    await keeping.turn()
    (backfill,) = await app.schedules.backfills()
    assert (backfill.made, backfill.is_over) == (5, True)


@virtual
async def test_a_damaged_backfill(app: App) -> None:
    """It is reported, others go on, and people can cancel it."""
    events = Events(app)
    await hourly(app, Runs())
    name = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
    put = Put(backfills_kind(app.name), name, b"{", due_at=app.clock.now())
    await (await app.store()).commit(Effects(puts=[put]))
    await app.schedules.backfill("s", at(HOUR), at(3 * HOUR))
    await (await keeper(app)).turn()
    assert await tick_times(app, "s") == [HOUR, 2 * HOUR]
    (failed,) = events.named("schedule.failed")
    assert f"the record of the backfill {name} is damaged" in failed["error"]
    await app.schedules.cancel_backfill(name)
    assert len(await app.schedules.backfills()) == 1


@virtual
async def test_a_backfill_over_excluded_dates_and_daylight_saving(app: App) -> None:
    """It makes the ticks that the schedule has: on 28 March clocks go forward in Paris."""
    await app.schedules.create(
        "s",
        sleeping_task(app, Runs()),
        cron="30 2 * * *",
        tz="Europe/Paris",
        exclude=["2027-03-26"],
    )
    await app.schedules.pause("s")
    begin = (await app.schedules.preview("s", 80))[65].at
    assert begin.isoformat() == "2027-03-22T02:30:00+01:00"
    await until(app, offset(begin) + 14 * 24 * HOUR)
    backfill = await app.schedules.backfill("s", begin, begin.replace(day=31))
    assert backfill.total == 8
    await (await keeper(app)).turn()
    minutes = [time / MINUTE for time in await tick_times(app, "s")]
    gaps = [after - before for before, after in pairwise(minutes)]
    day = 24 * 60
    assert gaps == [day, day, day, 2 * day, day - 30, day - 30, day]


@virtual
async def test_a_leader_without_backfills_waits(app: App) -> None:
    keeping = await keeper(app)
    assert await keeping.turn() == 1.0
