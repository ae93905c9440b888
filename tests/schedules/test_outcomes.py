"""How the runs of the last ticks ended, and what a failed run does to its schedule."""

from collections.abc import Sequence
from typing import Any

import pytest

from durio import App, Cancel, Permanent
from durio.model.ids import id_bytes, id_text
from durio.plans import chain
from durio.ports.control import DiscardJobs
from durio.telemetry.emit import JobEvent
from tests.schedules.schedule_harness import (
    MINUTE,
    Events,
    Runs,
    at,
    body_of,
    sleeping_task,
    ticker_of,
    until,
)
from tests.unit.app.app_harness import virtual, working


@pytest.mark.parametrize("overlap", ["skip", "allow"])
@virtual
async def test_ticks_keep_the_outcome_of_their_run(app: App, overlap: Any) -> None:
    """It is noted with the next tick, and stays when the dead job is discarded."""

    @app.task(name="work", retry=0)
    async def work() -> None:
        minute = round((app.clock.now() - at(0).timestamp()) / MINUTE)
        if minute in {2, 4}:
            raise Permanent("no such order")
        if minute == 3:
            raise Cancel

    await app.schedules.create("s", work, every="1m", overlap=overlap)
    async with working(app):
        await until(app, 4.5 * MINUTE)
    ticks = (await app.schedules.get("s")).ticks
    assert [tick.outcome for tick in ticks] == ["done", "dead", "cancelled", None]
    await until(app, 5 * MINUTE)
    jobs = [id_bytes(tick.run) for tick in ticks if tick.run is not None]
    await (await app.store()).act(jobs, DiscardJobs())
    await (await ticker_of(app)).turn()
    ticks = (await app.schedules.get("s")).ticks
    outcomes = [tick.outcome for tick in ticks]
    assert outcomes == ["done", "dead", "cancelled", "gone", None]
    assert ticks[0].run is not None


@virtual
async def test_outcomes_of_plans(app: App) -> None:
    @app.task(name="work", retry=0)
    async def work() -> None:
        if app.clock.now() > at(1.5 * MINUTE).timestamp():
            raise Permanent("no such order")

    await app.schedules.create("s", chain(work.s(), work.si()), every="1m")
    async with working(app):
        await until(app, 3.5 * MINUTE)
    ticks = (await app.schedules.get("s")).ticks
    assert [tick.outcome for tick in ticks] == ["done", "failed", None]


# --- what is logged and counted


class EveryEvent(Events):
    """The events of an App, those of jobs too."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.of_jobs: list[tuple[str, str, str]] = []

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        self.of_jobs += [(each.name, id_text(each.id), each.reason) for each in events]


@pytest.mark.proves("L33")
@virtual
async def test_each_tick_is_an_event_and_is_counted(app: App) -> None:
    events = Events(app)
    await app.schedules.create("s", sleeping_task(app, Runs()), args=(90,), every="1m")
    async with working(app):
        await until(app, 10.5 * MINUTE)
        schedule = await app.schedules.get("s")
    assert (schedule.run_count, schedule.skipped_count) == (5, 5)
    ticked = events.named("schedule.ticked")
    assert [fields["schedule"] for fields in ticked] == ["s"] * 5
    assert len({fields["due_at"] for fields in ticked}) == 5
    runs = {tick.run for tick in schedule.ticks if tick.run is not None}
    assert {fields["run"] for fields in ticked} == runs
    assert events.skipped == {"overlap": 5}


@pytest.mark.proves("M164")
@virtual
async def test_scheduled_jobs_have_the_events_of_any_job(app: App) -> None:
    """Start, end and failure; the id is that in schedule.ticked."""
    events = EveryEvent(app)

    @app.task(name="work", retry=0)
    async def work() -> None:
        if app.clock.now() > at(1.5 * MINUTE).timestamp():
            raise Permanent("no such order")

    await app.schedules.create("s", work, every="1m", max_runs=2)
    async with working(app):
        await until(app, 3 * MINUTE)
    good, bad = (fields["run"] for fields in events.named("schedule.ticked"))
    assert events.of_jobs == [
        ("job.started", good, ""),
        ("job.done", good, ""),
        ("job.started", bad, ""),
        ("job.dead", bad, "permanent"),
    ]


# --- runs that go on, or failed


@virtual
async def test_a_run_in_its_jitter_delay_goes_on(app: App) -> None:
    """Its job is stored and waits for its delay: the tick after it is skipped."""
    events = Events(app)
    await app.schedules.create(
        "s", sleeping_task(app, Runs()), every="2m", jitter="110s"
    )
    ticker = await ticker_of(app)
    await until(app, 2 * MINUTE)
    await ticker.turn()
    (run,) = (await body_of(app, "s")).live
    status = await (await app.job(run.id)).status()
    assert status.state == "scheduled"
    await until(app, 4 * MINUTE)
    await ticker.turn()
    schedule = await app.schedules.get("s")
    assert (schedule.run_count, schedule.skipped_count) == (1, 1)
    assert events.skipped == {"overlap": 1}


@virtual
async def test_a_failed_one_shot_has_ended(app: App) -> None:
    """No later tick looks at its run, so `pause_on_failure` does not pause it."""

    @app.task(name="work", retry=0)
    async def work() -> None:
        raise Permanent("no such order")

    await app.schedules.create("s", work, at=at(MINUTE), pause_on_failure=True)
    async with working(app):
        await until(app, 3 * MINUTE)
    schedule = await app.schedules.get("s")
    assert (schedule.state, schedule.run_count) == ("ended", 1)
    assert schedule.ticks[0].run is not None
    assert (await (await app.job(schedule.ticks[0].run)).status()).state == "dead"
