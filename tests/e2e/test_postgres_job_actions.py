"""Several hands on the same jobs at once, on a real server: each thing is done once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from durio.host.clock import HostClock
from durio.model.job import CANCELLED, DEAD, READY, RUNNING, NewJob
from durio.model.keys import key_claim, while_active
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.browse import Query
from durio.ports.control import ACTION_OF_VERB, CancelJobs, RetryJobs, Verb
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.bulk_actions import move_waiting, run_bulk
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK, info
from tests.job_counts import count_jobs
from tests.servers.postgres import PostgresServer

JOBS, TURNS = 60, 5
clock = HostClock()


@asynccontextmanager
async def stores(
    grounds: ScratchSchema, count: int
) -> AsyncIterator[list[PostgresStore]]:
    """As many processes would have."""
    opened = [PostgresStore(grounds.location, clock) for _ in range(count)]
    try:
        for store in opened:
            await store.open()
        yield opened
    finally:
        for store in opened:
            await store.close()


def new_jobs(count: int, **fields: object) -> list[NewJob]:
    return [
        NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD, **fields) for _ in range(count)
    ]


async def claim(store: PostgresStore, worker: int, want: int) -> list[bytes]:
    exchanged = await store.exchange(worker, [], [Lane(LANE, want)], want)
    return [claim.id for claim in exchanged.claims]


async def dead(store: PostgresStore, jobs: list[NewJob]) -> list[bytes]:
    """These, and all have died."""
    await store.enqueue(jobs)
    worker = await store.register(info(), 60.0)
    words = [
        Outcome(
            c.id,
            c.claim_no,
            OutcomeKind.DEAD,
            error=b'{"type":"E"}',
            reason="permanent",
        )
        for c in (await store.exchange(worker, [], [Lane(LANE, 999)], 999)).claims
    ]
    assert (await store.exchange(worker, words, (), 0)).rejected == []
    await store.leave(worker)
    return [job.id for job in jobs]


def test_a_job_is_claimed_or_cancelled_and_never_both(grounds: ScratchSchema) -> None:
    async def main() -> None:
        async with stores(grounds, 3) as (one, two, hand):
            for _ in range(TURNS):
                ids = [job.id for job in new_jobs(JOBS)]
                await one.enqueue([NewJob(i, LANE, 4, TASK, PAYLOAD) for i in ids])
                workers = [await store.register(info(), 60.0) for store in (one, two)]
                first, second, acted = await asyncio.gather(
                    claim(one, workers[0], JOBS // 2),
                    claim(two, workers[1], JOBS // 2),
                    hand.act(ids, CancelJobs()),
                )
                ended = {a.id for a in acted if a.after == CANCELLED}
                asked = {a.id for a in acted if a.after == RUNNING}
                assert not ended & {*first, *second}
                assert ended | asked == {*ids}
                assert asked <= {*first, *second}
                for store, worker in zip((one, two), workers, strict=True):
                    await store.leave(worker)  # what was asked to stop is cancelled
                assert set((await one.states(ids)).values()) <= {CANCELLED, READY}
                await hand.act(ids, CancelJobs())

    asyncio.run(main())


VERBS: dict[Verb, int | None] = {"retry": READY, "discard": None}


@pytest.mark.parametrize("verb", VERBS)
def test_two_hands_do_each_thing_once(grounds: ScratchSchema, verb: Verb) -> None:
    async def main() -> None:
        async with stores(grounds, 4) as hands:
            ids = await dead(hands[0], new_jobs(JOBS))
            turns = [list(ids), ids[::-1], ids[::2], ids[1::2]]
            acts = [
                hand.act(some, ACTION_OF_VERB[verb])
                for hand, some in zip(hands, turns, strict=True)
            ]
            done: Counter[bytes] = Counter()
            for acted in await asyncio.gather(*acts):
                done.update(a.id for a in acted if a.before == DEAD != a.after)
            assert done == Counter(ids)
            found = await hands[0].states(ids)
            assert found == ({} if verb == "discard" else dict.fromkeys(ids, READY))
            worker = await hands[0].register(info(), 60.0)
            again = await claim(hands[0], worker, 999)
            assert sorted(again) == ([] if verb == "discard" else sorted(ids))

    asyncio.run(main())


def test_two_bulk_acts_share_the_work(grounds: ScratchSchema) -> None:
    """Every job is counted by one of them; deaths are numbered without a gap."""

    async def main() -> None:
        query = Query(states=(DEAD,))
        async with stores(grounds, 3) as hands:
            ids = await dead(hands[0], new_jobs(JOBS))
            counted = await hands[0].count(query)
            assert counted.jobs == JOBS

            async def all_of_it(hand: PostgresStore) -> int:
                return (await run_bulk(hand, query, RetryJobs(), counted.mark, 7)).jobs

            assert sum(await asyncio.gather(*map(all_of_it, hands))) == JOBS
            assert set((await hands[0].states(ids)).values()) == {READY}

    asyncio.run(main())


def test_one_job_lives_for_a_key_whoever_is_quicker(grounds: ScratchSchema) -> None:
    """A dead letter that is sent back, and an enqueue of the same key."""

    async def main() -> None:
        async with stores(grounds, 2) as (hand, producer):
            for turn in range(TURNS * 4):
                key = key_claim(while_active, TASK, f"k{turn}", PAYLOAD)
                (old,) = await dead(hand, new_jobs(1, key=key))
                acted, answers = await asyncio.gather(
                    hand.act([old], RetryJobs()), producer.enqueue(new_jobs(1, key=key))
                )
                is_back = acted[0].after == READY
                assert is_back is not answers[0].created
                assert answers[0].id == old or not is_back
                live = await hand.count(Query(states=(READY,)))
                assert live.jobs == 1
                await hand.act([old, answers[0].id], CancelJobs())

    asyncio.run(main())


def test_moving_there_and_back_loses_none(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    """While others claim and cancel; and nobody had to be told to try again."""

    async def main() -> None:
        async with stores(grounds, 4) as (one, two, hand, worker):
            ids = [job.id for job in new_jobs(JOBS)]
            await one.enqueue([NewJob(i, LANE, 4, TASK, PAYLOAD) for i in ids])
            number = await worker.register(info(), 60.0)

            async def to_and_fro(store: PostgresStore, lane: str, to: str) -> None:
                for _ in range(TURNS):
                    await move_waiting(store, lane, to, 20)

            _, _, claimed, acted = await asyncio.gather(
                to_and_fro(one, LANE, "shop:b"),
                to_and_fro(two, "shop:b", LANE),
                claim(worker, number, 20),
                hand.act(ids[-20:], CancelJobs()),
            )
            states = Counter((await hand.states(ids)).values())
            ended = sum(a.after == CANCELLED for a in acted)
            assert states[CANCELLED] == ended
            assert states[RUNNING] == len(claimed)
            assert sum(states.values()) == JOBS
            counts = await count_jobs(hand, "shop")
            assert sum(lane.get(READY, 0) for lane in counts.values()) == states[READY]

    asyncio.run(main())
    assert "deadlock detected" not in postgres.said()
