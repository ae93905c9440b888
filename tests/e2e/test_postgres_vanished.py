"""A machine that vanishes in the middle of a transaction: its locks do not outlive it long."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from durio.host.clock import HostClock
from durio.model.job import NewJob
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore
from durio.stores.postgres.transaction import PostgresTransaction
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK
from tests.e2e.proxy import FaultProxy
from tests.servers.postgres import OWNER, PASSWORD, PostgresServer

clock = HostClock()
CALL_SECONDS = 1.0
LOCK = "select 1 from {schema}.queue where name = $1::text for update"


def test_the_locks_of_a_vanished_machine_are_freed(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    async def main(proxy: FaultProxy) -> None:
        url = postgres.url(user=OWNER, password=PASSWORD)
        away = location_from_url(url.replace(str(postgres.port), str(proxy.address[1])))
        lost = PostgresStore(replace(away, call_seconds=CALL_SECONDS), clock)
        other = PostgresStore(grounds.location, clock)
        await lost.open()
        await other.open()
        await other.declare({LANE: 10})
        locked = asyncio.Event()

        async def hold(tx: PostgresTransaction) -> None:
            await tx.rows(LOCK, LANE)
            locked.set()
            await asyncio.Event().wait()

        holder = asyncio.create_task(lost.context.connections.write(hold))
        await locked.wait()
        proxy.black_hole()  # not even the end of the connection gets through
        holder.cancel()
        with suppress(asyncio.CancelledError):
            await holder
        job = NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD)
        async with asyncio.timeout(20):
            assert (await other.enqueue([job]))[0].created
        await other.close()
        proxy.heal()
        await lost.close()

    with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
        asyncio.run(main(proxy))
