"""A file that its jobs leave: who may still write, and what is read of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from durio.host.clock import HostClock
from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.errors import OperatingError, StoreMoved
from durio.model.job import BLOCKED, CANCELLED, READY, NewJob
from durio.model.logs import Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.control import AuditNote, CancelJobs
from durio.ports.exchange import Lane
from durio.ports.move import ActiveWorkers, MoveMark, RecordRow, row_key
from durio.stores.sqlite import export_jobs
from durio.stores.sqlite.database import DriverName
from durio.stores.sqlite.export_jobs import SqliteExportJobs, export_jobs_from
from durio.stores.sqlite.store import SqliteStore
from tests.conformance.scene import LANE, PAYLOAD, TASK, info

clock = HostClock()
MARK = MoveMark("m1", "postgresql://it's@there/db", "draining")
Story = Callable[[SqliteStore, SqliteExportJobs], Awaitable[None]]


@asynccontextmanager
async def opened(path: Path, driver: DriverName = "apsw") -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(path), clock, driver=driver)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def run_story(path: Path, story: Story, driver: DriverName = "apsw") -> None:
    async def main() -> None:
        async with opened(path, driver) as store:
            await story(store, export_jobs_from(store))

    asyncio.run(main())


def new_jobs(count: int, payload: bytes = PAYLOAD) -> list[NewJob]:
    return [NewJob(clock.new_id(), LANE, 4, TASK, payload) for _ in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_a_drain_keeps_workers_away_and_takes_jobs(
    path: Path, driver: DriverName
) -> None:
    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        worker = await store.register(info(), 60.0)
        assert await leaving.drain(MARK, by="me") == MARK
        assert [order.verb for order in (await store.renew(worker, 60.0)).commands] == [
            "drain"
        ]
        with pytest.raises(StoreMoved, match="it's@there") as caught:
            await store.register(info(), 60.0)
        assert not caught.value.unknown
        await store.enqueue(new_jobs(1))
        (claim,) = (await store.exchange(worker, [], [Lane(LANE, 1)], 1)).claims
        assert await leaving.freeze("m1") == ActiveWorkers(1, 1)
        await store.exchange(
            worker, [Outcome(claim.id, claim.claim_no, OutcomeKind.DONE)], (), 0
        )
        assert await leaving.freeze("m1") == ActiveWorkers(1, 0)
        await store.leave(worker)
        assert await leaving.freeze("m1") is None
        assert await leaving.freeze("m1") is None, "again changes nothing"
        mark = await leaving.mark()
        assert mark is not None
        assert mark.stage == "frozen"
        with pytest.raises(StoreMoved):
            await store.enqueue(new_jobs(1))

    run_story(path, story, driver)


def test_a_frozen_file_answers_for_what_it_has(path: Path) -> None:
    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        jobs = new_jobs(3)
        await store.enqueue(jobs)
        await leaving.drain(MARK, by="me")
        await leaving.freeze("m1")
        # A repeat after an unknown outcome: it was stored, and that is what it hears.
        told = await store.enqueue(jobs[:2], again=True)
        assert [each.created for each in told] == [False, False]
        with pytest.raises(StoreMoved):
            await store.enqueue([*jobs, *new_jobs(1)])
        with pytest.raises(StoreMoved):
            await store.act([jobs[0].id], CancelJobs(), note=AuditNote(who="me"))
        assert len(await store.get([job.id for job in jobs])) == 3

    run_story(path, story)


def test_nobody_waits_for_what_has_moved(path: Path) -> None:
    """Whoever waits is told when it is for good; what has ended is still answered."""

    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        waits, ended = new_jobs(2)
        await store.enqueue([waits, ended])
        await store.act([ended.id], CancelJobs(), note=AuditNote(who="me"))
        await leaving.drain(MARK, by="me")
        await leaving.freeze("m1")
        assert await store.states([waits.id], waiting=True) == {waits.id: READY}
        await leaving.set_stage("m1", "moved")
        with pytest.raises(StoreMoved, match="it's@there"):
            await store.states([waits.id], waiting=True)
        assert await store.states([waits.id]) == {waits.id: READY}
        both = await store.states([waits.id, ended.id], waiting=True)
        assert both == {waits.id: READY, ended.id: CANCELLED}
        assert await store.states([clock.new_id()], waiting=True) == {}

    run_story(path, story)


def test_a_thaw_leaves_nothing_behind(path: Path) -> None:
    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        await leaving.drain(MARK, by="me")
        await leaving.freeze("m1")
        await leaving.unfreeze("m1", by="me")
        assert await leaving.mark() is None
        await store.enqueue(new_jobs(1))
        await store.register(info(), 60.0)

    run_story(path, story)


def test_records_go_along_but_no_commands(path: Path) -> None:
    """Frozen, they cannot change; those of workers that are gone stay behind."""
    kept = Put("task:shop", "shop.pay", b"{}")
    over = Put("signature:shop", "shop.pay x", b"", ttl_seconds=0.0)
    puts = [kept, over, Put("answer:1", "0", b"x"), Put("command:7", "1", b"stack")]

    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        await store.commit(Effects(puts=puts))
        await leaving.drain(MARK, by="me")
        await leaving.freeze("m1")
        first, second = await leaving.rows("m1", "record", ("", ""), 10)
        assert first[:2] == over[:2], "the other store deletes it"
        assert second == RecordRow("task:shop", "shop.pay", b"{}", None, None)
        for change in (kept, kept._replace(name="new"), kept._replace(body=None)):
            with pytest.raises(StoreMoved):
                await store.commit(Effects(puts=[change]))
        await leaving.unfreeze("m1", by="me")
        await store.commit(Effects(puts=[kept]))

    run_story(path, story)


def test_logs_go_along_and_do_not_change(path: Path) -> None:
    waits = new_jobs(1)[0]._replace(wait=Wait("j:1", 5), delay_seconds=3.0)
    long = Append("j:1", [NewEntry(b"a", 7, "u"), NewEntry(None)], ttl_seconds=60.0)

    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        assert await store.require_protocol("shop", 1) == []
        await store.commit(Effects([waits], appends=[long]))
        await store.trim_log("j:1", 1)
        await leaving.drain(MARK, by="me")
        await store.commit(Effects(new_jobs(1), appends=[Append("k", [NewEntry(b"")])]))
        await leaving.freeze("m1")
        heads = await leaving.rows("m1", "log", ("",), 10)
        assert [head[:2] for head in heads] == [("j:1", 2), ("k", 1)]
        entries = await leaving.rows("m1", "entry", ("", -1), 10)
        assert [entry[:2] for entry in entries] == [("j:1", 1), ("k", 0)]
        assert await leaving.rows("m1", "entry", ("j:1", 1), 1) == entries[1:]
        assert (await leaving.metadata()).protocols == [("shop", 1)]
        job, _ = await leaving.jobs("m1", 0, 10)
        assert (job.state, job.ties, job.wait_delay) == (BLOCKED, '[["j:1",5],[]]', 3.0)
        for change in (
            store.commit(Effects(appends=[Append("k", [NewEntry(b"")])])),
            store.trim_log("j:1", 2),
            store.drop_logs(["j:1"]),
            store.require_protocol("other", 1),
            store.act([waits.id], CancelJobs()),
        ):
            with pytest.raises(StoreMoved):
                await change

    run_story(path, story)


def test_drain_commands_every_worker(path: Path) -> None:
    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        worker = await store.register(info(), 60.0)
        await leaving.drain(MARK, by="me")
        renewed = await store.renew(worker, 60.0)
        assert [command.verb for command in renewed.commands] == ["drain"]
        (line,) = await store.audit(None, limit=9)
        assert line[1:5] == ("me", "drain", f"worker {worker}", 0)

    run_story(path, story)


def test_an_older_move_holds(path: Path) -> None:
    async def story(_store: SqliteStore, leaving: SqliteExportJobs) -> None:
        await leaving.drain(MARK, by="me")
        other = MoveMark("m2", "postgresql://elsewhere/db", "draining")
        assert await leaving.drain(other, by="me") == MARK
        for step in (leaving.freeze("m2"), leaving.unfreeze("m2", by="me")):
            with pytest.raises(OperatingError, match="another process has ended"):
                await step
        with pytest.raises(OperatingError, match="another process has ended"):
            await leaving.jobs("m1", 0, 10)  # it is not frozen

    run_story(path, story)


def test_a_batch_is_bounded_in_jobs_and_in_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_jobs, "BATCH_BYTES_MAX", 2500)

    async def story(store: SqliteStore, leaving: SqliteExportJobs) -> None:
        jobs = [*new_jobs(5), *new_jobs(2, b"x" * 1000), *new_jobs(2, b"x" * 9000)]
        await store.enqueue(jobs)
        bodies = [b"x" * size for size in (1000, 1000, 9000, 1000, 1000)]
        entries = [NewEntry(body) for body in bodies]
        await store.commit(Effects(appends=[Append("j:1", entries)]))
        await leaving.drain(MARK, by="me")
        await leaving.freeze("m1")
        sizes, after = [], 0
        while parcels := await leaving.jobs("m1", after, 4):
            sizes.append(len(parcels))
            after = parcels[-1].seq
        assert sizes == [4, 3, 1, 1]
        sizes, place = [], ("", -1)
        while rows := await leaving.rows("m1", "entry", place, 4):
            sizes.append(len(rows))
            place = row_key("entry", rows[-1])
        assert sizes == [2, 1, 2]

    run_story(path, story)
