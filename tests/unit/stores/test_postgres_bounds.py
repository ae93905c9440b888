"""A bound on PostgreSQL is counted in a second transaction: also after whoever set it died."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from durio.model.job import NewJob
from durio.ports.control import AS_IN_CODE, NO_BOUND, AuditNote, QueueChange
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.stores.postgres import bounds, control
from durio.stores.postgres.store import PostgresStore
from durio.stores.postgres.transaction import PostgresTransaction
from tests.conformance.postgres import ScratchSchema
from tests.unit.stores.two_stores import CLOCK, run_on_two_stores

LANE = "shop:default"
INFO = WorkerInfo("shop", "h/1", "h", 1, None, 10, "0")
ROW = "select depth, is_over from {schema}.queue where name = $1::text"
# What a statement does that began before there was a bound: it counts nothing.
TAKE = "delete from {schema}.ready"
LOOK = "select count(*) from {schema}.queue"


class Died(Exception):
    """The mover has died: nothing after this happens."""


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Whoever sets a bound dies when it has been committed."""

    async def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(bounds, "recount", die)
    monkeypatch.setattr(control, "recount", die)
    return monkeypatch


def new_jobs(count: int) -> list[NewJob]:
    return [
        NewJob(CLOCK.new_id(), LANE, 4, "shop.pay", b"[[],{}]") for _ in range(count)
    ]


@asynccontextmanager
async def taking_all(store: PostgresStore) -> AsyncGenerator[None]:
    """Somebody who has seen no bound takes what waits, and commits after this block."""
    taken, over = asyncio.Event(), asyncio.Event()

    async def work(tx: PostgresTransaction) -> None:
        await tx.rows(LOOK)
        await tx.rows(TAKE)
        taken.set()
        await over.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(store.context.connections.write(work))
        await taken.wait()
        yield
        over.set()


async def row(store: PostgresStore) -> tuple[int, int]:
    return tuple((await store.context.connections.read(ROW, LANE))[0])  # type: ignore[return-value]


async def bound_in_code(store: PostgresStore) -> None:
    await store.declare({LANE: 3})


async def bound_by_operator(store: PostgresStore) -> None:
    await store.set_queue(LANE, QueueChange(maxsize=3), AuditNote(who="me"))


async def left_full(
    store: PostgresStore,
    other: PostgresStore,
    dying: pytest.MonkeyPatch,
    bound: Callable[[PostgresStore], Coroutine[Any, Any, None]],
) -> None:
    """An empty queue that says it is full: nobody would ever get in."""
    await store.enqueue(new_jobs(3))
    async with taking_all(other):
        with suppress(Died):
            await bound(store)
    dying.undo()
    assert (await store.enqueue(new_jobs(1)))[0].full is not None
    assert (await row(store))[0] == 3


async def the_next_process(other: PostgresStore) -> None:
    await bound_in_code(other)


async def the_leader(other: PostgresStore) -> None:
    await other.measure(0, namespace="elsewhere")
    assert (await row(other))[0] == 3, "not its queue"
    await other.measure(0, namespace="shop")


@pytest.mark.parametrize("counts", [the_next_process, the_leader])
@pytest.mark.parametrize("bound", [bound_in_code, bound_by_operator])
def test_somebody_counts_again(
    grounds: ScratchSchema, dying: pytest.MonkeyPatch, bound: Any, counts: Any
) -> None:
    async def story(store: PostgresStore, other: PostgresStore) -> None:
        await left_full(store, other, dying, bound)
        await counts(other)
        assert await row(store) == (0, 0)
        assert (await store.enqueue(new_jobs(1)))[0].created

    run_on_two_stores(grounds, story)


def test_a_bound_that_was_taken_away_leaves_no_mark(
    grounds: ScratchSchema, dying: pytest.MonkeyPatch
) -> None:
    async def story(store: PostgresStore, other: PostgresStore) -> None:
        await left_full(store, other, dying, bound_by_operator)
        await store.register(INFO, 60.0)  # somebody who could obey one
        for size in (NO_BOUND, AS_IN_CODE):
            await store.set_queue(LANE, QueueChange(maxsize=size), AuditNote(who="me"))
            assert (await store.enqueue(new_jobs(9)))[0].created
            (lane,) = await store.queues("shop")
            assert (lane.maxsize, lane.is_over) == (None, False)

    run_on_two_stores(grounds, story)


def test_while_it_is_not_settled_a_bound_holds(
    grounds: ScratchSchema, dying: pytest.MonkeyPatch
) -> None:
    async def story(store: PostgresStore, other: PostgresStore) -> None:
        with suppress(Died):
            await store.declare({LANE: 3})
        dying.undo()
        (lane,) = await store.queues("shop")
        assert (lane.maxsize, lane.is_over) == (3, False)
        assert (await store.enqueue(new_jobs(3)))[0].created
        assert (await other.enqueue(new_jobs(1)))[0].full is not None
        worker = await store.register(INFO, 60.0)
        claims = await store.exchange(worker, [], [Lane(LANE, 2)], 2)
        assert len(claims.claims) == 2
        assert (await row(store))[0] == 1
        assert (await other.enqueue(new_jobs(2)))[0].created

    run_on_two_stores(grounds, story)
