"""Gates under many workers and producers: no cap is exceeded, and no job is left waiting."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.effects import Effects
from durio.model.gate import FINAL, START, GateChange, GateSpec
from durio.model.job import BLOCKED, READY, Claim, NewJob
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema, count_places
from tests.conformance.scene import LANE, PAYLOAD, TASK, info
from tests.e2e.workers import seeded
from tests.servers.postgres import PostgresServer

LEASE_SECONDS = 60.0
WORKERS, PRODUCERS = 8, 4
NAME = "1k:mail"
LOCK_GATE = "select 1 from durio.gate where name = %s for update"
clock = HostClock()


def job(*gates: GateSpec) -> NewJob:
    return NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD, gates=gates)


def done(claim: Claim) -> Outcome:
    return Outcome(claim.id, claim.claim_no, OutcomeKind.DONE, result=b"1")


@asynccontextmanager
async def opened(
    grounds: ScratchSchema, count: int
) -> AsyncGenerator[list[PostgresStore]]:
    """Open stores of as many processes."""
    stores = [PostgresStore(grounds.location, clock) for _ in range(count)]
    try:
        for store in stores:
            await store.open()
        yield stores
    finally:
        for store in stores:
            await store.close()


async def settle(store: PostgresStore) -> None:
    """Go on until nothing is left."""
    while (await store.settle(1000)).next_due_seconds is not None:
        await clock.sleep(0.001)


async def used(store: PostgresStore) -> dict[str, int]:
    """Return how many places are used, which are as many as jobs hold."""
    counts = {gate.name: gate.used for gate in await store.gates("", limit=10_000)}
    held = await count_places(store)
    assert {name: count for name, count in counts.items() if count} == held
    return counts


@pytest.fixture(autouse=True)
def no_deadlock(postgres: PostgresServer) -> Iterator[None]:
    """Retries after a deadlock would hide it."""
    yield
    assert "deadlock detected" not in postgres.said()


class Crowd:
    """Workers and producers at the same gates, and how many jobs run at each."""

    def __init__(self, chance: random.Random, jobs: list[NewJob]) -> None:
        self.chance = chance
        self.jobs = jobs
        self.gates = {job.id: job.gates for job in jobs}
        self.left = {job.id for job in jobs}
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def count(self, claim: Claim, by: int) -> None:
        for gate in self.gates[claim.id]:
            if gate.cap is not None and gate.held_until != START:
                self.running[gate.name] += by
                now = self.running[gate.name]
                self.most[gate.name] = max(self.most[gate.name], now)

    async def produce(self, store: PostgresStore, jobs: list[NewJob]) -> None:
        while jobs:
            some = self.chance.randint(1, 20)
            await store.enqueue(jobs[:some])
            jobs = jobs[some:]
            await clock.sleep(self.chance.random() * 0.004)

    async def work(self, store: PostgresStore) -> None:
        """Claim a few jobs at a time and end them in all ways, as a worker does."""
        worker = await store.register(info(), LEASE_SECONDS)
        claims: list[Claim] = []
        while self.left:
            outcomes = [self.outcome(claim) for claim in claims]
            for claim in claims:  # a place is free from here on
                self.count(claim, -1)
            want = self.chance.randint(1, 9)
            answer = await store.exchange(worker, outcomes, [Lane(LANE, want)], want)
            assert answer.rejected == []
            for claim in answer.claims:
                self.count(claim, 1)
            self.left.difference_update(
                each.id for each in outcomes if each.kind == OutcomeKind.DONE
            )
            if answer.settle_in_seconds is not None:
                await clock.sleep(min(0.01, answer.settle_in_seconds))
                await store.settle(1000)
            claims = answer.claims
            if not claims:
                await clock.sleep(self.chance.random() * 0.004)
        await store.leave(worker)

    def outcome(self, claim: Claim) -> Outcome:
        end = done(claim)
        if self.chance.random() < 0.8:
            return end
        kinds = [OutcomeKind.RETRY, OutcomeKind.SNOOZE, OutcomeKind.RELEASE]
        kind = self.chance.choice(kinds)
        again = kind == OutcomeKind.RELEASE and self.chance.random() < 0.5
        delay = 0.0 if again else self.chance.choice([0.0, 0.02])
        return Outcome(
            *end[:2], kind, delay_seconds=delay, again_from_gates=again, error=b"{}"
        )

    async def run(self, grounds: ScratchSchema) -> None:
        async with opened(grounds, WORKERS + PRODUCERS) as stores:
            async with asyncio.TaskGroup() as group:
                for store in stores[:WORKERS]:
                    group.create_task(self.work(store))
                for number, store in enumerate(stores[WORKERS:]):
                    part = self.jobs[number::PRODUCERS]
                    group.create_task(self.produce(store, part))
            await settle(stores[0])
            gates = await stores[0].gates("", limit=10_000)
            assert {(gate.used, gate.waiting) for gate in gates} == {(0, 0)}
            assert await used(stores[0])


def test_a_cap_is_never_exceeded(grounds: ScratchSchema) -> None:
    """By 8 workers and 4 producers at 20 gates; all jobs end, so none is left waiting."""
    jobs = [job(GateSpec(f"{NAME}/{n % 20}", cap=3)) for n in range(600)]
    crowd = Crowd(seeded(), jobs)
    asyncio.run(crowd.run(grounds))
    assert len(crowd.most) == 20
    assert max(crowd.most.values()) <= 3


def test_one_gate_for_all(grounds: ScratchSchema) -> None:
    """Everybody needs the same row: what a transaction finds locked is not forgotten."""
    crowd = Crowd(seeded(), [job(GateSpec(NAME, cap=3)) for _ in range(200)])
    asyncio.run(crowd.run(grounds))
    assert 1 <= crowd.most[NAME] <= 3


def test_two_gates_in_a_row_do_not_block_each_other(grounds: ScratchSchema) -> None:
    """Narrow and wide gates, of all lengths: no deadlock, and no cap is exceeded."""
    chance = seeded()
    jobs = [
        job(
            GateSpec(f"{NAME}/{chance.randint(1, 5)}", cap=2, held_until=FINAL),
            GateSpec(f"3f:{chance.randint(1, 5)}", cap=4, held_until=START),
            GateSpec(f"4w:{chance.randint(1, 2)}", cap=5),
        )
        for _ in range(300)
    ]
    crowd = Crowd(chance, jobs)
    asyncio.run(crowd.run(grounds))
    assert all(
        most <= (2 if name.startswith(NAME) else 5) for name, most in crowd.most.items()
    )


# --- what is deferred outlives the process that left it


def test_a_place_that_is_given_back_at_a_locked_gate(grounds: ScratchSchema) -> None:
    """The end of the job does not wait; any other process goes on with the gate."""

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            worker = await one.register(info(), LEASE_SECONDS)
            spec = GateSpec(NAME, cap=1)
            waiting = job(spec)
            await one.enqueue([job(spec), waiting])
            (claim,) = (await one.exchange(worker, [], [Lane(LANE, 1)], 1)).claims
            dsn = one.context.location.dsn
            async with await psycopg.AsyncConnection.connect(dsn) as holder:
                await holder.execute(LOCK_GATE, [NAME])
                answer = await one.exchange(worker, [done(claim)], [], 0)
                assert answer.rejected == []
                assert answer.settle_in_seconds is not None
                assert (await used(other))[NAME] == 0
                (late,) = await other.enqueue([job(spec)])
                assert late.state == BLOCKED
                settled = await other.settle(10)
                assert settled.count == 0
                assert settled.next_due_seconds is not None
                await holder.rollback()
            assert (await other.states([waiting.id]))[waiting.id] == BLOCKED
            assert await other.settle(10) == (1, None, False)
            assert (await other.states([waiting.id]))[waiting.id] == READY
            assert (await used(other))[NAME] == 1

    asyncio.run(main())


@pytest.mark.parametrize("commits", [True, False])
def test_a_job_of_a_caller_enters_when_it_commits(
    grounds: ScratchSchema,
    *,
    commits: bool,
) -> None:
    """Its transaction makes and locks no gate: others pass meanwhile."""

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            spec = GateSpec(NAME, cap=2)
            mine = job(spec)
            connection = await psycopg.AsyncConnection.connect(grounds.url)
            async with connection:
                (answer,) = await one.enqueue([mine], tx=connection)
                assert answer.state == BLOCKED
                (first,) = await other.enqueue([job(spec)])
                assert first.state == READY
                assert await other.settle(10) == (0, None, False)
                await (connection.commit() if commits else connection.rollback())
            await settle(other)
            states = await other.states([mine.id])
            assert states == ({mine.id: READY} if commits else {})
            assert (await used(other))[NAME] == (2 if commits else 1)

    asyncio.run(main())


def test_a_change_waits_for_a_gate_that_is_in_use(grounds: ScratchSchema) -> None:
    """Many processes change the cap of one gate while jobs pass there."""
    chance = seeded()

    async def main() -> None:
        async with opened(grounds, 5) as (one, *others):
            spec = GateSpec(NAME, cap=1)

            async def change(store: PostgresStore) -> None:
                for _ in range(20):
                    caps = GateChange(NAME, cap=chance.randint(1, 9))
                    await store.commit(Effects([job(spec)], gates=[caps]))

            await one.enqueue([job(spec)])
            await asyncio.gather(*(change(store) for store in others))
            await one.commit(Effects(gates=[GateChange(NAME, cap=None)]))
            await settle(one)
            (gate,) = await one.gates("", limit=9)
            assert gate.waiting == 0
            assert gate.used < 81
            await used(one)

    asyncio.run(main())
