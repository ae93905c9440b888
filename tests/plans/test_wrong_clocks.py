"""Processes whose clocks are wrong: records of plans are due by the time of the store."""

import asyncio
from typing import Any

import pytest

from durio import App, Context, group
from durio.client.plan_actions import stored_plan
from durio.client.plan_retry import resume_plans
from durio.model.ids import id_bytes
from durio.model.plan_layout import WRITTEN_AT_ONCE_MAX
from durio.model.plan_record import KEPT_SECONDS
from durio.ports.clock import Clock
from durio.ports.plan_reader import StoredPlan
from tests.plans.test_recovery import broken, declare, ended
from tests.unit.app.app_harness import virtual, working

HOUR = 3600.0
DEAD_SECONDS = 86400.0
LARGE = WRITTEN_AT_ONCE_MAX + 100  # jobs


class WrongClock:
    """The clock of a process whose wall clock is wrong."""

    def __init__(self, clock: Clock, ahead_seconds: float) -> None:
        self.clock = clock
        self.ahead_seconds = ahead_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def now(self) -> float:
        return self.clock.now() + self.ahead_seconds


async def with_wrong_clock(app: App, ahead_seconds: float) -> Any:
    """Give all of the App a wrong clock but its store; return the store."""
    store = await app.store()
    app.state.clock = WrongClock(app.clock, ahead_seconds)
    app.state.by_loop.clear()
    return store


async def record_of(app: App, plan_id: str) -> StoredPlan:
    return await stored_plan(await app.store(), app.name, id_bytes(plan_id))


@virtual
async def test_cancel_ends_soon(app: App):
    """The leader looks again until the job has ended."""
    await with_wrong_clock(app, HOUR)

    @app.task(name="slow")
    async def slow() -> None:
        try:
            await app.clock.sleep(100)
        except asyncio.CancelledError:
            await app.clock.sleep(5)
            raise

    async with working(app):
        plan = await group(slow.s()).enqueue()
        await app.clock.sleep(5)
        await plan.cancel()
        assert await ended(plan) == "cancelled"


@virtual
async def test_resume_has_time_to_retry_its_job(app: App):
    await with_wrong_clock(app, -HOUR)
    leaf = declare(app)
    broken.add("a")
    async with working(app):
        plan = await group(leaf.s("a")).enqueue()
        assert await ended(plan) == "failed"
        dead = id_bytes(str((await plan.status()).failed_node))
        await resume_plans(await app.store(), [dead], app.clock, "ann")
        assert await ended(plan, 5) == "running"


@pytest.mark.parametrize("ahead_seconds", [HOUR, -HOUR])
@virtual(settings={"retention": {"dead_seconds": DEAD_SECONDS}})
async def test_plan_is_kept_from_its_end(app: App, *, ahead_seconds: float):
    store = await with_wrong_clock(app, ahead_seconds)
    leaf = declare(app)
    unserved = leaf.options(queue="unserved")
    broken.add("a")
    kept = {"failed": DEAD_SECONDS, "done": KEPT_SECONDS, "cancelled": KEPT_SECONDS}
    async with working(app, queues=["default"]):
        plans = [
            await group(one).enqueue()
            for one in (leaf.s("a"), leaf.s("b"), unserved.s("c"))
        ]
        await plans[-1].cancel()
        await app.clock.sleep(10)
        now = store.context.clock.now()
        for plan, (state, seconds) in zip(plans, kept.items(), strict=True):
            record = await record_of(app, plan.id)
            assert record.record.state == state
            assert record.record.ended_at == pytest.approx(now, abs=10)
            assert record.due_at == pytest.approx(now + seconds, abs=10)


@pytest.mark.parametrize("in_place_of_a_job", [False, True])
@virtual
async def test_large_plan_has_time_to_be_written(app: App, *, in_place_of_a_job: bool):
    """The leader deletes a plan that is not whole in time."""
    store = await with_wrong_clock(app, -HOUR)
    leaf, commit = declare(app), store.commit

    @app.task(name="replaced", retry=0)
    async def replaced(ctx: Context) -> list[str]:
        return ctx.replace(group(leaf.si("a") for _ in range(LARGE)))

    async def committed(effects: Any, **options: Any) -> Any:
        answer = await commit(effects, **options)
        if len(effects.jobs) > 1:
            await app.clock.sleep(5)
        return answer

    store.commit = committed
    async with working(app, concurrency=200):
        large = group(leaf.si("a") for _ in range(LARGE))
        first: Any = replaced.si() if in_place_of_a_job else large
        handle = await (first | leaf.si("b")).enqueue()
        assert await handle.result(timeout=600) == "b"
