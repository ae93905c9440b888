"""Which commits of a SQLite store are flushed to the disk, and what a power cut undoes."""

import asyncio
import shutil
import threading  # noqa: TID251 - holds the writer's thread
from pathlib import Path

from durio.model.job import DONE, READY, RUNNING
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.sqlite.store import SqliteStore
from tests.unit.stores.sqlite_harness import INFO, LANE, new_job, run_on_store

FULL, NORMAL = 2, 1


def flushed(store: SqliteStore) -> bool:
    """Whether the last commit was flushed: `synchronous` of the connection that writes."""
    level = None
    while level is None:  # the writer may not have put the connection down yet
        level = store.context.writer.peek(lambda db: db.value("pragma synchronous"))
    assert level in (FULL, NORMAL)
    return level == FULL


def test_only_claims_without_outcomes_are_not_flushed(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, lease_seconds=30)
        await store.enqueue([new_job(), new_job()])
        assert flushed(store)
        claims = (await store.exchange(worker, (), [Lane(LANE, 1)], 1)).claims
        assert not flushed(store)
        done = Outcome(claims[0].id, claims[0].claim_no, OutcomeKind.DONE, b"1")
        more = (await store.exchange(worker, [done], [Lane(LANE, 1)], 1)).claims
        assert flushed(store)
        assert len(more) == 1
        await store.exchange(worker, (), [Lane(LANE, 1)], 1)
        assert not flushed(store)
        await store.renew(worker, lease_seconds=30)
        assert flushed(store)

    run_on_store(tmp_path / "jobs.db", story)


def test_an_end_beside_a_claim_is_flushed(tmp_path: Path) -> None:
    """Requests that come while the writer is busy share the next transaction."""
    come = threading.Event()

    async def let_go() -> None:
        come.set()

    async def story(store: SqliteStore) -> None:
        write = store.context.writer.write
        await asyncio.gather(
            write(lambda _: come.wait(60)),
            write(lambda _: None),
            write(lambda _: None, durable=False),
            let_go(),
        )
        assert flushed(store)

    run_on_store(tmp_path / "jobs.db", story)


def test_a_file_that_is_never_flushed_stays_so(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        await store.enqueue([new_job()])
        assert not flushed(store)

    run_on_store(tmp_path / "jobs.db", story, synchronous="normal")


def test_a_power_cut_undoes_a_claim_with_its_fence(tmp_path: Path) -> None:
    """The log ends where it was flushed last; every worker of the machine is gone."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    job = new_job()

    async def claim(store: SqliteStore) -> None:
        worker = await store.register(INFO, lease_seconds=30)
        await store.enqueue([job])
        for name in ("jobs.db", "jobs.db-wal"):
            shutil.copy(before / name, after / name)
        await store.exchange(worker, (), [Lane(LANE, 1)], 1)
        assert (await store.states([job.id])) == {job.id: RUNNING}

    async def claim_again(store: SqliteStore) -> None:
        assert (await store.states([job.id])) == {job.id: READY}
        worker = await store.register(INFO, lease_seconds=30)
        (claim,) = (await store.exchange(worker, (), [Lane(LANE, 1)], 1)).claims
        assert (claim.id, claim.claim_no, claim.losses) == (job.id, 1, 0)
        done = Outcome(claim.id, claim.claim_no, OutcomeKind.DONE, b"1")
        assert not (await store.exchange(worker, [done], (), 0)).rejected
        assert (await store.states([job.id])) == {job.id: DONE}

    run_on_store(before / "jobs.db", claim)
    run_on_store(after / "jobs.db", claim_again)
