"""The choices of a schedule, through a whole App: bounds, delays, pauses, runs by people."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durio import App, Cancel, Context, Permanent
from durio.errors import ScheduleConflict
from durio.model.ids import id_text
from durio.ports.control import AuditNote, QueueChange
from tests.schedules.schedule_harness import (
    HOUR,
    MINUTE,
    Events,
    Runs,
    at,
    body_of,
    offset,
    sleeping_task,
    tick_jobs,
    tick_times,
    ticker_of,
    turns,
    until,
)
from tests.unit.app.app_harness import records, virtual, working

# --- when


@virtual
async def test_max_runs_ends_a_schedule(app: App) -> None:
    runs = Runs()
    await app.schedules.create("s", sleeping_task(app, runs), every="5s", max_runs=2)
    async with working(app):
        await until(app, 30)
        schedule = await app.schedules.get("s")
    assert runs.dues == [5, 10]
    assert (schedule.state, schedule.next_at) == ("ended", None)
    assert (schedule.run_count, schedule.skipped_count) == (2, 0)


@pytest.mark.parametrize("fixed_delay", [True, False])
@virtual
async def test_more_max_runs_let_it_go_on(app: App, *, fixed_delay: bool) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, every="5s", max_runs=1, fixed_delay=fixed_delay
    )
    async with working(app):
        await until(app, 21)
        assert (await app.schedules.get("s")).state == "ended"
        await app.schedules.change("s", max_runs=2)
        await until(app, 40)
        assert (await app.schedules.get("s")).state == "ended"
    assert runs.dues == ([5, 26] if fixed_delay else [5, 25])


@virtual
async def test_skipped_ticks_do_not_count_for_max_runs(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, args=(7.0,), every="5s", max_runs=3)
    async with working(app):
        await until(app, 60)
        schedule = await app.schedules.get("s")
    assert runs.dues == [5, 15, 25]
    assert (schedule.run_count, schedule.skipped_count) == (3, 2)


@pytest.mark.parametrize("overlap", ["queue_all", "allow"])
@virtual
async def test_max_runs_bounds_late_ticks(app: App, overlap: Any) -> None:
    events = Events(app)
    work = sleeping_task(app, Runs())
    choices: dict[str, Any] = {"catchup": "all", "overlap": overlap, "max_runs": 3}
    await app.schedules.create("s", work, every="1m", **choices)
    await until(app, 5 * MINUTE)
    async with working(app):
        await until(app, 6 * MINUTE)
        schedule = await app.schedules.get("s")
    assert await tick_times(app, "s") == [60, 120, 180]
    assert (schedule.state, schedule.skipped_count) == ("ended", 2)
    assert events.skipped == {"max_runs": 2}


@virtual
async def test_a_schedule_runs_from_start_to_end(app: App) -> None:
    """Ticks at exactly these times count."""
    work = sleeping_task(app, Runs())
    choices: dict[str, Any] = {"start": at(HOUR), "end": at(HOUR + 40)}
    for name, rule in {"e": {"every": "20s"}, "c": {"cron": "*/20 * * * * *"}}.items():
        await app.schedules.create(name, work, overlap="allow", **rule, **choices)
        assert (await app.schedules.get(name)).next_at == at(HOUR)
    await until(app, HOUR - 1)
    await turns(await ticker_of(app), 2 * MINUTE)
    for name in ("e", "c"):
        assert await tick_times(app, name) == [HOUR, HOUR + 20, HOUR + 40]
        assert (await app.schedules.get(name)).state == "ended"


@virtual
async def test_a_fixed_delay_runs_from_start_to_end(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s",
        work,
        args=(3.0,),
        every="5s",
        fixed_delay=True,
        start=at(20),
        end=at(40),
    )
    async with working(app):
        await until(app, 60)
        assert (await app.schedules.get("s")).state == "ended"
    assert runs.dues == [20, 28, 36]


@virtual
async def test_excluded_dates_have_no_ticks(app: App) -> None:
    """The dates are those of the zone: 17 January in Auckland begins at 11:00 in UTC."""
    work = sleeping_task(app, Runs())
    rules = {"c": {"cron": "0 */6 * * *"}, "e": {"every": "6h", "start": at(3 * HOUR)}}
    for name, rule in rules.items():
        choices: dict[str, Any] = {"tz": "Pacific/Auckland", "exclude": ["2027-01-17"]}
        await app.schedules.create(name, work, overlap="allow", **rule, **choices)
    ticker = await ticker_of(app)
    for hours in range(3, 70, 3):
        await until(app, hours * HOUR)
        await ticker.turn()
    for name in rules:
        hours = [time / HOUR for time in await tick_times(app, name)]
        assert hours == [3, 9, 15, 21, 51, 57, 63, 69]
        assert (await app.schedules.get(name)).skipped_count == 0


@virtual
async def test_a_fixed_delay_waits_for_the_end_of_an_excluded_date(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, every="2h", fixed_delay=True, exclude=["2027-01-15"]
    )
    assert (await app.schedules.get("s")).next_at == at(16 * HOUR)


@pytest.mark.proves("M156")
@virtual
async def test_ticks_every_100_ms(app: App) -> None:
    """Each of them once and in time, though schedulers look at other things, too."""
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, every="100ms", max_runs=50)
    async with working(app):
        await until(app, 6)
        schedule = await app.schedules.get("s")
    assert (schedule.run_count, schedule.skipped_count) == (50, 0)
    assert [round(due or 0.0, 3) for due in runs.dues] == [
        round(0.1 * n, 3) for n in range(1, 51)
    ]
    assert all(run.start - (run.due or 0.0) < 0.05 for run in runs.seen)


@pytest.mark.proves("M156")
@pytest.mark.parametrize("seconds", [0.0, 3.0, 12.0])
@virtual
async def test_a_fixed_delay_counts_from_the_end_of_the_run(
    app: App, seconds: float
) -> None:
    """Also if runs are longer than the interval: none is skipped."""
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(seconds,), every="5s", fixed_delay=True, max_runs=3
    )
    async with working(app):
        await until(app, 70)
        schedule = await app.schedules.get("s")
    assert (schedule.state, schedule.skipped_count) == ("ended", 0)
    assert runs.dues == [5, 10 + seconds, 15 + 2 * seconds]
    for run in runs.seen:
        assert run.start == run.due, "a scheduler looks before the delay is over"


@virtual
async def test_a_fixed_delay_of_100_ms(app: App) -> None:
    """A scheduler looks as often as the delay is long."""
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(0.05,), every="100ms", fixed_delay=True, max_runs=20
    )
    async with working(app):
        await until(app, 6)
    assert len(runs.seen) == 20
    assert runs.seen[-1].end < 5
    for before, run in zip(runs.seen, runs.seen[1:], strict=False):
        assert run.due == pytest.approx(before.end + 0.1, abs=1e-3)
        assert run.start - (run.due or 0.0) < 0.11


@virtual(seed=3)
async def test_jitter_delays_the_job_and_not_the_tick(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, every="10s", jitter="4s", max_runs=8)
    async with working(app):
        await until(app, 90)
    assert runs.dues == [10.0 * n for n in range(1, 9)], "ctx.tick has the due time"
    delays = [run.start - (run.due or 0.0) for run in runs.seen]
    assert all(0 <= delay <= 4.1 for delay in delays)
    assert max(delays) - min(delays) > 1, "they are random"


@virtual(seed=3)
async def test_jitter_ends_before_a_tick_that_daylight_saving_moves(app: App) -> None:
    """In Paris, 01:55 and 03:00 are 5 minutes apart on 28 March, and else 65."""
    for number in range(8):
        await app.schedules.create(
            f"s{number}",
            sleeping_task(app, Runs(), f"work{number}"),
            cron="0,55 1,3 * * *",
            tz="Europe/Paris",
            jitter="50m",
        )
    await app.clock.sleep(
        datetime(2027, 3, 28, 0, 55, tzinfo=UTC).timestamp() - app.now()
    )
    await (await ticker_of(app)).turn()
    delays = [job.run_at - app.now() for job in await records(app)]
    assert len(delays) == 8
    assert all(0 <= delay < 5 * MINUTE for delay in delays)
    assert max(delays) - min(delays) > MINUTE, "they are random"


@virtual
async def test_a_one_shot_runs_once(app: App) -> None:
    runs = Runs()
    await app.schedules.create("s", sleeping_task(app, runs), at=at(7.5))
    async with working(app):
        await until(app, 20)
        schedule = await app.schedules.get("s")
    assert [(run.due, run.start) for run in runs.seen] == [(7.5, 7.5)]
    assert schedule.state == "ended"


@virtual
async def test_no_tick_without_a_schedule(app: App) -> None:
    runs = Runs()
    job = await sleeping_task(app, runs).enqueue()
    async with working(app):
        await job.result()
    assert runs.dues == [None]


@pytest.mark.proves("M154")
@virtual
async def test_ctx_tick(app: App) -> None:
    seen = list[Any]()

    @app.cron("*/5 * * * * *", name="often", tz="Asia/Tokyo")
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        seen.append(ctx.tick)

    async with working(app):
        await until(app, 6)
    (tick,) = seen
    assert (tick.schedule, tick.due_at, tick.is_backfill) == ("often", at(5), False)
    assert tick.due_at.utcoffset() == timedelta(0)


# --- pauses


@virtual
async def test_ticks_of_a_pause_are_not_made_up_for(app: App) -> None:
    work, events = sleeping_task(app, Runs()), Events(app)
    choices: dict[str, Any] = {"catchup": "all", "overlap": "allow"}
    await app.schedules.create("s", work, every="1m", **choices)
    ticker = await ticker_of(app)
    await turns(ticker, MINUTE)
    await app.schedules.pause("s", "maintenance")
    paused = await app.schedules.get("s")
    assert (paused.state, paused.next_at) == ("paused", None)
    await turns(ticker, 5.5 * MINUTE)
    await app.schedules.resume("s")
    await turns(ticker, MINUTE)
    assert await tick_times(app, "s") == [1 * MINUTE, 7 * MINUTE]
    assert not events.skipped


@virtual
async def test_pausing_twice_keeps_the_first_note(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    first = await app.schedules.pause("s", "maintenance")
    assert await app.schedules.pause("s", "again") == first
    assert (await app.schedules.resume("s")).note is None
    before = await app.schedules.get("s")
    assert await app.schedules.resume("s") == before


@pytest.mark.parametrize("end", ["dead", "cancelled", "done"])
@virtual
async def test_pause_on_failure(app: App, end: str) -> None:
    """A dead run pauses its schedule; a cancelled one has not failed."""
    events = Events(app)

    @app.task(name="work")
    async def work() -> None:
        if end == "dead":
            raise Permanent
        if end == "cancelled":
            raise Cancel

    await app.schedules.create("s", work, every="5s", pause_on_failure=True)
    async with working(app):
        await until(app, 13)
        schedule = await app.schedules.get("s")
    made = await tick_jobs(app, "s")
    if end != "dead":
        assert (schedule.state, len(made)) == ("active", 2)
        return
    assert (schedule.state, len(made)) == ("paused", 1)
    why = f"run {made[0].id} failed"
    assert schedule.note is not None
    assert schedule.note.startswith("paused by durio")
    assert schedule.note.endswith(why)
    assert events.named("schedule.paused") == [{"schedule": "s", "why": why}]


@pytest.mark.parametrize("fixed_delay", [True, False])
@virtual
async def test_ticks_that_find_a_failed_run_are_skipped(
    app: App, *, fixed_delay: bool
) -> None:
    """They are counted and logged; a fixed delay has none while it is paused."""
    events = Events(app)

    @app.task(name="work")
    async def work() -> None:
        raise Permanent

    await app.schedules.create(
        "s", work, every="5s", pause_on_failure=True, fixed_delay=fixed_delay
    )
    async with working(app):
        await until(app, 6)
    await until(app, 17)
    async with working(app):
        await until(app, 30)
        schedule = await app.schedules.get("s")
    lost = 0 if fixed_delay else len((10, 15))
    assert (schedule.state, schedule.run_count) == ("paused", 1)
    assert schedule.skipped_count == lost
    assert events.skipped == ({"paused": lost} if lost else {})


@pytest.mark.parametrize("fixed_delay", [True, False])
@virtual
async def test_it_goes_on_after_a_failure(app: App, *, fixed_delay: bool) -> None:
    fails = True

    @app.task(name="work")
    async def work() -> None:
        if fails:
            raise Permanent

    await app.schedules.create(
        "s", work, every="5s", pause_on_failure=True, fixed_delay=fixed_delay
    )
    async with working(app):
        await until(app, 22)
        assert (await app.schedules.get("s")).state == "paused"
        fails = False
        schedule = await app.schedules.resume("s")
        assert offset(schedule.next_at) == (27 if fixed_delay else 25)
        await until(app, 28)
        assert (await app.schedules.get("s")).run_count == 2


@virtual
async def test_pause_on_failure_with_overlapping_runs(app: App) -> None:
    """With `allow` runs are watched too, for their failures."""
    lengths = {5: 30.0, 10: 1.0}

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        assert ctx.tick is not None
        await app.clock.sleep(lengths[int(offset(ctx.tick.due_at))])
        raise Permanent

    await app.schedules.create(
        "s", work, every="5s", overlap="allow", pause_on_failure=True
    )
    async with working(app):
        await until(app, 20)
        schedule = await app.schedules.get("s")
        assert (schedule.state, schedule.run_count) == ("paused", 2)


@virtual
async def test_a_tick_that_waits_runs_after_a_resume(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(20.0,), every="5s", end=at(10), overlap="queue_one"
    )
    async with working(app):
        await until(app, 12)
        await app.schedules.pause("s")
        await until(app, 40)
        assert len(runs.seen) == 1
        await app.schedules.resume("s")
        await until(app, 70)
    assert runs.dues == [5, 10]


# --- runs by people


@virtual
async def test_run_makes_a_job_beside_the_rule(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, args=(1.0,), every="10s")
    async with working(app):
        await until(app, 3)
        job = await app.schedules.run("s")
        await job.result()
        await until(app, 12)
        schedule = await app.schedules.get("s")
    assert runs.dues == [3, 10], "the rule goes on"
    assert schedule.run_count == 2
    assert schedule.ticks[0].run == job.id
    assert offset(schedule.ticks[0].due_at) == 3


@virtual
async def test_run_counts_for_overlap(app: App) -> None:
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, args=(15.0,), every="10s", end=at(20))
    async with working(app):
        await until(app, 3)
        first = await app.schedules.run("s")
        await until(app, 12)
        with pytest.raises(ScheduleConflict, match=f"run {first.id} of the schedule"):
            await app.schedules.run("s")
        assert events.skipped == {"overlap": 1}, "the tick at 10 s"
        await app.schedules.run("s", force=True)
        await until(app, 40)
    assert runs.dues == [3, 12]
    assert runs.peak == 2, "people may force a second one"


@virtual
async def test_run_with_overlap_allowed(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, args=(9.0,), every="1h", overlap="allow")
    async with working(app):
        await app.schedules.run("s")
        await app.clock.sleep(1)
        await app.schedules.run("s")
        await until(app, 20)
    assert runs.peak == 2


@virtual
async def test_run_at_the_time_of_a_tick_is_another_job(app: App) -> None:
    """In a test time stands still: the tick and the run have the same due time."""
    await app.schedules.create(
        "s", sleeping_task(app, Runs()), every="1m", overlap="allow"
    )
    await until(app, MINUTE)
    await (await ticker_of(app)).turn()
    await app.schedules.run("s")
    await app.schedules.run("s")
    assert await tick_times(app, "s") == [MINUTE] * 3
    assert (await app.schedules.get("s")).run_count == 3


@virtual
async def test_run_of_a_paused_schedule(app: App) -> None:
    runs = Runs()
    await app.schedules.create("s", sleeping_task(app, runs), every="5s")
    await app.schedules.pause("s")
    async with working(app):
        await app.schedules.run("s")
        await until(app, 20)
        assert (await app.schedules.get("s")).state == "paused"
    assert runs.dues == [0]


@virtual
async def test_run_of_a_schedule_that_has_ended(app: App) -> None:
    """It is over again when the run has ended."""
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(2.0,), every="5s", fixed_delay=True, max_runs=1
    )
    async with working(app):
        await until(app, 10)
        assert (await app.schedules.get("s")).state == "ended"
        await app.schedules.run("s")
        await until(app, 30)
        schedule = await app.schedules.get("s")
    assert (schedule.state, schedule.run_count) == ("ended", 2)
    assert runs.dues == [5, 10]


@virtual
async def test_run_delays_the_tick_of_a_fixed_delay(app: App) -> None:
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(6.0,), every="10s", fixed_delay=True, max_runs=2
    )
    async with working(app):
        await until(app, 7)
        await app.schedules.run("s")
        await until(app, 30)
    assert events.skipped == {"overlap": 1}, "the tick at 10 s"
    assert runs.dues == [7, 23]


@virtual
async def test_run_may_be_the_last_one_of_max_runs(app: App) -> None:
    """The schedule has ended then, and has no next tick."""
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, every="10s", max_runs=2)
    async with working(app):
        await until(app, 12)
        await app.schedules.run("s")
        schedule = await app.schedules.get("s")
        assert (schedule.state, schedule.next_at) == ("ended", None)
        await until(app, 30)
    assert (runs.dues, events.skipped) == ([10, 12], {})


@virtual
async def test_run_in_place_of_ticks_that_wait(app: App) -> None:
    """A run takes the place of the newest tick that waits."""
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(60.0,), every="10s", overlap="queue_all", max_runs=3
    )
    async with working(app):
        await until(app, 32)
        assert (await app.schedules.get("s")).waiting == 2
        await app.schedules.run("s", force=True)
        schedule = await app.schedules.get("s")
        assert (schedule.waiting, schedule.next_at) == (1, None)
        await until(app, 200)
        assert (await app.schedules.get("s")).run_count == 3
    assert runs.dues == [10, 32, 20]
    assert events.skipped == {"max_runs": 1}


@virtual
async def test_run_into_a_closed_queue(app: App) -> None:
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1m")
    store = await app.store()
    lane, note = f"{app.name}:default", AuditNote(who="ann")
    await store.set_queue(lane, QueueChange(closed=True), note)
    with pytest.raises(ScheduleConflict, match="full app:default"):
        await app.schedules.run("s", force=True)
    assert await records(app) == []
    assert (await app.schedules.get("s")).run_count == 0


@virtual
async def test_runs_by_many_people_at_once(app: App) -> None:
    """Each of them makes a job or says that one goes on."""
    await app.schedules.create("s", sleeping_task(app, Runs()), every="1h")
    results = await asyncio.gather(
        *(app.schedules.run("s") for _ in range(5)), return_exceptions=True
    )
    made = [result for result in results if not isinstance(result, BaseException)]
    refused = [result for result in results if isinstance(result, ScheduleConflict)]
    assert (len(made), len(refused)) == (1, 4)
    assert [id_text(job.id) for job in await records(app)] == [made[0].id]


# --- changes


@virtual
async def test_a_changed_rule_drops_ticks_that_wait(app: App) -> None:
    """They are ticks of the old rule; they are counted, and logged."""
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    await app.schedules.create("s", work, args=(60.0,), every="5s", overlap="queue_all")
    async with working(app):
        await until(app, 22)
        assert (await app.schedules.get("s")).waiting == 3
        schedule = await app.schedules.change("s", every="1h")
        assert (schedule.waiting, schedule.skipped_count) == (0, 3)
        assert schedule.ticks[-1].skipped == "changed"
        assert events.skipped == {"changed": 3}
        await until(app, 80)
    assert runs.dues == [5]


@virtual
async def test_a_change_of_overlap_keeps_ticks_that_wait(app: App) -> None:
    runs = Runs()
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(8.0,), every="5s", end=at(15), overlap="queue_all"
    )
    async with working(app):
        await until(app, 12)
        await app.schedules.change("s", overlap="allow")
        await until(app, 40)
        assert (await body_of(app, "s")).waiting == ()
    assert sorted(runs.starts) == [5, pytest.approx(12, abs=1.0), 15]
