"""The scene of a promise: a store, a clock, and short methods to act and check."""

import asyncio
import os
import select
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from durio.host.executors import ThreadExecutor
from durio.model.errors import StoreError
from durio.model.job import READY, Claim, KeyClaim, NewJob, StoredJob
from durio.model.keys import KeyPolicy, key_claim
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import GateRow, Query
from durio.ports.enqueue import Enqueued
from durio.ports.exchange import Exchanged, Lane
from durio.ports.lease import WorkerInfo
from durio.ports.logs import Entry
from durio.ports.store import Store
from durio.ports.upkeep import OneWorker, Rescued
from durio.worker.register import task_puts
from tests.conformance.manual_clock import ManualClock
from tests.conformance.subject import Subject

SHOP = "shop"
LANE = "shop:default"
TASK = "shop.pay"
PAYLOAD = b'[[],{"order_id":42}]'
OTHER_PAYLOAD = b'[[],{"order_id":43}]'
LEASE_SECONDS = 30.0
MANY = 1000  # more jobs than any promise has
IDLE_CALLS = 3
LOGS = ("t:shop/a", "t:shop/b")
KINDS = (
    "expire:shop",
    "task:shop",
    "signature:shop",
    "command:1",
    "test:shop",
)  # of records

T = TypeVar("T")


def outcome(
    claim: Claim, kind: OutcomeKind = OutcomeKind.DONE, **fields: Any
) -> Outcome:
    """Return an outcome of one claim."""
    return Outcome(claim.id, claim.claim_no, kind, **fields)


def key(policy: KeyPolicy, payload: bytes = PAYLOAD, text: str = "k") -> KeyClaim:
    """Return a key as a producer sends it."""
    return key_claim(policy, TASK, text, payload)


def info(namespace: str = SHOP, **fields: Any) -> WorkerInfo:
    """Return the information with which a worker registers."""
    known: dict[str, Any] = {
        "namespace": namespace,
        "name": "host-1/77",
        "host": "host-1",
        "pid": os.getpid(),
        "queues": None,
        "concurrency": 10,
        "version": "0.0",
    }
    return WorkerInfo(**{**known, **fields})


