"""A transaction of somebody else that lasts: it may keep its own jobs, and nobody's else.

It stays open in the middle of each of these stories, with jobs of ours written in it. What
must go on meanwhile does, or the story does not end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from durio.errors import StoreUnavailable
from durio.model.job import CANCELLED, DEAD, READY, SCHEDULED, NewJob
from durio.model.keys import KeyPolicy, key_claim, while_active, while_waiting, window
from durio.model.keys import replace as rewritten
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import CancelJobs, RetryJobs
from durio.ports.enqueue import Enqueued
from durio.ports.exchange import Lane
from durio.stores.postgres import schema, schema_status
from durio.stores.postgres.exchange import HELD_SECONDS
from durio.stores.postgres.keys import free_unused_keys
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import PAYLOAD, SHOP, TASK, info
from tests.e2e.open_transaction import clock, connected, open_transaction, opened
from tests.servers.postgres import PostgresServer

T = TypeVar("T")

LANE, OTHER = f"{SHOP}:default", f"{SHOP}:other"
# Somebody waits for this table, or for a lock of another kind.
WAITED_FOR = """
select 1 from pg_locks
where not granted and coalesce(relation::regclass::text, locktype) = $1::text
"""
DEPTH = "select depth from {schema}.queue where name = $1::text"


@dataclass
class Scene:
    """A store with a worker, a stranger with a transaction, and an eye on the server."""

    store: PostgresStore
    caller: Any
    eye: Any
    worker: int

    async def joins(self, *jobs: NewJob) -> list[Enqueued]:
        """The stranger brings jobs, and does not commit."""
        return await self.store.enqueue(jobs, tx=self.caller)

    async def claims(self, *outcomes: Outcome, lane: str = LANE) -> list[Any]:
        """The worker brings what it has, and takes what there is."""
        told = await self.store.exchange(self.worker, outcomes, [Lane(lane, 100)], 100)
        assert told.rejected == []
        return told.claims

    async def depth(self, lane: str) -> int:
        return (await self.store.context.connections.read(DEPTH, lane))[0][0]

    async def begins_without_its_key(self) -> Any:
        """A job is claimed while the stranger locks its key, so that the key stays there."""
        await self.store.enqueue([job(key="k", policy=while_waiting)])
        # The stranger's enqueue asks for the key only; it keeps no lane row.
        await self.caller.fetch("select 1 from durio.uniq for update")
        (claim,) = await self.claims()
        await self.caller.execute("commit")
        return claim

    async def aside(self, call: Awaitable[T], lock: str) -> "asyncio.Task[T]":
        """Begin a call that has to wait for a lock; the server says when it does."""
        task = asyncio.ensure_future(call)
        while not await self.eye.fetch(WAITED_FOR, lock):
            assert not task.done()
        return task


Story = Callable[[Scene], Awaitable[None]]


def play(grounds: ScratchSchema, story: Story, *, call_seconds: float = 30.0) -> None:
    async def main() -> None:
        place = replace(grounds.location, call_seconds=call_seconds)
        async with (
            opened(place) as store,
            open_transaction(grounds.url) as stranger,
            connected(grounds.url) as eye,
        ):
            worker = await store.register(info(), 60.0)
            await story(Scene(store, stranger, eye, worker))

    asyncio.run(main())


def job(
    lane: str = LANE, *, key: str | None = None, policy: KeyPolicy = while_active
) -> NewJob:
    claim = None if key is None else key_claim(policy, TASK, key, PAYLOAD)
    return NewJob(clock.new_id(), lane, 4, TASK, PAYLOAD, key=claim)


def done(claim: Any) -> Outcome:
    return Outcome(claim.id, claim.claim_no, OutcomeKind.DONE)


def test_a_bounded_queue_is_not_locked(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        await store.declare({LANE: 3})
        await store.enqueue([job()])
        await scene.joins(job(), job())
        (claim,) = await scene.claims()
        assert (await store.enqueue([job(), job(), job()]))[0].full is None
        claims = await scene.claims(done(claim))
        assert len(claims) == 3
        await store.enqueue([job()])
        await scene.caller.execute("commit")
        # Two of the stranger's and one of ours: there is no room for one more.
        (told,) = await store.enqueue([job()])
        assert told.full is not None
        assert (told.full.depth, told.full.limit) == (3, 3)
        assert await scene.depth(LANE) == 3
        assert len(await scene.claims(*map(done, claims))) == 3
        assert await scene.depth(LANE) == 0

    play(grounds, story)


@pytest.mark.parametrize("bound", [3, 4], ids=["the same bound", "another bound"])
def test_its_jobs_are_counted_once(grounds: ScratchSchema, bound: int) -> None:
    """By the leader, where nobody has counted them for another bound already."""

    async def story(scene: Scene) -> None:
        await scene.store.declare({LANE: 3})
        await scene.joins(job(), job())
        await scene.caller.execute("commit")
        assert await scene.depth(LANE) == 0
        if bound != 3:
            await scene.store.declare({LANE: bound})
        await scene.store.measure(1000, namespace=SHOP)
        assert await scene.depth(LANE) == 2

    play(grounds, story)


def test_a_bound_that_begins_meanwhile_is_settled_later(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        await scene.joins(job(), job())
        await store.declare({LANE: 3})
        await scene.caller.execute("commit")
        await store.measure(1000, namespace=SHOP)
        assert await scene.depth(LANE) == 2
        (told,) = await store.enqueue([job()])
        assert told.created
        (told,) = await store.enqueue([job()])
        assert told.full is not None

    play(grounds, story)


def test_nothing_of_a_rollback_is_counted(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        await scene.store.declare({LANE: 3})
        await scene.joins(job(), job())
        await scene.caller.execute("rollback")
        await scene.store.enqueue([job(), job(), job()])
        assert await scene.depth(LANE) == 3

    play(grounds, story)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_who_needs_its_key_waits_alone(grounds: ScratchSchema, ends: str) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        (first,) = await scene.joins(job(key="k"))
        late = await scene.aside(store.enqueue([job(key="k")]), "transactionid")
        for _ in range(3):  # everybody else has the line meanwhile
            await store.enqueue([job()])
            (claim,) = await scene.claims()
            await store.exchange(scene.worker, [done(claim)], (), 0)
        assert not late.done()
        await scene.caller.execute(ends)
        (told,) = await late
        if ends == "commit":
            assert (told.id, told.created) == (first.id, False)
        else:
            assert told.created

    play(grounds, story)


def test_a_lock_that_is_never_free_is_told(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        await scene.joins(job(key="k"))
        with pytest.raises(StoreUnavailable, match="lock was not free") as told:
            await scene.store.enqueue([job(key="k")])
        assert not told.value.unknown
        await scene.caller.execute("rollback")
        (answer,) = await scene.store.enqueue([job(key="k")])
        assert answer.created

    play(grounds, story, call_seconds=1.0)


@pytest.mark.parametrize("form", ["at once", "in steps"])
def test_a_job_ends_while_its_key_is_asked_for(
    grounds: ScratchSchema, form: str
) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        store.context.process.is_split = form == "in steps"
        (holder,) = await store.enqueue([job(key="k")])
        (claim,) = await scene.claims()
        (told,) = await scene.joins(job(key="k"))
        assert (told.id, told.created) == (holder.id, False)
        await scene.claims(done(claim))
        await scene.caller.execute("commit")
        (again,) = await store.enqueue([job(key="k")])
        assert again.created

    play(grounds, story)


def test_a_key_that_was_left_behind_is_let_go(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        keys = [("held", while_active), ("window", window(60.0))]
        await store.enqueue([job(key=key, policy=policy) for key, policy in keys])
        claims = await scene.claims()
        await store.enqueue([job(key="live")])
        await scene.joins(job(key="held"))
        await scene.claims(*map(done, claims), lane=OTHER)
        await scene.caller.execute("commit")
        count = "select count(*) from {schema}.uniq"
        assert (await store.context.connections.read(count))[0][0] == 3
        await free_unused_keys(store.context)
        assert (await store.context.connections.read(count))[0][0] == 2
        answers = await store.enqueue(
            [job(key="live"), job(key="window", policy=window(60.0))], calls=[1, 1]
        )
        assert [told.created for told in answers] == [False, False]

    play(grounds, story)


def test_who_answers_because_it_waits_sees_the_commit(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        (holder,) = await store.enqueue([job(key="k", policy=while_waiting)])
        (told,) = await scene.joins(job(key="k", policy=while_waiting))
        assert (told.id, told.created) == (holder.id, False)
        await store.enqueue([job()])
        (other,) = await scene.claims()
        assert other.id != holder.id
        await scene.caller.execute("commit")
        assert [claim.id for claim in await scene.claims()] == [holder.id]

    play(grounds, story)


def test_one_that_has_begun_does_not_hold_its_key(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store, claim = scene.store, await scene.begins_without_its_key()
        (told,) = await store.enqueue([job(key="k")])
        assert told.created
        await scene.claims(done(claim))
        (again,) = await store.enqueue([job(key="k")])
        assert (again.id, again.created) == (told.id, False)

    play(grounds, story)


def test_one_that_is_tried_again_does_not_get_its_key_back(
    grounds: ScratchSchema,
) -> None:
    async def story(scene: Scene) -> None:
        store, claim = scene.store, await scene.begins_without_its_key()
        again = Outcome(
            claim.id, claim.claim_no, OutcomeKind.RETRY, error=b'{"type":"E"}'
        )
        await store.exchange(scene.worker, [again], (), 0)
        (told,) = await store.enqueue([job(key="k", policy=while_waiting)])
        assert told.created

    play(grounds, story)


def test_a_cancelled_job_answers_for_nothing(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        dead, late = (job(key="k", policy=window(60.0)) for _ in range(2))
        await store.enqueue([dead])
        (claim,) = await scene.claims()
        end = Outcome(
            claim.id,
            claim.claim_no,
            OutcomeKind.DEAD,
            error=b'{"type":"E"}',
            reason="permanent",
        )
        await store.exchange(scene.worker, [end], (), 0)
        await store.context.connections.write_one("delete from {schema}.uniq")
        await store.enqueue([late])
        await scene.caller.fetch("select 1 from durio.uniq for update")
        (acted,) = await store.act([late.id], CancelJobs())
        assert acted.after == CANCELLED
        await scene.caller.execute("commit")
        (acted,) = await store.act([dead.id], RetryJobs())
        assert (acted.before, acted.after) == (DEAD, READY)

    play(grounds, story)


def test_a_due_job_that_it_rewrites_is_not_asked_for_all_the_time(
    grounds: ScratchSchema,
) -> None:
    async def story(scene: Scene) -> None:
        held = job(key="k", policy=rewritten)._replace(delay_seconds=0.1)
        await scene.store.enqueue([held])
        await scene.joins(job(key="k", policy=rewritten))
        await clock.sleep(0.2)
        told = await scene.store.exchange(scene.worker, [], [Lane(LANE, 1)], 1)
        assert (told.claims, told.next_due_seconds) == ([], HELD_SECONDS)
        # Meanwhile others are claimed by the one statement, as ever.
        asked: list[str] = []
        scene.store.context.connections.on_statement = asked.append
        await scene.store.exchange(scene.worker, [], [Lane(LANE, 1)], 1)
        scene.store.context.connections.on_statement = None
        assert len(asked) == 2, "a statement, and the commit of its own"
        await clock.sleep(HELD_SECONDS)
        await scene.caller.execute("commit")
        assert [claim.id for claim in await scene.claims()] == [held.id]

    play(grounds, story)


def test_who_reads_a_locked_table_waits_alone(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        store = scene.store
        await store.enqueue([job()])
        tables = "durio.audit, durio.sched in access exclusive mode"
        await scene.caller.execute(f"lock table {tables}")
        one = await scene.aside(store.audit(SHOP, limit=10), "durio.audit")
        count = store.count(Query(states=(SCHEDULED,)))
        many = await scene.aside(count, "durio.sched")
        assert len(await store.workers(SHOP)) == 1
        await scene.caller.execute("commit")
        assert await one == []
        assert (await many).jobs == 0

    play(grounds, story)


def test_a_new_queue_is_everybodys(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        lane = f"{SHOP}:never-used"
        await scene.joins(job(lane))
        second = PostgresStore(scene.store.context.location, clock)
        await second.open()
        try:
            (told,) = await second.enqueue([job(lane)])
        finally:
            await second.close()
        assert told.created
        assert [claim.id for claim in await scene.claims(lane=lane)] == [told.id]

    play(grounds, story)


def test_who_migrates_waits_for_another(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    async def story(scene: Scene) -> None:
        await scene.caller.execute(f"select pg_advisory_xact_lock({schema.LOCK})")
        url = postgres.url(schema="second")
        migrate = asyncio.to_thread(schema_status.migrate, url)
        late = await scene.aside(migrate, "advisory")
        await scene.caller.execute("commit")
        assert await late == [
            *("0001_jobs", "0002_records"),
            *("0003_logs", "0004_gates", "0005_audit_details"),
            "0006_log_heads",
        ]
        assert await asyncio.to_thread(schema_status.migrate, url) == []

    play(grounds, story)
