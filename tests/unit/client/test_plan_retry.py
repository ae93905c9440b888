"""Nodes of plans that are retried as jobs: their plan goes on, or the answer says why not."""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from durio import App, Context, State
from durio.client.plan_actions import FAILING_SECONDS_MAX, retry_now
from durio.client.plan_retry import NodeRetry, resume_plans
from durio.errors import JobDead, StoreUnavailable, WrongState
from durio.model.effects import Effects, Put
from durio.model.ids import id_bytes, id_text
from durio.model.plan_names import may_be_node, node_id
from durio.model.plan_record import dump_record, load_record, plan_kind
from durio.plans import PlanJob, PlanState, group
from durio.ports.control import RetryJobs
from tests.faults.faulty_store import FaultyStore, ScriptedFault, not_executed
from tests.unit.app.app_harness import drained, virtual, working
from tests.unit.client.test_plan_job import QUICK, Shop

Retry = Callable[[App, str], Coroutine[Any, Any, None]]


async def by_handle(app: App, job_id: str) -> None:
    await (await app.job(job_id)).retry()


async def by_filter(app: App, job_id: str) -> None:
    done = await app.jobs(ids=[job_id], state="dead").retry()
    assert (done.changed, done.alone) == (1, 0)


def node(plan: PlanJob[Any], number: int) -> str:
    return id_text(node_id(id_bytes(plan.id), number))


async def failed(handle: PlanJob[Any], app: App) -> None:
    with pytest.raises(JobDead):
        await handle.result(timeout=60)
    await app.clock.sleep(5)
    assert (await handle.status()).state is PlanState.FAILED


def fail_at(step: int, name: str, nth: int) -> ScriptedFault | None:
    return ScriptedFault(before=not_executed(name)) if nth == step else None


async def deleted(handle: PlanJob[Any], app: App) -> None:
    """Delete the record of a plan, as retention does."""
    gone = Put(plan_kind(app.name), handle.id, None)
    await (await app.store()).commit(Effects(puts=[gone]))


@pytest.mark.proves("M78")
@pytest.mark.parametrize("retry", [by_handle, by_filter])
@virtual(settings=QUICK)
async def test_a_retried_node_resumes_its_plan(app: App, retry: Retry) -> None:
    shop = Shop(app)
    async with working(app):
        plan = shop.add.s(1) | shop.boom.s() | shop.add.s(5)
        handle = await plan.enqueue()
        await failed(handle, app)
        shop.fails = False
        await retry(app, node(handle, 1))
        assert await handle.result(timeout=60) == 7
        assert (await handle.status()).resumed == 1


