"""What hands cost: which index a bulk act goes by, and the bounds of what it leaves."""

import asyncio

import pytest

from durio.client.bulk import BulkStep
from durio.model.job import CANCELLED, DEAD, READY, RUNNING, SCHEDULED
from durio.model.keys import key_claim, window
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import AuditNote, CancelJobs, DiscardJobs, RetryJobs
from durio.ports.exchange import Lane
from durio.stores import job_rules
from durio.stores.sqlite import audit
from durio.stores.sqlite.bulk import SqliteBulkMark, find_counted
from durio.stores.sqlite.store import SqliteStore
from tests.bulk_actions import run_bulk
from tests.job_counts import count_jobs
from tests.unit.stores.sqlite_harness import INFO, LANE, new_job, run_on_store

MARK = SqliteBulkMark(10**6, 9e9, 10**6)
INDEXES = {
    DEAD: "job_dead",
    READY: "job_ready",
    SCHEDULED: "job_scheduled",
    RUNNING: "job_running",
}


class Spy:
    """A database that notes how each question would be answered."""

    def __init__(self, db: object) -> None:
        self.db = db
        self.plans: list[str] = []

    def rows(self, sql: str, values: object = ()) -> list[object]:
        plan = self.db.rows(f"explain query plan {sql}", values)
        self.plans.append(" / ".join(row[3] for row in plan))
        return self.db.rows(sql, values)


@pytest.mark.parametrize("state", INDEXES)
@pytest.mark.parametrize(
    "query",
    [
        Query(namespace="shop"),
        Query(lane=LANE),
        Query(namespace="shop", task="shop.pay", error="x"),
        Query(namespace="shop", before=9e9, reason="r"),
    ],
)
def test_a_bulk_act_goes_by_the_index_of_its_state(state: int, query: Query) -> None:
    """Neither at its beginning nor later does it pass over jobs that are done."""

    async def story(store: SqliteStore) -> None:
        def ask(tx: object) -> None:
            spy = Spy(tx.db)
            asked = query._replace(states=(state,))
            position = "[1,1]" if state == RUNNING else "[1,1,1]"
            part = int(state == READY)  # first those that have passed gates
            for cursor in (None, f"[{part},{position}]"):
                find_counted(spy, asked, str(MARK), cursor, 10)
            assert len(spy.plans) == 2 + part
            for plan in spy.plans[:part]:
                assert "SEARCH gated USING INTEGER PRIMARY KEY" in plan
            for plan in spy.plans[part:]:
                assert f"INDEX {INDEXES[state]}" in plan
                # What has the same time may be sorted, but never all of it.
                assert "TEMP B-TREE FOR ORDER BY" not in plan

        await store.context.writer.write(ask)

    run_on_store(None, story)


def test_old_lines_of_the_audit_are_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AUDIT_LINES_MAX", 5)

    async def story(store: SqliteStore) -> None:
        job = new_job()
        await store.enqueue([job])
        for n in range(9):
            await store.act([job.id], RetryJobs(), note=AuditNote(who=f"ann{n}"))
        await store.prune(3, dead_count=0)
        assert len(await store.audit(None, limit=99)) == 6
        await store.prune(3, dead_count=0)
        await store.prune(3, dead_count=0)
        whos = [line.who for line in await store.audit("shop", limit=99)]
        assert whos == ["ann8", "ann7", "ann6", "ann5", "ann4"]

    run_on_store(None, story)


async def die(
    store: SqliteStore, error: bytes | None, lane: str = LANE, **fields: object
) -> None:
    worker = await store.register(INFO, 30)
    await store.enqueue([new_job(lane=lane, **fields)])
    claims = (await store.exchange(worker, [], [Lane(lane, 9)], 9)).claims
    words = [Outcome(c.id, c.claim_no, OutcomeKind.DEAD, error=error) for c in claims]
    assert (await store.exchange(worker, words, (), 0)).rejected == []


