"""Schedules that run plans: a run lasts until the whole plan has ended."""

from typing import Any

import pytest

from durio import App, Context, Permanent
from durio.model.effects import Effects, Put
from durio.model.plan import PlanValue
from durio.model.plan_record import plan_kind
from durio.plans import PlanFailure, PlanJob, chain, group
from durio.ports.control import AuditNote, QueueChange
from durio.schedules import Tick
from tests.schedules.schedule_harness import (
    MINUTE,
    Events,
    Runs,
    at,
    offset,
    sleeping_task,
    ticker_of,
    turns,
    until,
)
from tests.unit.app.app_harness import records, virtual, working

OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_previous", "allow")


class Steps:
    """The steps of plans: which tick each had, and how many plans went on at once."""

    def __init__(self, app: App) -> None:
        self.ticks: list[tuple[str, Tick | None]] = []
        self.going: set[float] = set()
        self.peak = 0

        @app.task(name="step")
        async def step(ctx: Context, name: str, seconds: float) -> str:
            assert ctx.tick is not None
            due = offset(ctx.tick.due_at)
            self.going.add(due)
            self.peak = max(self.peak, len(self.going))
            self.ticks.append((name, ctx.tick))
            await app.clock.sleep(seconds)
            return name

        @app.task(name="last")
        async def last(ctx: Context, names: Any) -> str:
            assert ctx.tick is not None
            self.going.discard(offset(ctx.tick.due_at))
            self.ticks.append(("last", ctx.tick))
            return "+".join(names) if isinstance(names, list) else names

        self.step, self.last = step, last

    def plan(self, seconds: float = 0.0) -> Any:
        members = [self.step.s("a", seconds), self.step.s("b", seconds)]
        return chain(group(members), self.last.s())


@virtual
async def test_every_job_of_a_plan_has_the_tick(app: App) -> None:
    steps = Steps(app)
    app.schedules.declare("s", steps.plan(), every="5s", max_runs=1)
    async with working(app):
        await until(app, 7)
        schedule = await app.schedules.get("s")
        (tick,) = schedule.ticks
        assert tick.run is not None
        value = await (await app.plan(tick.run)).result()
    assert (schedule.is_plan, tick.is_plan, schedule.task) == (True, True, "app.step")
    assert value == "a+b"
    expected = Tick("s", at(5))
    assert sorted(steps.ticks) == [("a", expected), ("b", expected), ("last", expected)]


@pytest.mark.parametrize("overlap", OVERLAPS)
@virtual
async def test_overlap_is_about_the_whole_plan(app: App, overlap: Any) -> None:
    """A plan goes on after the end of its first job."""
    steps, events = Steps(app), Events(app)
    plan = chain(steps.step.s("a", 0.0), steps.step.si("b", 15.0), steps.last.s())
    await app.schedules.create("s", plan, every="5s", end=at(15), overlap=overlap)
    async with working(app):
        await until(app, 19)
        schedule = await app.schedules.get("s")
        counts = schedule.run_count, schedule.waiting, schedule.skipped_count
        assert (
            counts
            == {
                "skip": (1, 0, 2),
                "queue_one": (1, 1, 1),
                "queue_all": (1, 2, 0),
                "cancel_previous": (3, 0, 0),
                "allow": (3, 0, 0),
            }[overlap]
        )
        assert events.skipped.total() == schedule.skipped_count
        await until(app, 57)
        made = (await app.schedules.get("s")).ticks
        states = [
            (await (await app.plan(tick.run)).status()).state
            for tick in made
            if tick.run is not None
        ]
    if overlap == "cancel_previous":
        assert states == ["cancelled", "cancelled", "done"]
    else:
        assert set(states) == {"done"}
        assert steps.peak == 1 or overlap == "allow"


@virtual
async def test_a_failed_plan_pauses_its_schedule(app: App) -> None:
    events, handled = Events(app), list[PlanFailure]()

    @app.task(name="broken")
    async def broken() -> None:
        raise Permanent("no")

    @app.task(name="alert")
    async def alert(failure: PlanFailure) -> None:
        handled.append(failure)

    steps = Steps(app)
    plan = chain(steps.step.s("a", 0.0), broken.si()).on_error(alert.s())
    await app.schedules.create("s", plan, every="5s", pause_on_failure=True)
    async with working(app):
        await until(app, 12)
        schedule = await app.schedules.get("s")
    tick, found_by = schedule.ticks
    assert (schedule.state, schedule.run_count) == ("paused", 1)
    assert (found_by.run, found_by.skipped) == (None, "paused")
    why = f"run {tick.run} failed"
    assert events.named("schedule.paused") == [{"schedule": "s", "why": why}]
    assert len(handled) == 1