@dataclass(frozen=True, slots=True)
class Scene:
    """One store under test, with short methods to use it."""

    store: Store
    clock: ManualClock
    subject: Subject
    stack: AsyncExitStack
    opened: list[Store] = field(default_factory=list[Store])

    async def other(self) -> Store:
        """The same data as another process sees it, if the store supports that."""
        if self.subject.open_second is None:
            return self.store
        if not self.opened:
            opener = self.subject.open_second(self.clock)
            self.opened.append(await self.stack.enter_async_context(opener))
        return self.opened[0]

    # --- given

    def job(self, **fields: Any) -> NewJob:
        """Return a job to enqueue; accepts `priority`, `delay` and any field of NewJob."""
        rank = 9 - int(fields.pop("priority", 5))
        delay = float(fields.pop("delay", 0.0))
        known: dict[str, Any] = {
            "id": self.clock.new_id(),
            "lane": LANE,
            "rank": rank,
            "task": TASK,
            "payload": PAYLOAD,
            "delay_seconds": delay,
        }
        return NewJob(**{**known, **fields})

    async def add(self, **fields: Any) -> bytes:
        """Enqueue one job; return its id."""
        answer = await self.send(**fields)
        assert answer.created
        return answer.id

    async def add_many(self, count: int, **fields: Any) -> list[bytes]:
        """Enqueue this many jobs in one call; return their ids, in order."""
        jobs = [self.job(**fields) for _ in range(count)]
        answers = await self.store.enqueue(jobs)
        assert [answer.id for answer in answers] == [job.id for job in jobs]
        return [job.id for job in jobs]

    async def send(self, **fields: Any) -> Enqueued:
        """Enqueue one job; return the whole result of the store."""
        answers = await self.store.enqueue([self.job(**fields)])
        assert len(answers) == 1
        return answers[0]

    async def worker(
        self, namespace: str = SHOP, lease_seconds: float = LEASE_SECONDS, **fields: Any
    ) -> int:
        """Register one more worker; `tasks` is what it publishes."""
        (puts,) = task_puts(namespace, fields.pop("tasks", {}))
        return await self.store.register(info(namespace, **fields), lease_seconds, puts)

    async def running(self, **fields: Any) -> tuple[int, Claim]:
        """Make a job that a worker of its own runs."""
        job_id = await self.add(**fields)
        worker = await self.worker()
        claims = await self.claim(worker, MANY, lane=fields.get("lane", LANE))
        assert [claim.id for claim in claims] == [job_id]
        return worker, claims[0]

    async def dead(self, reason: str = "permanent", **fields: Any) -> bytes:
        """Make a job that died of an error."""
        worker, claim = await self.running(**fields)
        word = outcome(claim, OutcomeKind.DEAD, error=b'{"type":"E"}', reason=reason)
        assert (await self.store.exchange(worker, [word], (), 0)).rejected == []
        return claim.id

    # --- when

    async def exchange(
        self,
        worker: int,
        outcomes: Sequence[Outcome] = (),
        want: int = MANY,
        *,
        lane: str = LANE,
        **options: Any,
    ) -> Exchanged:
        """Send outcomes and receive claims, from one lane.

        A store may claim the jobs that a call lets go by the next one: `more` says so.
        """
        lanes = [Lane(lane, want)]
        answer = await self.store.exchange(worker, outcomes, lanes, want, **options)
        left = want - len(answer.claims)
        if not answer.more or left <= 0:
            return answer
        following = await self.exchange(worker, (), left, lane=lane, **options)
        claims = [*answer.claims, *following.claims]
        return answer._replace(claims=claims, more=following.more)

    async def claim(
        self, worker: int, want: int = 1, *, lane: str = LANE, **options: Any
    ) -> list[Claim]:
        """Claim up to this many jobs of one lane."""
        return (await self.exchange(worker, (), want, lane=lane, **options)).claims

    async def claim_one(self, lane: str = LANE) -> tuple[int, Claim]:
        """Register a worker and claim the one ready job."""
        worker = await self.worker()
        claims = await self.claim(worker, MANY, lane=lane)
        assert len(claims) == 1
        return worker, claims[0]

    async def finish(self, worker: int, claim: Claim, **fields: Any) -> None:
        """Finish a job as done, or as the given kind; the outcome must be accepted."""
        kind = fields.pop("kind", OutcomeKind.DONE)
        refused = (
            await self.store.exchange(worker, [outcome(claim, kind, **fields)], (), 0)
        ).rejected
        assert refused == []

    async def lose(self, worker: int) -> Rescued:
        """Lose the worker, and rescue its jobs."""
        return await self.store.rescue(MANY, OneWorker(worker))

    async def crash_child(self, worker: int, claim: Claim) -> None:
        """Report that the job has killed its own child process."""
        await self.finish(worker, claim, kind=OutcomeKind.LOST, killed_process=True)

    # --- then

    async def record(self, job_id: bytes) -> StoredJob:
        """Return the job as it is stored; it must exist."""
        records = await self.store.get([job_id])
        assert [record.id for record in records] == [job_id]
        return records[0]

    async def state(self, job_id: bytes) -> int:
        """Return only its state."""
        return (await self.store.states([job_id]))[job_id]

    async def is_ready(self, job_id: bytes) -> bool:
        """Whether the job waits to be claimed now."""
        return await self.state(job_id) == READY

    async def records(self, query: Query | None = None) -> list[StoredJob]:
        """Return every job, newest first."""
        found: list[StoredJob] = []
        cursor: str | None = None
        while True:
            page = await self.store.find(query or Query(), limit=200, cursor=cursor)
            found += page.jobs
            cursor = page.cursor
            if cursor is None:
                return found

    async def everything(self) -> tuple[Any, ...]:
        """Return all that can be read.

        If it is equal before and after, nothing was written.
        """
        return (
            await self.records(),
            await self.store.workers(None),
            await self.store.queues(SHOP, counts=True),
            [await self.store.list_records(kind, limit=MANY) for kind in KINDS],
            await self.store.tallies(SHOP),
            await self.store.audit(None, limit=MANY),
            [await self.log(name) for name in LOGS],
            await self.gates(),
        )

    async def log(self, name: str) -> list[Entry]:
        """Return all entries of a log."""
        return await self.store.read_log(name, limit=10 * MANY)

    async def settle(self) -> None:
        """Let everything go on that an earlier transaction has left.

        If several calls find nothing, what is due later is a gate that has to wait.
        """
        idle = 0
        for _ in range(MANY):
            count, due, _ = await self.store.settle(MANY)
            idle = 0 if count or due == 0.0 else idle + 1
            if due is None or idle == IDLE_CALLS:
                return
        raise AssertionError("something is always left")

    async def gates(self, prefix: str = "") -> dict[str, GateRow]:
        """Return the gates; `used` must be the number of places that jobs hold."""
        found = await self.store.gates(prefix, limit=MANY)
        assert [row.name for row in found] == sorted(row.name for row in found)
        if self.subject.count_places is not None:
            held = await self.subject.count_places(self.store)
            used = {row.name: row.used for row in found if row.used}
            names = [name for name in held if name.startswith(prefix)]
            assert used == {name: held[name] for name in names}
        return {row.name: row for row in found}

    async def used(self, gate: str) -> int:
        """Return how many places of a gate are held; 0 if there is no such gate."""
        row = (await self.gates()).get(gate)
        return 0 if row is None else row.used

    async def after_every_fault(self, call: Callable[[], Awaitable[T]]) -> T:
        """Fail at the first statement, then at the second, until the call finds no fault.

        Each time the call must fail and leave nothing behind; at the end it succeeds.
        """
        assert self.subject.fault is not None
        fault = self.subject.fault(self.store)
        before = await self.everything()
        for nth in range(1, MANY):
            fault.arm(nth)
            try:
                answer = await call()
            except StoreError:
                assert fault.disarm(), "the store failed by itself"
                assert await self.everything() == before, f"after a fault at {nth}"
            else:
                assert not fault.disarm(), f"a fault at {nth} was swallowed"
                assert nth > 2, "the fault was hardly ever met"
                return answer
        raise AssertionError("the fault never ended")

    async def elsewhere(self, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the function on a second loop, in a thread, while this loop is blocked."""
        read, write = os.pipe()
        executor = ThreadExecutor(1)

        def run() -> T:
            try:
                return asyncio.run(story())
            finally:
                os.write(write, b".")

        try:
            call = executor.start(run)
            # Not awaited, on purpose: nothing can run on this loop meanwhile.
            came, _, _ = select.select([read], [], [], 30.0)
            assert came, "an answer waits for a loop that is blocked"
            ended = await call.future
        finally:
            executor.close()
            os.close(read)
            os.close(write)
        if ended.error is not None:
            raise ended.error
        return ended.value
