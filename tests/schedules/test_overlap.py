"""What a tick does while the run before it goes on, for every state of that run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from durio import App, Cancel, Context, Permanent, Retry
from durio.schedules import Schedule
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


@pytest.mark.parametrize("end", ["done", "dead", "cancelled", "deleted"])
@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_a_run_that_has_ended(app: App, overlap: str, end: str) -> None:
    """The next tick runs at its time, however the run before it ended."""
    events, started = Events(app), list[float]()

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        assert ctx.tick is not None
        assert ctx.tick.due_at.timestamp() == app.clock.now()
        started.append(offset(ctx.tick.due_at))
        if end in {"dead", "deleted"}:
            raise Permanent
        if end == "cancelled":
            raise Cancel

    async def delete_dead() -> None:
        for tick in TICKS:
            await until(app, tick + 2)
            assert (await app.jobs(state="dead").discard()).changed == 1

    await app.schedules.create("s", work, every="5s", end=at(15), overlap=overlap)
    async with working(app), asyncio.TaskGroup() as group:
        if end == "deleted":
            group.create_task(delete_dead())
        await until(app, AFTER_THEM)
        schedule = await app.schedules.get("s")
        assert counts(schedule) == (3, 0, 0)
        assert schedule.state == "ended"
    assert started == TICKS
    assert not events.skipped


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
        await until(app, 61)
        schedule = await app.schedules.get("s")
        assert sum(counts(schedule)) == 12
        assert schedule.run_count == len(set(events.ticked))
        assert events.skipped.total() == schedule.skipped_count
        assert set(events.skipped) <= {"overlap"}
        assert runs.peak == 1 or overlap == "allow"
        await app.schedules.pause("s")


@virtual
async def test_a_run_that_waits_for_its_retry_goes_on(app: App) -> None:
    @app.task(name="work", retry=Retry(3, base=60))
    async def work() -> None:
        raise ValueError

    await app.schedules.create("s", work, every="5s", end=at(15))
    async with working(app):
        await until(app, AFTER_THEM)
        assert counts(await app.schedules.get("s")) == WHILE_IT_GOES_ON["skip"]
        await app.jobs(state="scheduled").cancel()
