"""Schedules in a box: `drain(until=...)` jumps from tick to tick."""

from datetime import UTC, datetime, timedelta

from durio import App, Context, Retry, chain
from durio.limits import Breaker, BreakerEvent
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


def test_a_backfill_makes_its_jobs_too() -> None:
    ticks.clear()
    with testing(app) as box:
        box.drain_sync(until="1s")  # stores what the code declares
        end = datetime.fromtimestamp(app.clock.now(), UTC)
        start = end - timedelta(days=3)
        asked = app.schedules.backfill("nightly", start, end, at_a_time=1)
        backfill = app.run_sync(asked)
        assert backfill.total == 3
        box.drain_sync(until="10s")
        assert len(box.jobs(nightly)) == 3
        (record,) = app.run_sync(app.schedules.backfills())
        assert (record.made, record.is_over) == (3, True)
    assert ticks == sorted(ticks)
    assert all(start <= tick < end for tick in ticks)


# --- a dependency that fails

mail = App(
    "sqlite:///never-opened.db",
    name="mail",
    breakers=[Breaker("smtp", failures=3, open_for="1m")],
)
states: list[str] = []


@mail.task(breaker="smtp", retry=Retry(3, base=1, jitter=False))
async def send(number: int) -> int:
    return number


@mail.hooks.breaker_opened
@mail.hooks.breaker_half_open
@mail.hooks.breaker_closed
def note(event: BreakerEvent) -> None:
    states.append(event.state)


def test_a_breaker_opens_and_closes_in_a_box() -> None:
    states.clear()
    with testing(mail) as box:
        for _ in range(3):
            box.fail_next(send, ConnectionRefusedError("no"))
        send.enqueue_many_sync([(n,) for n in range(5)])
        box.drain_sync()
        assert [job.state for job in box.jobs()].count("done") == 2
        box.drain_sync(until="30s")
        assert states == ["open"]
        assert [job.state for job in box.jobs()].count("done") == 2
        box.drain_sync(until="1m")
        assert {job.state for job in box.jobs()} == {"done"}
    assert states == ["open", "half_open", "closed"]
