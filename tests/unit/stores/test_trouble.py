"""What is refused at open, what a full disk does, and callers that cannot wait."""

import asyncio
import math
import sqlite3
import threading  # noqa: TID251 - a second loop lives in a second thread
from collections.abc import Callable
from pathlib import Path

import pytest

from durio.model.errors import (
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from durio.model.job import DONE, READY
from durio.model.keys import key_claim, while_active
from durio.model.outcome import KeepRule, Outcome
from durio.ports.exchange import Lane
from durio.stores.sqlite.statements import STATEMENTS
from durio.stores.sqlite.store import SqliteStore
from tests.job_counts import count_jobs
from tests.unit.stores.sqlite_harness import CLOCK, INFO, LANE, new_job, run_on_store


async def nothing(store: SqliteStore) -> None:
    del store


def refused(path: Path, kind: type[StoreError]) -> StoreError:
    with pytest.raises(kind) as told:
        run_on_store(path, nothing)
    assert str(path) in told.value.what
    assert told.value.cure
    return told.value


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "no" / "jobs.db", StoreUnavailable)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    refused(tmp_path / "jobs.db", StoreUnavailable)


def test_another_file_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("dear diary, " * 500)
    refused(path, StoreCorrupt)
    assert path.read_text().startswith("dear diary")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def from_the_future(store: SqliteStore) -> None:
        await store.context.writer.write(
            lambda tx: tx.db.rows(
                "insert into migration values (9999, '9999_x', '', 0)"
            )
        )

    run_on_store(path, from_the_future)
    assert "newer" in refused(path, SchemaMismatch).what


def test_a_changed_migration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def change(store: SqliteStore) -> None:
        await store.context.writer.write(
            lambda tx: tx.db.rows("update migration set checksum = 'x'")
        )

    run_on_store(path, change)
    refused(path, SchemaMismatch)


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    run_on_store(path, nothing)
    folder = Path(f"{path}-durio")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    refused(path, StoreUnavailable)


def test_a_foreign_connection_to_the_file_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    run_on_store(path, nothing)
    stranger = sqlite3.connect(path)
    stranger.execute("select 1 from job").fetchall()
    try:
        refused(path, StoreUnavailable)
    finally:
        stranger.close()
    run_on_store(path, nothing)


