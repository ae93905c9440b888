"""Jobs that are due, on a real server: many at once, and under an old snapshot."""

import asyncio
from collections.abc import Awaitable, Callable

from durio.host.clock import HostClock
from durio.model.job import NewJob
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.postgres.exchange import PROMOTED_MAX
from durio.stores.postgres.store import PostgresStore
from durio.stores.postgres.watermarks import DueWatermarks
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, TASK, info

clock = HostClock()
EVER = 10 * PROMOTED_MAX


def play(
    grounds: ScratchSchema, story: Callable[[PostgresStore, int], Awaitable[None]]
) -> None:
    """With a store, and a worker that has registered."""

    async def main() -> None:
        store = PostgresStore(grounds.location, clock)
        await store.open()
        try:
            await story(store, await store.register(info(), 60.0))
        finally:
            await store.close()

    asyncio.run(main())


async def plan(store: PostgresStore, count: int, *, seconds: float = 0.2) -> None:
    """Schedule jobs and wait until they are due; `seconds` must be enough to store them."""
    run_at = clock.now() + seconds
    news = [
        NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD, run_at=run_at)
        for _ in range(count)
    ]
    await store.enqueue(news)
    while clock.now() < run_at:
        await clock.sleep(0.05)


def test_more_than_are_promoted_at_once_keep_nobody_waiting(
    grounds: ScratchSchema,
) -> None:
    """What is left is due, and nobody holds it."""

    async def story(store: PostgresStore, worker: int) -> None:
        await plan(store, PROMOTED_MAX + 500, seconds=2.0)
        lanes = [Lane(LANE, EVER)]
        first = await store.exchange(worker, [], lanes, EVER)
        second = await store.exchange(worker, [], lanes, EVER)
        assert (len(first.claims), len(second.claims)) == (PROMOTED_MAX, 500)
        assert store.context.process.held_lanes == {}

    play(grounds, story)


def test_slow_looks_for_what_is_due_miss_nothing(grounds: ScratchSchema) -> None:
    """A process that begins its looks late finds what is due, also from before that."""

    async def story(store: PostgresStore, worker: int) -> None:
        looks = store.context.process.due_watermarks = DueWatermarks(
            clock, slow_seconds=-1.0
        )
        lanes, seen = [Lane(LANE, EVER)], 0
        outcomes: list[Outcome] = []
        for _ in range(5):
            await plan(store, 100)
            while seen < 100:
                answer = await store.exchange(worker, outcomes, lanes, EVER)
                outcomes = [
                    Outcome(claim.id, claim.claim_no, OutcomeKind.DONE, b"1")
                    for claim in answer.claims
                ]
                seen += len(outcomes)
            seen = 0
        assert looks.is_engaged
        assert looks.empty_at.keys() == {LANE}

    play(grounds, story)
