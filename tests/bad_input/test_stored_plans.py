"""Mistakes in plans that are found when they are stored or while they run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain as joined
from typing import Any

import apsw
import pytest

from durio import App, Context, Permanent, Retry, State
from durio.client.plan_actions import stored_plan
from durio.errors import (
    DurioError,
    InvalidArguments,
    InvalidOption,
    InvalidPlan,
    JobDead,
    KeyConflict,
    NotSerializable,
    PlanNotFound,
    QueueClosed,
    UsageError,
    WrongState,
)
from durio.keys import while_active
from durio.model.effects import Effects
from durio.model.ids import id_bytes
from durio.model.plan_record import KEPT_SECONDS
from durio.plans import Plan, PlanJob, PlanState, chain, group
from durio.ports.control import AuditNote, QueueChange
from tests.bad_input.refusals import asked, declined
from tests.unit.app.app_harness import MEMORY, virtual, working

QUICK = {"worker": {"poll_seconds": 1}}
TABLES = ("job", "record", "log", "entry", "waits", "uniq")
LARGE = 9999  # jobs: several commits


class Shop:
    """Tasks for plans."""

    def __init__(self, app: App) -> None:
        self.fails = True

        @app.task(name="add")
        async def add(a: int, b: int = 1) -> int:
            return a + b

        @app.task(name="adds", retry=Retry(0))
        async def adds(ctx: Context) -> int:
            if self.fails:
                raise Permanent("not yet")
            ctx.add(add.s(5))
            return 1

        self.add, self.adds = add, adds


async def rows(app: App) -> dict[str, int]:
    """Return how many rows of plans and jobs there are."""
    found: dict[str, int] = {}
    for table in TABLES:
        ((found[table],),) = await asked(app, f"select count(*) from {table}")  # noqa: S608
    return found


@asynccontextmanager
async def nothing_stored(
    app: App, error: type[DurioError], *words: str
) -> AsyncIterator[None]:
    before = await rows(app)
    with declined(error, *words):
        yield
    assert await rows(app) == before


@virtual
async def test_an_argument_of_a_late_node_that_is_no_json(app: App) -> None:
    shop = Shop(app)
    last: Any = shop.add.s(object())  # type: ignore[arg-type]
    async with nothing_stored(app, NotSerializable, "app.add", "object"):
        await group([*(shop.add.s(n) for n in range(LARGE)), last]).enqueue()


@virtual
async def test_arguments_for_an_immutable_first_node(app: App) -> None:
    shop = Shop(app)
    plan: Any = shop.add.si(1) | shop.add.s()
    async with nothing_stored(app, InvalidArguments, "add.si(1)", ".s(...)"):
        await plan.enqueue(5)


@virtual
async def test_a_first_node_that_lacks_an_argument(app: App) -> None:
    shop = Shop(app)
    for plan in (shop.add.s() | shop.add.s(), group(shop.add.s(1), shop.add.s())):
        async with nothing_stored(app, InvalidArguments, "'a'", "plan.enqueue(...)"):
            await plan.enqueue()


@virtual(name="shop")
async def test_an_argument_of_a_node_that_follows(app: App) -> None:
    """It is checked as in a call, also if only workers have the code of the task."""
    shop = Shop(app)
    producer = App(MEMORY, name="shop", clock=app.clock)
    producer.state.stores = app.state.stores
    async with working(app):
        await app.clock.sleep(1)  # it has published its tasks
    wrong: Any = shop.add.s(b="2")
    with_code = wrong, app.s("add", c=2), app.s("add", 1, 2)
    without = [producer.s("add", *link.args, **link.kwargs) for link in with_code]
    for first, links in ((shop.add, with_code), (producer.named("add"), without)):
        for link, word in zip(links, ("'b'", "'c'", "takes"), strict=True):
            async with nothing_stored(app, InvalidArguments, word):
                await chain(first.s(1), link).enqueue()


@virtual
async def test_a_plan_of_tasks_of_another_app(app: App) -> None:
    """Its jobs would wait in queues that no worker with their code serves."""
    plan = app.s("bank.pay", 1) | app.s("bank.pay")
    async with nothing_stored(app, InvalidPlan, "'app' has the task bank.pay"):
        await plan.enqueue()


@virtual
async def test_a_plan_of_no_app(app: App) -> None:
    shop = Shop(app)
    document = (shop.add.s(1) | shop.add.s()).to_dict()
    async with nothing_stored(app, UsageError, "belongs to no App", "task.s(...)"):
        await Plan.from_dict(document).enqueue()


@virtual
async def test_an_empty_group_of_no_app(app: App) -> None:
    """It names no task; `map` does, and so does a document with the App."""
    shop = Shop(app)
    words = "group() has no members", "task.map(items)", "Plan.from_dict(group([])"
    async with nothing_stored(app, UsageError, *words):
        await group([]).enqueue()
    for plan in (shop.add.map([]), Plan[Any].from_dict(group([]).to_dict(), app)):
        async with working(app):
            assert await (await plan.enqueue()).result(timeout=60) == []


@virtual
async def test_a_key_of_a_plan_with_other_arguments(app: App) -> None:
    shop = Shop(app)
    keyed = (shop.add.s() | shop.add.s()).options(key="k")
    handle = await keyed.enqueue(1)
    assert await keyed.enqueue(1) == handle
    async with nothing_stored(app, KeyConflict, handle.id, "with other arguments"):
        await keyed.enqueue(2)


@virtual
async def test_a_policy_that_a_transaction_does_not_allow(app: App) -> None:
    """Whether a plan is active would have to be read after the commit."""
    shop = Shop(app)
    tx = apsw.Connection(":memory:")
    plan = (shop.add.s(1) | shop.add.s()).options(key="k", unique=while_active, tx=tx)
    async with nothing_stored(app, InvalidOption, "tx", "unique=while_active"):
        await plan.enqueue()


@virtual
async def test_a_key_of_a_late_node_that_is_taken(app: App) -> None:
    """A large plan is refused whole, its own key and those of other nodes included."""
    shop = Shop(app)
    keyed = shop.add.options(key="k", unique=while_active)
    holder = await keyed.options(delay="1h").enqueue(0)
    first = shop.add.options(key="other", unique=while_active).s(0)
    members = joined([first], (shop.add.s(n) for n in range(LARGE)), [keyed.s(1)])
    for plan in (group(members).options(key="whole"), chain(first, keyed.s())):
        async with nothing_stored(app, KeyConflict, holder.id, "the key 'k' of node"):
            await plan.enqueue()


@virtual
async def test_a_refused_plan_refuses_no_other(app: App) -> None:
    """Plans that are enqueued at the same time share a transaction."""
    shop = Shop(app)
    keyed = shop.add.options(key="k", unique=while_active)
    await keyed.options(delay="1h").enqueue(0)
    plans = [shop.add.s(1) | link for link in (shop.add.s(), keyed.s(), shop.add.s(2))]
    enqueues = (plan.enqueue() for plan in plans)
    first, second, third = await asyncio.gather(*enqueues, return_exceptions=True)
    assert isinstance(second, KeyConflict)
    for handle in (first, third):
        assert isinstance(handle, PlanJob)
        assert (await handle.status()).nodes == 2
    assert (await rows(app))["job"] == 1 + 4


@virtual
async def test_two_nodes_with_one_key(app: App) -> None:
    shop = Shop(app)
    keyed = shop.add.options(key="k", unique=while_active)
    async with nothing_stored(app, InvalidPlan, "node 0", "the same key 'k'"):
        await group(keyed.s(1), shop.add.s(1), keyed.s(1)).enqueue()


@virtual
async def test_a_queue_of_a_late_node_that_is_closed(app: App) -> None:
    shop = Shop(app)
    closed = QueueChange(closed=True)
    await (await app.store()).set_queue("app:mail", closed, AuditNote(who="ann"))
    last = shop.add.options(queue="mail").s(1)
    async with nothing_stored(app, QueueClosed, "mail"):
        await group([*(shop.add.s(n) for n in range(LARGE)), last]).enqueue()


@virtual(settings=QUICK)
async def test_a_member_adds_after_its_group_has_closed(app: App) -> None:
    """It was collected as failed, and what follows has run; it is retried then."""
    shop = Shop(app)
    members = group(shop.adds.s(), shop.add.s(1), on_error="collect")
    async with working(app):
        handle = await (members | shop.add.si(6)).enqueue()
        assert await handle.result(timeout=60) == 7
        shop.fails = False
        (found,) = [job async for job in app.jobs(state="dead")]
        job = await app.job(found.id)
        await job.retry()
        with pytest.raises(JobDead, match="came too late") as dead:
            await job.result(timeout=60)
        assert dead.value.reason == "plan_refused"
        assert (await handle.status()).state is PlanState.DONE
        assert await app.jobs().count() == 3


@virtual(settings=QUICK)
async def test_a_plan_in_a_state_that_allows_no_retry(app: App) -> None:
    shop = Shop(app)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
    async with nothing_stored(app, WrongState, "is running and cannot be retried"):
        await handle.retry()
    async with working(app):
        assert await handle.result(timeout=60) == 3
        async with nothing_stored(app, WrongState, "is done and cannot be retried"):
            await handle.retry()


@virtual(settings=QUICK)
async def test_a_plan_that_is_being_cancelled_or_fails(app: App) -> None:
    """A retry comes too early; it waits for a leader, and here is none."""
    shop = Shop(app)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
    store = await app.store()
    cures = ("when its running jobs have ended", "Only failed and cancelled plans")
    for state, cure in zip(
        (PlanState.CANCELLING, PlanState.FAILING), cures, strict=True
    ):
        stored = await stored_plan(store, app.name, id_bytes(handle.id))
        assert (await store.commit(Effects(puts=[stored.put(state=state)]))).versions
        words = f"is {state.value} and cannot be retried"
        async with nothing_stored(app, WrongState, words, cure):
            await handle.retry()
        assert (await handle.status()).state is state


@virtual(settings=QUICK)
async def test_a_result_that_is_gone(app: App) -> None:
    """Somebody has deleted the log from which the next node would read it."""
    shop = Shop(app)
    late = shop.add.options(delay="1h")
    handle = await (shop.add.s(1) | late.s() | shop.add.s()).enqueue()
    async with working(app):
        await app.clock.sleep(60)
        log = f"j:{app.name}/{id_bytes(handle.id).hex()}/0"
        await (await app.store()).drop_logs([log])
        with pytest.raises(JobDead, match="is not stored any more") as dead:
            await handle.result(timeout=7200)
        assert dead.value.reason == "input_lost"
        assert await handle.counts() == {
            State.DONE: 1,
            State.DEAD: 1,
            State.CANCELLED: 1,
        }


@virtual(settings=QUICK)
async def test_a_plan_that_is_not_there(app: App) -> None:
    """Its id is no id, is of a job, or of a plan that was deleted after its retention."""
    shop = Shop(app)
    with declined(PlanNotFound, "'plan-1' is not a plan id"):
        await app.plan("plan-1")
    job = await shop.add.enqueue(1)
    with declined(
        PlanNotFound, f"there is no plan {job.id}", "app.job(id)", "no plan."
    ):
        await app.plan(job.id)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
    node = (await handle.tree()).members[0].id or ""
    with declined(PlanNotFound, f"It is of plan {handle.id}."):
        await app.plan(node)
    async with working(app):
        assert await handle.result(timeout=60) == 3
        await app.clock.sleep(60)
    await app.clock.sleep(KEPT_SECONDS)
    async with working(app):
        await app.clock.sleep(60)
    for ask in (
        handle.status,
        handle.counts,
        handle.progress,
        handle.tree,
        handle.wait,
        handle.result,
        handle.cancel,
        handle.retry,
        handle.as_completed().__anext__,
        lambda: app.plan(handle.id),
    ):
        with declined(PlanNotFound, f"there is no plan {handle.id}"):
            await ask()
