"""An enqueue waits for a key that an open transaction has locked; other enqueues go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from durio.errors import StoreUnavailable
from tests.e2e.postgres_shop import adding, counts, opened, plain, waiting_queues
from tests.servers.postgres import PostgresServer

CALL_SECONDS = "50"  # calls that need not wait are done long before
HUNG_SECONDS = 30


@asynccontextmanager
async def joined(
    shop: PostgresServer, call_seconds: str = CALL_SECONDS
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """A task, a connection of the user's own, and the queues of the waiting list."""
    async with opened(shop, call_timeout=call_seconds) as app:
        connection = await asyncpg.connect(plain(shop))
        add = adding(app)
        await add.enqueue(0)  # the queue is known
        try:
            yield add, connection, await waiting_queues(app)
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
        async with joined(shop) as (add, tx, queues), asyncio.TaskGroup() as group:
            transaction = tx.transaction()
            await transaction.start()
            await add.options(tx=tx, key="k").enqueue(1)
            waiting = group.create_task(add.options(key="k").enqueue(1))
            plain = 0
            while not queues:  # until its batch, without other keys, met the lock
                await add.enqueue(0)
                plain += 1
            assert (await add.enqueue(2)).created
            assert (await add.options(key="other").enqueue(2)).created
            assert not waiting.done()
            await transaction.rollback()
            assert (await waiting).created, "the key was never used"
            assert counts(shop)[1] == 4 + plain

    asyncio.run(whole())


def test_a_call_that_waited_in_vain_gets_an_error_and_others_do_not(
    shop: PostgresServer,
) -> None:
    async def whole() -> None:
        async with joined(shop, call_seconds="1") as (add, tx, _):
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
