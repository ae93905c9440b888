"""Mistakes in plans that are found when they are stored or while they run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain as joined
from typing import Any

import pytest

from durio import App, Context, Permanent, Retry
from durio.errors import (
    DurioError,
    InvalidArguments,
    InvalidPlan,
    JobDead,
    KeyConflict,
    NotSerializable,
    PlanNotFound,
    QueueClosed,
    WrongState,
)
from durio.keys import while_active
from durio.model.plan_record import KEPT_SECONDS
from durio.plans import PlanState, chain, group
from durio.ports.control import AuditNote, QueueChange
from tests.bad_input.refusals import asked, declined
from tests.unit.app.app_harness import virtual, working

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
async def test_a_plan_that_is_not_there(app: App) -> None:
    """Its id is no id, is of a job, or of a plan that was deleted after its retention."""
    shop = Shop(app)
    with declined(PlanNotFound, "'plan-1' is not a plan id"):
        await app.plan("plan-1")
    job = await shop.add.enqueue(1)
    with declined(PlanNotFound, f"there is no plan {job.id}"):
        await app.plan(job.id)
    handle = await (shop.add.s(1) | shop.add.s()).enqueue()
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
