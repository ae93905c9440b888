"""Everybody at the same few jobs, keys, logs and queues at once: nobody waits in a circle.

Retries after a deadlock would hide it, so the server's own log is asked. In the end every
job is in one place, the counts of bounded queues are true, and no job waits for a log that is
long enough.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from durio.errors import StoreUnavailable
from durio.host.clock import HostClock
from durio.model.effects import Append, Effects, Extend, NewEntry, Put
from durio.model.job import BLOCKED, DEAD, READY, SCHEDULED, NewJob
from durio.model.keys import key_claim, replace, while_active, while_waiting, window
from durio.model.logs import ANY_END, DONE_END, OnEnd, Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.conflicts import EffectsRefused
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
LOGS = [f"t:{SHOP}/{n}" for n in range(6)]
RECORDS = [f"{n}" for n in range(4)]
KIND = "test:shop"
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
# A blocked job has one row in `waits`, and no other has.
WAITING = """
select coalesce(s.id, w.id)::text
from (select id from durio.sched where run_at = 'infinity') as s
full join durio.waits as w on w.id = s.id
where s.id is null or w.id is null
"""
FORGOTTEN = """
select w.id::text from durio.waits as w join durio.grown_log as l on l.name = w.log
where w.above < l.length
union all
select d.log from durio.deferred as d
"""
GAPS = """
select l.name from durio.grown_log as l
left join (select log, count(*) as n, max(off) as last from durio.entry group by log) as e
  on e.log = l.name
where coalesce(e.n, 0) <> l.length or coalesce(e.last, -1) <> l.length - 1
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
        if chance.random() < 0.3:
            above = chance.randrange(30)
            job = job._replace(wait=Wait(chance.choice(LOGS), above))
        if chance.random() < 0.5:
            ends = chance.sample(LOGS, chance.randint(1, 3))
            when = chance.choice([DONE_END, ANY_END])
            once = chance.random() < 0.3
            on_end = (OnEnd(log, when, chance.randrange(9), once) for log in ends)
            job = job._replace(on_end=tuple(on_end))
        self.ids = [*self.ids[-JOBS_KNOWN:], job.id]
        if chance.random() < 0.5:
            policy, text = chance.choice(POLICIES), f"{chance.randrange(KEYS)}"
            return job._replace(key=key_claim(policy, TASK, text, PAYLOAD))
        return job

    def effects(self) -> Effects:
        """Some of everything, in any order."""
        chance = self.chance
        jobs = [self.new() for _ in range(chance.randrange(3))]
        names = chance.sample(RECORDS, chance.randrange(3))
        version = chance.choice([None, None, 0])
        puts = [Put(KIND, name, b"1", version, ttl_seconds=0.05) for name in names]
        logs = chance.sample(LOGS, chance.randrange(4))
        appends = [Append(log, [NewEntry(b"x")] * chance.randint(1, 3)) for log in logs]
        extends: list[Extend] = []
        if self.ids and chance.random() < 0.2:
            extends = [Extend(job_id, 1) for job_id in self.some(2)]
        return Effects(jobs, puts, appends, extends)


async def produce(crowd: Crowd, store: PostgresStore) -> None:
    """Alone or many in one call; sometimes twice at once, as after a lost answer."""
    chance = crowd.chance
    count = chance.choice([1, 1, 5])
    jobs = [crowd.new() for _ in range(count)]
    if chance.random() < 0.3:
        await store.commit(crowd.effects())
    elif chance.random() < 0.5:
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
        if chance.random() < 0.3:
            outcomes = [
                each._replace(effects=crowd.effects())
                if each.kind == OutcomeKind.DONE and chance.random() < 0.4
                else each
                for each in outcomes
            ]
    await store.exchange(worker, outcomes, (), 0)
    if chance.random() < 0.7:
        await store.leave(worker)


async def meddle(crowd: Crowd, store: PostgresStore) -> None:
    """People's hands: by id, by query, whole queues."""
    chance = crowd.chance
    match chance.randrange(9):
        case 7:
            with suppress(EffectsRefused):
                ids, effects = crowd.some(), crowd.effects()
                await store.act(ids, CancelJobs(), effects=effects)
        case 8:
            await store.drop_logs(chance.sample(LOGS, 2))
        case 0 | 1:
            await store.act(crowd.some(), CancelJobs(), note=AuditNote(who="kim"))
        case 2:
            await store.act(crowd.some(), RetryJobs(), note=AuditNote(who="kim"))
        case 3:
            await store.act(crowd.some(), DiscardJobs(), note=AuditNote(who="kim"))
        case 4:
            states = chance.choice([(READY, SCHEDULED, BLOCKED), (DEAD,)])
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
    await store.settle(20)
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
            while (await store.settle(1000)).next_due_seconds is not None:
                continue
            for query in (WAITING, FORGOTTEN, GAPS):
                assert await store.context.connections.read(query) == []
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
