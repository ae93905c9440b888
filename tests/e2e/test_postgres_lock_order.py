"""Everybody at the same few jobs, keys and queues at once: nobody ever waits in a circle.

Retries after a deadlock would hide it, so the server's own log is asked. In the end every
job is in one place, and the counts of bounded queues are true.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from durio.errors import StoreUnavailable
from durio.host.clock import HostClock
from durio.model.job import DEAD, READY, SCHEDULED, NewJob
from durio.model.keys import key_claim, replace, while_active, while_waiting, window
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import (
    AuditNote,
    CancelJobs,
    DiscardJobs,
    QueueChange,
    RetryJobs,
)
from durio.ports.exchange import Lane
from durio.ports.upkeep import ExpiredLeases, Orphans
from durio.stores.postgres.driver import LOCKED
from durio.stores.postgres.store import PostgresStore
from tests.bulk_actions import move_waiting, run_bulk
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import PAYLOAD, SHOP, TASK, info
from tests.e2e.workers import seeded
from tests.servers.postgres import PostgresServer

SECONDS = 5.0
BOUNDED = [f"{SHOP}:bounded", f"{SHOP}:narrow"]
LANES = [*BOUNDED, f"{SHOP}:free", f"{SHOP}:other"]
POLICIES = [replace, while_active, while_waiting, window(0.2)]
KEYS, JOBS_KNOWN = 6, 200
clock = HostClock()

ENDS = (
    OutcomeKind.DONE,
    OutcomeKind.DONE,
    OutcomeKind.RETRY,
    OutcomeKind.SNOOZE,
    OutcomeKind.RELEASE,
    OutcomeKind.DEAD,
    OutcomeKind.CANCEL,
)
# A job lives in one lane, or runs, or is over: all places of all jobs.
PLACES = """
select id::text, count(*) from (
  select id from durio.ready union all select id from durio.sched
  union all select id from durio.run union all select id from durio.kept
  union all select id from durio.hist
) p group by id having count(*) > 1
"""
HOMELESS = """
select id::text from durio.job j
where (select count(*) from durio.ready r where r.id = j.id)
  + (select count(*) from durio.sched s where s.id = j.id)
  + (select count(*) from durio.run r where r.id = j.id) <> 1
"""
DEPTH = """
select depth - (select count(*) from durio.ready where lane = name)
  - (select count(*) from durio.sched where lane = name)
