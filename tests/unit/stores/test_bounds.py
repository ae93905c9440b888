"""Bounded queues where several callers share one commit."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from durio.errors import StoreError
from durio.model.job import NewJob
from durio.stores.sqlite.bounds import guard_of, write_soft_marks
from durio.stores.sqlite.enqueue import enqueue_jobs
from durio.stores.sqlite.store import SqliteStore
from durio.stores.sqlite.write_session import SqliteTransaction
from tests.unit.stores.sqlite_harness import INFO, LANE, new_job, run_on_store

DEPTH = "select depth from queue where name = ?"
WAITING = "select count(*) from job where state < 3 and queue = ?"


async def depths(store: SqliteStore, lane: str = LANE) -> tuple[int, int]:
    """What the queue says, and what is there."""
    return await store.context.reader.read(
        lambda db: (db.value(DEPTH, (lane,)), db.value(WAITING, (lane,)))
    )


@pytest.mark.proves("M36")
def test_a_caller_that_fails_leaves_the_depth_to_the_others(tmp_path: Path) -> None:
    def fails(tx: SqliteTransaction) -> None:
        enqueue_jobs(tx, [new_job(), new_job(lane="shop:new")])
        raise apsw.TooBigError("planted")

    async def story(store: SqliteStore) -> None:
        await store.declare({LANE: 10})
        writer = store.context.writer
        calls: list[Any] = [store.enqueue([new_job()]) for _ in range(3)]
        calls[1:1] = [writer.write(fails), writer.write(fails)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, StoreError) for answer in answers) == 2
        assert await depths(store) == (3, 3)
        # The lane that the failed ones made is not there: nobody may believe it is.
        await store.enqueue([new_job(lane="shop:new")])
        assert "shop:new" in [row.name for row in await store.queues("shop")]

    run_on_store(tmp_path / "jobs.db", story)


@pytest.mark.proves("M36")
def test_a_refusal_is_over_with_its_call(tmp_path: Path) -> None:
    """In the same transaction room comes, and the next caller has it."""

    async def story(store: SqliteStore) -> None:
        await store.declare({LANE: 2})
        worker = await store.register(INFO, 30.0)

        def work(tx: SqliteTransaction) -> list[bool]:
            def enter(*jobs: NewJob) -> bool:
                return enqueue_jobs(tx, jobs)[0].full is None

            told = [enter(new_job(), new_job(), new_job()), enter(new_job(), new_job())]
            return [*told, enter(new_job())]

        assert await store.context.writer.write(work) == [False, True, False]
        assert await depths(store) == (2, 2)
        await store.leave(worker)

    run_on_store(tmp_path / "jobs.db", story)


@pytest.mark.proves("M35")
def test_a_mark_comes_too_late_for_a_queue_with_a_bound(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        await store.enqueue([new_job()])
        await store.declare({LANE: 5})
        await store.context.writer.write(
            lambda tx: write_soft_marks(tx, [(LANE, 1, 99)])
        )
        assert await depths(store) == (1, 1)

    run_on_store(tmp_path / "jobs.db", story)


def test_plain_queues_have_no_guard(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        await store.enqueue([new_job()])
        await store.declare({LANE: None})
        guard = await store.context.writer.write(lambda tx: guard_of(tx, LANE))
        assert guard is None
        await store.declare({"shop:other": 5})
        assert await store.context.writer.write(lambda tx: guard_of(tx, LANE)) is None

    run_on_store(tmp_path / "jobs.db", story)