@virtual(settings=QUICK)
async def test_a_plan_goes_on_when_its_last_dead_node_is_retried(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        members = group(shop.boom.s(1) | shop.add.s(), shop.boom.s(2))
        handle = await (members | shop.total.s()).enqueue()
        await failed(handle, app)
        shop.fails = False
        await by_handle(app, node(handle, 0))
        await app.clock.sleep(5)
        status = await handle.status()
        assert status.state is PlanState.FAILED  # one member is dead
        assert status.counts == {State.DONE: 2, State.DEAD: 1, State.CANCELLED: 1}
        await by_handle(app, node(handle, 2))
        assert await handle.result(timeout=60) == 4


@virtual(settings=QUICK)
async def test_all_dead_nodes_of_a_plan_are_retried_together(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = shop.boom.map(range(5)) | shop.total.s()
        handle = await plan.enqueue()
        await failed(handle, app)
        shop.fails = False
        done = await app.jobs(state="dead").retry()
        assert (done.changed, done.alone) == (5, 0)
        assert await handle.result(timeout=60) == 10


@virtual(settings=QUICK)
async def test_dead_nodes_of_a_plan_and_of_one_inside_are_retried(app: App) -> None:
    shop = Shop(app)

    @app.task(name="inside")
    async def inside(ctx: Context, x: int) -> int:
        return ctx.replace(shop.boom.s(x))

    async with working(app):
        for members in (
            group(shop.boom.s(1), inside.s(2)),
            group(inside.s(1), shop.boom.s(2)),
        ):
            shop.fails = True
            handle = await (members | shop.total.s()).enqueue()
            await failed(handle, app)
            shop.fails = False
            done = await app.jobs(state="dead").retry()
            assert (done.changed, done.alone) == (2, 0)
            assert await handle.result(timeout=60) == 3
            await app.clock.sleep(5)
            assert (await handle.status()).state is PlanState.DONE
        shop.fails = True
        handle = await group(shop.boom.s(1), inside.s(2)).enqueue()
        await failed(handle, app)
        dead = sorted([id_bytes(job.id) async for job in app.jobs(state="dead")])
        answers = await resume_plans(await app.store(), dead, app.clock, "ann")
        assert [answer.others for answer in answers.values()] == [0, 0]


@virtual(settings=QUICK)
async def test_a_retry_that_fails_half_way_can_be_repeated(app: App) -> None:
    """Also if plans are in places of jobs: the outer one stays failed until the last step."""
    shop = Shop(app)

    @app.task(name="inside")
    async def inside(ctx: Context, x: int, depth: int) -> int:
        return ctx.replace(inside.s(x, depth - 1) if depth else shop.boom.s(x))

    for fault_at in (1, 2, 3):
        shop.fails = True
        async with working(app):
            handle = await (inside.s(1, 1) | shop.add.s(5)).enqueue()
            await failed(handle, app)
            shop.fails = False
            faulty = FaultyStore(await app.store(), app.clock)
            faulty.on("act", partial(fail_at, fault_at))
            with pytest.raises(StoreUnavailable):
                await retry_now(faulty, app.name, id_bytes(handle.id), "ann")
            await app.clock.sleep(5)
            await handle.retry()
            assert await handle.result(timeout=60) == 6


@virtual(settings=QUICK)
async def test_a_node_that_was_cancelled_by_hand_resumes_its_plan(app: App) -> None:
    shop = Shop(app)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
    job = await app.job(node(handle, 0))
    await job.cancel()
    async with working(app):
        await app.clock.sleep(5)
        assert (await handle.status()).state is PlanState.FAILED
        await job.retry()
        assert await handle.result(timeout=60) == 3


@virtual(settings=QUICK)
async def test_a_resume_that_was_interrupted_is_completed(app: App) -> None:
    """The plan runs again and its node is dead, because the second step never came."""
    shop = Shop(app)
    async with working(app):
        handle = await (shop.boom.s(1) | shop.add.s()).enqueue()
        await failed(handle, app)
        store, first = await app.store(), id_bytes(node(handle, 0))
        answers = await resume_plans(store, [first], app.clock, "ann")
        assert answers[first] == NodeRetry(first, handle.id, PlanState.RUNNING)
        await app.clock.sleep(5)
        assert (await handle.status()).state is PlanState.RUNNING
        shop.fails = False
        await by_filter(app, node(handle, 0))
        assert await handle.result(timeout=60) == 2
        assert (await handle.status()).resumed == 1


@pytest.mark.parametrize("is_inner", [False, True])
@virtual(settings=QUICK)
async def test_a_resume_that_nobody_completes_is_undone(
    app: App, *, is_inner: bool
) -> None:
    """The leader looks at the plan, whose node is dead, and marks it as failed again."""
    shop = Shop(app)

    @app.task(name="inside")
    async def inside(ctx: Context, x: int) -> int:
        return ctx.replace(shop.boom.s(x) | shop.add.s())

    async with working(app):
        first = inside.s(1) if is_inner else shop.boom.s(1)
        handle = await (first | shop.add.s()).enqueue()
        await failed(handle, app)
        status = await handle.status()
        dead = id_bytes(str(status.failed_node))
        store = await app.store()
        answers = await resume_plans(store, [dead], app.clock, "ann")
        assert answers[dead].state is PlanState.RUNNING
        await app.clock.sleep(25)
        assert (await handle.status()).state is PlanState.RUNNING
        await app.clock.sleep(15)
        again = await handle.status()
        ended_at = again.ended_at
        assert again == dataclasses.replace(status, resumed=1, ended_at=ended_at)
        shop.fails = False
        await handle.retry()
        assert await handle.result(timeout=60) == (3 if is_inner else 2)


@virtual(settings=QUICK)
async def test_a_resumed_plan_that_goes_on_is_left_alone(app: App) -> None:
    shop = Shop(app)

    @app.task(name="slow")
    async def slow(x: int) -> int:
        await app.clock.sleep(60)
        return x

    async with working(app):
        handle = await (shop.boom.s(1) | slow.s()).enqueue()
        await failed(handle, app)
        shop.fails = False
        await handle.retry()
        await app.clock.sleep(40)
        (record,) = await (await app.store()).records(plan_kind(app.name), [handle.id])
        assert record.due_at is None
        assert await handle.result(timeout=60) == 1


@pytest.mark.parametrize("retry", [by_handle, by_filter])
@virtual(settings=QUICK)
async def test_a_retry_waits_for_the_leader(app: App, retry: Retry) -> None:
    """While a failure is handled, a retry would leave the plan failed."""
    shop = Shop(app)
    async with working(app):
        handle = await (shop.boom.s(1) | shop.add.s()).enqueue()
        await failed(handle, app)
        store, kind, job = await app.store(), plan_kind(app.name), node(handle, 0)
        (record,) = await store.records(kind, [handle.id])
        failing = replace(load_record(record.body), state=PlanState.FAILING)
        put = Put(kind, handle.id, dump_record(failing))
        await store.commit(Effects(puts=[put]))
        shop.fails = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(retry(app, job))
            await app.clock.sleep(FAILING_SECONDS_MAX / 2)
            assert (await (await app.job(job)).status()).state is State.DEAD
            await store.commit(Effects(puts=[put._replace(body=record.body)]))
        assert await handle.result(timeout=60) == 2


@virtual(settings=QUICK)
async def test_a_plan_around_a_failed_one_waits_for_the_leader(app: App) -> None:
    """The leader has handled the failure in the inner plan, and not yet in the outer one."""
    shop = Shop(app)

    @app.task(name="inside")
    async def inside(ctx: Context, x: int) -> int:
        return ctx.replace(shop.boom.s(x) | shop.add.s())

    async with working(app):
        handle = await (shop.add.s(1) | inside.s()).enqueue()
        await failed(handle, app)
        store, kind = await app.store(), plan_kind(app.name)
        (record,) = await store.records(kind, [handle.id])
        body = load_record(record.body)
        running = replace(body, state=PlanState.RUNNING, failure=None, ended_at=None)
        put = Put(kind, handle.id, dump_record(running))
        await store.commit(Effects(puts=[put]))
        with pytest.raises(WrongState, match="is failing"):
            await retry_now(store, app.name, id_bytes(handle.id), "ann")
        shop.fails = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(handle.retry())
            await app.clock.sleep(FAILING_SECONDS_MAX / 2)
            await store.commit(Effects(puts=[put._replace(body=record.body)]))
        assert await handle.result(timeout=60) == 3


@virtual(settings=QUICK)
async def test_a_node_runs_alone_when_the_leader_is_away(app: App) -> None:
    shop = Shop(app)
    handle = await (shop.boom.s(1) | shop.add.s()).enqueue()
    async with working(app):
        await failed(handle, app)
    store, kind, first = await app.store(), plan_kind(app.name), node(handle, 0)
    (record,) = await store.records(kind, [handle.id])
    failing = replace(load_record(record.body), state=PlanState.FAILING)
    await store.commit(Effects(puts=[Put(kind, handle.id, dump_record(failing))]))
    began, ids = app.clock.monotonic(), [id_bytes(first)]
    (answer,) = (await resume_plans(store, ids, app.clock, "ann")).values()
    assert answer.text == f"runs alone: plan {handle.id} is failing"
    assert app.clock.monotonic() - began == pytest.approx(FAILING_SECONDS_MAX, abs=0.5)


@virtual(settings=QUICK)
async def test_a_node_runs_alone_when_its_plan_does_not_go_on(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        gone = await (shop.boom.s(1) | shop.add.s()).enqueue()
        await failed(gone, app)
        await deleted(gone, app)
        taken = await group(shop.boom.s(3), on_error="collect").enqueue()
        both = group(shop.boom.s(2), shop.later.s(), on_error="collect")
        cancelled = await both.enqueue()
        await app.clock.sleep(5)
        await cancelled.cancel()
        await app.clock.sleep(5)
        going_on = await both.enqueue()
        await app.clock.sleep(5)
        plans = (gone, taken, cancelled, going_on)
        ids = [id_bytes(node(plan, 0)) for plan in plans]
        answers = await resume_plans(await app.store(), ids, app.clock, "ann")
        assert [answers[job_id].text for job_id in ids if job_id in answers] == [
            f"runs alone: plan {gone.id} is gone",
            f"runs alone: plan {taken.id} is done",
            f"runs alone: plan {cancelled.id} is cancelled",
            f"runs alone: plan {going_on.id} has taken its failure as a result",
        ]
        shop.fails = False
        done = await app.jobs(task="boom", state="dead").retry()
        assert (done.changed, done.alone) == (4, 4)
        job = await app.job(node(gone, 0))
        assert await job.result(60) == 1
        other = await app.job(node(gone, 1))
        assert (await other.status()).state is State.CANCELLED


@virtual(settings=QUICK)
async def test_a_plan_whose_failed_node_was_deleted_cannot_go_on(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        handle = await (shop.boom.s(1) | shop.add.s()).enqueue()
        await failed(handle, app)
        await app.jobs(state="dead").discard()
        with pytest.raises(WrongState, match="which failed, was deleted"):
            await handle.retry()
        with pytest.raises(JobDead, match="Permanent: no 1") as dead:
            await handle.result(timeout=60)
        assert (dead.value.plan, dead.value.node) == (handle.id, node(handle, 0))
        assert f"durio plans show {handle.id}" in dead.value.cure


@virtual(settings=QUICK)
async def test_plain_jobs_are_not_read(app: App) -> None:
    """A retry of plain jobs pays nothing: ids of nodes are known by their last digits."""
    shop = Shop(app)
    assert may_be_node(node_id(app.clock.new_id(), 1_000_000))
    plain = [id_ for _ in range(200) if not may_be_node(id_ := app.clock.new_id())]
    assert len(plain) > 190
    handle = await (shop.boom.s(1) | shop.add.s()).enqueue()
    await drained(app)
    store = await app.store()
    assert await resume_plans(store, plain, app.clock, "ann") == {}
    await store.act([id_bytes(node(handle, 0))], RetryJobs())
