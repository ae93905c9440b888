"""`app.schedules`: what people read, change and leave behind."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from durio import App, Cron
from durio.client.schedule_view import first_task
from durio.errors import InvalidSchedule, ScheduleConflict
from durio.model.effects import Effects, Put
from durio.model.schedule import schedules_kind
from durio.plans import chain, group
from tests.faults.faulty_store import FaultyStore
from tests.schedules.schedule_harness import (
    DAY,
    HOUR,
    MINUTE,
    Events,
    Runs,
    at,
    offset,
    record_of,
    sleeping_task,
    tick_times,
    ticker_of,
    turns,
    until,
)
from tests.unit.app.app_harness import virtual, working


async def rewrite(app: App, name: str, body: bytes) -> None:
    put = Put(schedules_kind(app.name), name, body, due_at=app.clock.now())
    await (await app.store()).commit(Effects(puts=[put]))


async def audited(app: App) -> list[tuple[str, str]]:
    lines = await (await app.store()).audit(app.name, limit=50)
    return [(line.verb, line.target) for line in reversed(lines)]


# --- reading


@virtual
async def test_a_schedule_as_a_value(app: App) -> None:
    work = sleeping_task(app, Runs())
    made = await app.schedules.create(
        "s", work, args=(5,), cron="0 9 * * *", tz="Asia/Tokyo", max_runs=3
    )
    schedule = await app.schedules.get("s")
    assert schedule == made
    assert (schedule.name, schedule.state, schedule.task) == ("s", "active", "app.work")
    assert (schedule.cron, schedule.every, schedule.at) == ("0 9 * * *", None, None)
    assert schedule.rule == "At 09:00 every day (Asia/Tokyo)"
    assert schedule.link == {"task": "app.work", "args": [5], "kwargs": {}}
    assert (schedule.origin, schedule.code, schedule.note) == ("manual", None, None)
    assert schedule.next_at == datetime(2027, 1, 16, 0, tzinfo=UTC)
    shown = schedule.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["next_at"], shown["tz"]) == ("2027-01-16T00:00:00Z", "Asia/Tokyo")


@pytest.mark.proves("L40")
@virtual
async def test_lists_are_in_the_order_of_names(app: App) -> None:
    work = sleeping_task(app, Runs())
    for name in ("user:2", "b", "user:10", "a", "user"):
        await app.schedules.create(name, work, every="5m")
    names = [schedule.name for schedule in await app.schedules.list()]
    assert names == ["a", "b", "user", "user:10", "user:2"]
    found = [schedule.name for schedule in await app.schedules.list("user:")]
    assert found == ["user:10", "user:2"]
    assert await app.schedules.list("zebra") == []


@virtual
async def test_a_list_of_more_than_a_page(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="5m")
    body = (await record_of(app, "s")).body
    for first in (0, 600):
        kind, names = schedules_kind(app.name), range(first, first + 600)
        puts = [Put(kind, f"s{n:04}", body) for n in names]
        await (await app.store()).commit(Effects(puts=puts))
    names = [schedule.name for schedule in await app.schedules.list("s0")]
    assert names == [f"s{n:04}" for n in range(1000)]


@virtual
async def test_a_damaged_schedule_does_not_hide_others(app: App) -> None:
    events, work = Events(app), sleeping_task(app, Runs())
    for name in ("a", "b", "c"):
        await app.schedules.create(name, work, every="5m")
    await rewrite(app, "b", b"{")
    assert [schedule.name for schedule in await app.schedules.list()] == ["a", "c"]
    (failed,) = events.named("schedule.failed")
    assert failed["schedule"] == "b"
    with pytest.raises(InvalidSchedule, match="Delete the schedule"):
        await app.schedules.get("b")
    with pytest.raises(InvalidSchedule, match="damaged"):
        await app.schedules.create("b", work, every="5m")
    await app.schedules.delete("b")
    await app.schedules.create("b", work, every="5m")


@pytest.mark.proves("M163")
@pytest.mark.parametrize(
    ("rule", "minutes"),
    [
        ({"every": "10s"}, 1),
        ({"every": "5m"}, 5),
        ({"cron": "0 9 * * MON"}, 24 * 60),
        ({"at": at(10)}, 1),
    ],
)
@virtual
async def test_a_schedule_that_was_not_handled_is_missed(
    app: App, rule: dict[str, Any], minutes: float
) -> None:
    """After one interval, but not before a minute, and at the latest after a day."""
    made = await app.schedules.create("s", sleeping_task(app, Runs()), **rule)
    due = offset(made.next_at)
    await until(app, due + minutes * MINUTE)
    assert (await app.schedules.get("s")).state == "active"
    await until(app, due + minutes * MINUTE + 1)
    assert (await app.schedules.get("s")).state == "missed"
    await (await ticker_of(app)).turn()
    assert (await app.schedules.get("s")).state in {"active", "ended"}


@virtual
async def test_a_paused_schedule_is_not_missed(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="5m")
    await app.schedules.pause("s")
    await until(app, DAY)
    assert (await app.schedules.get("s")).state == "paused"


@virtual
async def test_the_note_says_who_paused_it_and_why(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="5m")
    app.schedules.by = "ann"
    paused = await app.schedules.pause("s", "x" * 300)
    assert paused.note == f"paused by ann at 2027-01-15 08:00:00+00:00: {'x' * 197}..."
    await app.schedules.resume("s")
    assert (await app.schedules.pause("s")).note == (
        "paused by ann at 2027-01-15 08:00:00+00:00"
    )


@virtual
async def test_previews(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, cron="30 2 * * *", tz="Europe/Paris")
    await app.schedules.create("d", work, every="5m", fixed_delay=True)
    first, second = await app.schedules.preview("s", 2)
    assert first.at.isoformat() == "2027-01-16T02:30:00+01:00"
    assert second.note is None
    (change,) = await app.schedules.preview(
        "s", 1, datetime(2027, 3, 27, 3, tzinfo=UTC)
    )
    assert change.at.isoformat() == "2027-03-28T03:00:00+02:00"
    assert change.note is not None
    assert len(await app.schedules.preview("s")) == 10
    # Later ticks depend on the ends of runs.
    assert [run.at for run in await app.schedules.preview("d")] == [at(300)]
    await app.schedules.create("three", work, every="5m", max_runs=3)
    assert len(await app.schedules.preview("three", 5)) == 3
    await app.schedules.run("three")
    assert len(await app.schedules.preview("three", 5)) == 2
    await app.schedules.create("once", work, at=at(300))
    assert len(await app.schedules.preview("once", 5)) == 1
    assert await app.schedules.preview("d", after=at(300)) == []
    await turns(await ticker_of(app), 300)
    assert await app.schedules.preview("d") == []
    assert await app.schedules.preview("once") == [], "it is over"


def test_the_first_task_of_a_plan() -> None:
    plan = {"chain": [{"group": [{"task": "shop.a"}, {"task": "shop.b"}]}]}
    assert first_task(plan) == "shop.a"
    assert first_task({"group": []}) == "?"


# --- writing


@virtual
async def test_changes_are_audited(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, cron="0 * * * *")
    await app.schedules.change("s", overlap="allow")
    await app.schedules.change("s", overlap="allow")  # changes nothing
    await app.schedules.pause("s", "maintenance")
    await app.schedules.resume("s")
    await app.schedules.run("s")
    backfill = await app.schedules.backfill("s", at(-2 * HOUR), at(0))
    await app.schedules.cancel_backfill(backfill.id)
    await app.schedules.delete("s")
    assert await audited(app) == [
        ("create", "schedule s"),
        ("change", "schedule s"),
        ("pause: maintenance", "schedule s"),
        ("resume", "schedule s"),
        ("run", "schedule s"),
        ("backfill 2 ticks", "schedule s"),
        ("cancel", f"backfill {backfill.id}"),
        ("delete", "schedule s"),
    ]


@virtual
async def test_ticks_and_starts_of_workers_are_not_audited(app: App) -> None:
    app.schedules.declare("s", sleeping_task(app, Runs()), every="5s")
    async with working(app):
        await until(app, 12)
    assert await audited(app) == []


@virtual
async def test_a_change_keeps_what_it_does_not_name(app: App) -> None:
    work = sleeping_task(app, Runs())
    before = await app.schedules.create(
        "s",
        work.options(queue="low").s(5.0),
        cron="0 9 * * *",
        tz="Asia/Tokyo",
        exclude=["2030-12-25"],
        jitter="5m",
    )
    after = await app.schedules.change("s", cron="0 10 * * *")
    assert after.rule == "At 10:00 every day (Asia/Tokyo), except on 2030-12-25"
    assert (after.jitter, after.link) == (before.jitter, before.link)
    after = await app.schedules.change("s", args=(7.0,))
    assert after.link["args"] == [7.0]
    assert after.link["options"] == before.link["options"]
    assert after.cron == "0 10 * * *"


@virtual
async def test_a_change_of_the_interval_keeps_the_fixed_delay(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="5m", fixed_delay=True)
    assert (await app.schedules.change("s", every="10m")).fixed_delay
    assert not (await app.schedules.change("s", cron="0 9 * * *")).fixed_delay
    assert not (await app.schedules.change("s", every="10m")).fixed_delay


@virtual
async def test_a_change_to_a_cron_of_another_zone(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, cron="0 9 * * *", tz="Asia/Tokyo")
    after = await app.schedules.change("s", cron=Cron("0 9 * * *", tz="Europe/Paris"))
    assert after.tz == "Europe/Paris"


@virtual
async def test_an_ended_schedule_can_be_changed(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, at=at(5))
    await turns(await ticker_of(app), 10)
    assert (await app.schedules.change("s", overlap="allow")).state == "ended"
    again = await app.schedules.change("s", at=at(20))
    assert (again.state, again.next_at) == ("active", at(20))
    await turns(await ticker_of(app), 20)
    assert await tick_times(app, "s") == [5, 20]


@virtual
async def test_a_deleted_schedule_leaves_its_jobs(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    await turns(await ticker_of(app), MINUTE)
    await app.schedules.delete("s")
    assert await app.schedules.list() == []
    assert await tick_times(app, "s") == [MINUTE]


def use_store(app: App, store: Any) -> None:
    (pid,) = app.state.stores
    app.state.stores[pid] = store


@virtual
async def test_a_change_that_a_tick_overtakes_is_repeated(app: App) -> None:
    """Both count: the change by people, and the tick meanwhile."""
    work = sleeping_task(app, Runs())
    await app.schedules.create("s", work, every="1m", overlap="allow")
    await until(app, MINUTE)
    ticker = await ticker_of(app)
    slow: Any = FaultyStore(await app.store(), app.clock)
    slow.slow("commit", seconds=1.0, times=1)
    use_store(app, slow)
    async with asyncio.TaskGroup() as tasks:
        change = tasks.create_task(app.schedules.change("s", max_runs=9))
        await app.clock.sleep(0.5)
        await ticker.turn()
    schedule = await app.schedules.get("s")
    assert change.result() == schedule
    assert (schedule.max_runs, schedule.run_count) == (9, 1)


class OvertakingStore(FaultyStore):
    """A store in which others write each record just before anybody else does."""

    async def commit(self, effects: Effects, **options: Any) -> Any:
        for put in effects.puts:
            for record in await self.store.records(put.kind, [put.name]):
                same = Put(put.kind, put.name, record.body)
                await self.store.commit(Effects(puts=[same]))
        return await self.store.commit(effects, **options)


@virtual
async def test_a_change_that_others_overtake_for_ever(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    use_store(app, OvertakingStore(await app.store(), app.clock))
    for call in (app.schedules.pause("s"), app.schedules.run("s")):
        with pytest.raises(ScheduleConflict, match="by others again and again"):
            await call
    assert await app.jobs().count() == 0
    assert (await app.schedules.get("s")).state == "active"


@virtual
async def test_plans_and_names_of_tasks(app: App) -> None:
    work = sleeping_task(app, Runs())
    await app.schedules.create("name", "work", args=(1.0,), every="5m")
    await app.schedules.create("full", "app.work", args=(1.0,), every="5m")
    await app.schedules.create("signature", work.s(1.0), every="5m")
    plan = chain(group(work.si(1.0), work.si(2.0)), work.si(3.0))
    await app.schedules.create("plan", plan, every="5m")
    await app.schedules.create("task", work, kwargs={"seconds": 1.0}, every="5m")
    tasks = {schedule.name: schedule.task for schedule in await app.schedules.list()}
    assert set(tasks.values()) == {"app.work"}
    assert [s.name for s in await app.schedules.list() if s.is_plan] == ["plan"]
    async with working(app):
        for name in tasks:
            await (await app.schedules.run(name)).result()
