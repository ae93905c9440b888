"""A key that an open transaction has asked for is waited for by whoever needs it, alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from durio.errors import StoreUnavailable
from tests.e2e.postgres_shop import adding, counts, opened, plain
from tests.servers.postgres import PostgresServer

PATIENCE_SECONDS = "50"  # of a call: those who need not wait are done long before
HUNG_SECONDS = 30


@asynccontextmanager
async def joined(
    shop: PostgresServer, patience: str = PATIENCE_SECONDS
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """A task, a connection of the user's own, and what the store knows of locks."""
    async with opened(shop, call_timeout=patience) as app:
        connection = await asyncpg.connect(plain(shop))
        add = adding(app)
        await add.enqueue(0)  # the queue is known
        try:
            yield add, connection, (await app.store()).context.process.known_locks
        finally:
            await connection.close()


@pytest.mark.timeout(HUNG_SECONDS)
@pytest.mark.parametrize("key", ["new", "known"])
def test_others_go_on_while_one_waits_for_a_key(shop: PostgresServer, key: str) -> None:
    async def whole() -> None:
        async with joined(shop) as (add, tx, _):
            if key == "known":  # it has a row, which is another way through the store
                await add.options(key=key).enqueue(1)
            async with asyncio.TaskGroup() as group, tx.transaction():
                await add.options(tx=tx, key=key).enqueue(1)
                waiting = group.create_task(add.options(key=key).enqueue(1))
                mates = [group.create_task(add.enqueue(n)) for n in range(5)]
                for n in range(5):
                    keyed = add.options(key=f"mate{n}").enqueue(n)
                    mates.append(group.create_task(keyed))
                others = await asyncio.gather(*mates)
                others += [await add.enqueue(n) for n in range(5)]
                others += [await add.options(key=f"k{n}").enqueue(n) for n in range(5)]
                assert not waiting.done(), "nobody has waited with it"
            assert all(job.created for job in others)
            assert not waiting.result().created, "the transaction's job answers"
            assert counts(shop)[1] == 22

    asyncio.run(whole())


@pytest.mark.timeout(HUNG_SECONDS)
def test_a_key_asked_for_alone_keeps_nobody_either(shop: PostgresServer) -> None:
    async def whole() -> None:
        async with joined(shop) as (add, tx, locks), asyncio.TaskGroup() as group:
            transaction = tx.transaction()
            await transaction.start()
            await add.options(tx=tx, key="k").enqueue(1)
            waiting = group.create_task(add.options(key="k").enqueue(1))
            plain = 0
            while not locks.until:  # until it was asked for, without mates
                await add.enqueue(0)
                plain += 1
            assert (await add.enqueue(2)).created
            assert (await add.options(key="other").enqueue(2)).created
            assert not waiting.done()
            await transaction.rollback()
            assert (await waiting).created, "the key was never used"
            assert counts(shop)[1] == 4 + plain

    asyncio.run(whole())


def test_who_waited_in_vain_is_told_and_mates_are_not(shop: PostgresServer) -> None:
    async def whole() -> None:
        async with joined(shop, patience="1") as (add, tx, _):
            async with tx.transaction():
                await add.options(tx=tx, key="k").enqueue(1)
                asked = [add.options(key="k"), add, add]
                told: list[Any] = await asyncio.gather(
                    *(task.enqueue(1) for task in asked), return_exceptions=True
                )
                assert isinstance(told[0], StoreUnavailable)
                assert not told[0].unknown
                assert all(job.created for job in told[1:])
            assert not (await add.options(key="k").enqueue(1)).created

    asyncio.run(whole())