def test_kinds_of_deaths_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a kind says less, and in the end almost nothing."""
    monkeypatch.setattr(job_rules, "KINDS_MAX", 4)

    async def story(store: SqliteStore) -> None:
        for n in range(20):
            await die(store, b'{"type":"E%d"}' % n)
        for n in range(20):
            await die(store, b'{"type":"E"}', f"shop:q{n}")
        tallies = await store.tallies("shop")
        assert sum(one.dead for one in tallies) == 40
        assert len(tallies) <= 2 * 4 + 1
        kinds = {(one.lane, one.error_type): one.dead for one in tallies}
        assert kinds[(LANE, "E0")] == 1
        assert kinds[(LANE, "other")] == 16
        assert kinds[("shop:other", "other")] > 10
        await die(store, b'{"type":"E0"}')
        assert (LANE, "shop.pay", "E0", 2) in await store.tallies("shop")

    run_on_store(None, story)


@pytest.mark.parametrize("errors", ["no JSON", "{}", "[]", "[1]", '[{"type":7}]', None])
def test_damaged_errors_keep_no_job_from_dying(errors: str | None) -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        job = new_job()
        await store.enqueue([job])
        (claim,) = (await store.exchange(worker, [], [Lane(LANE, 9)], 9)).claims
        values = (errors, job.id)
        await store.context.writer.write(
            lambda tx: tx.db.rows("update job set errors = ? where id = ?", values)
        )
        word = Outcome(job.id, claim.claim_no, OutcomeKind.DEAD, reason="permanent")
        assert (await store.exchange(worker, [word], (), 0)).rejected == []
        assert [one.dead for one in await store.tallies("shop")] == [1]
        assert (await store.count(Query(error="type"))).jobs == 0

    run_on_store(None, story)


def test_a_discarded_job_leaves_no_key_behind() -> None:
    async def story(store: SqliteStore) -> None:
        claim = key_claim(window(), "shop.pay", "k", b"[[],{}]")
        await die(store, None, key=claim)
        query = Query(states=(DEAD,))
        count_keys = "select count(*) from uniq"
        assert await store.context.reader.read(lambda db: db.value(count_keys)) == 1
        await run_bulk(store, query, DiscardJobs())
        assert await store.context.reader.read(lambda db: db.value(count_keys)) == 0

    run_on_store(None, story)


def test_a_step_judges_again_what_it_found() -> None:
    """Between the look and the write another hand was quicker."""

    async def story(store: SqliteStore) -> None:
        jobs = [new_job() for _ in range(3)]
        await store.enqueue(jobs)
        query = Query(lane=LANE, states=(READY,))
        counted = await store.count(query)
        reader, writer = store.context.reader, store.context.writer

        class Late:
            """The other hand comes right after the look."""

            async def read(self, ask: object) -> object:
                found = await reader.read(ask)
                worker = await store.register(INFO, 30)
                await store.exchange(worker, [], [Lane(LANE, 1)], 1)
                await store.act([jobs[1].id], CancelJobs())
                return found

        store.context.reader = Late()
        done = await run_bulk(store, query, CancelJobs(), counted.mark)
        store.context.reader = reader
        assert writer is store.context.writer
        assert done == BulkStep(1)
        states = await store.states([job.id for job in jobs])
        assert [states[job.id] for job in jobs] == [RUNNING, CANCELLED, CANCELLED]
        (line,) = await store.audit("shop", limit=9)
        assert line.jobs == 1

    run_on_store(None, story)


def test_two_bulk_acts_at_once_send_each_job_back_once(tmp_path) -> None:
    """Two processes as it were, on one file: together they do it all, once."""

    async def story(store: SqliteStore) -> None:
        other = SqliteStore(str(tmp_path / "jobs.db"), store.context.clock)
        await other.open()
        for n in range(30):
            await die(store, b'{"type":"E%d"}' % n)
        query = Query(states=(DEAD,))
        counted = await store.count(query)

        async def bulk(mine: SqliteStore) -> int:
            return (await run_bulk(mine, query, RetryJobs(), counted.mark, 4)).jobs

        assert sum(await asyncio.gather(bulk(store), bulk(other))) == 30
        assert await count_jobs(store, "shop") == {LANE: {READY: 30}}
        await other.close()

    run_on_store(tmp_path / "jobs.db", story)
