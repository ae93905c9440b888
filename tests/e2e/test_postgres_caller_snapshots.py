"""A caller's transaction that sees the store as it was at its beginning: it does not see a
bound that is younger, and what it brings is counted all the same."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from durio.model.job import NewJob
from durio.model.keys import key_claim, replace, while_active
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import PAYLOAD, SHOP, TASK
from tests.e2e.open_transaction import clock, connected, opened

LANE, OTHER = f"{SHOP}:default", f"{SHOP}:other"
LEVELS = ["read committed", "repeatable read", "serializable"]
BOUND = 9
DEPTH = """
select q.depth, (select count(*) from {schema}.ready r where r.lane = q.name)
from {schema}.queue q where q.name = $1::text
"""
NOTES = "select lane, jobs from {schema}.entered order by lane"


def job(lane: str = LANE) -> NewJob:
    return NewJob(clock.new_id(), lane, 4, TASK, PAYLOAD)


def keyed(key: str, lane: str = LANE) -> NewJob:
    return job(lane)._replace(key=key_claim(while_active, TASK, key, PAYLOAD))


def replacing(key: str, lane: str = LANE) -> NewJob:
    return job(lane)._replace(key=key_claim(replace, TASK, key, PAYLOAD))


@asynccontextmanager
async def snapshot_transaction(
    grounds: ScratchSchema, level: str
) -> AsyncGenerator[Any]:
    """It has seen the store, but not asked the queues, and commits after this block."""
    async with connected(grounds.url) as guest:
        await guest.execute(f"begin isolation level {level}")
        await guest.fetch("select 1 from durio.worker")
        yield guest
        await guest.execute("commit")


def run_story(
    grounds: ScratchSchema, story: Callable[[PostgresStore], Awaitable[None]]
) -> None:
    async def whole() -> None:
        async with opened(grounds.location) as store, asyncio.timeout(30):
            await story(store)

    asyncio.run(whole())


async def depth(store: PostgresStore, lane: str) -> int:
    """As the leader leaves it, who counts what nobody else has; the jobs say the same."""
    await store.measure(0, namespace=SHOP)
    ((counted, waiting),) = await store.context.connections.read(DEPTH, lane)
    assert counted == waiting
    return counted


@pytest.mark.parametrize("level", LEVELS)
def test_a_bound_that_it_does_not_see_counts_what_it_brings(
    grounds: ScratchSchema, level: str
) -> None:
    async def story(store: PostgresStore) -> None:
        await store.enqueue([replacing("moved", OTHER)])
        async with snapshot_transaction(grounds, level) as guest:
            await store.declare({LANE: BOUND, OTHER: BOUND})
            await store.enqueue([job(), job(OTHER)])
            await store.enqueue([job(), job()], tx=guest)  # by each of the statements
            await store.enqueue([keyed("new")], tx=guest)
            await store.enqueue([job(), keyed("new")], tx=guest)
            await store.enqueue([replacing("moved")], tx=guest)
        assert await depth(store, LANE) == 6
        assert await depth(store, OTHER) == 1
        (told, *_) = await store.enqueue([job() for _ in range(BOUND - 6 + 1)])
        assert told.full is not None
        assert told.full.depth == 6

    run_story(grounds, story)


@pytest.mark.parametrize("level", LEVELS)
def test_a_bound_that_it_sees_counts_once(grounds: ScratchSchema, level: str) -> None:
    async def story(store: PostgresStore) -> None:
        await store.declare({LANE: BOUND})
        async with snapshot_transaction(grounds, level) as guest:
            await store.enqueue([job(), job()], tx=guest)
        assert await depth(store, LANE) == 2

    run_story(grounds, story)


@pytest.mark.parametrize("level", LEVELS)
def test_without_a_bound_no_note_stays(grounds: ScratchSchema, level: str) -> None:
    async def story(store: PostgresStore) -> None:
        async with snapshot_transaction(grounds, level) as guest:
            await store.enqueue([job(), job(), job(OTHER)], tx=guest)
        noted = [] if level == "read committed" else [(LANE, 2), (OTHER, 1)]
        assert list(map(tuple, await store.context.connections.read(NOTES))) == noted
        await store.measure(0, namespace=SHOP)
        assert await store.context.connections.read(NOTES) == []
        await store.declare({LANE: BOUND})
        assert await depth(store, LANE) == 2

    run_story(grounds, story)