@virtual
async def test_a_damaged_or_deleted_plan_has_ended(app: App) -> None:
    """Or its schedule would wait for it for ever."""
    steps = Steps(app)
    await app.schedules.create("s", steps.plan(), every="1m")
    store, ticker = await app.store(), await ticker_of(app)
    await turns(ticker, MINUTE)
    first = (await app.schedules.get("s")).ticks[-1].run
    assert first is not None
    await store.commit(Effects(puts=[Put(plan_kind(app.name), first, b"{")]))
    await turns(ticker, MINUTE)
    second = (await app.schedules.get("s")).ticks[-1].run
    assert second is not None
    await store.commit(Effects(puts=[Put(plan_kind(app.name), second, None)]))
    await turns(ticker, MINUTE)
    schedule = await app.schedules.get("s")
    assert (schedule.run_count, schedule.skipped_count) == (3, 0)


@virtual
async def test_a_fixed_delay_counts_from_the_end_of_the_plan(app: App) -> None:
    steps = Steps(app)
    plan = chain(steps.step.s("a", 3.0), steps.step.si("b", 4.0))
    await app.schedules.create("s", plan, every="5s", fixed_delay=True, max_runs=2)
    async with working(app):
        await until(app, 30)
        ticks = (await app.schedules.get("s")).ticks
    first, second = (offset(tick.due_at) for tick in ticks)
    assert first == 5
    assert 5 + 3 + 4 + 5 <= second <= 5 + 3 + 4 + 5 + 2, "the leader marks its end"


@virtual
async def test_a_closed_queue_of_one_job_skips_the_whole_plan(app: App) -> None:
    events, steps = Events(app), Steps(app)
    other = sleeping_task(app, Runs(), name="other", queue="closed")
    plan = chain(steps.step.s("a", 0.0), other.si())
    await app.schedules.create("s", plan, every="1m")
    lane, note = f"{app.name}:closed", AuditNote(who="ann")
    await (await app.store()).set_queue(lane, QueueChange(closed=True), note)
    await turns(await ticker_of(app), MINUTE)
    assert events.skipped == {"queue_closed": 1}
    assert await records(app) == []


@virtual
async def test_a_key_of_a_node_that_another_job_has(app: App) -> None:
    """A plan needs its own jobs: the tick is skipped, and the next one may run."""
    events = Events(app)

    @app.task(name="charge")
    async def charge(amount: int) -> None: ...

    keyed = charge.options(key="order-1")
    await app.schedules.create("s", chain(keyed.s(1)), every="1m")
    job = await keyed.enqueue(2)
    ticker = await ticker_of(app)
    await turns(ticker, MINUTE)
    assert events.skipped == {"key": 1}
    await job.cancel()
    await turns(ticker, MINUTE)
    assert (await app.schedules.get("s")).run_count == 1


@virtual(seed=5)
async def test_jitter_delays_the_first_jobs_of_a_plan(app: App) -> None:
    """What waits for other jobs is not delayed once more."""
    runs = Runs()
    work = sleeping_task(app, runs)
    plan = chain(group(work.si(2.0), work.si(2.0)), work.si(0.0))
    await app.schedules.create("s", plan, every="10s", jitter="9s", max_runs=1)
    async with working(app):
        await until(app, 30)
    first, second, last = runs.seen
    assert first.start == second.start > 10.2, "one delay for the plan"
    assert last.start - second.end < 0.1


@virtual
async def test_run_returns_a_handle_to_the_plan(app: App) -> None:
    steps = Steps(app)
    await app.schedules.create("s", steps.plan(), every="1h")
    async with working(app):
        plan = await app.schedules.run("s")
        assert isinstance(plan, PlanJob)
        assert await plan.result() == "a+b"
    assert {tick for _, tick in steps.ticks} == {Tick("s", at(0))}


@virtual
async def test_a_plan_in_place_of_a_task_and_back(app: App) -> None:
    steps, work = Steps(app), sleeping_task(app, Runs())
    await app.schedules.create("s", work, args=(1.0,), every="1m")
    plan = steps.plan()
    assert isinstance(plan, PlanValue)
    schedule = await app.schedules.change("s", plan)
    assert (schedule.is_plan, schedule.every) == (True, 60.0)
    schedule = await app.schedules.change("s", "work", args=(2.0,))
    assert schedule.link == {"task": "app.work", "args": [2.0], "kwargs": {}}
