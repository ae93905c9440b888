"""`ctx.replace(plan)` and `ctx.add(signature)`: tasks that change the plan they run in."""

import asyncio
import threading  # noqa: TID251 - the thread of a task beside virtual time
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import pytest

from durio import App, Cancel, Context, Permanent, Retry, State
from durio.errors import JobDead, WrongState
from durio.keys import window
from durio.model.ids import id_bytes
from durio.model.plan_layout import PlanLayout
from durio.model.plan_record import PlanRecord, plan_kind
from durio.model.plan_shape import shape_of
from durio.plans import Collected, PlanFailure, PlanState, Signature, chain, group
from durio.ports import plan_reader
from durio.ports.plan_reader import Layouts
from tests.unit.app.app_harness import virtual, working

QUICK = {"worker": {"poll_seconds": 1}}


@dataclass
class Crawler:
    """Tasks that change their plans."""

    app: App
    fails: bool = True
    seen: list[Any] = field(default_factory=list[Any])
    failures: list[PlanFailure] = field(default_factory=list[PlanFailure])

    def __post_init__(self) -> None:
        app = self.app

        @app.task(name="double")
        async def double(x: int) -> int:
            return 2 * x

        @app.task(name="total")
        async def total(values: list[int]) -> int:
            return sum(values)

        @app.task(name="boom", retry=Retry(0))
        async def boom(x: int = 0) -> int:
            if self.fails:
                raise Permanent(f"no {x}")
            return x

        @app.task(name="alert")
        async def alert(failure: PlanFailure) -> None:
            self.failures.append(failure)

        @app.task(name="split")
        async def split(ctx: Context, n: int) -> int:
            plan = group(double.s(i) for i in range(n)) | total.s()
            return ctx.replace(plan)

        @app.task(name="spread")
        async def spread(ctx: Context, n: int) -> list[int]:
            return ctx.replace(group(double.s(i) for i in range(n)))

        @app.task(name="breaks")
        async def breaks(ctx: Context, x: int = 0) -> int:
            return ctx.replace(double.s(x) | boom.s() | double.s())

        @app.task(name="down")
        async def down(ctx: Context, n: int) -> int:
            return ctx.replace(down.s(n - 1)) if n else 7

        @app.task(name="crawl")
        async def crawl(ctx: Context, page: int) -> int:
            self.seen.append(page)
            if page < 8:
                ctx.add(crawl.s(2 * page), crawl.s(2 * page + 1))
            return page

        @app.task(name="later")
        async def later(x: int = 0) -> int:
            await app.clock.sleep(100)
            return x

        @app.task(name="slow_split")
        async def slow_split(ctx: Context) -> list[int]:
            await app.clock.sleep(10)
            return ctx.replace(group(later.s(1), later.s(2)))

        self.double, self.total, self.boom, self.alert = double, total, boom, alert
        self.split, self.spread, self.breaks = split, spread, breaks
        self.down, self.crawl, self.later = down, crawl, later
        self.slow_split = slow_split


async def plan_records(app: App) -> list[Any]:
    store = await app.store()
    return await store.list_records(plan_kind(app.name), limit=100)


@virtual(settings=QUICK)
async def test_a_plan_in_the_place_of_a_node(app: App) -> None:
    tasks = Crawler(app)
    double, split, spread, total = tasks.double, tasks.split, tasks.spread, tasks.total
    async with working(app):
        for plan, value in (
            (split.s(4) | double.s(), 24),
            (double.s(2) | split.s(), 12),
            (spread.s(3) | total.s(), 6),
            (double.s(1) | spread.s(), [0, 2]),
            (group(split.s(3), double.s(1), spread.s(2)), [6, 2, [0, 2]]),
            (group(split.s(n) for n in range(4)) | total.s(), 0 + 0 + 2 + 6),
            (group(spread.s(2), double.s(5), on_error="collect"), [[0, 2], 10]),
            (tasks.down.s(5) | double.s(), 14),
        ):
            handle: Any = await plan.enqueue()
            found = await handle.result(timeout=60)
            if isinstance(found, Collected):
                found = [end.value for end in found]
            assert found == value, plan
            assert (await handle.status()).state is PlanState.DONE


