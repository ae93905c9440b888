"""Plans after failures, cancels and retries that meet each other or are interrupted."""

import asyncio
import os
from typing import Any

import pytest

from durio import App, Context, Keep, Permanent, Retry, group
from durio.client.plan_actions import stored_plan
from durio.errors import JobDead, StoreUnavailable, WrongState
from durio.maintenance.plan_deletion import handle_due_plans
from durio.model.effects import Effects
from durio.model.ids import id_bytes
from durio.model.plan_failure import fails_plan
from durio.model.plan_layout import lay_out
from durio.plans import Collected, PlanFailure, PlanJob, Signature
from durio.ports.records import Due
from tests.faults.faulty_store import FaultyStore
from tests.plans.memory_engine import PLAN
from tests.unit.app.app_harness import records, virtual, working

broken: set[str] = set()  # names of leaves that fail
ran: list[str] = []


def declare(app: App) -> Any:
    broken.clear()
    ran.clear()

    @app.task(name="leaf", retry=0)
    async def leaf(name: str) -> str:
        ran.append(name)
        await app.clock.sleep(1)
        if name in broken:
            raise Permanent(name)
        return name

    return leaf


def declare_report(app: App) -> Any:
    @app.task(name="report", retry=0)
    async def report(ends: Collected[str]) -> int:
        ran.append("report")
        await app.clock.sleep(1)
        if "report" in broken:
            raise Permanent("report")
        return ends.failed

    return report


async def faulty_store(app: App) -> FaultyStore:
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    app.state.by_loop.clear()
    return faulty


async def ended(plan: PlanJob[Any], seconds: float = 60.0) -> str:
    """Return the state of a plan when the leader has had time for it."""
    await plan._client.clock.sleep(seconds)
    return (await plan.status()).state.value


def test_failed_join_of_a_group_that_collects_fails_the_plan():
    leaf = Signature[..., Any]("shop.leaf", ("a",), {})
    layout = lay_out(group(leaf, on_error="collect"), PLAN, "shop")
    assert [fails_plan(layout, node) for node in (0, 1)] == [False, True]


@virtual
async def test_plan_stays_failed_until_the_last_failed_job_is_retried(app: App):
    leaf = declare(app)
    broken.update("ab")
    async with working(app):
        plan = await group(leaf.s("a"), leaf.s("b")).enqueue()
        assert await ended(plan) == "failed"
        broken.clear()
        stored = await stored_plan(await app.store(), app.name, id_bytes(plan.id))
        first, second = [await app.job(i.hex()) for i in stored.ids([0, 1])]
        await first.retry()
        assert await ended(plan) == "failed"
        await second.retry()
        assert await ended(plan) == "done"
        assert await plan.result() == ["a", "b"]


@virtual
async def test_failure_cancels_the_rest_of_its_group(app: App):
    leaf = declare(app)
    broken.add("a")
    async with working(app):
        rest = leaf.s("b") | leaf.si("c") | leaf.si("d")
        plan = await group(leaf.s("a"), rest, cancel_rest=True).enqueue()
        assert await ended(plan) == "failed"
    assert "d" not in ran


@virtual
async def test_handler_runs_again_when_a_resumed_plan_fails(app: App):
    leaf, seen = declare(app), list[str]()
    broken.add("a")

    @app.task(name="alert")
    async def alert(failure: PlanFailure) -> None:
        seen.append(failure.text)

    async with working(app):
        plan = await group(leaf.s("a")).on_error(alert.s()).enqueue()
        assert await ended(plan) == "failed"
        await plan.retry()
        assert await ended(plan) == "failed"
    assert seen == ["a", "a"]


@virtual
async def test_retry_leaves_failures_that_were_collected(app: App):
    leaf, report = declare(app), declare_report(app)
    broken.update(["a", "report"])
    async with working(app):
        members = group(leaf.s("a"), leaf.s("b"), on_error="collect")
        plan = await (members | report.s()).enqueue()
        assert await ended(plan) == "failed"
        broken.clear()
        assert await plan.retry() == 1
        assert await plan.result() == 1
    assert sorted(ran) == ["a", "b", "report", "report"]


