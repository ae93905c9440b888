"""Handles of plans: their sync twins, inside tasks, and after a job was deleted."""

from typing import Any

import pytest

from durio import App, Context, State
from durio.errors import JobDead, ResultExpired, UsageError
from durio.model.effects import Effects, Put
from durio.plans import PlanState, group
from durio.testing import testing
from tests.unit.app.app_harness import MEMORY, in_state, virtual, working
from tests.unit.client.test_plan_job import QUICK, Shop

# --- callers without an event loop


def test_the_sync_twins_of_a_handle() -> None:
    app = App(MEMORY, name="app")
    shop = Shop(app)
    with testing(app) as box:
        plan = (shop.add.s(1) | shop.add.s(10)).enqueue_sync()
        assert plan.progress_sync() == 0.0
        assert plan.counts_sync() == {State.BLOCKED: 1, State.READY: 1}
        box.drain_sync()
        ended = [job.id for job in plan.as_completed_sync()]
        assert len(ended) == 2
        assert next(iter(plan.as_completed_sync())).id in ended, "and no more is read"
        assert plan.wait_sync(timeout=5) is PlanState.DONE
        assert plan.progress_sync() == 1.0
        assert plan.result_sync(timeout=5) == 12
        tree = plan.tree_sync()
        assert [each.id for each in tree.members] == sorted(ended)
        members = group(shop.add.s(n) for n in range(5)).enqueue_sync()
        jobs = {each.id for each in members.tree_sync().members}
        assert members.tree_sync(members_max=2).hidden == 5
        assert members.cancel_sync() is PlanState.CANCELLED
        assert members.wait_sync() is PlanState.CANCELLED
        assert members.retry_sync() == 6
        box.drain_sync()
        assert members.results_sync(timeout=5) == [1, 2, 3, 4, 5]
        assert {job.id for job in members.as_completed_sync()} == jobs, "and no join"


# --- plans in the places of jobs


@virtual(settings=QUICK)
async def test_a_task_reads_the_value_of_a_plan_in_the_place_of_a_job(app: App) -> None:
    """It may, once that plan has ended; before that it would keep its slot."""
    shop = Shop(app)
    seen: list[Any] = []

    @app.task(name="split")
    async def split(ctx: Context) -> int:
        return ctx.replace(shop.later.s(1) | shop.add.s(2))

    @app.task(name="look")
    async def look(job_id: str) -> None:
        job = await app.job(job_id)
        try:
            seen.append(await job.result())
        except UsageError as error:
            seen.append(error.what)

    async with working(app):
        job = await split.enqueue()
        await in_state(job, State.DONE)
        await (await look.enqueue(job.id)).result(timeout=60)
        assert "a task waits for a plan" in seen.pop()
        assert await job.result(timeout=600) == 3
        await (await look.enqueue(job.id)).result(timeout=60)
    assert seen == [3]


@pytest.mark.parametrize("is_known", [True, False])
@virtual(settings=QUICK)
async def test_the_reason_of_a_failed_node_that_is_deleted(
    app: App, *, is_known: bool
) -> None:
    shop = Shop(app)
    async with working(app):
        handle = await (shop.boom.s(7) | shop.add.s()).enqueue()
        assert await handle.wait() is PlanState.FAILED
    store = await app.store()
    if not is_known:  # written by a release that did not store it
        (record,) = await store.list_records(f"plan:{app.name}")
        body = record.body.replace(b'"reason":"permanent"', b'"reason":null')
        await store.commit(Effects(puts=[Put(record.kind, record.name, body)]))
    assert (await app.jobs(state="dead").discard()).changed == 1
    with pytest.raises(JobDead, match="Permanent: no 7") as dead:
        await handle.result(timeout=60)
    assert dead.value.reason == ("permanent" if is_known else "unknown")


# --- after retention has deleted its jobs


@virtual(settings=QUICK)
async def test_a_handle_whose_jobs_are_deleted(app: App) -> None:
    """Their own retention may be shorter than that of their plan."""
    shop = Shop(app)
    short, total = (task.options(retention="2h") for task in (shop.add, shop.total))
    done = await (group(short.s(1), short.s(2)) | total.s()).enqueue()
    failed = await (short.s(1) | shop.boom.s()).enqueue()
    runs = await (short.s(1) | shop.add.options(delay="5h").s(1)).enqueue()
    ended = {done: PlanState.DONE, failed: PlanState.FAILED}
    async with working(app):
        for plan, state in ended.items():
            assert await plan.wait(timeout=60) is state
        await app.clock.sleep(3 * 3600)
        await app.jobs(state="dead").discard()
        for plan, state in ended.items():
            assert await plan.counts() == {}
            assert await plan.wait(timeout=60) is state
            assert await plan.progress() == 1.0
            jobs = [job async for job in plan.as_completed()]
            assert len(jobs) == (await plan.status()).nodes
        with pytest.raises(ResultExpired):
            await done.result(timeout=60)
        with pytest.raises(JobDead, match="Permanent: no 2"):
            await failed.result(timeout=60)
        assert await runs.progress() == 0.5
        assert len([job async for job in runs.as_completed()]) == 2
        assert await runs.result(timeout=60) == 3
