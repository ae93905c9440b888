"""Pages that read a limited number of rows: complete, in order, over gaps, and bounded."""

import random  # noqa: TID251 - the order of arrival, from a seed
from pathlib import Path

import pytest

from durio.model.errors import InvalidOption
from durio.ports.browse import Page, Query
from durio.stores.sqlite import browse
from durio.stores.sqlite.store import SqliteStore
from tests.unit.stores.sqlite_harness import new_job, run_on_store

TASKS = ("shop.pay", "shop.send")


async def pages(store: SqliteStore, query: Query, limit: int) -> list[Page]:
    found: list[Page] = []
    cursor: str | None = None
    while True:
        page = await store.find(query, limit=limit, cursor=cursor)
        found.append(page)
        cursor = page.cursor
        if cursor is None:
            return found


def ids(found: list[Page]) -> list[bytes]:
    return [job.id for page in found for job in page.jobs]


@pytest.mark.parametrize("scan_max", [1, 3, 7, 100])
@pytest.mark.parametrize("limit", [1, 5, 200])
def test_windows_miss_nothing_and_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch, scan_max: int, limit: int
) -> None:
    monkeypatch.setattr(browse, "SCAN_MAX", scan_max)

    async def story(store: SqliteStore) -> None:
        jobs = [new_job(task=TASKS[n % 3 == 0]) for n in range(30)]
        random.Random(7).shuffle(jobs)  # noqa: S311 - an order, no secret
        for job in jobs:
            await store.enqueue([job])
        newest = [job.id for job in reversed(jobs)]
        sent = {job.id for job in jobs if job.task == "shop.send"}
        assert ids(await pages(store, Query(), limit)) == newest
        found = await pages(store, Query(task="shop.send"), limit)
        assert ids(found) == [each for each in newest if each in sent]
        by_id = sorted(newest, reverse=True)
        ranged = Query(task="shop.send", first_id=by_id[20], last_id=by_id[4])
        found = await pages(store, ranged, limit)
        assert ids(found) == [each for each in by_id[4:21] if each in sent]
        # 17 jobs are in the range: a window is never spent on others.
        assert len(found) <= 17 // scan_max + 1 + len(sent)
        if scan_max == 1:
            assert any(not page.jobs for page in found)

    run_on_store(None, story)


def test_a_window_begins_below_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numbers of deleted jobs cost no pages of their own."""
    monkeypatch.setattr(browse, "SCAN_MAX", 10)

    async def story(store: SqliteStore) -> None:
        old = [new_job() for _ in range(5)]
        await store.enqueue(old)
        new = [new_job() for _ in range(5)]
        await store.enqueue(new)
        raised = "update job set seq = seq + 1000000 where seq > 5"
        await store.context.writer.write(lambda tx: tx.db.rows(raised))
        found = await pages(store, Query(namespace="shop"), 200)
        assert [len(page.jobs) for page in found] == [5, 5]
        assert ids(found) == [job.id for job in reversed([*old, *new])]

    run_on_store(tmp_path / "jobs.db", story)


def test_a_cursor_of_the_other_order_is_refused() -> None:
    async def story(store: SqliteStore) -> None:
        job = new_job()
        await store.enqueue([job])
        with pytest.raises(InvalidOption, match="is not a cursor"):
            await store.find(Query(), limit=1, cursor=job.id.hex() + "f")
        ranged = Query(first_id=job.id)
        for cursor in ("7", job.id.hex().upper() + "00", "xyz"):
            with pytest.raises(InvalidOption, match="is not a cursor"):
                await store.find(ranged, limit=1, cursor=cursor)

    run_on_store(None, story)