@virtual
async def test_plan_with_a_job_that_was_cancelled_stays_failed(app: App):
    leaf = declare(app)
    broken.add("a")
    async with working(app):
        plan = await (group(leaf.s("a"), leaf.s("b")) | leaf.si("c")).enqueue()
        stored = await stored_plan(await app.store(), app.name, id_bytes(plan.id))
        first, second = [await app.job(i.hex()) for i in stored.ids([0, 1])]
        await app.clock.sleep(0.5)
        await second.cancel()
        assert await ended(plan) == "failed"
        broken.clear()
        for each, state in ((first, "failed"), (second, "done")):
            await each.retry()
            assert await ended(plan) == state
            assert (await plan.status()).resumed == (state == "done")


@virtual
async def test_dead_job_that_is_deleted_at_once_fails_its_plan(app: App):
    leaf, failures = declare(app), list[PlanFailure]()
    broken.add("a")

    @app.task(name="adds")
    async def adds(ctx: Context) -> str:
        ctx.add(leaf.s("a"))
        return "added"

    @app.task(name="alert")
    async def alert(failure: PlanFailure) -> None:
        failures.append(failure)

    members = group(leaf.s("a"), leaf.s("b")), group(adds.s(), leaf.s("b"))
    async with working(app):
        for each in members:
            plan: Any = await (each | leaf.si("c")).on_error(alert.s()).enqueue()
            # The first look after its death, before the leader's: half a second apart.
            while not await app.jobs(state="dead").count():
                await app.clock.sleep(0.01)
            assert await ended(plan, 0.0) == "running"
            await app.jobs(state="dead").discard()
            assert await ended(plan) == "failed"
    assert [(one.task, one.text) for one in failures] == [("app.leaf", "a")] * 2
    assert "c" not in ran


@virtual
async def test_waiting_job_that_keeps_nothing_fails_its_plan(app: App):
    leaf = declare(app).options(retention=Keep(0))
    async with working(app):
        plan: Any = await (leaf.s("a") | leaf.si("b") | leaf.si("c")).enqueue()
        stored = await stored_plan(await app.store(), app.name, id_bytes(plan.id))
        (waiting,) = [await app.job(i.hex()) for i in stored.ids([1])]
        await waiting.cancel()
        assert await ended(plan) == "failed"


@virtual
async def test_collected_member_runs_again_after_the_cancel_of_its_plan(app: App):
    leaf, report = declare(app), declare_report(app)
    async with working(app):
        members = group(leaf.s("a"), leaf.s("b"), on_error="collect")
        plan = await (members | report.s()).enqueue()
        await app.clock.sleep(0.5)
        await plan.cancel()
        assert await ended(plan) == "cancelled"
        assert await plan.retry() == 3
        assert await plan.result(timeout=60) == 0


@virtual
async def test_retry_waits_for_jobs_that_are_being_cancelled(app: App):
    leaf = declare(app)
    broken.add("a")

    @app.task(name="slow_end", retry=0)
    async def slow_end() -> str:
        try:
            await app.clock.sleep(30)
        except asyncio.CancelledError:
            await app.clock.sleep(5)
            raise
        return "slow"

    async with working(app):
        plan: Any = await group(leaf.s("a"), slow_end.s(), cancel_rest=True).enqueue()
        assert await ended(plan, 3.0) == "failed"
        broken.clear()
        await plan.retry()
        assert await plan.result(timeout=60) == ["a", "slow"]


@virtual
async def test_leader_goes_on_with_a_cancel_that_was_interrupted(app: App):
    leaf = declare(app)
    unserved = leaf.options(queue="unserved")
    plan = await (unserved.s("a") | unserved.si("b")).enqueue()
    faulty = await faulty_store(app)
    faulty.fail("act")
    with pytest.raises(StoreUnavailable):
        await plan.cancel()
    assert await ended(plan, 0.0) == "cancelling"
    async with working(app, queues=["default"]):
        assert await ended(plan) == "cancelled"
    assert await plan.retry() == 2


@virtual
async def test_cancelled_plan_in_the_place_of_a_job_is_resumed(app: App):
    leaf = declare(app)

    @app.task(name="split")
    async def split(ctx: Context) -> list[str]:
        return ctx.replace(group(leaf.s("b"), leaf.s("c")))

    async with working(app):
        plan: Any = await group(leaf.s("a"), split.s()).enqueue()
        await app.clock.sleep(0.5)
        await plan.cancel()
        # The leader ends both plans in one turn, and deletes neither.
        assert await ended(plan) == "cancelled"
        assert await plan.retry() > 0
        assert await plan.result(timeout=60) == ["a", ["b", "c"]]


