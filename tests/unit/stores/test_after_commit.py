"""What is committed is told as committed, and a rescue stays within one namespace."""

import asyncio
import errno
from pathlib import Path

from durio.ports.exchange import Lane
from durio.ports.upkeep import ExpiredLeases
from durio.stores.sqlite.store import SqliteStore
from tests.unit.stores.sqlite_harness import CLOCK, INFO, LANE, new_job


class BrokenWakeups:
    """No descriptor is left for a socket."""

    def __init__(self) -> None:
        self.rings = 0

    def wake(self, worker: int, ring: bytes) -> None:
        del worker, ring
        self.rings += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_ring_that_fails_fails_no_enqueue() -> None:
    async def main() -> None:
        store, bells, job = SqliteStore(None, CLOCK), BrokenWakeups(), new_job()
        await store.open()
        await store.register(INFO, 30)
        store.context.writer._session._wakeups = bells
        (answer,) = await store.enqueue([job])
        assert answer.created
        assert bells.rings == 1, "the fault was met"
        assert await store.states([job.id])

    asyncio.run(main())


def test_a_rescue_leaves_the_workers_of_another_app_alone() -> None:
    async def main() -> None:
        store = SqliteStore(None, CLOCK)
        await store.open()
        await store.enqueue([new_job()])
        worker = await store.register(INFO, 0)
        other = await store.register(INFO._replace(namespace="other"), 0)
        rescued = await store.rescue(10, ExpiredLeases("other"))
        assert rescued.workers == [other]
        assert (await store.rescue(10, ExpiredLeases(INFO.namespace))).workers == [
            worker
        ]
        again = await store.register(INFO, 30)
        assert (await store.exchange(again, [], [Lane(LANE, 1)], 1)).claims

    asyncio.run(main())


def test_a_bell_left_over_from_another_database_is_in_nobodys_way(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        path = tmp_path / "jobs.db"
        for _ in range(2):
            store = SqliteStore(str(path), CLOCK)
            await store.open()
            assert await store.register(INFO, 30) == 1
            (row,) = await store.context.reader.read(
                lambda db: db.rows("select has_bell from worker")
            )
            assert row == (1,)
            # As after `kill -9` and a hand that removes the file, but not the folder.
            await store.close()
            assert remove_files(tmp_path) == ["1.bell", "1.life", "writer.lock"]

    asyncio.run(main())


def remove_files(folder: Path) -> list[str]:
    """Remove the database; what is left in its private folder."""
    for left in folder.glob("jobs.db*"):
        if left.is_file():
            left.unlink()
    return sorted(left.name for left in (folder / "jobs.db-durio").iterdir())
