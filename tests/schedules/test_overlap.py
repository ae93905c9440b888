"""What a tick does while the run before it goes on, for every state of that run."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from durio import App, Cancel, Context, Permanent, Retry
from durio.schedules import Schedule
from durio.testing.clock import EPOCH
from tests.schedules.schedule_harness import (
    Events,
    Runs,
    at,
    offset,
    sleeping_task,
    until,
)
from tests.unit.app.app_harness import virtual, working

OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_previous", "allow")
TICKS = [5, 10, 15]
AFTER_THEM = 19
ENDS = ("done", "dead", "cancelled", "deleted")
# The run of the first tick goes on: what has become of the three ticks after the last.
# Runs, waiting, skipped.
WHILE_IT_GOES_ON = {
    "skip": (1, 0, 2),
    "queue_one": (1, 1, 1),
    "queue_all": (1, 2, 0),
    "cancel_previous": (3, 0, 0),
    "allow": (3, 0, 0),
}


def counts(schedule: Schedule) -> tuple[int, int, int]:
    return schedule.run_count, schedule.waiting, schedule.skipped_count


@asynccontextmanager
async def three_ticks(app: App, overlap: str, seconds: float) -> AsyncIterator[Runs]:
    """A worker, and a schedule whose runs take so long, after three ticks of it."""
    runs, events = Runs(), Events(app)
    work = sleeping_task(app, runs)
    await app.schedules.create(
        "s", work, args=(seconds,), every="5s", end=at(15), overlap=overlap
    )
    async with working(app):
        await until(app, AFTER_THEM)
        schedule = await app.schedules.get("s")
        assert sum(counts(schedule)) == len(TICKS)
        assert events.skipped.total() == schedule.skipped_count
        assert set(events.skipped) <= {"overlap"}
        yield runs
    assert runs.peak == 1 or overlap == "allow"


@pytest.mark.proves("M158")
@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_a_run_that_goes_on(app: App, overlap: str) -> None:
    async with three_ticks(app, overlap, seconds=30.0) as runs:
        assert counts(await app.schedules.get("s")) == WHILE_IT_GOES_ON[overlap]
        await until(app, AFTER_THEM + 80)
    assert runs.peak == (3 if overlap == "allow" else 1)
    dues = {"skip": [5], "queue_one": [5, 10]}.get(overlap, TICKS)
    assert runs.dues == dues
    if overlap == "queue_all":
        first, second, third = runs.seen
        assert first.end <= second.start <= first.end + 1
        assert second.end <= third.start <= second.end + 1
    if overlap == "cancel_previous":
        assert [run.end - run.start for run in runs.seen] == [5, 4, 30]


@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_a_run_that_waits_in_its_queue(app: App, overlap: str) -> None:
    """It goes on, though no worker has taken its job."""
    await app.queue("default").pause()
    async with three_ticks(app, overlap, seconds=0.0) as runs:
        assert runs.seen == []
        assert counts(await app.schedules.get("s")) == WHILE_IT_GOES_ON[overlap]
        await app.queue("default").resume()
        await until(app, AFTER_THEM + 5)
    kept = {"skip": [5], "queue_one": [5, 10], "cancel_previous": [15]}
    assert sorted(runs.dues) == kept.get(overlap, TICKS)


@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_a_run_that_has_ended(app: App, overlap: str) -> None:
    """The next tick runs at its time, whether the run is done, dead, cancelled or gone."""
    events, started = Events(app), Counter[str]()

    @app.task(name="work")
    async def work(ctx: Context, end: str) -> None:
        assert ctx.tick is not None
        assert offset(ctx.tick.due_at) == app.clock.now() - EPOCH in TICKS
        started[end] += 1
        if end in {"dead", "deleted"}:
            raise Permanent(end)
        if end == "cancelled":
            raise Cancel

    for end in ENDS:
        choices: dict[str, Any] = {"args": (end,), "every": "5s", "overlap": overlap}
        await app.schedules.create(end, work, end=at(15), **choices)
    async with working(app):
        for tick in TICKS:
            await until(app, tick + 2)
            deleted = app.jobs(state="dead", error="deleted")
            assert (await deleted.discard()).changed == 1
        for schedule in await app.schedules.list():
            assert counts(schedule) == (3, 0, 0)
            assert schedule.state == "ended"
    assert started == dict.fromkeys(ENDS, 3)
    assert not events.skipped
    states = Counter(job.state for job in [job async for job in app.jobs()])
    assert states == {"done": 3, "dead": 3, "cancelled": 3}


@pytest.mark.proves("M158")
@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_runs_of_every_length(app: App, overlap: str) -> None:
    """Never two at once, and every tick runs, is skipped for a reason, or waits."""
    lengths = iter([1.0, 4.9, 5.0, 5.1, 17.0, 0.0, 31.5, 2.0] * 20)
    runs, events = Runs(), Events(app)

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        runs.going += 1
        runs.peak = max(runs.peak, runs.going)
        assert ctx.tick is not None
        try:
            await app.clock.sleep(next(lengths))
        finally:
            runs.going -= 1

    await app.schedules.create("s", work, every="5s", overlap=overlap)
    async with working(app):
        await until(app, 51)
        schedule = await app.schedules.get("s")
        assert sum(counts(schedule)) == 10
        assert schedule.run_count == len(set(events.ticked))
        assert events.skipped.total() == schedule.skipped_count
        assert set(events.skipped) <= {"overlap"}
        assert runs.peak == 1 or overlap == "allow"
        await app.schedules.pause("s")


@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_a_run_that_waits_for_its_retry_goes_on(app: App, overlap: Any) -> None:
    @app.task(name="work", retry=Retry(3, base=60, jitter=False))
    async def work() -> None:
        raise ValueError

    await app.schedules.create("s", work, every="5s", end=at(15), overlap=overlap)
    async with working(app):
        await until(app, AFTER_THEM)
        assert counts(await app.schedules.get("s")) == WHILE_IT_GOES_ON[overlap]
        states = Counter(job.state for job in [job async for job in app.jobs()])
        assert states["scheduled"] == (3 if overlap == "allow" else 1)
        assert states["cancelled"] == (2 if overlap == "cancel_previous" else 0)
        await app.schedules.pause("s")
        await app.jobs(state="scheduled").cancel()
