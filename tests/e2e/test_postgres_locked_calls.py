"""Calls of one batch, one of which needs a key that an open transaction has locked.

The store writes the calls without keys and answers the others `locked`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from durio import App
from durio.errors import QueueFull, StoreUnavailable
from durio.model.job import NewJob
from durio.model.keys import key_claim, window
from durio.ports.enqueue import Enqueued
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK
from tests.e2e.open_transaction import clock, open_transaction, opened

CALL_SECONDS = 2.0
Join = Callable[[NewJob], Awaitable[list[Enqueued]]]


def job(key: str | None = None) -> NewJob:
    claim = None if key is None else key_claim(window(), TASK, key, PAYLOAD)
    return NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD, key=claim)


def play(
    grounds: ScratchSchema, story: Callable[[PostgresStore, Join], Awaitable[None]]
) -> None:
    """With a store, and a stranger who has begun."""

    async def main() -> None:
        place = replace(grounds.location, call_seconds=CALL_SECONDS)
        async with (
            opened(place) as store,
            open_transaction(grounds.url) as stranger,
        ):
            await story(store, lambda one: store.enqueue([one], tx=stranger))

    asyncio.run(main())


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_one_locked_key_leaves_the_other_calls_stored(
    grounds: ScratchSchema, *, is_known: bool, again: bool
) -> None:
    async def story(store: PostgresStore, join: Join) -> None:
        if is_known:
            await store.enqueue([job("k")])
        await join(job("k"))
        jobs = [job(), job("k"), job("free"), job()]
        answers = await store.enqueue(jobs, calls=[1] * 4, again=again)
        assert [answer.created for answer in answers][::3] == [True, True]
        assert answers[1].locked is not None
        assert not answers[1].created
        assert answers[1].locked.wait_seconds == CALL_SECONDS
        assert not answers[1].locked.error.unknown
        stored = await store.states([each.id for each in jobs])
        told = [answer.id for answer in answers if answer.locked is None]
        assert stored.keys() == set(told), "who was refused is not stored"
        assert (await store.enqueue([job("free")], calls=[1]))[0].locked is None

    play(grounds, story)


def test_a_locked_key_holds_up_nobody_in_the_line_of_a_full_queue(
    grounds: ScratchSchema,
) -> None:
    """There is room after a while: whoever stands behind it gets in."""

    async def main() -> None:
        app = App(grounds.url, name="shop")
        app.queue("small", maxsize=2, full_wait=20.0)

        @app.task(name="add", queue="small")
        async def add(value: int) -> int:
            return value

        async with app, open_transaction(grounds.url) as stranger:
            full = [await add.enqueue(n) for n in range(2)]
            async with asyncio.TaskGroup() as group:
                keyed = group.create_task(waiting(add.options(key="k").enqueue(1)))
                lines = (await app._loop_state()).enqueuer._waiters
                while not lines:
                    await clock.sleep(0.01)
                await add.options(tx=stranger, key="k").enqueue(1)
                plain = [group.create_task(waiting(add.enqueue(n))) for n in range(2)]
                for waits in full:
                    await waits.cancel()
                await asyncio.wait(plain, return_when=asyncio.FIRST_COMPLETED)
                assert not keyed.done()
                await stranger.execute("rollback")
                async with app.worker() as worker:
                    await asyncio.wait([keyed, *plain])
                    await worker.drained(20.0)

    asyncio.run(main())


async def waiting(call: Awaitable[object]) -> object:
    """Its answer, or what it was told instead."""
    try:
        return await call
    except (QueueFull, StoreUnavailable) as error:
        return error
