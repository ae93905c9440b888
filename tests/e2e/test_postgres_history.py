"""Days of history, vacuum and plans, on a real PostgreSQL."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from durio.host.clock import HostClock
from durio.model.job import DONE, NewJob
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.clock import Clock
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.stores.postgres import vacuum
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.statements import statement
from durio.stores.postgres.store import PostgresStore
from durio.testing import testing
from tests.conformance.manual_clock import ManualClock
from tests.conformance.postgres import ScratchSchema
from tests.e2e.plan_jobs import app, first, text
from tests.servers.statements import names_in

DAY = 86400.0
LANE = "shop:default"
INFO = WorkerInfo("shop", "host/1", "host", 1, None, 10, "0")
DAYS = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'durio.hist'::regclass and c.relname <> 'hist_default' order by 1
"""
WHERE = (
    "select tableoid::regclass::text, count(*) from durio.hist group by 1 order by 1"
)
WORKER_ROLE = """
create role durio_worker login;
grant usage on schema durio to durio_worker;
grant select, insert, update, delete on all tables in schema durio to durio_worker;
grant usage on all sequences in schema durio to durio_worker
"""
# Who runs once in a while may look through a small table.
SCANS = {"read_partitions", "find_old_workers"}  # few rows, asked once for each App
CAPABILITIES = ("exchange", "finish", "lease", "upkeep", "prune")


@pytest.fixture
def url(grounds: ScratchSchema) -> str:
    asyncio.run(forget_days(grounds.url))
    return grounds.url


