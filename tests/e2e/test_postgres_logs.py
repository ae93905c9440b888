"""Logs under many writers: no entry is lost, repeated or skipped, and no job waits for ever."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.effects import Append, Effects, NewEntry
from durio.model.job import BLOCKED, DONE, READY, Claim, NewJob
from durio.model.logs import OnEnd, Wait
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.ports.logs import Entry
from durio.ports.upkeep import OneWorker
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK, info
from tests.e2e.workers import seeded
from tests.servers.postgres import PostgresServer

LOG = "t:shop/log"
LANES = [Lane(LANE, 100)]
LEASE_SECONDS = 60.0
LOCK_HEAD = "select 1 from durio.log where name = %s for update"
clock = HostClock()


def job(**fields: object) -> NewJob:
    return NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD)._replace(**fields)  # type: ignore[arg-type]


def done(claim: Claim, **fields: object) -> Outcome:
    end = Outcome(claim.id, claim.claim_no, OutcomeKind.DONE, result=b"1")
    return end._replace(**fields)  # type: ignore[arg-type]


def append(*bodies: bytes, log: str = LOG) -> Effects:
    return Effects(appends=[Append(log, [NewEntry(body) for body in bodies])])


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


async def whole(store: PostgresStore, log: str = LOG) -> list[Entry]:
    """Return all entries; their offsets have no gaps."""
    entries = await store.read_log(log, limit=100_000)
    assert [entry.offset for entry in entries] == list(range(len(entries)))
    return entries


@pytest.fixture(autouse=True)
def no_deadlock(postgres: PostgresServer) -> Iterator[None]:
    """Retries after a deadlock would hide it."""
    yield
    assert "deadlock detected" not in postgres.said()


# --- members of a group end on many workers


CHORDS, MEMBERS, WORKERS = 8, 60, 8


async def work(
    store: PostgresStore, chance: random.Random, ended: list[bytes], left: set[bytes]
) -> None:
    """Claim a few jobs at a time, end them, and settle what is left, as a worker does."""
    worker = await store.register(info(), LEASE_SECONDS)
    outcomes: list[Outcome] = []
    while left:
        want = chance.randint(1, 9)
        answer = await store.exchange(worker, outcomes, [Lane(LANE, want)], want)
        assert answer.rejected == []
        ended += [outcome.id for outcome in outcomes]
        left.difference_update(outcome.id for outcome in outcomes)
        if answer.settle_in_seconds is not None:
            await clock.sleep(answer.settle_in_seconds)
            await store.settle(1000)
        outcomes = [done(claim) for claim in answer.claims]
        if not outcomes:
            await clock.sleep(chance.random() * 0.004)
    await store.leave(worker)


def test_a_chord_ends_once_and_last(grounds: ScratchSchema) -> None:
    """However many members end at once: the last of them lets the callback go."""
    chance = seeded()

    async def main() -> None:
        async with opened(grounds, WORKERS) as stores:
            for number in range(CHORDS):
                log = f"j:shop/{number}"
                callback = job(wait=Wait(log, MEMBERS - 1))
                members = [job(on_end=(OnEnd(log, tag=n),)) for n in range(MEMBERS)]
                await stores[0].commit(Effects([callback, *members]))
                ended: list[bytes] = []
                left = {callback.id, *(member.id for member in members)}
                async with asyncio.TaskGroup() as group:
                    for store in stores:
                        group.create_task(work(store, chance, ended, left))
                assert len(ended) == MEMBERS + 1
                assert ended[-1] == callback.id
                tags = [entry.tag for entry in await whole(stores[0], log)]
                assert sorted(tags) == list(range(MEMBERS))
            assert await stores[0].settle(1000) == (0, None, False)

    asyncio.run(main())


# --- a job begins to wait while its log grows

RACES = 300


def test_a_job_that_begins_to_wait_misses_no_entry(grounds: ScratchSchema) -> None:
    """Whichever comes first: neither has to be found by `settle`."""
    chance = seeded()

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            waiting: list[bytes] = []
            answers: Counter[int] = Counter()

            async def wait(log: str) -> None:
                await clock.sleep(chance.random() * 0.002)
                jobs = [job(wait=Wait(log, 0)) for _ in range(2)]
                waiting.extend(each.id for each in jobs)
                answers.update(each.state for each in await one.enqueue(jobs))

            async def grow(log: str) -> None:
                await clock.sleep(chance.random() * 0.008)  # an enqueue takes longer
                await other.commit(append(b"x", log=log))

            for number in range(RACES):
                log = f"late:shop/{number}"
                async with asyncio.TaskGroup() as group:
                    group.create_task(wait(log))
                    group.create_task(grow(log))
            states = Counter((await one.states(waiting)).values())
            assert states == {READY: 2 * RACES}
            print(f"blocked at first: {answers[BLOCKED]} of {2 * RACES}")

    asyncio.run(main())


# --- ends that are sent twice, or too late

REPEATS = 40


def test_an_end_that_is_sent_twice_appends_once(grounds: ScratchSchema) -> None:
    """Both at the same time, as after a reply that was lost."""

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            worker = await one.register(info(), LEASE_SECONDS)
            await one.enqueue([job(on_end=(OnEnd(LOG),)) for _ in range(REPEATS)])
            claims = (await one.exchange(worker, [], LANES, REPEATS)).claims
            assert len(claims) == REPEATS
            for claim in claims:
                ends = [done(claim, effects=append(b"x", log="t:shop/other"))]
                if claim.id[-1] % 2:
                    ends = [done(claim)]
                answers = await asyncio.gather(
                    one.exchange(worker, ends, [], 0),
                    other.exchange(worker, ends, [], 0),
                )
                rejected = [each for answer in answers for each in answer.rejected]
                assert [each.already_stored for each in rejected] == [True]
            await settle(one)
            assert {entry.job for entry in await whole(one)} == {c.id for c in claims}
            assert len(await whole(one)) == REPEATS
            others = sum(claim.id[-1] % 2 == 0 for claim in claims)
            assert len(await whole(one, "t:shop/other")) == others

    asyncio.run(main())


def test_a_rescued_worker_appends_nothing(grounds: ScratchSchema) -> None:
    """Its end and the rescue of its job come at the same time: one of them counts."""

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            heir = await other.register(info(), LEASE_SECONDS)
            for _ in range(REPEATS):
                worker = await one.register(info(), LEASE_SECONDS)
                await one.enqueue([job(on_end=(OnEnd(LOG),))])
                (claim,) = (await one.exchange(worker, [], LANES, 1)).claims
                await asyncio.gather(
                    one.exchange(worker, [done(claim)], [], 0),
                    other.rescue(10, OneWorker(worker)),
                )
                for again in (await other.exchange(heir, [], LANES, 1)).claims:
                    await other.exchange(heir, [done(again)], [], 0)
            await settle(one)
            entries = await whole(one)
            assert len({entry.job for entry in entries}) == len(entries) == REPEATS

    asyncio.run(main())


# --- callers' transactions beside direct appends

USERS, TURNS, DIRECT = 10, 12, 60


class Tail:
    """A reader that follows a log, and checks each entry as it comes."""

    def __init__(self) -> None:
        self.seen = 0
        self.last: dict[str, int] = {}

    async def read(self, store: PostgresStore) -> bool:
        entries = await store.read_log(LOG, self.seen, limit=500)
        for entry in entries:
            assert entry.offset == self.seen
            assert entry.body is not None
            writer, number = entry.body.decode().split(":")
            assert int(number) > self.last.get(writer, -1)
            self.last[writer] = int(number)
            self.seen += 1
        return bool(entries)


def test_a_reader_skips_no_entry_of_a_slow_transaction(grounds: ScratchSchema) -> None:
    """Callers commit out of order, 0 to 60 ms after they have appended, or roll back."""
    chance = seeded()
    written = Counter[str]()

    async def use(store: PostgresStore, user: int, url: str) -> None:
        connection = await psycopg.AsyncConnection.connect(url)
        async with connection:
            for turn in range(TURNS):
                bodies = [b"%d:%d" % (user, 10 * turn + n) for n in range(3)]
                await store.commit(append(*bodies), tx=connection)
                await clock.sleep(chance.random() * 0.06)
                if chance.random() < 0.2:
                    await connection.rollback()
                else:
                    await connection.commit()
                    written[f"{user}"] += len(bodies)

    async def append_directly(store: PostgresStore, writer: str) -> None:
        for number in range(DIRECT):
            await store.commit(append(f"{writer}:{number}".encode()))
            written[writer] += 1

    async def main() -> None:
        async with opened(grounds, 4) as (one, other, upkeep, reader):
            tail, url = Tail(), grounds.url
            async with asyncio.TaskGroup() as group:
                users = [group.create_task(use(one, n, url)) for n in range(USERS)]
                users += [
                    group.create_task(append_directly(store, f"{100 + n}"))
                    for n, store in enumerate((one, other))
                ]
                while not all(user.done() for user in users):
                    await upkeep.settle(1000)
                    await tail.read(reader)
            await settle(upkeep)
            while await tail.read(reader):
                continue
            assert tail.seen == sum(written.values())
            assert len(await whole(reader)) == tail.seen

    asyncio.run(main())


# --- deferred entries outlive the process that left them


async def defer_an_end(store: PostgresStore) -> bytes:
    """End a job while the head of its log is locked; return the id of a job that waits."""
    worker = await store.register(info(), LEASE_SECONDS)
    blocked = job(wait=Wait(LOG, 0))
    await store.enqueue([blocked, job(on_end=(OnEnd(LOG),))])
    (claim,) = (await store.exchange(worker, [], LANES, 1)).claims
    dsn = store.context.location.dsn
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(LOCK_HEAD, [LOG])
        answer = await store.exchange(worker, [done(claim)], [], 0)
        assert answer.rejected == []
        assert answer.settle_in_seconds is not None
        assert (await store.states([claim.id]))[claim.id] == DONE
        settled = await store.settle(10)
        assert settled.count == 0
        assert settled.next_due_seconds is not None
        assert settled.is_locked
        await holder.rollback()
    return blocked.id


def test_deferred_entries_are_appended_by_another_process(
    grounds: ScratchSchema,
) -> None:
    """The one that has left them is gone."""

    async def main() -> None:
        async with opened(grounds, 1) as (one,):
            blocked = await defer_an_end(one)
        async with opened(grounds, 1) as (other,):
            assert await whole(other) == []
            assert (await other.states([blocked]))[blocked] == BLOCKED
            assert await other.settle(10) == (2, None, False)
            assert [entry.state for entry in await whole(other)] == [DONE]
            assert (await other.states([blocked]))[blocked] == READY

    asyncio.run(main())


def test_the_next_append_brings_deferred_entries_first(grounds: ScratchSchema) -> None:
    """Entries of one writer stay in order."""

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            blocked = await defer_an_end(one)
            await other.commit(append(b"x"))
            assert [entry.body for entry in await whole(one)] == [b"1", b"x"]
            assert (await one.states([blocked]))[blocked] == READY
            assert await other.settle(10) == (0, None, False)

    asyncio.run(main())


def test_a_job_of_a_caller_waits_for_a_log_that_grows(grounds: ScratchSchema) -> None:
    """It is found when the caller has committed, although the log was longer before."""

    async def main() -> None:
        async with opened(grounds, 2) as (one, other):
            blocked = job(wait=Wait(LOG, 0))
            connection = await psycopg.AsyncConnection.connect(grounds.url)
            async with connection:
                (answer,) = await one.enqueue([blocked], tx=connection)
                assert answer.state == BLOCKED
                await other.commit(append(b"x"))
                await connection.commit()
            await settle(other)
            assert (await one.states([blocked.id]))[blocked.id] == READY

    asyncio.run(main())


# --- deferred entries are read from a transaction on

DEFER = "insert into durio.deferred (log, tag, body) values (%s, 1, %s)"
SPEND = "select pg_current_xact_id()"  # a transaction of its own, when committed
READ_MARKS = (
    "select xid from durio.deferred_from union all select deferred_from from durio.log"
)
MOVE_MARKS = """
update durio.deferred_from set xid = '9000000000000000';
update durio.log set deferred_from = '9000000000000000'
"""


def test_entries_of_an_older_transaction_that_commits_later(
    grounds: ScratchSchema,
) -> None:
    """Later transactions were read before, and their rows are not read again."""

    async def main() -> None:
        async with opened(grounds, 1) as (store,):
            dsn = store.context.location.dsn
            async with (
                await psycopg.AsyncConnection.connect(dsn) as late,
                await psycopg.AsyncConnection.connect(dsn, autocommit=True) as quick,
            ):
                await late.execute(DEFER, [LOG, b"late"])
                for n in range(150):
                    await quick.execute(DEFER, [LOG, b"%d" % n])
                await settle(store)
                assert len(await whole(store)) == 150
                await late.commit()
                await settle(store)
                assert [entry.body for entry in await whole(store)][150:] == [b"late"]
                for _ in range(150):
                    await quick.execute(SPEND)
                await settle(store)
                marks = [
                    mark
                    for (mark,) in await (await quick.execute(READ_MARKS)).fetchall()
                ]
                assert min(map(int, marks)) > 0, "old rows would be read again"

    asyncio.run(main())


def test_marks_of_another_server_are_not_used(grounds: ScratchSchema) -> None:
    """A restored copy has entries of transactions with lower numbers than its marks."""

    async def main() -> None:
        async with opened(grounds, 1) as (store,):
            await store.commit(append(b"0"))
            dsn = store.context.location.dsn
            async with await psycopg.AsyncConnection.connect(
                dsn, autocommit=True
            ) as other:
                await other.execute(
                    "insert into durio.deferred_from select '0' "
                    "where not exists (select 1 from durio.deferred_from)"
                )
                await other.execute(MOVE_MARKS)
                await other.execute(DEFER, [LOG, b"1"])
                await store.commit(append(b"2"))
                assert [e.body for e in await whole(store)] == [b"0", b"1", b"2"]
                await other.execute(MOVE_MARKS)
                await other.execute(DEFER, [LOG, b"3"])
                await settle(store)
                assert len(await whole(store)) == 4

    asyncio.run(main())


# --- heads are written seldom


READ_HEADS = "select name, ctid::text from durio.log order by name"


def test_appends_leave_the_head_as_it_is(grounds: ScratchSchema) -> None:
    """Old versions of a head, which an old snapshot keeps, would slow down each append."""

    async def main() -> None:
        async with opened(grounds, 2) as (store, other):
            waits = job(wait=Wait(LOG, 150))
            await store.enqueue([waits, job(on_end=(OnEnd(LOG),))])
            await store.commit(append(b"0", log="t:shop/trimmed"))
            await store.trim_log("t:shop/trimmed", 9)
            async with await psycopg.AsyncConnection.connect(
                store.context.location.dsn, autocommit=True
            ) as reader:
                heads = await (await reader.execute(READ_HEADS)).fetchall()
                for n in range(100):
                    await (store, other)[n % 2].commit(append(b"%d" % n))
                await store.commit(append(b"1", log="t:shop/trimmed"))
                await asyncio.gather(
                    *(each.commit(append(b"x")) for each in (store, other) * 25)
                )
                assert await (await reader.execute(READ_HEADS)).fetchall() == heads
            assert await store.log_lengths([LOG]) == {LOG: 150}
            (left,) = await store.read_log("t:shop/trimmed")
            assert left.offset == 1, "a log without entries has kept its length"
            assert (await store.states([waits.id]))[waits.id] == BLOCKED
            await end_one(store)
            assert (await store.states([waits.id]))[waits.id] == READY
            assert len(await whole(store)) == 151

    asyncio.run(main())


async def end_one(store: PostgresStore) -> None:
    worker = await store.register(info(), LEASE_SECONDS)
    (claim,) = (await store.exchange(worker, [], LANES, 1)).claims
    await store.exchange(worker, [done(claim)], [], 0)
    await settle(store)
