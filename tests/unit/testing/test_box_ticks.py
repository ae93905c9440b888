"""Schedules in a box: `drain(until=...)` jumps from tick to tick."""

from datetime import UTC, datetime, timedelta

from durio import App, Context, chain
from durio.testing import testing

app = App("sqlite:///never-opened.db", name="boxed")
ticks: list[datetime] = []


@app.cron("0 2 * * *", tz="Europe/Paris")
async def nightly(ctx: Context) -> None:
    assert ctx.tick is not None
    assert ctx.tick.schedule == "nightly"
    ticks.append(ctx.tick.due_at)


@app.every("1h")
@app.task(queue="low")
async def hourly() -> int:
    return 1


@app.task
async def double(n: int) -> int:
    return 2 * n


app.schedules.declare("planned", chain(hourly.si(), double.s()), every="6h")


def test_a_day_has_the_ticks_of_a_day() -> None:
    ticks.clear()
    with testing(app) as box:
        box.drain_sync(until="1d")
        assert len(box.jobs(nightly)) == 1
        assert len(box.jobs(double)) == 4
        assert len(box.jobs(hourly)) == 24 + 4
        assert {job.state for job in box.jobs()} == {"done"}
        box.drain_sync(until="2d")
        assert len(box.jobs(nightly)) == 3
    first, second, third = ticks
    assert second - first == third - second == timedelta(days=1)
    assert first.tzinfo is UTC


def test_a_drain_without_a_time_makes_no_tick() -> None:
    with testing(app) as box:
        box.drain_sync()
        assert box.jobs() == []


def test_a_stored_schedule_makes_its_jobs_too() -> None:
    with testing(app) as box:
        made = app.schedules.create("user-42", double, args=(21,), every="12h")
        app.run_sync(made)
        box.drain_sync(until="1d")
        jobs = [job for job in box.jobs(double) if job.plan is None]
        assert [job.arguments for job in jobs] == [{"n": 21}, {"n": 21}]
