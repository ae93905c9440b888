"""Plans in a whole App: stored, run, read, cancelled, retried."""

from datetime import datetime
from functools import partial
from typing import Any

import pytest

from durio import App, Permanent, Retry, State
from durio.errors import (
    InvalidArguments,
    JobCancelled,
    JobDead,
    NotSerializable,
    PlanNotFound,
    QueueClosed,
    QueueFull,
    StoreUnavailable,
    UsageError,
    WorkersTooOld,
    WrongState,
)
from durio.model.ids import id_bytes, id_text
from durio.model.plan_names import node_id
from durio.model.plan_record import KEPT_SECONDS, shape_log
from durio.plans import Collected, PlanFailure, PlanState, chain, chord, group
from durio.ports.control import AuditNote, QueueChange
from tests.unit.app.app_harness import drained, records, virtual, working

QUICK = {"worker": {"poll_seconds": 1}}
LONG = 10_000  # characters; more than an entry of a log holds


class Shop:
    """Tasks for plans, and what they have seen."""

    def __init__(self, app: App) -> None:
        self.calls: list[Any] = []
        self.failures: list[PlanFailure] = []
        self.fails = True

        @app.task(name="add")
        async def add(a: int, b: int = 1) -> int:
            self.calls.append((a, b))
            return a + b

        @app.task(name="total")
        async def total(values: list[int]) -> int:
            return sum(values)

        @app.task(name="boom", retry=Retry(0))
        async def boom(x: int = 0) -> int:
            if self.fails:
                raise Permanent(f"no {x}")
            return x

        @app.task(name="alert")
        async def alert(failure: PlanFailure, channel: str = "ops") -> str:
            self.failures.append(failure)
            return channel

        @app.task(name="later")
        async def later(x: int = 0) -> int:
            await app.clock.sleep(100)
            return x

        @app.task(name="text")
        async def text(size: int) -> str:
            return "x" * size

        @app.task(name="length")
        async def length(value: str | list[str]) -> int:
            return len("".join(value))

        self.add, self.total, self.boom = add, total, boom
        self.alert, self.later, self.text, self.length = alert, later, text, length


