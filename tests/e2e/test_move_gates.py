"""`durio move` carries jobs with gates: places stay behind, and all jobs pass again."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from durio.app import move
from durio.model.effects import Append, Effects, NewEntry
from durio.model.gate import START, GateSpec
from durio.model.job import BLOCKED, DONE, READY, SCHEDULED, NewJob
from durio.model.logs import Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema, count_places
from tests.conformance.scene import LANE, PAYLOAD, TASK, info
from tests.e2e.moving import Died, Steps, die_here, mover
from tests.e2e.test_move_plans import Before, Shop

SECONDS = 20.0
LIMIT = (GateSpec("1k:mail", cap=2), GateSpec("3f:anna", cap=1, held_until=START))
LOG = "j:shop/1"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "BATCH", 3)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


async def prepared(source: str) -> list[bytes]:
    """Store jobs behind and before gates, scheduled, and waiting for a log."""
    async with Shop(source).app as app:
        store = await app.store()

        def job(**fields: Any) -> NewJob:
            return NewJob(app.clock.new_id(), LANE, 4, TASK, PAYLOAD)._replace(**fields)

        jobs = [job(gates=LIMIT) for _ in range(7)]
        jobs += [job(gates=LIMIT, wait=Wait(LOG, 0)) for _ in range(2)]
        jobs += [job(gates=LIMIT, delay_seconds=3600.0), job()]
        await store.commit(Effects(jobs))
        states = Counter((await store.states([each.id for each in jobs])).values())
        assert states == {READY: 2, BLOCKED: 8, SCHEDULED: 1}
        return [each.id for each in jobs]


async def run_all(url: str, ids: list[bytes]) -> None:
    """Run the jobs: their limits hold in the new store, and each runs once."""
    async with Shop(url).app as app:
        store: Any = await app.store()
        await store.commit(Effects(appends=[Append(LOG, [NewEntry(b"")])]))
        worker = await store.register(info(), 60.0)
        claims, ran = [], Counter[bytes]()
        for _ in range(40):
            await store.settle(1000)
            ends = [Outcome(*c[:2], OutcomeKind.DONE, result=b"1") for c in claims]
            answer = await store.exchange(worker, ends, [Lane(LANE, 9)], 9)
            assert answer.rejected == []
            claims = answer.claims
            ran.update(claim.id for claim in claims)
            rows = await store.gates("", limit=9)
            used = {row.name: row.used for row in rows if row.used}
            if isinstance(store, PostgresStore):
                assert used == await count_places(store)
            assert used.get("1k:mail", 0) <= 2
        states = Counter((await store.states(ids)).values())
        assert states == {DONE: 10, SCHEDULED: 1}
        assert set(ran.values()) == {1}
        assert [(row.used, row.waiting) for row in rows] == [(0, 0), (0, 0)]


def test_jobs_pass_their_gates_again(source: str, grounds: ScratchSchema) -> None:
    """The new store settles while they arrive: none passes before all are there."""

    async def story() -> None:
        ids = await prepared(source)
        async with mover(source, grounds.url) as moving:

            async def settle(verb: str) -> None:
                await moving.target_store.settle(10)
                if verb != "open":
                    assert await moving.target_store.gates("", limit=9) == []

            moving.target = Before(moving.target, settle)
            await moving.move(drain_seconds=SECONDS, by="ann")
        await run_all(grounds.url, ids)

    asyncio.run(story())


def test_a_move_that_is_taken_back_leaves_none(
    source: str, grounds: ScratchSchema
) -> None:
    """Before the queues open there: the file goes on as before."""

    async def story() -> None:
        ids = await prepared(source)
        for fatal in (14, 20, 26):
            steps = Steps(fatal, die_here)
            async with mover(source, grounds.url) as moving:
                moving.source = steps.of(moving.source)
                moving.target = steps.of(moving.target)
                with pytest.raises(Died):
                    await moving.move(drain_seconds=SECONDS, by="ann")
            async with mover(source, grounds.url) as moving:
                await moving.back_out(by="ann")
                store: Any = moving.target_store
                rows = await store.context.connections.read(
                    "select (select count(*) from {schema}.waits), "
                    "(select count(*) from {schema}.job)"
                )
                assert tuple(rows[0]) == (0, 0)
        await run_all(source, ids)

    asyncio.run(story())
