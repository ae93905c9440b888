"""Enqueues on PostgreSQL that meet one another, at the moments which matter."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from durio.errors import StoreError
from durio.model.effects import Effects, Put
from durio.model.job import BLOCKED, READY, NewJob
from durio.model.keys import KeyPolicy, key_claim, replace, while_active
from durio.model.logs import OnEnd, Wait
from durio.ports.enqueue import Full
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.stores.postgres import enqueue_fast
from durio.stores.postgres.driver import DriverError
from durio.stores.postgres.store import PostgresStore
from durio.stores.postgres.transaction import PostgresTransaction
from tests.conformance.postgres import ScratchSchema
from tests.servers.postgres import PostgresServer
from tests.unit.stores.two_stores import CLOCK, run_on_two_stores

LANE = "shop:default"
TASK = "shop.pay"
INFO = WorkerInfo("shop", "h/1", "h", 1, None, 10, "0")
DEPTH = "select depth from {schema}.queue where name = $1::text"
BOUND = "select maxsize from {schema}.queue where name = $1::text"
CLAIM = """
with d as (delete from {schema}.ready where id = $1::uuid returning id, claim_no)
insert into {schema}.run (id, worker, claim_no, started_at)
select id, 1, claim_no + 1, 0 from d
"""
LOCKS_WANTED = "select count(*) from pg_catalog.pg_locks where not granted"


def new_job(policy: KeyPolicy | None = None, text: str = "k", **fields: Any) -> NewJob:
    payload = b"[[],{}]"
    key = None if policy is None else key_claim(policy, TASK, text, payload)
    given = {"lane": LANE, "rank": 4, "task": TASK, "payload": payload, "key": key}
    return NewJob(**{"id": CLOCK.new_id(), **given, **fields})


async def waiting(store: PostgresStore) -> int:
    """How many jobs are ready; a statement that runs by itself makes no queue row."""
    count = "select count(*) from {schema}.ready where lane = $1"
    return (await store.context.connections.read(count, LANE))[0][0]


async def until(
    store: PostgresStore, sql: str, wanted: Callable[[Any], bool], *values: Any
) -> None:
    """Look until it is so."""
    while True:
        rows = await store.context.connections.read(sql, *values)
        if rows and wanted(rows[0][0]):
            return
        await CLOCK.sleep(0.005)


@asynccontextmanager
async def under_way(
    store: PostgresStore, work: Callable[[PostgresTransaction], Awaitable[Any]]
) -> AsyncGenerator[tuple[asyncio.TaskGroup, asyncio.Event], None]:
    """A transaction that has done its work, and commits when the event is set."""
    done, go = asyncio.Event(), asyncio.Event()

    async def whole(tx: PostgresTransaction) -> None:
        await work(tx)
        done.set()
        await go.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(store.context.connections.write(whole))
        await done.wait()
        try:
            yield group, go
        finally:
            go.set()


def plain(jobs: list[NewJob]) -> Callable[[PostgresTransaction], Awaitable[Any]]:
    """The statement of a plain enqueue into a known lane, inside a transaction."""
    width = len(enqueue_fast.JobColumns._fields)
    fields = zip(*(job[:width] for job in jobs), strict=True)
    c = enqueue_fast.JobColumns._make(map(list, fields))
    values = (*c[:5], c.opts, [LANE], [], None)
    return lambda tx: tx.rows(enqueue_fast.PLAIN_READY, *values)


# --- one round trip


def test_what_needs_no_care_is_one_statement(grounds: ScratchSchema) -> None:
    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        seen: list[str] = []
        store.context.connections.on_statement = seen.append
        jobs = [new_job(), new_job(delay_seconds=60.0), new_job(while_active)]
        answers = await store.enqueue(jobs, calls=[1, 1, 1])
        assert [a.created for a in answers] == [True] * 3
        assert len(seen) == 2
        assert seen[1] == "commit"
        assert len(await store.get([job.id for job in jobs])) == 3

    run_on_two_stores(grounds, story)


def test_a_plan_is_one_statement(grounds: ScratchSchema) -> None:
    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        seen: list[str] = []
        store.context.connections.on_statement = seen.append
        for name in "ab":
            log = f"j:shop/{name}"
            jobs = [new_job(on_end=(OnEnd(log),)), new_job(wait=Wait(log, 0))]
            puts = [Put("plan:shop", name, b"1", if_version=0)]
            answer = await store.commit(Effects(jobs, puts), all_new=True)
            assert [told.state for told in answer.enqueued] == [READY, BLOCKED]
        assert len(seen) == 2 * 2
        assert seen[1::2] == ["commit"] * 2

    run_on_two_stores(grounds, story)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_call_that_waits_for_a_lock_goes_on_if_its_connection_is_lost(
    grounds: ScratchSchema, *, is_lost: bool
) -> None:
    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        def fail(_text: str) -> None:
            raise DriverError("planted", lost=is_lost)

        job = new_job(while_active)
        store.context.connections.on_statement = fail
        with pytest.raises(StoreError, match="planted"):
            await store.enqueue([job], calls=[1])
        if is_lost:
            (answer,) = await store.enqueue([job], calls=[1], apart=True)
            assert answer.locked is not None
            assert "planted" in answer.locked.error.what
            assert not answer.locked.error.unknown
        else:
            with pytest.raises(StoreError, match="planted"):
                await store.enqueue([job], calls=[1], apart=True)
        store.context.connections.on_statement = None
        assert (await store.enqueue([job], calls=[1], apart=True))[0].created

    run_on_two_stores(grounds, story)


@pytest.mark.proves("M98")
def test_a_failure_after_some_calls_are_stored_is_told_as_unknown(
    grounds: ScratchSchema,
) -> None:
    """Who asks again finds them; nobody is told that they are not there."""

    async def story(store: PostgresStore, _other: PostgresStore) -> None:
        await store.enqueue([new_job(while_active)])
        jobs = [new_job(), new_job(while_active), new_job(while_active, "free")]

        def look(text: str) -> None:
            if text == "begin":
                raise DriverError("planted", state="53100")

        store.context.connections.on_statement = look
        with pytest.raises(StoreError) as caught:
            await store.enqueue(jobs, calls=[1, 1, 1])
        assert caught.value.unknown
        store.context.connections.on_statement = None
        answers = await store.enqueue(jobs, calls=[1, 1, 1], again=True)
        assert [answer.created for answer in answers] == [False] * 3
        assert [answer.id == job.id for answer, job in zip(answers, jobs, strict=True)]
        assert await waiting(store) == 3

    run_on_two_stores(grounds, story)


# --- bounds


def test_one_job_enters_no_queue_that_another_process_has_bounded(
    grounds: ScratchSchema,
) -> None:
    """This process knows the queue, and does not know the bound yet."""

    async def story(store: PostgresStore, other: PostgresStore) -> None:
        assert (await store.enqueue([new_job()]))[0].created
        await other.declare({LANE: 1})
        (answer,) = await store.enqueue([new_job()])
        assert answer.full is not None
        assert await waiting(other) == 1

    run_on_two_stores(grounds, story)


# --- repeats


@pytest.mark.proves("M98")
def test_a_repeat_waits_for_a_first_try_that_is_under_way(
    grounds: ScratchSchema,
) -> None:
    async def story(store: PostgresStore, other: PostgresStore) -> None:
        jobs = [new_job(), new_job()]
        beside = await second_store(store)
        async with under_way(store, plain(jobs)) as (group, go):
            repeat = group.create_task(other.enqueue(jobs, again=True))
            await until(beside, LOCKS_WANTED, bool)
            go.set()
        assert [answer.created for answer in await repeat] == [False, False]
        assert await waiting(other) == 2
        await beside.close()

    run_on_two_stores(grounds, story)


async def second_store(store: PostgresStore) -> PostgresStore:
    """Another connection to ask by, while those of the story wait."""
    beside = PostgresStore(store.context.location, CLOCK)
    await beside.open()
    return beside


# --- keys


def test_keys_in_any_order_do_not_deadlock(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    """Two processes, the same ten keys, one backwards: one job for each."""

    async def story(store: PostgresStore, other: PostgresStore) -> None:
        for n in range(15):
            texts = [f"{n}.{k}" for k in range(10)]
            policy = (while_active, replace)[n % 2]
            there = [new_job(policy, text) for text in texts]
            back = [new_job(policy, text) for text in reversed(texts)]
            told = await asyncio.gather(store.enqueue(there), other.enqueue(back))
            assert sum(answer.created for some in told for answer in some) == 10
            by_key = [
                {a.id for a in pair}
                for pair in zip(told[0], told[1][::-1], strict=True)
            ]
            assert all(len(ids) == 1 for ids in by_key)

    run_on_two_stores(grounds, story)
    assert "deadlock detected" not in postgres.said()


def test_a_holder_that_is_claimed_meanwhile_gets_a_successor(
    grounds: ScratchSchema,
) -> None:
    """It waited when the key was looked up; its claim commits first."""

    async def story(store: PostgresStore, other: PostgresStore) -> None:
        (held,) = await store.enqueue([new_job(replace)])
        beside = await second_store(store)

        async def claim(tx: PostgresTransaction) -> None:
            await tx.rows(CLAIM, held.id)

        async with under_way(store, claim) as (group, go):
            late = group.create_task(other.enqueue([new_job(replace)]))
            await until(beside, LOCKS_WANTED, bool)
            go.set()
        (answer,) = await late
        assert (answer.created, answer.replaced) == (True, False)
        assert answer.id != held.id
        await beside.close()

    run_on_two_stores(grounds, story)


# --- bounds


@pytest.mark.proves("M35", "M36")
def test_a_bound_counts_those_who_have_not_seen_it(grounds: ScratchSchema) -> None:
    """Their statement began before the bound was there, and ends after it."""

    async def story(store: PostgresStore, other: PostgresStore) -> None:
        beside = await second_store(store)
        await store.enqueue([new_job()])
        jobs = [new_job() for _ in range(3)]
        async with under_way(store, plain(jobs)) as (group, go):
            group.create_task(other.declare({LANE: 5}))
            await until(beside, BOUND, lambda bound: bound == 5, LANE)
            assert await beside.context.connections.read(DEPTH, LANE) == [(1,)]
            go.set()
        assert await beside.context.connections.read(DEPTH, LANE) == [(4,)]
        await beside.close()

    run_on_two_stores(grounds, story)


@pytest.mark.proves("M36")
def test_a_bound_is_true_from_the_middle_of_the_work_on(grounds: ScratchSchema) -> None:
    """Producers and a worker are busy; the depth is what waits, to the last job."""

    async def story(store: PostgresStore, other: PostgresStore) -> None:
        worker = await store.register(INFO, 30.0)
        stop = asyncio.Event()

        async def produce() -> None:
            while not stop.is_set():
                await store.enqueue([new_job() for _ in range(7)])

        async def work() -> None:
            while not stop.is_set():
                await other.exchange(worker, [], [Lane(LANE, 5)], 5)

        beside = await second_store(store)
        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(work())
            for bound in (100_000, None, 200_000):
                await beside.enqueue([new_job()])
                await beside.declare({LANE: bound})
            await beside.enqueue([new_job() for _ in range(100)])
            stop.set()
        depth = await beside.context.connections.read(DEPTH, LANE)
        assert depth == [(await waiting(beside),)]
        await beside.close()

    run_on_two_stores(grounds, story)


@pytest.mark.proves("M36")
def test_into_a_bounded_queue_with_room_it_is_one_statement_too(
    grounds: ScratchSchema,
) -> None:
    """From the second enqueue on; without room, and when the bound goes, it is seen."""

    async def story(store: PostgresStore, other: PostgresStore) -> None:
        await other.declare({LANE: 8})
        await store.enqueue([new_job()])
        seen: list[str] = []
        store.context.connections.on_statement = seen.append
        assert (
            len(await store.enqueue([new_job() for _ in range(4)], calls=[3, 1])) == 4
        )
        assert len(seen) == 2
        answers = await store.enqueue([new_job() for _ in range(5)], calls=[3, 2])
        assert [answer.full is None for answer in answers] == [True] * 3 + [False] * 2
        assert await other.context.connections.read(DEPTH, LANE) == [(8,)]
        seen.clear()
        (answer,) = await store.enqueue([new_job()])
        assert answer.full == Full(LANE, 8, 8)
        assert len(seen) == 2, "a refusal is one statement too"
        await other.declare({LANE: None})
        assert (await store.enqueue([new_job()]))[0].created
        assert store.context.guarded_lanes == set()
        assert await waiting(store) == 9

    run_on_two_stores(grounds, story)
