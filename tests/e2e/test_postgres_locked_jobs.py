"""Hands reach for jobs that somebody holds: those are waited for last, and by nobody else.

A caller's transaction with a key holds the waiting job that answers it, for as long as it
lasts. What is asked for the other jobs is done meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from durio import App
from durio.client.bulk import BulkStep
from durio.errors import StoreUnavailable
from durio.model.job import CANCELLED, READY, RUNNING, SCHEDULED, NewJob
from durio.model.keys import KeyPolicy, debounce, key_claim, while_waiting
from durio.model.keys import replace as rewritten
from durio.ports.browse import Query
from durio.ports.control import Acted, AuditNote, CancelJobs
from durio.ports.exchange import Lane
from durio.stores.postgres.store import PostgresStore
from tests.bulk_actions import bulk_steps, run_bulk
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, SHOP, TASK, info
from tests.e2e.open_transaction import clock, open_transaction, opened
from tests.servers.postgres import PostgresServer

POLICIES = {
    "while_waiting": while_waiting,
    "replace": rewritten,
    "debounce": debounce(60.0),
}
HOLD = "select 1 from durio.ready where id = $1::uuid for update"


@dataclass
class Scene:
    """A store for hands, one to look on, and a stranger in a transaction."""

    operator: PostgresStore
    other: PostgresStore
    caller: Any

    async def three(self, policy: KeyPolicy = while_waiting) -> list[bytes]:
        """Jobs that wait; the second of them answers the stranger."""
        jobs = [job(), job(policy), job()]
        assert all(told.created for told in await self.other.enqueue(jobs))
        (told,) = await self.other.enqueue([job(policy)], tx=self.caller)
        assert (told.id, told.created) == (jobs[1].id, False)
        return [each.id for each in jobs]

    async def until(self, ids: list[bytes], state: int) -> None:
        """All of these are in that state."""
        while set((await self.other.states(ids)).values()) != {state}:
            await clock.sleep(0.01)

    async def cancels(self, query: Query, mark: str) -> int:
        """A bulk action with all its steps."""
        return (await run_bulk(self.operator, query, CancelJobs(), mark)).jobs

    async def written(self) -> list[int]:
        """How many jobs each line of the audit is about, the oldest first."""
        return [line.jobs for line in await self.other.audit(SHOP, limit=10)][::-1]


Story = Callable[[Scene], Awaitable[None]]


def play(grounds: ScratchSchema, story: Story, *, call_seconds: float = 30.0) -> None:
    async def main() -> None:
        place = replace(grounds.location, call_seconds=call_seconds)
        async with (
            opened(place) as hand,
            opened(grounds.location) as other,
            open_transaction(grounds.url) as stranger,
        ):
            await story(Scene(hand, other, stranger))

    asyncio.run(main())


def job(policy: KeyPolicy | None = None) -> NewJob:
    if policy is None:
        return NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD)
    claim = key_claim(policy, TASK, "k", PAYLOAD)
    delay = claim.delay_seconds
    return NewJob(
        clock.new_id(), LANE, 4, TASK, PAYLOAD, delay_seconds=delay, key=claim
    )


@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cancel_by_id_does_the_others_first(
    grounds: ScratchSchema, policy: str, ends: str
) -> None:
    async def story(scene: Scene) -> None:
        first, held, third = ids = await scene.three(POLICIES[policy])
        (before,) = (await scene.other.states([held])).values()
        call = asyncio.ensure_future(
            scene.operator.act(ids, CancelJobs(), note=AuditNote(who="kim"))
        )
        await scene.until([first, third], CANCELLED)
        assert await scene.other.states([held]) == {held: before}
        assert not call.done()
        await scene.caller.execute(ends)
        expected = [(first, READY), (held, before), (third, READY)]
        assert await call == [Acted(*each, CANCELLED) for each in expected]
        await scene.until(ids, CANCELLED)
        assert await scene.written() == [2, 1]

    play(grounds, story)


def test_one_that_is_never_free_is_left_as_it_is(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        first, held, third = ids = await scene.three()
        twice = [*ids, held]  # answered twice, and the call ends
        acted = await scene.operator.act(twice, CancelJobs(), note=AuditNote(who="kim"))
        states = [CANCELLED, READY, CANCELLED, READY]
        assert [one.id for one in acted] == twice
        assert [(one.before, one.after) for one in acted] == [
            (READY, state) for state in states
        ]
        found = await scene.other.states(ids)
        assert found == {first: CANCELLED, held: READY, third: CANCELLED}
        assert await scene.written() == [2, 0, 0]

    play(grounds, story, call_seconds=0.5)


def test_whoever_cancels_one_that_is_never_free_is_told(
    grounds: ScratchSchema, postgres: PostgresServer
) -> None:
    async def story(scene: Scene) -> None:
        _, held, _ = await scene.three()
        async with App(postgres.url(call_timeout="0.5"), name=SHOP) as app:
            with pytest.raises(StoreUnavailable, match="an open transaction holds it"):
                await (await app.job(str(UUID(bytes=held)))).cancel()

    play(grounds, story)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bulk_cancel_passes_it_over(grounds: ScratchSchema, policy: str) -> None:
    async def story(scene: Scene) -> None:
        query = Query(lane=LANE, states=(SCHEDULED, READY, RUNNING))
        first, held, third = await scene.three(POLICIES[policy])
        (before,) = (await scene.other.states([held])).values()
        counted = await scene.operator.count(query)
        assert counted.jobs == 3
        assert await scene.cancels(query, counted.mark) == 2
        found = await scene.other.states([first, held, third])
        assert found == {first: CANCELLED, held: before, third: CANCELLED}
        assert await scene.written() == [2]
        await scene.caller.execute("commit")
        assert await scene.cancels(query, counted.mark) == 1
        assert await scene.other.states([held]) == {held: CANCELLED}

    play(grounds, story)


@pytest.mark.parametrize("then", [READY, RUNNING])
def test_a_bulk_cancel_meets_again_what_was_held_for_a_moment(
    grounds: ScratchSchema, then: int
) -> None:
    """As by a worker that chooses jobs: it takes one, or it does not."""

    async def story(scene: Scene) -> None:
        hand, other, query = scene.operator, scene.other, Query(lane=LANE)
        ids = [told.id for told in await other.enqueue([job(), job(), job()])]
        held = ids[1]
        worker = await other.register(info(), 60.0)
        mark = (await hand.count(query)).mark
        await scene.caller.fetch(HOLD, UUID(bytes=held))
        steps = bulk_steps(hand, query, CancelJobs(), mark)
        assert await anext(steps) == BulkStep(2, 0)
        await scene.caller.execute("rollback")
        if then == RUNNING:
            told = await other.exchange(worker, [], [Lane(LANE, 9)], 9)
            assert [claim.id for claim in told.claims] == [held]
        assert [step async for step in steps] == [BulkStep(1)]
        assert await scene.cancels(query, mark) == 0
        after = CANCELLED if then == READY else RUNNING
        assert await other.states([held]) == {held: after}
        assert await scene.written() == [3]

    play(grounds, story)
