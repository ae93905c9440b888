"""A file that older code made, with jobs in it, opened by this code."""

import json
import sqlite3
from pathlib import Path

import pytest

from durio.model.effects import Effects, Put
from durio.model.errors import StoreError, StoreMoved
from durio.model.job import DEAD, DONE, READY
from durio.ports.browse import LaneRow, Query
from durio.ports.control import AuditNote, QueueChange, RetryJobs
from durio.ports.exchange import Lane
from durio.ports.lease import Vitals
from durio.stores.sqlite.export_jobs import export_jobs_from
from durio.stores.sqlite.schema import migrations
from durio.stores.sqlite.store import SqliteStore
from tests.bulk_actions import run_bulk
from tests.unit.stores.sqlite_harness import CLOCK, INFO, LANE, run_on_store

OLD = migrations()[0]
BEFORE_RECORDS = migrations()[1]
IDS = [bytes([n]) * 16 for n in range(4)]


def make_old_file(path: Path) -> None:
    """The first schema, a ready, a done, a dead and a paused queue's job."""
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode=wal")
    db.executescript(OLD.text)
    db.execute(
        "create table migration (number integer primary key, name text not null,"
        " checksum text not null, applied_at real not null) strict"
    )
    row = (OLD.number, OLD.name, OLD.checksum, 1.0)
    db.execute("insert into migration values (?, ?, ?, ?)", row)
    now = CLOCK.now()
    rows = zip(IDS, (2, 4, 5, 2), (None, None, 7.0, None), strict=True)
    for job_id, state, died_at in rows:
        lane = "shop:paused" if job_id == IDS[3] else LANE
        ended = None if state == 2 else died_at or 5.0
        db.execute(
            "insert into job (id, queue, rank, state, task, payload, created_at,"
            " finished_at, died_at, gone_at, reason, errors)"
            " values (?, ?, 4, ?, 'shop.pay', x'5b5d', 1.0, ?, ?, ?, ?, ?)",
            (
                *(job_id, lane, state, ended, died_at, ended and now + 9e5),
                *((died_at and "exhausted"), died_at and '[{"type":"E"}]'),
            ),
        )
    db.executemany("insert into queue values (?, ?)", [(LANE, 0), ("shop:paused", 1)])
    db.commit()
    db.close()


def test_an_older_file_is_upgraded_with_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    make_old_file(path)

    async def story(store: SqliteStore) -> None:
        status = await store.migration_status()
        assert [name[:4] for name in status.applied] == [
            f"000{number}" for number in range(1, 7)
        ]
        states = await store.states(IDS)
        assert [states[i] for i in IDS] == [READY, DONE, DEAD, READY]
        assert await store.queues("shop") == [
            LaneRow(LANE, False),
            LaneRow("shop:paused", True),
        ]
        worker = await store.register(INFO, 30)
        renewed = await store.renew(worker, 30, Vitals(1.0, 2, 3, 4))
        assert renewed.paused == {"shop:paused"}
        # A death from before the deaths were numbered is counted and sent back.
        dead = Query(states=(DEAD,), error="e")
        counted = await store.count(dead)
        assert counted.jobs == 1
        assert (await run_bulk(store, dead, RetryJobs(), counted.mark)).jobs == 1
        exchanged = await store.exchange(worker, [], [Lane(LANE, 9)], 9)
        assert [claim.id for claim in exchanged.claims] == [IDS[0], IDS[2]]
        await store.set_queue(LANE, QueueChange(maxsize=1), AuditNote(who="ann"))
        assert await store.tallies("shop") == []

    run_on_store(path, story)

    async def again(store: SqliteStore) -> None:
        assert (await store.migration_status()).waiting == []
        assert len(await store.get(IDS)) == 4

    run_on_store(path, again)


@pytest.mark.parametrize("stage", ["draining", "frozen", "moved"])
def test_records_of_a_frozen_file_are_frozen(tmp_path: Path, stage: str) -> None:
    """The release that has frozen it had no table of records."""
    path = tmp_path / "jobs.db"
    make_old_file(path)
    db = sqlite3.connect(path)
    db.executescript(BEFORE_RECORDS.text)
    row = (BEFORE_RECORDS.number, BEFORE_RECORDS.name, BEFORE_RECORDS.checksum, 1.0)
    db.execute("insert into migration values (?, ?, ?, ?)", row)
    mark = {"id": "m1", "to": "postgresql://it's@there/db", "stage": stage}
    db.execute("insert into doc values ('move', '', ?)", (json.dumps(mark),))
    db.commit()
    db.close()

    async def story(store: SqliteStore) -> None:
        effects = Effects(puts=[Put("test:shop", "a", b"1")])
        if stage == "draining":
            await store.commit(effects)
        else:
            with pytest.raises(StoreMoved, match="it's@there"):
                await store.commit(effects)
        await export_jobs_from(store).unfreeze("m1", by="me")
        await store.commit(effects)

    run_on_store(path, story)


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """All of it or nothing: the old code can go on with it."""
    path = tmp_path / "jobs.db"
    make_old_file(path)
    db = sqlite3.connect(path)
    db.execute("create table audit (mine text)")  # in the way of the new one
    db.commit()
    db.close()
    with pytest.raises(StoreError, match="audit"):
        run_on_store(path, never)
    db = sqlite3.connect(path)
    columns = [row[1] for row in db.execute("pragma table_info(job)")]
    assert "died_no" not in columns
    assert db.execute("select count(*) from migration").fetchone() == (1,)
    db.close()


async def never(store: SqliteStore) -> None:
    del store
    raise AssertionError("the store was opened")
