"""A first try that stands still in the server while its repeat is stored, run and finished."""

import asyncio
import os
import signal

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.job import NewJob
from durio.model.keys import key_claim, while_active
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK, info
from tests.servers.postgres import PostgresServer

clock = HostClock()
WAITING = (
    "select pid from pg_stat_activity where wait_event_type = 'Lock'"
    " and application_name = 'durio'"
)
BLOCK_JOB = (
    "insert into durio.job (id, lane, rank, task, payload, created_at)"
    " values (%s, '', 0, '', '', 0)"
)
BLOCK_KEY = "insert into durio.uniq (key, id, mode, digest) values (%s, %s, 0, '')"
BLOCK_QUEUE = "select 1 from durio.queue where name = %s for update"


def plain(count: int) -> list[NewJob]:
    return [NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD) for _ in range(count)]


def planned(count: int) -> list[NewJob]:
    """For a time that has come."""
    return [job._replace(run_at=clock.now() - 1) for job in plain(count)]


def ready(count: int) -> list[NewJob]:
    return [job._replace(rank=place % 3) for place, job in enumerate(plain(count))]


def keyed(count: int) -> list[NewJob]:
    return [
        job._replace(key=key_claim(while_active, TASK, job.id.hex(), PAYLOAD))
        for job in plain(count)
    ]


async def run_all(store: PostgresStore) -> None:
    """Claim and finish whatever is ready."""
    worker = await store.register(info(), 60.0)
    claims = (await store.exchange(worker, [], [Lane(LANE, 99)], 99)).claims
    done = [Outcome(c.id, c.claim_no, OutcomeKind.DONE, result=b"1") for c in claims]
    assert (await store.exchange(worker, done, (), 0)).rejected == []
    await store.leave(worker)


async def seen_waiting(hand: "psycopg.AsyncConnection[tuple[int]]") -> int:
    """The process that executes the first try, once it waits for the job's id."""
    while True:
        rows = await (await hand.execute(WAITING)).fetchall()
        if rows:
            return rows[0][0]


async def block(
    hand: "psycopg.AsyncConnection[tuple[int]]", job: NewJob, *, bounded: bool
) -> None:
    """Hold what the first try wants first."""
    if bounded:
        await hand.execute(BLOCK_QUEUE, [LANE])
    elif job.key is not None:
        await hand.execute(BLOCK_KEY, [job.key.key, job.id.hex()])
    else:
        await hand.execute(BLOCK_JOB, [job.id.hex()])


def one(_count: int) -> list[NewJob]:
    return plain(1)


CASES = {
    "one": one,
    "plain": plain,
    "ready": ready,
    "planned": planned,
    "keyed": keyed,
}


@pytest.mark.parametrize("kind", [*CASES, "bounded"])
def test_a_late_first_try_stores_nothing(
    grounds: ScratchSchema, postgres: PostgresServer, kind: str
) -> None:
    bounded = kind == "bounded"
    new = CASES.get(kind, plain)(3)

    async def main() -> None:
        where = postgres.url()
        first, second = (PostgresStore(grounds.location, clock) for _ in range(2))
        async with await psycopg.AsyncConnection.connect(where) as hand:
            await first.open()
            await second.open()
            if bounded:
                await first.declare({LANE: 1000})
            for store in (first, second):  # both know the lane
                await store.enqueue(plain(1))
            await run_all(second)
            # The first try begins, sees nothing of a repeat, and stands still.
            wanted = min(new, key=lambda job: job.key.key if job.key else job.id)
            await block(hand, wanted, bounded=bounded)
            late = asyncio.create_task(first.enqueue(new))
            async with await psycopg.AsyncConnection.connect(where) as eye:
                await eye.set_autocommit(True)
                pid = await seen_waiting(eye)
            os.kill(pid, signal.SIGSTOP)
            try:
                await hand.rollback()
                answers = await second.enqueue(new, again=True)
                assert all(answer.created for answer in answers)
                await run_all(second)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert [told.created for told in await late] == [False] * len(new)
            found = await hand.execute(
                "select (select count(*) from durio.job where id = any(%s::uuid[])),"
                " (select count(*) from durio.hist where id = any(%s::uuid[]))",
                [[job.id.hex() for job in new]] * 2,
            )
            assert await found.fetchall() == [(0, len(new))]
        await first.close()
        await second.close()

    asyncio.run(main())
