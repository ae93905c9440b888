"""Pages from several tables that read a limited number of rows: complete, and in order."""

import pytest

from durio.model.job import StoredJob
from durio.ports.browse import Query
from durio.stores.postgres import browse
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.unit.stores.two_stores import run_on_two_stores

# Jobs with ids in the order of n, in all states and tables, of three queues and two tasks.
FILL = (
    """
create temp table made as
select n, (lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid as id,
  'shop:q' || n % 3 as lane, 'shop.' || case when n % 4 = 0 then 'pay' else 'send' end as task,
  n % 11 as kind
from generate_series(1, 150) as n""",
    """
insert into {schema}.job (id, created_at, rank, lane, task, payload, run_at)
select id, n, 4, lane, task, '[[],{}]', case when kind = 1 then n + 5000 end
from made where kind < 3""",
    """
insert into {schema}.ready (lane, rank, id) select lane, 4, id from made where kind = 0""",
    """
insert into {schema}.sched (lane, run_at, id) select lane, n + 5000, id from made where kind = 1""",
    """
insert into {schema}.run (id, worker, claim_no, started_at)
select id, 1, 1, n from made where kind = 2""",
    """
insert into {schema}.hist (id, created_at, finished_at, retried, losses, snoozed, claim_no,
  lost, rank, state, lane, task, payload)
select id, n, n, 0, 0, 0, 1, 0, 4, 4, lane, task, '[[],{}]' from made where kind in (3, 4, 5)""",
    """
insert into {schema}.kept (id, created_at, finished_at, retried, losses, snoozed, claim_no,
  lost, rank, state, lane, task, payload, gone_at, errors)
select id, n, n, 0, 0, 0, 1, 0, 4,
  case when kind = 6 then 6 when kind = 7 and n > 90 then 4 else 5 end, lane, task, '[[],{}]',
  9999, array[convert_to('{"type": "E' || n % 5 || '", "message": "m"}', 'UTF8')]
from made where kind > 5""",
)
QUERIES = {
    "all": Query("shop"),
    "one task": Query("shop", task="shop.pay"),
    "one queue": Query(lane="shop:q1"),
    "done": Query("shop", states=(4,)),
    "dead": Query("shop", states=(5,)),
    "dead of a queue": Query(lane="shop:q2", states=(5,)),
    "dead of an error": Query("shop", states=(5,), error="E3"),
    "done and cancelled": Query("shop", states=(4, 6)),
    "ready, done and dead": Query("shop", states=(2, 4, 5)),
    "waiting or running": Query("shop", states=(0, 1, 2, 3), task="shop.send"),
}


def matches(query: Query, job: StoredJob) -> bool:
    return (
        (query.states is None or job.state in query.states)
        and query.lane in {None, job.lane}
        and query.task in {None, job.task}
        and (query.error is None or query.error in (job.errors or b"").decode())
    )


async def everything(store: PostgresStore) -> list[StoredJob]:
    """All jobs, the newest first."""
    ids = [n.to_bytes(6) + bytes.fromhex("70008000000000000000") for n in range(1, 151)]
    return list(reversed(await store.get(ids)))


async def paged(store: PostgresStore, query: Query, limit: int) -> list[bytes]:
    found: list[bytes] = []
    cursor: str | None = None
    for _ in range(400):
        page = await store.find(query, limit=limit, cursor=cursor)
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("scanned", [(1, 1), (7, 2), (40, 10), (20_000, 1_000)])
def test_pages_of_all_tables_miss_nothing_and_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch, grounds: ScratchSchema, scanned: tuple[int, int]
):
    monkeypatch.setattr(browse, "SCAN_MAX", scanned[0])
    monkeypatch.setattr(browse, "TRY_ROWS", scanned[1])

    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        async def fill(tx: browse.ReadTransaction) -> None:
            for sql in FILL:
                await tx.rows(sql)

        await store.context.connections.write(fill)
        jobs = await everything(store)
        assert len(jobs) == 150
        for name, query in QUERIES.items():
            expected = [job.id for job in jobs if matches(query, job)]
            assert expected, name
            for limit in (1, 6, 200):
                assert await paged(store, query, limit) == expected, (name, limit)

    run_on_two_stores(grounds, story)
