"""A claim that stands still in the server while its worker has given it up and asks again.

The worker asks for everything that runs in its name. What is claimed after that answer, by
the statement that was given up, nobody would ever run: its worker renews, and knows nothing.
"""

import asyncio
from dataclasses import replace

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.errors import StoreUnavailable
from durio.model.job import NewJob
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK, info
from tests.servers.postgres import PostgresServer

clock = HostClock()
CALL_SECONDS = 0.5
# Nothing that a lock could be: statements do not wait for those for long.
STAND_STILL = """
create table if not exists hold ();
create or replace function hold_run() returns trigger language plpgsql as $$
begin
  while exists (select 1 from hold) loop perform pg_sleep(0.01); end loop;
  return new;
end
$$;
create or replace trigger hold before insert on durio.run
for each row execute function hold_run();
insert into hold default values;
"""
STILL_WAITS = (
    "select 1 from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
    " and application_name = 'durio'"
)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_what_is_claimed_late_is_known_to_its_worker(
    postgres: PostgresServer, driver: str
) -> None:
    grounds = ScratchSchema(postgres.url(driver=driver))
    grounds.clear()

    async def main() -> None:
        store = PostgresStore(
            replace(grounds.location, call_seconds=CALL_SECONDS), clock
        )
        await store.open()
        await store.enqueue([NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD)])
        worker = await store.register(info(), 60.0)
        known: set[bytes] = set()

        async def ask(*, resync: bool) -> bool:
            """Whether an answer came."""
            try:
                told = await store.exchange(
                    worker, [], [Lane(LANE, 9)], 9, resync=resync
                )
            except StoreUnavailable:
                return False
            known.update(claim.id for claim in told.claims)
            return True

        where = postgres.url()
        async with await psycopg.AsyncConnection.connect(
            where, autocommit=True
        ) as hand:
            await hand.execute(STAND_STILL)
            assert not await ask(resync=False)
            is_told = await ask(resync=True)
            await hand.execute("delete from hold")
            while await (await hand.execute(STILL_WAITS)).fetchone():
                pass
            if not is_told:
                assert await ask(resync=True)
            rows = await hand.execute("select id from durio.run")
            assert {row[0].bytes for row in await rows.fetchall()} == known
        await store.close()

    asyncio.run(main())