@virtual
async def test_plan_that_is_retried_while_it_is_due_is_not_deleted(app: App):
    """It fails again, and its retention begins anew."""
    leaf = declare(app)
    broken.add("a")
    async with working(app):
        plan = await group(leaf.s("a")).enqueue()
        assert await ended(plan) == "failed"
    await app.clock.sleep(365 * 86400)

    class Overtaken(FaultyStore):
        async def due_records(self, kind: str, *, limit: int) -> Due:
            due = await self.store.due_records(kind, limit=limit)
            assert len(due.records) == 1
            async with working(app):
                await plan.retry()
                assert await ended(plan) == "failed"
            return due

    overtaken: Any = Overtaken(await app.store(), app.clock)
    keeper: Any = None  # no plan is looked at that was resumed
    await handle_due_plans(overtaken, app.name, keeper)
    assert (await plan.status()).resumed == 1


@virtual
async def test_cleanup_of_a_cancelled_job_is_not_interrupted(app: App):
    """The leader looks at the plan every second until the job has ended."""
    cleaned = list[str]()

    @app.task(name="slow")
    async def slow() -> None:
        try:
            await app.clock.sleep(100)
        except asyncio.CancelledError:
            await app.clock.sleep(5)
            cleaned.append("up")
            raise

    async with working(app):
        plan = await group(slow.s()).enqueue()
        await app.clock.sleep(5)
        await plan.cancel()
        assert await ended(plan) == "cancelled"
    assert cleaned == ["up"]


@virtual
async def test_plan_that_ran_to_its_end_in_spite_of_a_cancel_is_done(app: App):
    leaf, faulty = declare(app), await faulty_store(app)

    @app.task(name="replaced")
    async def replaced(ctx: Context) -> str:
        return ctx.replace(leaf.s("b"))

    async with working(app):
        for last in (leaf.si("b"), replaced.si()):
            plan = await (leaf.s("a") | last).enqueue()
            await app.clock.sleep(1.5)  # the last job runs
            faulty.slow("log_lengths", seconds=10, times=1)  # the leader is late
            faulty.slow("act", seconds=1, times=1)
            assert await plan.cancel() == "done"
            assert await ended(plan) == "done"
            assert await plan.result() == "b"
            with pytest.raises(WrongState, match="is done and cannot be retried"):
                await plan.retry()


@virtual
async def test_plan_whose_jobs_are_deleted_cannot_be_retried(app: App):
    leaf = declare(app)
    broken.add("a")
    async with working(app):
        plan = await (leaf.s("a") | leaf.si("b")).enqueue()
        assert await ended(plan) == "failed"
        store: Any = await app.store()
        stored = await stored_plan(store, app.name, id_bytes(plan.id))
        await store.context.writer.write(
            lambda tx: tx.db.rows("delete from job where id = ?", (stored.last_id,))
        )
        with pytest.raises(WrongState, match="retention has deleted jobs of it"):
            await plan.retry()
        failed: Any = (await plan.status()).failed_node
        broken.clear()
        await (await app.job(failed)).retry()  # it runs alone
        assert await ended(plan) == "failed"
        assert (await app.job(failed)).id == failed


@virtual(settings={"retention": {"done_seconds": 3600}})
async def test_failed_plan_is_resumed_when_done_jobs_are_deleted(app: App):
    leaf = declare(app)
    broken.add("a")

    @app.task(name="slow")
    async def slow() -> str:
        await app.clock.sleep(10)
        return "slow"

    async with working(app):
        members = group(leaf.s("a"), slow.s(), cancel_rest=True)
        plan = await (members | leaf.si("b") | leaf.s()).enqueue()
        assert await ended(plan) == "failed"
        assert await ended(plan, 7200) == "failed"
        broken.clear()
        assert await plan.retry() == 4
        assert await plan.result(timeout=60) == "b"


