"""Claims and results are bounded in bytes: large jobs come in small batches."""

import asyncio
from pathlib import Path

import pytest

from durio.model.job import DONE, Claim, NewJob
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.sqlite import exchange, finish
from durio.stores.sqlite.store import SqliteStore
from tests.conformance import ManualClock
from tests.conformance.scene import LANE, TASK, info

JOBS, PAYLOAD_BYTES = 40, 1000


async def claim_all(store: SqliteStore, worker: int) -> list[list[Claim]]:
    """Claim until nothing is left; return the batches."""
    batches: list[list[Claim]] = []
    more = True
    while more:
        answer = await store.exchange(worker, [], [Lane(LANE, 100)], 100)
        batches.append(answer.claims)
        more = answer.more
    return batches


def payload(number: int) -> bytes:
    return b'["%d","' % number + b"x" * PAYLOAD_BYTES + b'"]'


@pytest.mark.parametrize("number_of_large", [0, 1, JOBS])
def test_a_claim_is_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number_of_large: int
) -> None:
    """Every job is claimed once, in order, however large it is."""
    monkeypatch.setattr(exchange, "CLAIM_BYTES_MAX", 10_000)

    async def story() -> list[list[Claim]]:
        clock = ManualClock()
        store = SqliteStore(str(tmp_path / "jobs.db"), clock)
        await store.open()
        worker = await store.register(info(), 60.0)
        jobs = [
            NewJob(
                clock.new_id(),
                LANE,
                4,
                TASK,
                payload(n) if n < number_of_large else b"%d" % n,
            )
            for n in range(JOBS)
        ]
        await store.enqueue(jobs)
        batches = await claim_all(store, worker)
        await store.close()
        found = [claim.id for batch in batches for claim in batch]
        assert found == [job.id for job in jobs]
        return [batch for batch in batches if batch]

    batches = asyncio.run(story())
    assert len(batches) == (4 if number_of_large == JOBS else 1)
    assert max(sum(len(c.payload) for c in batch) for batch in batches) < 12_000


def test_large_results_are_stored_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of all of them might be longer than SQLite accepts."""
    monkeypatch.setattr(finish, "PACKED_BYTES_MAX", 10_000)
    monkeypatch.setattr(finish, "FINISH_PACKED", "this is not used")

    async def story() -> None:
        clock = ManualClock()
        store = SqliteStore(str(tmp_path / "jobs.db"), clock)
        await store.open()
        worker = await store.register(info(), 60.0)
        jobs = [NewJob(clock.new_id(), LANE, 4, TASK, b"1") for _ in range(JOBS)]
        await store.enqueue(jobs)
        (claims, *_) = await claim_all(store, worker)
        outcomes = [
            Outcome(c.id, c.claim_no, OutcomeKind.DONE, result=payload(n))
            for n, c in enumerate(claims)
        ]
        assert (await store.exchange(worker, outcomes, (), 0)).rejected == []
        stored = await store.get([job.id for job in jobs])
        assert [(job.state, job.result) for job in stored] == [
            (DONE, payload(n)) for n in range(JOBS)
        ]
        await store.close()

    asyncio.run(story())