async def forget_days(url: str) -> None:
    async with connected(url) as connection:
        for (name,) in await connection.fetch(DAYS):
            await connection.execute(f"drop table durio.{name}")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(
    url: str, clock: Clock, *, real: bool = False, **options: Any
) -> AsyncIterator[PostgresStore]:
    injected = None if real else clock
    store = PostgresStore(location_from_url(url), clock, injected=injected, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def run_jobs(store: PostgresStore, clock: Clock, count: int) -> None:
    """Enqueue, claim and finish so many."""
    jobs = [NewJob(clock.new_id(), LANE, 4, "shop.pay", b"[]") for _ in range(count)]
    await store.enqueue(jobs)
    worker = await store.register(INFO, 1000 * DAY)
    claims = (await store.exchange(worker, [], [Lane(LANE, count)], count)).claims
    words = [Outcome(claim.id, claim.claim_no, OutcomeKind.DONE) for claim in claims]
    assert len(words) == count
    assert (await store.exchange(worker, words, [], 0)).rejected == []
    await store.leave(worker)


def test_days_are_made_ahead_and_dropped_whole(url: str) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(url, clock) as store, connected(url) as connection:

            async def days() -> list[str]:
                return [row[0][6:] for row in await connection.fetch(DAYS)]

            await run_jobs(store, clock, 5)  # before anybody has made a day
            assert await connection.fetch(WHERE) == [("durio.hist_default", 5)]
            await store.prune(100, dead_count=0)
            assert await days() == ["20270115", "20270116", "20270117"]
            # What the net had caught is where it belongs.
            assert await connection.fetch(WHERE) == [("durio.hist_d20270115", 5)]
            for _ in range(9):
                clock.advance(DAY)
                await run_jobs(store, clock, 1)
                await store.prune(100, dead_count=0)
            wanted = [f"202701{day}" for day in range(17, 27)]
            assert await days() == wanted
            assert await connection.fetchval("select count(*) from durio.hist") == 7

    asyncio.run(story())


def test_a_long_result_of_a_plan_is_kept_outside_the_days(url: str) -> None:
    """A day is dropped whole; the plan may need the result for longer."""

    async def story() -> None:
        schema = location_from_url(box.url).schema
        rows = f'select state, length(result) from "{schema}".'  # noqa: S608 - ours
        later = first.options(delay="1h").s()
        handle = await (text.s(10_000) | later).enqueue()
        await (text.s(10) | later).enqueue()
        await text.enqueue(10_000)
        await box.drain()
        async with connected(url) as connection:
            assert await connection.fetch(rows + "kept") == [(DONE, 10_002)]
            found = await connection.fetch(rows + "hist order by 2")
            assert [tuple(row) for row in found] == [(DONE, 12), (DONE, 10_002)]
        await box.drain(until="61m")
        assert await handle.result(timeout=60) == "x"

    with testing(app, url=url) as box:
        asyncio.run(story())


def test_a_role_without_rights_deletes_row_by_row(url: str) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with connected(url) as connection:
            await connection.execute(WORKER_ROLE)
        theirs = url.replace("postgres@", "durio_worker@")
        async with opened(theirs, clock) as store, connected(url) as connection:
            await run_jobs(store, clock, 5)
            assert await store.prune(100, dead_count=0) == 0
            assert await connection.fetch(DAYS) == []
            clock.advance(7 * DAY + 1)
            assert await store.prune(3, dead_count=0) == 3
            assert await store.prune(3, dead_count=0) == 2
            assert await connection.fetch(WHERE) == []

    asyncio.run(story())


def test_a_lock_that_is_not_free_stops_nobody(url: str) -> None:
    """The next turn makes the days; meanwhile the net catches what ends."""

    async def story() -> None:
        clock = ManualClock()
        async with opened(url, clock) as store, connected(url) as connection:
            async with connection.transaction():
                await connection.fetch("select 1 from durio.hist_default")
                assert await store.prune(100, dead_count=0) == 0
                await run_jobs(store, clock, 2)
            assert await connection.fetch(DAYS) == []
            clock.advance(60.0)
            await store.prune(100, dead_count=0)
            assert len(await connection.fetch(DAYS)) == 3

    asyncio.run(story())


def test_a_dirty_lane_is_vacuumed_and_who_keeps_it_dirty_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "DEAD_MAX", 100)
    monkeypatch.setattr(vacuum, "OLD_SECONDS", 0.0)

    async def dead_in(connection: Any) -> int:
        await connection.execute("select pg_stat_clear_snapshot()")
        lane = "'durio.ready'::regclass"
        return await connection.fetchval(f"select pg_stat_get_dead_tuples({lane})")

    async def story() -> None:
        told: list[str] = []
        clock = HostClock()
        async with (
            opened(url, clock, real=True, warn=told.append) as store,
            connected(url) as connection,
            connected(url) as old,
        ):
            async with old.transaction(isolation="repeatable_read"):
                await old.fetch("select 1 from durio.ready")
                await run_jobs(store, clock, 500)
                while await dead_in(connection) < 400:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                await store.tidy()
                assert len(told) == 1
                assert re.search(r"process \d+ .* has kept old row versions", told[0])
                assert await dead_in(connection) >= 400
            store.context.process.vacuum.next_at = 0.0
            store.context.process.vacuum.cleaned_at.clear()
            await store.tidy()
            while await dead_in(connection):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(story(), 30.0))


def test_every_statement_goes_by_an_index(url: str) -> None:
    """As planned on empty tables, for whatever comes: that plan is kept for long."""

    async def story() -> list[str]:
        names = [name for name in names_in(*CAPABILITIES) if name not in SCANS]
        wrong: list[str] = []
        async with opened(url, HostClock(), real=True) as store:
            line = await store.context.connections.connection()
            connection = await line.ready()
            for name in names:
                sql = statement(name).replace("{schema}", "durio")
                if "{" in sql or sql.startswith("lock "):
                    continue
                # Simple queries may name parameters that nobody gives.
                block = f"explain (generic_plan) {sql}".replace("'", "''")
                await connection.run(PLAN_OF.replace("{block}", block))
                rows = await connection.rows("select line from pg_temp.plan", ())
                plan = "\n".join(row[0] for row in rows)
                assert "cost=" in plan, name
                if re.search("Seq Scan|Hash Join|Merge Join", plan):
                    wrong.append(f"{name}:\n{plan}")
            assert len(names) > 25
        return wrong

    assert asyncio.run(story()) == []


PLAN_OF = """
drop table if exists pg_temp.plan;
create temp table plan (line text);
do $do$
declare one text;
begin
  for one in execute '{block}' loop
    insert into pg_temp.plan values (one);
  end loop;
end
$do$
"""