@virtual
async def test_lost_reply_of_a_plan_that_has_begun(app: App):
    leaf = declare(app)
    faulty = await faulty_store(app)
    faulty.lose_reply("commit")
    async with asyncio.TaskGroup() as tasks:
        enqueuing = tasks.create_task(group(leaf.s("a")).enqueue())
        await app.clock.sleep(0.01)
        store = await app.store()
        (record,) = await store.list_records(f"plan:{app.name}")
        stored = await stored_plan(store, app.name, id_bytes(record.name))
        changed: Any = stored.put(state="failed")
        assert (await store.commit(Effects(puts=[changed]))).conflict is None
    assert enqueuing.result().id == record.name


@virtual
async def test_lost_reply_leaves_it_unknown_whether_a_plan_is_stored(app: App):
    leaf = declare(app)
    faulty = await faulty_store(app)
    faulty.lose_reply("commit")
    faulty.fail("commit")
    with pytest.raises(StoreUnavailable) as error:
        await group(leaf.s("a")).enqueue()
    assert error.value.unknown


@virtual
async def test_replacing_outlasts_a_store_that_does_not_answer(app: App):
    leaf, faulty = declare(app), await faulty_store(app)

    @app.task(name="replaced", retry=0)
    async def replaced(ctx: Context, method: str) -> str:
        faulty.fail(method)
        return ctx.replace(leaf.s("a"))

    async with working(app):
        for method in ("require_protocol", "records"):
            plan = await (replaced.s(method) | leaf.s()).enqueue()
            assert await plan.result(timeout=60) == "a"


@virtual
async def test_job_is_retried_while_another_job_has_the_key_of_its_plan(app: App):
    leaf = declare(app)
    keyed = leaf.options(key="one", unique="while_active")

    @app.task(name="replaced", retry=Retry(2, base=60, jitter=False))
    async def replaced(ctx: Context) -> str:
        return ctx.replace(keyed.s("a"))

    async with working(app):
        await keyed.options(delay="90s").enqueue("holder")
        job = await replaced.enqueue()
        assert await job.result(timeout=600) == "a"
        assert (await job.status()).attempt == 3


@virtual
async def test_attempt_ends_when_its_change_fails_of_anything(app: App):
    leaf, faulty = declare(app), await faulty_store(app)
    wrong: Any = ValueError("odd")  # no error of a store

    @app.task(name="replaced", retry=0)
    async def replaced(ctx: Context) -> str:
        faulty.fail("require_protocol", error=wrong)
        return ctx.replace(leaf.s("a"))

    async with working(app):
        job = await replaced.enqueue()
        with pytest.raises(JobDead, match="odd"):
            await job.result(timeout=60)


@virtual
async def test_long_result_inside_is_kept_for_the_plan_outside(app: App):
    leaf = declare(app)

    @app.task(name="long")
    async def long() -> str:
        return "x" * 10_000

    @app.task(name="inside")
    async def inside(ctx: Context) -> str:
        return ctx.replace(long.s() | leaf.s())

    @app.task(name="lengths")
    async def lengths(values: list[str]) -> list[int]:
        return [len(value) for value in values]

    members = group(inside.s(), leaf.options(delay="30d").s("late"))
    plan = await (members | lengths.s()).enqueue()
    for _ in range(30):
        async with working(app):
            await app.clock.sleep(60)
        await app.clock.sleep(86400)
    async with working(app):
        assert await plan.result(timeout=60) == [10_000, 4]
        await app.clock.sleep(60)
    store = await app.store()
    for days, kept in ((6, 2), (2, 0), (8, 0)):
        await app.clock.sleep(days * 86400)
        async with working(app):
            await app.clock.sleep(60)
        assert len(await store.list_records(f"plan:{app.name}")) == kept
    assert await records(app) == []


@virtual
async def test_cancelled_member_lets_nothing_run_before_what_is_before_its_group(
    app: App,
):
    """It is an entry of a group that collects, before the group has begun."""
    leaf, report = declare(app), declare_report(app)
    collecting = group(leaf.si("b"), leaf.si("c"), on_error="collect")
    plan = await (leaf.s("a") | collecting | collecting | report.s()).enqueue()
    for job in [job async for job in app.jobs(state="blocked", task="leaf")]:
        await (await app.job(job.id)).cancel()
    async with working(app):
        assert await plan.result(timeout=60) == 2
    (first,) = [job async for job in app.jobs(state="done", task="leaf")]
    (last,) = [job async for job in app.jobs(task="report")]
    assert first.finished_at is not None
    assert last.started_at is not None
    assert last.started_at >= first.finished_at
