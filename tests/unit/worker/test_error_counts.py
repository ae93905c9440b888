"""Workers count failed attempts by group: exactly, across workers, and bounded."""

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from durio import App, Permanent, Retry
from durio.client.error_groups import StoredGroup, list_groups
from durio.errors import StoreUnavailable
from durio.model.effects import Effects
from durio.model.error_groups import OTHERS, group_put, new_group
from durio.ports.commit import Committed
from durio.ports.records import Record
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import JOB_DEAD
from durio.worker import error_counts
from durio.worker.error_counts import ErrorCounter
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import drained, virtual, working
from tests.unit.model.test_error_groups import occurrence
from tests.unit.worker.test_lost_replies import faulty_store


async def groups(app: App) -> list[StoredGroup]:
    return await list_groups(await app.store(), app.name)


def shop(app: App) -> None:
    @app.task(name="send", retry=Retry(1, base=1, jitter=False))
    async def send(text: str) -> None:
        raise ValueError(text)

    @app.task(name="check")
    async def check() -> None:
        raise Permanent("no")

    @app.task(name="fine")
    async def fine() -> None: ...


@virtual(version="2.1")
async def test_attempts_and_dead_jobs_are_counted(app: App) -> None:
    shop(app)
    async with working(app):
        for number in range(3):
            await app.enqueue("send", f"order {number}")
        last = await app.enqueue("check")
        await app.enqueue("fine")
        await app.clock.sleep(5)
        await app.clock.sleep(5)
        await app.enqueue("send", "order 4")
        await app.clock.sleep(10)
    sent, checked = await groups(app)
    assert (sent.group.type, sent.group.failed, sent.group.dead) == ("ValueError", 8, 4)
    assert sent.group.message == "order 4"
    assert sent.group.versions == {"2.1": 8}
    assert (checked.group.failed, checked.group.dead) == (1, 1)
    assert checked.group.last_job == last.id
    assert checked.group.tasks == {"app.check": 1}
    assert sent.group.frames == ("worker/test_error_counts.py in send",)


@virtual
async def test_a_worker_that_ends_writes_its_last_counts(app: App) -> None:
    shop(app)
    await app.enqueue("check")
    await drained(app)
    (found,) = await groups(app)
    assert found.group.versions == {"unknown": 1}


@virtual
async def test_two_workers_that_write_at_once_lose_no_count(app: App) -> None:
    both, reads = asyncio.Barrier(2), list[str]()

    class ReadTogether(FaultyStore):
        async def records(self, kind: str, names: Sequence[str]) -> list[Record]:
            found = await self.store.records(kind, names)
            reads.append(kind)
            if len(reads) <= 2:
                await both.wait()
            return found

    store: Any = ReadTogether(await app.store(), app.clock)
    parts = store, app.clock, app.emit, app.name, None
    counters = [ErrorCounter(*parts) for _ in range(2)]
    for counter in counters:
        counter.jobs([JobEvent(JOB_DEAD, b"0" * 16, "t", "q", 1, error_type="E")] * 20)
    await asyncio.gather(*(counter.turn() for counter in counters))
    (found,) = await groups(app)
    assert found.group.failed == 20
    await asyncio.gather(*(counter.close() for counter in counters))
    (found,) = await groups(app)
    assert found.group.failed == 40


@virtual
async def test_a_write_that_the_end_interrupts_counts_once(app: App) -> None:
    class AnswersLate(FaultyStore):
        async def commit(self, effects: Effects, **options: Any) -> Committed:
            committed = await self.store.commit(effects, **options)
            await app.clock.sleep(1)
            return committed

    store: Any = AnswersLate(await app.store(), app.clock)
    counter = ErrorCounter(store, app.clock, app.emit, app.name, None)
    counter.jobs([JobEvent(JOB_DEAD, b"0" * 16, "t", "q", 1, error_type="E")])
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(counter.turn())
        await app.clock.sleep(0.5)
        turn.cancel()
        counter.jobs([JobEvent(JOB_DEAD, b"1" * 16, "t", "q", 1, error_type="E")])
        await counter.close()
    (found,) = await groups(app)
    assert (found.group.failed, turn.cancelled()) == (2, True)


@virtual
async def test_a_write_that_fails_alone_is_tried_again(app: App) -> None:
    class FailsLate(FaultyStore):
        async def records(self, *_: object) -> list[Record]:
            await app.clock.sleep(1)
            self.records = self.store.records  # once
            raise StoreUnavailable("away", cure="")

    logged: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: logged.append(context))
    store: Any = FailsLate(await app.store(), app.clock)
    counter = ErrorCounter(store, app.clock, app.emit, app.name, None)
    counter.jobs([JobEvent(JOB_DEAD, b"0" * 16, "t", "q", 1, error_type="E")])
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(counter.turn())
        await app.clock.sleep(0.5)
        turn.cancel()
    await app.clock.sleep(1)  # the write has failed, and nothing waits for it
    await counter.close()
    gc.collect()
    (found,) = await groups(app)
    assert (found.group.failed, turn.cancelled(), logged) == (1, True, [])


@virtual
async def test_counts_wait_for_a_store_that_does_not_answer(app: App) -> None:
    shop(app)
    faulty = await faulty_store(app)
    async with working(app) as worker:
        await worker.started.wait()
        faulty.fail("records", times=3, error=StoreUnavailable("away", cure=""))
        await app.enqueue("check")
        await app.clock.sleep(20)
    (found,) = await groups(app)
    assert found.group.failed == 1


@virtual
async def test_groups_are_bounded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_counts, "GROUPS_MAX", 3)
    shop(app)
    store = await app.store()
    puts = [
        group_put(app.name, f"{n:012x}", new_group([occurrence()], "f"), 0)
        for n in range(3)
    ]
    await store.commit(Effects(puts=puts))
    async with working(app):
        await asyncio.gather(app.enqueue("check"), app.enqueue("send", "x"))
        await app.clock.sleep(20)
    found = {one.fingerprint: one.group for one in await groups(app)}
    assert len(found) == 4
    assert found[OTHERS].failed == 3