from durio.queue where name = $1::text
"""


class Crowd:
    """What all of them share: jobs that somebody knows, and the time."""

    def __init__(self, grounds: ScratchSchema, chance: random.Random) -> None:
        self.grounds = grounds
        self.chance = chance
        self.ids: list[bytes] = []
        self.turns = 0
        self.end = clock.monotonic() + SECONDS

    async def run(
        self, play: Callable[["Crowd", PostgresStore], Awaitable[None]]
    ) -> None:
        """One process, with a store of its own."""
        store = PostgresStore(self.grounds.location, clock)
        await store.open()
        try:
            while clock.monotonic() < self.end:
                await play(self, store)
                self.turns += 1
        finally:
            await store.close()

    def some(self, most: int = 12) -> list[bytes]:
        """Jobs in any order."""
        count = min(len(self.ids), self.chance.randint(1, most))
        return self.chance.sample(self.ids, count)

    def new(self) -> NewJob:
        chance = self.chance
        job = NewJob(
            clock.new_id(),
            chance.choice(LANES),
            chance.randint(0, 2),
            TASK,
            PAYLOAD,
            delay_seconds=chance.choice([0.0, 0.0, 0.05]),
        )
        self.ids = [*self.ids[-JOBS_KNOWN:], job.id]
        if chance.random() < 0.5:
            policy, text = chance.choice(POLICIES), f"{chance.randrange(KEYS)}"
            return job._replace(key=key_claim(policy, TASK, text, PAYLOAD))
        return job


async def produce(crowd: Crowd, store: PostgresStore) -> None:
    """Alone or many in one call; sometimes twice at once, as after a lost answer."""
    chance = crowd.chance
    count = chance.choice([1, 1, 5])
    jobs = [crowd.new() for _ in range(count)]
    if chance.random() < 0.5:
        await store.enqueue(jobs)
    else:
        await together(store, jobs, again=False)
    if chance.random() < 0.3:
        await together(store, jobs[::-1], again=True)


async def together(store: PostgresStore, jobs: list[NewJob], *, again: bool) -> None:
    """Several callers in one; where one of them has to wait each goes alone, as in a client."""
    try:
        await store.enqueue(jobs, calls=[1] * len(jobs), again=again)
    except StoreUnavailable as error:
        if error.values["state"] != LOCKED:
            raise
        for job in jobs:
            await store.enqueue([job], again=again)


async def work(crowd: Crowd, store: PostgresStore) -> None:
    """Claim, and bring ends of all kinds; then leave, or be given up for dead."""
    chance = crowd.chance
    worker = await store.register(info(), chance.choice([60.0, 0.05]))
    outcomes: list[Outcome] = []
    for _ in range(6):
        lanes = [Lane(name, 5) for name in chance.sample(LANES, 3)]
        answer = await store.exchange(worker, outcomes, lanes, 12)
        outcomes = [
            Outcome(
                claim.id,
                claim.claim_no,
                chance.choice(ENDS),
                error=b'{"type":"E"}',
                reason="permanent",
                delay_seconds=chance.choice([0.0, 0.05]),
            )
            for claim in answer.claims
        ]
        chance.shuffle(outcomes)
        if chance.random() < 0.5:
            outcomes = [each._replace(kind=OutcomeKind.DONE) for each in outcomes]
    await store.exchange(worker, outcomes, (), 0)
    if chance.random() < 0.7:
        await store.leave(worker)


async def meddle(crowd: Crowd, store: PostgresStore) -> None:
    """People's hands: by id, by query, whole queues."""
    chance = crowd.chance
    match chance.randrange(7):
        case 0 | 1:
            await store.act(crowd.some(), CancelJobs(), note=AuditNote(who="kim"))
        case 2:
            await store.act(crowd.some(), RetryJobs(), note=AuditNote(who="kim"))
        case 3:
            await store.act(crowd.some(), DiscardJobs(), note=AuditNote(who="kim"))
        case 4:
            states = chance.choice([(READY, SCHEDULED), (DEAD,)])
            query = Query(states=states, lane=chance.choice(LANES))
            action = RetryJobs() if states == (DEAD,) else CancelJobs()
            await run_bulk(store, query, action, step_jobs=10)
        case 5:
            lane, to = chance.sample(LANES, 2)
            await move_waiting(store, lane, to, 10)
        case _:
            change = QueueChange(paused=chance.random() < 0.3)
            await store.set_queue(chance.choice(LANES), change, AuditNote(who="kim"))


async def tend(_: Crowd, store: PostgresStore) -> None:
    """What leaders do, two at once."""
    await store.promote(20)
    await store.rescue(20, ExpiredLeases())
    await store.rescue(20, Orphans())
    await store.prune(20, dead_count=5)
    await store.measure(10_000, namespace=SHOP)
    await store.tidy()


def test_nobody_waits_in_a_circle(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    crowd = Crowd(grounds, seeded())

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for play in (produce,) * 4 + (work,) * 3 + (meddle,) * 3 + (tend,) * 2:
                group.create_task(crowd.run(play))

    async def judge() -> None:
        store = PostgresStore(grounds.location, clock)
        await store.open()
        try:
            assert await store.context.connections.read(PLACES) == []
            assert await store.context.connections.read(HOMELESS) == []
            for lane in BOUNDED:
                rows = await store.context.connections.read(DEPTH, lane)
                assert [tuple(row) for row in rows] == [(0,)]
        finally:
            await store.close()

    async def bound() -> None:
        store = PostgresStore(grounds.location, clock)
        await store.open()
        await store.declare(dict.fromkeys(BOUNDED, 100))
        await store.close()

    asyncio.run(bound())
    asyncio.run(main())
    print(f"{crowd.turns} turns")
    asyncio.run(judge())
    said = postgres.said()
    assert "deadlock detected" not in said, said[said.index("deadlock detected") :][
        :3000
    ]