@pytest.mark.proves("M144", "M147")
@virtual(settings=QUICK)
async def test_a_chain_passes_results_on(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = shop.add.s(1, 2) | shop.add.s(10) | shop.add.s(b=100)
        handle = await plan.enqueue()
        assert await handle.result(timeout=60) == 113
        assert shop.calls == [(1, 2), (3, 10), (13, 100)]
        status = await handle.status()
        assert (status.state, status.nodes) == (PlanState.DONE, 3)
        assert (status.ready, status.successful, status.failed) == (True, True, False)
        assert status.counts == {State.DONE: 3}
        assert await handle.progress() == 1.0
        handle = await (shop.add.s(1) | shop.add.si(5, 5)).enqueue()
        assert await handle == 10


@pytest.mark.proves("M145", "M146")
@virtual(settings=QUICK)
async def test_groups_and_chords(app: App) -> None:
    shop = Shop(app)
    add, total = shop.add, shop.total
    async with working(app):
        for plan, value in (
            (group(add.s(n, n) for n in range(5)), [0, 2, 4, 6, 8]),
            (group(add.s(7)), [8]),
            (chord([add.s(n, n) for n in range(5)], total.s()), 20),
            (group(add.s(1)) | total.s() | add.s(1), 3),
            (add.s(1) | group(add.s(1), add.s(2)) | total.s(), 7),
            (group(add.s(1) | add.s(1), add.s(5)) | total.s(), 9),
            (add.s(1) | group(add.s(1), group(add.s(2), add.s(3))), [3, 4, 5]),
            (group(add.s(1) | group(add.s(1), add.s(2)), add.s(9)), [[3, 4], 10]),
            (add.map([1, 2]) | total.s(), 5),
            (add.starmap([(1, 2), (3, 4)]), [3, 7]),
            (add.chunks([(n,) for n in range(5)], 2), [[1, 2], [3, 4], [5]]),
        ):
            handle: Any = await plan.enqueue()
            assert await handle.results(timeout=60) == value, plan


@virtual(settings=QUICK)
async def test_an_empty_group_gives_an_empty_list(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        assert await (await (group([]) | shop.total.s()).enqueue()).result(60) == 0
        plan = shop.add.s(1) | group([]) | shop.total.s()
        assert await (await plan.enqueue()).result(60) == 0


@virtual(settings=QUICK)
async def test_arguments_of_enqueue_go_to_the_first_nodes(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = chain(shop.add.s(b=5), shop.add.s())
        assert await (await plan.enqueue(1)).result(60) == 7
        both = group(shop.add.s(b=1), shop.add.s(b=2))
        assert await (await both.enqueue(10)).result(60) == [11, 12]
    with pytest.raises(InvalidArguments, match="takes no further arguments"):
        await chain(shop.add.si(1), shop.add.s()).enqueue(5)


@virtual(settings=QUICK)
async def test_long_results_are_read_from_their_jobs(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = shop.text.s(LONG) | shop.length.s()
        assert await (await plan.enqueue()).result(60) == LONG
        both = group(shop.text.s(LONG), shop.text.s(3)) | shop.length.s()
        assert await (await both.enqueue()).result(60) == LONG + 3
        (first, *_) = [job for job in await records(app) if job.task == "app.length"]
        assert len(first.payload) < 100  # no result is in the arguments of another job


@virtual(settings={"worker": {"poll_seconds": 1}, "plan": {"input_bytes_max": 5000}})
async def test_an_input_is_bounded(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        for plan in (
            shop.text.s(LONG) | shop.length.s(),
            group(shop.text.s(3000), shop.text.s(3000)) | shop.length.s(),
        ):
            handle = await plan.enqueue()
            with pytest.raises(JobDead, match="more than 5000 bytes") as dead:
                await handle.result(timeout=60)
            assert dead.value.reason == "input_too_large"


@pytest.mark.proves("M78", "M149")
@virtual(settings=QUICK)
async def test_a_dead_node_fails_the_plan_once(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = shop.add.s(1) | shop.boom.s() | shop.add.s() | shop.add.s()
        handle = await plan.on_error(shop.alert.s("night")).enqueue()
        with pytest.raises(JobDead, match="no 2") as dead:
            await handle.result(timeout=60)
        assert dead.value.plan == handle.id
        await app.clock.sleep(5)
        status = await handle.status()
        assert (status.state, status.failed) == (PlanState.FAILED, True)
        assert status.counts == {State.DONE: 1, State.DEAD: 1, State.CANCELLED: 2}
        assert status.error == "Permanent: no 2"
        (failure,) = shop.failures
        assert (failure.plan, failure.node) == (handle.id, dead.value.node)
        assert (failure.task, failure.error_type) == ("app.boom", "Permanent")
        (last, *_) = [job for job in await records(app) if job.task == "app.add"]
        assert last.reason == "parent_dead"


@pytest.mark.proves("M78")
@virtual(settings=QUICK)
async def test_a_failed_plan_is_resumed(app: App) -> None:
    """By its handle, or by the handle of the node."""
    shop = Shop(app)
    async with working(app):
        for by_plan in (True, False):
            shop.fails = True
            plan = shop.add.s(1) | shop.boom.s() | shop.add.s(5)
            handle = await plan.on_error(shop.alert.s()).enqueue()
            with pytest.raises(JobDead) as dead:
                await handle.result(timeout=60)
            await app.clock.sleep(5)
            if by_plan:
                assert await handle.retry() == 2
            else:
                await (await app.job(dead.value.job_id)).retry()
            await app.clock.sleep(5)
            assert (await handle.status()).state is PlanState.FAILED  # it failed again
            shop.fails = False
            assert await handle.retry() == 2
            assert await handle.result(timeout=60) == 7
            status = await handle.status()
            assert (status.state, status.resumed) == (PlanState.DONE, 2)
    assert len(shop.failures) == 4  # once for each start or resume
    with pytest.raises(WrongState, match="is done and cannot be retried"):
        await handle.retry()


@virtual(settings=QUICK)
async def test_a_plan_is_cancelled(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = group(shop.later.s(1), shop.later.s(2)) | shop.total.s()
        handle = await plan.on_error(shop.alert.s()).enqueue()
        with pytest.raises(TimeoutError, match=r"not finished after 5 s \(1 blocked"):
            await handle.result(timeout=5)
        assert await handle.cancel() is PlanState.CANCELLING  # two jobs still run
        with pytest.raises(JobCancelled):
            await handle.result(timeout=60)
        await app.clock.sleep(5)
        assert (await handle.status()).counts == {State.CANCELLED: 3}
        assert shop.failures == []  # a cancel runs no handler
        assert await handle.cancel() is PlanState.CANCELLED
        assert await handle.retry() == 3
        assert await handle.result(timeout=1000) == 3


@virtual(settings=QUICK)
async def test_a_cancelled_plan_is_deleted_after_its_retention(app: App) -> None:
    shop = Shop(app)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
    await handle.cancel()
    await app.clock.sleep(KEPT_SECONDS - 300)
    async with working(app):
        await app.clock.sleep(60)
        assert (await handle.status()).state is PlanState.CANCELLED
    await app.clock.sleep(300)
    async with working(app):
        await app.clock.sleep(60)
        with pytest.raises(PlanNotFound):
            await handle.status()


@virtual(settings=QUICK)
async def test_members_go_on_unless_told_otherwise(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        for cancel_rest, states in ((False, {State.DONE}), (True, {State.CANCELLED})):
            plan = group(shop.boom.s(), shop.later.s(7), cancel_rest=cancel_rest)
            handle = await (plan | shop.total.s()).enqueue()
            with pytest.raises(JobDead):
                await handle.result(timeout=60)
            await app.clock.sleep(300)
            member = await app.job(_node(handle.id, 1))
            assert {(await member.status()).state} == states


def _node(plan_id: str, number: int) -> str:
    return id_text(node_id(id_bytes(plan_id), number))


@virtual(settings=QUICK)
async def test_the_rest_of_a_group_that_ran_is_no_second_failure(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        running = shop.later.s(7).on_error(shop.alert.s("of the member"))
        plan = group(running, shop.add.s(1) | shop.boom.s(), cancel_rest=True)
        handle = await plan.on_error(shop.alert.s()).enqueue()
        with pytest.raises(JobDead):
            await handle.result(timeout=60)
        await app.clock.sleep(300)
        assert [failure.task for failure in shop.failures] == ["app.boom"]


@virtual(settings=QUICK)
async def test_a_signature_with_a_handler_is_no_plain_job(app: App) -> None:
    shop = Shop(app)
    handled = shop.boom.s(1).on_error(shop.alert.s())
    for enqueue in (handled.enqueue, partial(shop.boom.enqueue_many, [handled])):
        with pytest.raises(UsageError, match="only jobs of plans have on_error"):
            await enqueue()
    assert await app.jobs().count() == 0
    async with working(app):
        await chain(handled).enqueue()
        await app.clock.sleep(5)
        assert [failure.text for failure in shop.failures] == ["no 1"]


@virtual(settings=QUICK)
async def test_a_failed_plan_is_retried_as_soon_as_that_is_known(app: App) -> None:
    """The leader has not handled the failure then: the retry waits for it."""
    shop = Shop(app)
    async with working(app):
        handle = await (shop.add.s(1) | shop.boom.s()).enqueue()
        with pytest.raises(JobDead):
            await handle.result(timeout=60)
        assert (await handle.status()).state is PlanState.RUNNING
        shop.fails = False
        await handle.retry()
        assert await handle.result(timeout=60) == 2


@virtual(settings=QUICK)
async def test_a_task_waits_for_no_plan_that_runs(app: App) -> None:
    shop = Shop(app)
    values: list[Any] = []

    @app.task(name="waiting")
    async def waiting(plan_id: str) -> None:
        plan = await app.plan(plan_id)
        try:
            values.append(
                [(await job.status()).state async for job in plan.as_completed()]
            )
            values.append(await plan.result())
        except UsageError as error:
            values.append(error.what)

    async with working(app):
        handle = await (shop.later.s(1) | shop.add.s(2)).enqueue()
        await (await waiting.enqueue(handle.id)).result(timeout=60)
        assert "a task waits for a plan" in values.pop()
        await handle.result(timeout=600)
        await (await waiting.enqueue(handle.id)).result(timeout=60)
        assert values == [[State.DONE, State.DONE], 3]


@virtual(settings=QUICK)
async def test_a_handler_runs_once_though_its_job_is_deleted(app: App) -> None:
    """The second failure comes when retention has deleted the job of the handler."""
    shop = Shop(app)
    alert = shop.alert.options(retention="0s")
    async with working(app):
        plan = group(shop.boom.s(1), shop.later.s(7) | shop.boom.s())
        handle = await plan.on_error(alert.s()).enqueue()
        await app.clock.sleep(300)
        assert await handle.counts() == {
            State.DEAD: 2,
            State.DONE: 1,
            State.CANCELLED: 1,
        }
        assert len(shop.failures) == 1
        await handle.retry()
        await app.clock.sleep(300)
        assert len(shop.failures) == 2, "once more for the resumed plan"


@virtual(settings=QUICK)
async def test_a_plan_fails_without_handlers_if_their_queue_is_closed(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        handler = shop.alert.options(queue="closed").s()
        handle = await (shop.add.s(1) | shop.boom.s()).on_error(handler).enqueue()
        closed = QueueChange(closed=True)
        await (await app.store()).set_queue("app:closed", closed, AuditNote(who="ann"))
        with pytest.raises(JobDead):
            await handle.result(timeout=60)
        await app.clock.sleep(5)
        assert (await handle.status()).state is PlanState.FAILED
        assert shop.failures == []


@pytest.mark.proves("M150", "L24")
@virtual(settings=QUICK)
async def test_a_group_that_collects_never_fails(app: App) -> None:
    shop = Shop(app)

    @app.task(name="report")
    async def report(ends: Collected[int]) -> list[Any]:
        return [ends.total, ends.succeeded, ends.failed, ends.failed_ids]

    async with working(app):
        members = group(shop.add.s(1), shop.boom.s(3), on_error="collect")
        handle = await (members | report.s()).enqueue()
        failed = _node(handle.id, 1)
        assert await handle.result(timeout=60) == [2, 1, 1, [failed]]
        assert (await handle.status()).state is PlanState.DONE


@virtual(settings=QUICK)
async def test_results_keep_their_types(app: App) -> None:
    @app.task(name="at")
    async def at(text: str) -> datetime:
        return datetime.fromisoformat(text)

    moment = "2026-11-17T20:00:00+00:00"
    async with working(app):
        handle = await group(at.s(moment)).enqueue()
        assert await handle.result(60) == [datetime.fromisoformat(moment)]


@virtual(settings=QUICK)
async def test_a_large_plan_starts_when_it_is_whole(app: App) -> None:
    shop = Shop(app)
    plan = chord([shop.add.si(n, 0) for n in range(2500)], shop.total.s())
    handle = await plan.enqueue()
    await drained(app)
    assert await handle.result(60) == sum(range(2500))
    assert (await handle.counts()) == {State.DONE: 2501}


@virtual(settings=QUICK)
async def test_a_plan_of_many_tasks_has_its_shape_in_a_log(app: App) -> None:
    shop = Shop(app)
    members = [shop.add.si(n, 0) if n % 2 else shop.later.si(0) for n in range(4000)]
    handle = await (group(members) | shop.total.s()).enqueue()
    assert (await handle.status()).nodes == 4001
    assert await handle.cancel() is PlanState.CANCELLED


@virtual(settings=QUICK)
async def test_a_plan_that_cannot_be_stored_leaves_nothing(app: App) -> None:
    shop = Shop(app)
    with pytest.raises(NotSerializable):
        await group(
            [*(shop.add.s(1) for _ in range(50)), shop.length.s(object())]
        ).enqueue()  # type: ignore[list-item]
    await app.queue("default", maxsize=2, full_wait=1).resume()
    await app.declare_bounds()
    with pytest.raises(QueueFull, match="its bound is 2"):
        await group(shop.add.s(1), shop.add.s(2), shop.add.s(3)).enqueue()
    closed = QueueChange(closed=True)
    await (await app.store()).set_queue("app:default", closed, AuditNote(who="ann"))
    with pytest.raises(QueueClosed):
        await (shop.add.s(1) | shop.add.s()).enqueue()
    assert await records(app) == []


@virtual(settings=QUICK)
async def test_plans_are_found_by_id(app: App) -> None:
    shop = Shop(app)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
    assert await app.plan(handle.id) == handle
    assert (await handle.status()).state is PlanState.RUNNING
    with pytest.raises(PlanNotFound, match="there is no plan"):
        await app.plan(_node(handle.id, 0))
    with pytest.raises(PlanNotFound, match="'123' is not a plan id"):
        await app.plan("123")


@virtual(settings=QUICK)
async def test_a_wait_that_is_over_says_what_the_plan_waits_for(app: App) -> None:
    shop = Shop(app)
    handle = await (shop.add.options(queue="lost").s(1) | shop.add.s()).enqueue()
    text = r'after 2 s \(1 blocked, 1 ready; no worker serves queue "lost"\)'
    with pytest.raises(TimeoutError, match=text):
        await handle.result(timeout=2)


@pytest.mark.proves("L22")
@virtual(settings=QUICK)
async def test_a_plan_is_read_as_a_tree(app: App) -> None:
    shop = Shop(app)
    plan = shop.add.s(1) | shop.add.map(range(30)) | shop.total.s()
    handle = await plan.enqueue()
    status = await handle.status()
    assert status.parents == tuple(_node(handle.id, n) for n in range(31))
    assert status.to_dict()["parents"][0] == _node(handle.id, 0)
    tree = await handle.tree()
    first, members, last = tree.members
    assert (first.id, first.state) == (_node(handle.id, 0), State.READY)
    assert (members.hidden, members.counts) == (30, {State.BLOCKED: 30})
    assert (last.task, last.state) == ("app.total", State.BLOCKED)
    assert (tree.kind, tree.jobs) == ("chain", 32)
    assert len((await handle.tree(members_max=30)).members[1].members) == 30
    chained = await (shop.add.s(1) | shop.add.s() | shop.add.s()).enqueue()
    parents = (await chained.status()).parents
    assert parents == (_node(chained.id, 0), _node(chained.id, 1))


@virtual(settings=QUICK)
async def test_a_task_does_not_wait_for_a_plan(app: App) -> None:
    shop = Shop(app)

    @app.task(name="waits", retry=Retry(0))
    async def waits() -> int:
        plan = await (shop.add.s(1) | shop.add.s()).enqueue()
        return await plan.result()

    job = await waits.enqueue()
    await drained(app)
    with pytest.raises(JobDead, match="a waiting task keeps its slot") as dead:
        await job.result(60)
    assert dead.value.error.type == UsageError.__name__


@virtual(settings=QUICK)
async def test_wait_returns_when_the_plan_has_ended(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        failing = await (shop.add.s(1) | shop.boom.s()).enqueue()
        assert await failing.wait(timeout=60) is PlanState.FAILED
        long = await (shop.later.s(1) | shop.add.s()).enqueue()
        await app.clock.sleep(5)
        assert await long.cancel() is PlanState.CANCELLING
        assert await long.wait(timeout=60) is PlanState.CANCELLED
    unserved = await group(shop.add.s(1)).enqueue()
    with pytest.raises(TimeoutError, match="is not finished after 1 s"):
        await unserved.wait(timeout=1)


@virtual(settings=QUICK)
async def test_no_plan_is_stored_while_an_older_worker_runs(app: App) -> None:
    """Other jobs go on; plans work as soon as that worker has gone."""
    shop = Shop(app)
    store: Any = await app.store()
    write = store.context.writer.write
    async with working(app):
        await app.clock.sleep(1)
        await write(lambda tx: tx.db.rows("update worker set protocol = 0"))
        with pytest.raises(WorkersTooOld, match="an older version of Durio run: "):
            await (shop.add.s(1) | shop.add.s(1)).enqueue()
        assert await store.list_records(f"plan:{app.name}") == []
        assert await (await shop.add.enqueue(1)).result(timeout=60) == 2
        await write(lambda tx: tx.db.rows("update worker set protocol = 1"))
        handle = await (shop.add.s(1) | shop.add.s(1)).enqueue()
        assert await handle.result(timeout=60) == 3


@virtual(settings=QUICK)
async def test_a_failed_plan_is_retried_at_once_and_cancelled(app: App) -> None:
    """A retry waits for the leader; a cancel ends members that go on."""
    shop = Shop(app)
    async with working(app):
        handle = await (shop.boom.s() | shop.add.s(1)).enqueue()
        with pytest.raises(JobDead):
            await handle.result(timeout=60)
        shop.fails = False
        assert await handle.retry() == 2
        assert await handle.result(timeout=60) == 1
        assert await handle.wait() is PlanState.DONE
        shop.fails = True
        members = group(shop.boom.s(), *(shop.later.s(n) for n in range(3)))
        failed = await (members | shop.total.s()).enqueue()
        with pytest.raises(JobDead):
            await failed.result(timeout=60)
        assert await failed.cancel() is PlanState.FAILED
        await app.clock.sleep(10)
        assert (await failed.status()).counts == {State.DEAD: 1, State.CANCELLED: 4}


@virtual(settings=QUICK)
async def test_damaged_arguments_of_one_node_stop_no_other(app: App) -> None:
    shop = Shop(app)
    handles = [await (shop.add.s(1) | shop.add.s(n)).enqueue() for n in range(3)]
    store: Any = await app.store()
    damaged = id_bytes(_node(handles[0].id, 1))
    change = "update job set payload = x'7b7d' where id = ?"
    await store.context.writer.write(lambda tx: tx.db.rows(change, (damaged,)))
    async with working(app):
        assert await handles[1].result(timeout=60) == 3
        assert await handles[2].result(timeout=60) == 4
        with pytest.raises(JobDead, match="arguments are damaged"):
            await handles[0].result(timeout=60)


@virtual(settings=QUICK)
async def test_a_plan_whose_shape_is_gone_is_deleted(app: App) -> None:
    """The leader died between the logs of a plan and its record."""
    shop = Shop(app)
    notes = [shop.add.s(n).on_error(shop.alert.si(n * "x")) for n in range(300)]  # type: ignore[arg-type]
    handle = await group(notes).enqueue()
    store = await app.store()
    await handle.cancel()
    await app.clock.sleep(KEPT_SECONDS)
    await store.drop_logs([shape_log(app.name, id_bytes(handle.id))])
    async with working(app):
        await app.clock.sleep(10)
    assert await store.list_records(f"plan:{app.name}") == []


@virtual(settings=QUICK)
async def test_a_writer_that_is_too_slow_leaves_no_jobs(app: App) -> None:
    shop = Shop(app)
    store: Any = await app.store()
    commit, calls = store.commit, 0

    async def slow(effects: Any, **options: Any) -> Any:
        nonlocal calls
        calls += len(effects.jobs) > 100
        if calls == 2:
            calls = 3
            await app.clock.sleep(400)
        return await commit(effects, **options)

    store.commit = slow
    async with working(app):
        with pytest.raises(StoreUnavailable, match="was not stored within 300 s"):
            await group(shop.add.s(n) for n in range(3000)).enqueue()
    assert await app.jobs().count() == 0