def test_two_stores_of_one_process_may_share_a_file(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        async def other(second: SqliteStore) -> None:
            job = new_job()
            await second.enqueue([job])
            assert (await store.states([job.id])) == {job.id: READY}

        second = SqliteStore(str(tmp_path / "jobs.db"), CLOCK)
        await second.open()
        await other(second)
        await second.close()

    run_on_store(tmp_path / "jobs.db", story)


def test_a_full_disk_loses_nothing_and_passes(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        job = new_job()
        await store.enqueue([job])
        (claim,) = (await store.exchange(worker, [], [Lane(LANE, 1)], 1)).claims
        assert (await store.renew(worker, 30)).alive
        limit = "pragma max_page_count"
        pages = await store.context.writer.write(
            lambda tx: tx.db.value("pragma page_count")
        )
        await store.context.writer.write_outside(lambda db: db.rows(f"{limit}={pages}"))
        big = [new_job(payload=b"x" * 50_000) for _ in range(10)]
        with pytest.raises(StoreFull) as told:
            await store.enqueue(big)
        assert not told.value.unknown
        assert (await store.health(worker)).behind_seconds == -math.inf
        assert await store.states([job.id for job in big]) == {}
        await store.context.writer.write_outside(lambda db: db.rows(f"{limit}=1000000"))
        done = Outcome(claim.id, claim.claim_no, 0, b"1")
        assert (await store.exchange(worker, [done], (), 0)).rejected == []
        assert all(answer.created for answer in await store.enqueue(big))

    run_on_store(tmp_path / "jobs.db", story)


def in_another_thread(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_second_loop_is_answered_while_the_first_is_blocked(
    tmp_path: Path, where: str
) -> None:
    answered: list[bool] = []

    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)

        async def beside() -> None:
            answered.append((await store.renew(worker, 30)).alive)
            await store.enqueue([new_job()])
            answered.append((await store.wait(worker, 5)).woken)
            answered.append(bool(await count_jobs(store, "shop")))

        # Joining blocks this very loop: the other must not need it.
        in_another_thread(lambda: asyncio.run(beside())).join(20)
        assert answered == [True, True, True]

    run_on_store(tmp_path / "jobs.db" if where == "file" else None, story)


def test_a_caller_that_gives_up_before_its_turn_has_written_nothing(
    tmp_path: Path,
) -> None:
    async def story(store: SqliteStore) -> None:
        free = threading.Event()
        begun = threading.Event()

        def hold(tx: object) -> None:
            del tx
            begun.set()
            free.wait(20)

        job = new_job()
        async with asyncio.TaskGroup() as group:
            group.create_task(store.context.writer.write(hold))
            while not begun.is_set():
                await CLOCK.sleep(0.001)
            late = group.create_task(store.enqueue([job]))
            await CLOCK.sleep(0)
            late.cancel()
            free.set()
        await store.enqueue([new_job()])
        assert await store.states([job.id]) == {}

    run_on_store(tmp_path / "jobs.db", story)


def test_one_failure_does_not_spoil_the_others(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        def fails(tx: object) -> None:
            del tx
            raise ZeroDivisionError

        jobs = [new_job() for _ in range(20)]
        writes = [store.enqueue([job]) for job in jobs]
        bad = [store.context.writer.write(fails) for _ in range(3)]
        told = await asyncio.gather(*writes, *bad, return_exceptions=True)
        assert [type(answer) for answer in told[20:]] == [ZeroDivisionError] * 3
        assert len(await store.states([job.id for job in jobs])) == 20

    run_on_store(tmp_path / "jobs.db", story)


def test_keyed_plain_kept_and_refused_finish_together() -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        claim = key_claim(while_active, "shop.pay", "k", b"[[],{}]")
        plain, keyed, gone, stale = (
            new_job(),
            new_job(key=claim),
            new_job(),
            new_job(),
        )
        await store.enqueue([plain, keyed, gone, stale])
        claims = (await store.exchange(worker, [], [Lane(LANE, 9)], 9)).claims
        ends = {c.id: Outcome(c.id, c.claim_no, 0, b"1") for c in claims}
        ends[gone.id] = ends[gone.id]._replace(keep=KeepRule(0.0))
        ends[stale.id] = ends[stale.id]._replace(claim_no=7)
        rejected = (await store.exchange(worker, list(ends.values()), (), 0)).rejected
        assert [r.id for r in rejected] == [stale.id]
        states = await store.states(list(ends))
        assert states == {plain.id: DONE, keyed.id: DONE, stale.id: 3}
        again = await store.enqueue([new_job(key=claim)])
        assert again[0].created

    run_on_store(None, story)


def test_the_plans_use_the_indexes() -> None:
    """No statement of the hot path may ever walk through the table."""
    walks = {"read_jobs", "read_workers", "read_migrations", "find_workers_to_wake"}
    walks |= {"find_lost_workers", "find_local_workers", "next_due_anywhere"}
    # A move reads everything, once.
    walks |= {"count_all_jobs", "count_active_workers", "find_registered_workers"}
    walks |= {"find_namespaces", "find_freeze_triggers", "create_freeze_trigger"}
    walks |= {name for name in STATEMENTS if name.startswith("export_")}
    assert walks <= set(STATEMENTS)

    async def story(store: SqliteStore) -> None:
        for name, text in STATEMENTS.items():
            if name in walks:
                continue
            sql = f"explain query plan {text}"
            count = max((n for n in range(1, 20) if f"?{n}" in sql), default=0)
            rows = await store.context.reader.read(
                lambda db, sql=sql, count=count: db.rows(sql, (None,) * count)
            )
            scans = [row[3] for row in rows if row[3] in ("SCAN job", "SCAN uniq")]
            assert not scans, f"{name}: {[row[3] for row in rows]}"

    run_on_store(None, story)


def test_leaving_lets_a_waiter_go(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        worker = await store.register(INFO, 30)
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(store.wait(worker, 3600))
            await CLOCK.sleep(0)
            await store.leave(worker)
            await waiter

    run_on_store(tmp_path / "jobs.db", story)
    run_on_store(None, story)


def test_a_store_can_be_opened_again_at_once(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        await store.enqueue([new_job()])
        await store.queues("shop", counts=True)

    for _ in range(10):
        run_on_store(tmp_path / "jobs.db", story)
