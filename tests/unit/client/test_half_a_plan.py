"""A large plan that was not stored completely: the leader deletes what is there."""

import asyncio
from typing import Any

import pytest

from durio import App
from durio.errors import InvalidPlan, StoreUnavailable
from durio.maintenance.plan_deletion import handle_due_plans
from durio.model.job import BLOCKED
from durio.model.plan_record import WRITTEN_SECONDS_MAX
from durio.plans import group
from durio.ports.control import Acted
from tests.unit.app.app_harness import virtual
from tests.unit.client.test_plan_job import QUICK


async def no_failure(*_: Any) -> None:
    """What the leader does about a resumed plan; these tests have none."""


@virtual(settings=QUICK)
async def test_the_last_commit_of_a_plan_meets_the_leader(app: App) -> None:
    """The leader has decided to delete the plan: it does not start, and nothing is left."""
    store: Any = await app.store()
    commit, act = store.commit, store.act
    last, refused = asyncio.Event(), asyncio.Event()

    @app.task(name="nothing")
    async def nothing() -> None: ...

    async def committed(effects: Any, **options: Any) -> Any:
        if effects.appends and not effects.jobs:
            await last.wait()
        return await commit(effects, **options)

    async def acted(ids: Any, action: Any, **options: Any) -> Any:
        if not last.is_set():
            last.set()
            await refused.wait()
        return await act(ids, action, **options)

    async def write() -> None:
        with pytest.raises(StoreUnavailable, match="was not stored within 300 s"):
            await group(nothing.si() for _ in range(1500)).enqueue()
        refused.set()

    store.commit, store.act = committed, acted
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        await app.clock.sleep(WRITTEN_SECONDS_MAX + 60)
        await handle_due_plans(store, app.name, no_failure)
    assert await app.jobs().count() == 0
    assert await store.list_records(f"plan:{app.name}") == []


@virtual(settings=QUICK)
async def test_half_a_plan_with_a_locked_job_is_deleted_later(app: App) -> None:
    store: Any = await app.store()
    act, locked = store.act, True

    @app.task(name="nothing")
    async def nothing() -> None: ...

    async def acted(ids: Any, action: Any, **options: Any) -> Any:
        answers = await act(ids[locked:], action, **options)
        held = [Acted(ids[0], BLOCKED, BLOCKED, is_held=True)] if locked else []
        return [*held, *answers]

    async def half(effects: Any, **options: Any) -> Any:
        if effects.appends and not effects.jobs:
            raise InvalidPlan("the writer dies")
        return await commit(effects, **options)

    commit, store.commit, store.act = store.commit, half, acted
    with pytest.raises(InvalidPlan, match="the writer dies"):
        await group(nothing.si() for _ in range(1500)).enqueue()
    await app.clock.sleep(WRITTEN_SECONDS_MAX + 60)
    for jobs, plans in ((2, 1), (0, 0)):  # one job of each step is locked
        await handle_due_plans(store, app.name, no_failure)
        assert await app.jobs().count() == jobs
        assert len(await store.list_records(f"plan:{app.name}")) == plans
        locked = False