@virtual(settings=QUICK)
async def test_a_worker_lays_a_plan_out_once_for_all_changes(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many members that change their group takes as long as one of few."""
    tasks, made = Crawler(app), list[bytes]()

    def layout(record: PlanRecord, plan: bytes, *rest: Any) -> PlanLayout:
        made.append(plan)
        return whole_layout(record, plan, *rest)

    whole_layout = PlanRecord.layout
    async with working(app):
        handle = await group(tasks.split.s(1) for _ in range(30)).enqueue()
        monkeypatch.setattr(PlanRecord, "layout", layout)
        await handle.wait(timeout=60)
    assert made.count(id_bytes(handle.id)) <= 5, "the handle reads it, too"


def test_layouts_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, and by the nodes of all of them; the last one always stays."""
    record = PlanRecord(shape=None, nodes=6, created_at=0.0)
    shape = shape_of(group(Signature[..., Any]("app.add", (n,), {}) for n in range(5)))
    plans = [bytes([n]) * 16 for n in range(9)]
    for most, kept in ((1000, 8), (12, 2), (1, 1)):
        monkeypatch.setattr(plan_reader, "LAID_OUT_NODES_MAX", most)
        layouts = Layouts()
        found = [layouts.layout(plan, "app", record, shape) for plan in plans]
        again = [layouts.layout(plan, "app", record, shape) for plan in plans[-kept:]]
        assert all(map(is_, again, found[-kept:]))
        first = layouts.layout(plans[-kept - 1], "app", record, shape)
        assert first is not found[-kept - 1]


@virtual(settings=QUICK)
async def test_the_plan_of_a_job_outside_a_plan_has_its_result(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        job = await tasks.split.enqueue(4)
        assert await job.result(timeout=60) == 12
        assert (await job.status()).state is State.DONE
        assert await (await tasks.down.enqueue(20)).result(timeout=60) == 7
        job = await tasks.breaks.enqueue()
        with pytest.raises(JobDead, match="no 0") as dead:
            await job.result(timeout=60)
        assert dead.value.plan is not None


@virtual(settings=QUICK)
async def test_a_large_plan_in_the_place_of_a_job(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        handle = await (tasks.split.s(2500) | tasks.double.s()).enqueue()
        assert await handle.result(timeout=600) == 2 * sum(range(2500)) * 2


@virtual(settings=QUICK)
async def test_a_failure_inside_fails_the_plan_outside_once(app: App) -> None:
    tasks = Crawler(app)
    double, alert = tasks.double, tasks.alert
    async with working(app):
        plan = chain(double.s(1), tasks.breaks.s().on_error(alert.s()), double.s())
        handle = await plan.on_error(alert.s()).enqueue()
        with pytest.raises(JobDead, match="no 4") as dead:
            await handle.result(timeout=60)
        await app.clock.sleep(10)
        status = await handle.status()
        assert status.state is PlanState.FAILED
        assert status.counts == {State.DONE: 3, State.DEAD: 1, State.CANCELLED: 2}
        assert status.failed_node == dead.value.node
        assert [failure.plan for failure in tasks.failures] == [handle.id] * 2
        assert {failure.task for failure in tasks.failures} == {f"{app.name}.boom"}
        # Retrying the plan outside resumes the plan inside.
        tasks.fails = False
        assert await handle.retry() > 0
        assert await handle.result(timeout=60) == 16
        assert len(tasks.failures) == 2


@virtual(settings=QUICK)
async def test_retrying_the_job_inside_resumes_the_plan_outside(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        handle = await (tasks.breaks.s(1) | tasks.double.s()).enqueue()
        with pytest.raises(JobDead) as dead:
            await handle.result(timeout=60)
        await app.clock.sleep(10)
        tasks.fails = False
        assert dead.value.node is not None
        await (await app.job(dead.value.node)).retry()
        assert await handle.result(timeout=60) == 8
        assert (await handle.status()).state is PlanState.DONE


@virtual(settings=QUICK)
async def test_a_failure_inside_is_collected_outside(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        members = group(tasks.breaks.s(3), tasks.double.s(4), on_error="collect")
        ends = await (await members.enqueue()).result(timeout=60)
        assert (ends.succeeded, ends.failed) == (1, 1)
        assert ends[0].message == "no 6"


@virtual(settings=QUICK)
async def test_cancelling_reaches_plans_in_places_of_nodes(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        handle = await (tasks.slow_split.s() | tasks.total.s()).enqueue()
        await app.clock.sleep(30)  # the two members run
        inner = {State.BLOCKED: 2, State.RUNNING: 2, State.DONE: 1}
        assert (await handle.counts(), await handle.progress()) == (inner, 0.2)
        assert (await handle.status()).nodes == 5
        await handle.cancel()
        await app.clock.sleep(10)
        states = {app_plan.name: app_plan for app_plan in await plan_records(app)}
        assert len(states) == 2
        for name in states:
            plan = await app.plan(name)
            assert (await plan.status()).state is PlanState.CANCELLED
        assert tasks.seen == []


@virtual(settings=QUICK)
async def test_a_cancel_before_the_replacement_cancels_it_too(app: App) -> None:
    """A running job finishes after the cancel, and puts a plan in its place."""
    tasks, finished = Crawler(app), threading.Event()

    @app.task(name="stubborn")
    def stubborn() -> int:
        ctx = Context.current()
        while not ctx.cancelled:
            pass
        finished.set()
        return ctx.replace(tasks.later.s(5))

    async with working(app):
        handle = await (stubborn.s() | tasks.double.s()).enqueue()
        await app.clock.sleep(5)
        await handle.cancel()
        # Virtual time does not wait for the thread of the task.
        await asyncio.to_thread(finished.wait, 60)  # noqa: TID251
        await app.clock.sleep(20)
        for record in await plan_records(app):
            status = await (await app.plan(record.name)).status()
            assert status.state is PlanState.CANCELLED
            assert State.RUNNING not in status.counts


@virtual(settings=QUICK)
async def test_a_plan_inside_is_not_cancelled_alone(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        handle: Any = await (tasks.slow_split.s() | tasks.total.s()).enqueue()
        await app.clock.sleep(20)
        (name,) = [r.name for r in await plan_records(app) if r.name != handle.id]
        inner = await app.plan(name)
        with pytest.raises(WrongState, match=f"a job of plan {handle.id}, which waits"):
            await inner.cancel()
        assert await handle.result(timeout=600) == 3
        assert await inner.cancel() is PlanState.DONE


@virtual(settings=QUICK)
async def test_a_plan_is_retried_after_plans_inside_are_cancelled(app: App) -> None:
    tasks, is_quick = Crawler(app), list[bool]()

    @app.task(name="stubborn")
    async def stubborn() -> int:
        try:
            await app.clock.sleep(1 if is_quick else 1000)
        except asyncio.CancelledError:
            await app.clock.sleep(30)  # longer than a retry waits
            raise
        return 1

    @app.task(name="outside")
    async def outside(ctx: Context) -> int:
        return ctx.replace(stubborn.s() | tasks.double.s())

    async with working(app):
        handle: Any = await (outside.s() | tasks.double.s()).enqueue()
        await app.clock.sleep(5)
        assert await handle.cancel() is PlanState.CANCELLING
        await app.clock.sleep(5)
        with pytest.raises(WrongState, match="is cancelling"):
            await handle.retry()
        members = group(tasks.boom.s(3), outside.s(), cancel_rest=True)
        failed: Any = await members.enqueue()
        await app.clock.sleep(5)
        assert (await failed.status()).state is PlanState.FAILED
        with pytest.raises(WrongState, match="are being cancelled"):
            await failed.retry()
        await app.clock.sleep(60)
        assert (await handle.status()).state is PlanState.CANCELLED
        tasks.fails = False
        is_quick.append(True)
        assert await handle.retry() == 3
        assert await handle.result(timeout=60) == 4
        assert await failed.retry() == 4
        assert await failed.result(timeout=60) == [3, 2]


@virtual(settings=QUICK)
async def test_members_add_members(app: App) -> None:
    tasks = Crawler(app)
    async with working(app):
        handle: Any = await (group(tasks.crawl.s(1)) | tasks.total.s()).enqueue()
        assert await handle.result(timeout=60) == sum(range(1, 16))
        assert sorted(tasks.seen) == list(range(1, 16))
        assert (await handle.status()).counts == {State.DONE: 16}
        handle = await group(tasks.crawl.s(4), tasks.double.s(50)).enqueue()
        assert await handle.results(timeout=60) == [4, 100, 8, 9]
        handle = await (group(tasks.crawl.s(1)) | tasks.total.s()).enqueue()
        ended = [await job.result() async for job in handle.as_completed()]
        assert sorted(ended) == [*range(1, 16), sum(range(1, 16))]


@virtual(settings=QUICK)
async def test_an_added_member_that_fails_fails_the_plan(app: App) -> None:
    tasks = Crawler(app)

    @app.task(name="adds")
    async def adds(ctx: Context) -> int:
        ctx.add(tasks.boom.s(5))
        return 1

    async with working(app):
        for collects in (False, True):
            tasks.fails = True
            more: Any = {"on_error": "collect"} if collects else {}
            members: Any = group(adds.s(), tasks.double.s(1), **more)
            handle: Any = await members.enqueue()
            if collects:
                ends = await handle.result(timeout=60)
                assert [end.__class__.__name__ for end in ends] == ["Ok", "Ok", "Err"]
                continue
            with pytest.raises(JobDead, match="no 5"):
                await handle.result(timeout=60)
            await app.clock.sleep(10)
            tasks.fails = False
            await handle.retry()
            assert await handle.result(timeout=60) == [1, 2, 5]


@virtual(settings=QUICK)
async def test_a_cancelled_member_after_an_added_one_has_failed(app: App) -> None:
    """The leader handles both, and goes on with other plans."""
    tasks = Crawler(app)

    @app.task(name="adds")
    async def adds(ctx: Context) -> int:
        ctx.add(tasks.boom.s(5))
        return 1

    @app.task(name="gives_up")
    async def gives_up() -> int:
        await app.clock.sleep(10)
        raise Cancel

    async with working(app):
        member = gives_up.s().on_error(tasks.alert.s())
        handles = [
            await group(adds.s(), member).enqueue(),
            await (adds.s() | tasks.boom.s()).enqueue(),
        ]
        await app.clock.sleep(30)
        for handle in handles:
            assert (await handle.status()).state is PlanState.FAILED
        assert [failure.error_type for failure in tasks.failures] == ["JobCancelled"]


@virtual(settings=QUICK)
async def test_a_member_key_that_is_taken_makes_the_job_dead(app: App) -> None:
    tasks = Crawler(app)

    @app.task(name="keyed", retry=Retry(0))
    async def keyed(ctx: Context) -> int:
        member = tasks.double.options(key="one", unique=window("1h")).s(1)
        return ctx.replace(member)

    async with working(app):
        first = await tasks.double.options(key="one", unique=window("1h")).enqueue(1)
        job = await keyed.enqueue()
        with pytest.raises(JobDead, match=r"has the key 'one' of node 0 ") as dead:
            await job.result(timeout=60)
        assert dead.value.reason == "exhausted"
        assert id_bytes(first.id)
        assert await plan_records(app) == []
